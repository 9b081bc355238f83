"""The certificate of a cover's weights, worked out again from the covariances in the files of the run.

The weights maximise log det M(w), M(w) = sum_i w_i sigma_i + ridge I. With g_i = tr(M^-1 sigma_i) no other weights
can have a log det above that of w by more than max_i g_i - sum_i w_i g_i (Kiefer and Wolfowitz 1960): the gap.
"""

from typing import NamedTuple

import numpy as np

from pcpg.reports.reading import CoverData


class Certificate(NamedTuple):
    """Weights of a cover and how good they provably are."""

    weights: np.ndarray  # [members]
    gains: np.ndarray  # [members]: g
    log_det: float

    @property
    def level(self) -> float:
        """sum_i w_i g_i."""
        return float(self.weights @ self.gains)

    @property
    def gap(self) -> float:
        """In nats; 0 for weights that cannot be bettered."""
        return max(0.0, float(self.gains.max()) - self.level)


def certify(cover: CoverData, ridge: float) -> Certificate:
    """The certificate of a cover's weights."""
    mixture = np.tensordot(cover.weights, cover.sigmas, 1) + ridge * np.eye(cover.sigmas.shape[1])
    values, vectors = np.linalg.eigh(mixture)
    # The diagonal of V' sigma_i V over the eigenvalues: no inverse is formed.
    turned = np.einsum("ak,iab,bk->ik", vectors, cover.sigmas, vectors, optimize=True)
    safe = np.maximum(values, np.finfo(float).tiny)
    return Certificate(cover.weights, (turned / safe).sum(axis=1), float(np.log(safe).sum()))
