"""The bonus over pairs: a count where observations are told apart, the kernel's posterior variance elsewhere."""

import numpy as np
import pytest

from pcpg.cover.design import d_optimal
from pcpg.cover.landmarks import extend_landmarks, no_landmarks
from pcpg.cover.pairs import diagonal_design, pair_bonuses, pair_covariances, pair_roots

FAR = 20.0 * np.eye(4, dtype=np.float32)
MARKS = extend_landmarks(no_landmarks(np.ones(4), 8), FAR[:3], np.ones(3, bool), tol=0.1)


def bonuses(counts):
    sigmas = pair_covariances(MARKS.phi(FAR), np.float32(counts))
    return np.asarray(pair_bonuses(MARKS.phi(FAR), pair_roots(sigmas)))


def test_the_bonus_is_one_over_one_plus_the_visits_of_a_pair():
    counts = np.array([[0, 1, 3, 0], [9, 0, 99, 0]])
    found = bonuses(counts)
    np.testing.assert_allclose(found[:3], 1 / (1 + counts.T[:3]), rtol=1e-4)


def test_far_from_all_landmarks_every_action_is_worth_one():
    np.testing.assert_allclose(bonuses(np.full((2, 4), 50.0))[3], 1.0, atol=1e-5)


def test_the_form_is_that_of_the_inverse_computed_in_double_precision():
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(30, 6)).astype(np.float32) / 5
    weights = rng.integers(0, 5, (3, 30)).astype(np.float32)
    found = np.asarray(pair_bonuses(phi, pair_roots(pair_covariances(phi, weights))))
    exact = phi.astype(float)
    for action in range(3):
        sigma = (exact * weights[action][:, None]).T @ exact + np.eye(6)
        form = np.einsum("ni,ij,nj->n", exact, np.linalg.inv(sigma), exact)
        np.testing.assert_allclose(found[:, action], form + 1 - (exact**2).sum(1), rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_diagonal_design_is_the_d_optimal_one_of_diagonal_covariances(seed):
    visits = np.random.default_rng(seed).dirichlet(np.full(6, 0.3), size=8)
    ours = diagonal_design(visits, 1e-3, "d-optimal", iterations=5000)
    exact = d_optimal(np.stack([np.diag(row) for row in visits]), ridge=1e-3)
    assert exact.log_det - ours.log_det <= ours.gap + 1e-9
    np.testing.assert_allclose(ours.log_det, exact.log_det, atol=2e-3)
    np.testing.assert_allclose(ours.weights.sum(), 1.0, rtol=1e-9)


def test_uniform_weights_are_what_they_say_and_no_member_has_no_weights():
    design = diagonal_design(np.eye(4)[:3], 1e-3, "uniform")
    np.testing.assert_array_equal(design.weights, np.full(3, 1 / 3))
    assert diagonal_design(np.zeros((0, 4)), 1e-3, "d-optimal").weights.shape == (0,)
