"""The parts of a certificate against linear algebra in full."""

import numpy as np
import pytest

from pcpg_theory import certificate, critic


@pytest.mark.parametrize("labels", [False, True])
def test_norms_of_a_certificate_are_those_of_the_covariance(labels: bool) -> None:
    rng = np.random.default_rng(0)
    phi = np.eye(12).reshape(4, 3, 12) if labels else rng.normal(size=(4, 3, 5))
    phi = phi if labels else np.concatenate([phi, phi[..., :1] + phi[..., 1:2]], axis=-1)  # a direction of its own
    rho = rng.dirichlet(np.ones(12)).reshape(4, 3)
    sigma = np.einsum("sa,sai,saj->ij", rho, phi, phi)
    factor = critic.factorise(phi, rho, critic.partition_labels(phi))
    for _ in range(5):
        x = rng.normal(size=phi.shape[-1])
        assert certificate.weighted_square(factor, x) == pytest.approx(x @ sigma @ x)
        inverse = np.linalg.pinv(sigma, rcond=1e-9)
        assert certificate.dual_norm(factor, x) == pytest.approx(np.sqrt(x @ inverse @ x))
        np.testing.assert_allclose(certificate.outside(factor, x), x - inverse @ sigma @ x, atol=1e-9)
