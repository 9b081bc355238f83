"""The bonus over pairs: a count where observations are told apart, the kernel's posterior variance elsewhere."""

import jax
import numpy as np
import pytest

from pcpg.cover.design import d_optimal
from pcpg.kernel.landmarks import extend_landmarks, no_landmarks
from pcpg.kernel.pairs import FLOOR, count, diagonal_design, pair_bonuses, pairs_of

FAR = 20.0 * np.eye(4, dtype=np.float32)
MARKS = extend_landmarks(no_landmarks(np.ones(4), 8), FAR[:3], np.ones(3, bool), tol=0.1)


def counted(phi, counts, everywhere=True):
    """The pairs with a count [A, n] entered into no covariance at all."""
    counts = np.asarray(counts, np.float32)
    actions, rows = np.nonzero(counts)
    pairs, place = pairs_of(rows, actions, counts[actions, rows], len(counts))
    eyes = np.broadcast_to(np.eye(np.shape(phi)[1], dtype=np.float32), (len(counts), *[np.shape(phi)[1]] * 2))
    return count(phi, eyes, pairs, everywhere=everywhere), (rows, actions, place)


def bonuses(counts):
    return np.asarray(pair_bonuses(MARKS.phi(FAR), counted(MARKS.phi(FAR), counts)[0].inverses))


def test_the_bonus_is_one_over_one_plus_the_visits_of_a_pair():
    counts = np.array([[0, 1, 3, 0], [9, 0, 99, 0]])
    found = bonuses(counts)
    np.testing.assert_allclose(found[:3], 1 / (1 + counts.T[:3]), rtol=1e-4)


def test_far_from_all_landmarks_every_action_is_worth_one():
    np.testing.assert_allclose(bonuses(np.full((2, 4), 50.0))[3], 1.0, atol=1e-5)


def random_pairs(seed, rows=200):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(rows, 6)).astype(np.float32) / 5
    return phi, rng.integers(0, 5, (3, rows)).astype(np.float32)


def test_the_form_is_that_of_the_inverse_computed_in_double_precision():
    phi, weights = random_pairs(0)
    found = np.asarray(pair_bonuses(phi, counted(phi, weights)[0].inverses))
    exact = phi.astype(float)
    for action in range(3):
        sigma = (exact * weights[action][:, None]).T @ exact + np.eye(6)
        form = np.einsum("ni,ij,nj->n", exact, np.linalg.inv(sigma), exact)
        np.testing.assert_allclose(found[:, action], form + 1 - (exact**2).sum(1), rtol=1e-4)


def test_the_bonus_falls_everywhere_by_what_counting_tells():
    phi, weights = random_pairs(1)
    after, (rows, actions, place) = counted(phi, weights)
    before = np.ones((200, 3), np.float32)
    np.testing.assert_allclose(before - after.fall, pair_bonuses(phi, after.inverses), atol=1e-5)
    np.testing.assert_allclose(np.asarray(after.met)[tuple(place)], before[rows, actions], atol=1e-6)
    assert not np.any(counted(phi, weights, everywhere=False)[0].fall)


def test_pairs_that_are_known_well_are_counted_no_more():
    once, _ = counted(MARKS.phi(FAR), [[1e6, 0, 0, 0]])
    np.testing.assert_allclose(pair_bonuses(MARKS.phi(FAR), once.inverses)[0, 0], FLOOR, rtol=2e-2)
    pairs, _ = pairs_of(np.array([0]), np.array([0]), np.array([5.0]), 1)
    again = count(MARKS.phi(FAR), once.inverses, pairs, everywhere=False)
    np.testing.assert_array_equal(again.inverses, once.inverses)


def test_a_thousand_rounds_of_counting_stay_with_counting_at_once():
    phi, weights = random_pairs(2, rows=60)
    pairs, _ = pairs_of(np.arange(60), np.zeros(60, int), weights[0] / 10, 1)
    enter = jax.jit(lambda inverse: count(phi, inverse, pairs, everywhere=False).inverses)
    inverse = np.eye(6, dtype=np.float32)[None]
    for _ in range(1000):
        inverse = enter(inverse)
    exact = phi.astype(float)
    sigma = (exact * 100 * weights[0][:, None]).T @ exact + np.eye(6)
    form = np.einsum("ni,ij,nj->n", exact, np.linalg.inv(sigma), exact)
    found = np.asarray(pair_bonuses(phi, inverse))[:, 0] - (1 - (exact**2).sum(1))
    np.testing.assert_allclose(found, form, atol=2e-4)


@pytest.mark.parametrize("seed", range(12))
def test_without_weights_to_start_from_the_diagonal_design_is_the_d_optimal_one_within_a_millionth(seed):
    rng = np.random.default_rng(seed)
    size, number, ridge = int(rng.integers(2, 40)), int(rng.integers(1, 60)), float(rng.choice([1e-6, 1e-3, 0.1]))
    visits = rng.dirichlet(np.full(size, rng.choice([0.02, 0.3, 1.0])), size=number)
    visits = np.concatenate([visits, visits[: number // 3]])  # members that visit the same
    ours = diagonal_design(visits, ridge, "d-optimal")
    exact = d_optimal(np.stack([np.diag(row) for row in visits]), ridge=ridge, tol=1e-9)
    unvisited = size - np.any(visits > 0, axis=0).sum()  # d_optimal counts them, with the ridge alone
    assert abs(exact.log_det - unvisited * np.log(ridge) - ours.log_det) < 1e-6
    assert ours.gap < 1e-6 and ours.weights.min() >= 0.0
    np.testing.assert_allclose(ours.weights.sum(), 1.0, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_from_the_weights_before_the_diagonal_design_gets_no_worse_and_its_gap_bounds_what_is_missing(seed):
    rng = np.random.default_rng(seed)
    visits, first = rng.dirichlet(np.full(20, 0.1), size=30), rng.dirichlet(np.ones(30))
    began = 0.99 * first + 0.01 / 30
    ours = diagonal_design(visits, 1e-3, "d-optimal", first=first)
    exact = d_optimal(np.stack([np.diag(row) for row in visits]), ridge=1e-3)
    assert ours.log_det >= np.log(began @ visits[:, visits.any(0)] + 1e-3).sum()
    assert -1e-6 <= exact.log_det - ours.log_det - (20 - visits.any(0).sum()) * np.log(1e-3) <= ours.gap


@pytest.mark.parametrize("kind", ["d-optimal", "uniform"])
def test_the_gap_is_the_largest_slope_of_the_sum_of_logs_less_the_mean_one(kind):
    rng = np.random.default_rng(3)
    visits = rng.dirichlet(np.full(8, 0.3), size=5)
    design = diagonal_design(visits, 1e-3, kind, first=np.full(5, 0.2), iterations=3)
    step, at = 1e-6, design.weights
    slopes = [
        (np.log((at + step * one) @ visits + 1e-3).sum() - np.log((at - step * one) @ visits + 1e-3).sum()) / (2 * step)
        for one in np.eye(5)
    ]
    np.testing.assert_allclose(design.gap, np.max(slopes) - at @ slopes, rtol=1e-4)


def test_uniform_weights_are_what_they_say_and_no_member_has_no_weights():
    design = diagonal_design(np.eye(4)[:3], 1e-3, "uniform")
    np.testing.assert_array_equal(design.weights, np.full(3, 1 / 3))
    assert diagonal_design(np.zeros((0, 4)), 1e-3, "d-optimal").weights.shape == (0,)
