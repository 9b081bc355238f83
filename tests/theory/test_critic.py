"""The critic is the exact constrained minimiser, for dense, one-hot, sparse and badly scaled weights."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg_theory import critic


def problem(seed, pairs=30, dim=5, decades=2.0):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(pairs, 1, dim)) / 4
    weights = 10.0 ** rng.uniform(-decades, 0, size=(pairs, 1))
    return phi, weights / weights.sum(), rng.normal(size=(pairs, 1)) * 3


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.1, 1.0, 5.0, np.inf]))
def test_constrained_least_squares_agrees_with_cvxpy(seed, W):
    phi, weights, y = problem(seed)
    theta = critic.least_squares(critic.factorise(phi, weights), y, W)
    variable = cp.Variable(5)
    residual = cp.multiply(np.sqrt(weights.ravel()), phi[:, 0] @ variable - y.ravel())
    constraints = [] if np.isinf(W) else [cp.norm(variable) <= W]
    cp.Problem(cp.Minimize(cp.sum_squares(residual)), constraints).solve(solver=cp.CLARABEL)
    ours, theirs = (critic.loss(phi, weights, y, t) for t in (theta, variable.value))
    assert np.linalg.norm(theta) <= W * (1 + 1e-12)
    assert ours <= theirs * (1 + 1e-7) + 1e-12


def test_among_minimisers_the_one_of_least_norm_is_returned():
    phi = np.zeros((3, 1, 4))
    phi[:, 0, :2] = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    theta = critic.least_squares(critic.factorise(phi, np.ones((3, 1)) / 3), np.array([[1.0], [2.0], [3.0]]))
    np.testing.assert_allclose(theta, [1.0, 2.0, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("W", [0.5, np.inf])
def test_the_diagonal_path_for_one_hot_features_gives_what_the_dense_path_gives(W):
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=(8, 3))
    phi = np.eye(7)[labels]  # label 6 never occurs
    weights, y = rng.dirichlet(np.ones(24)).reshape(8, 3), rng.normal(size=(8, 3))
    found = critic.partition_labels(phi)
    assert found is not None and critic.partition_labels(phi / 2) is None
    dense = critic.least_squares(critic.factorise(phi, weights), y, W)
    np.testing.assert_allclose(critic.least_squares(critic.factorise(phi, weights, found), y, W), dense, atol=1e-10)


def test_weights_over_twelve_decades_do_not_spoil_the_fit_but_normal_equations_do():
    rng = np.random.default_rng(1)
    phi, truth = rng.normal(size=(60, 1, 6)), rng.normal(size=6)
    phi[:, 0, 3:] *= (np.arange(60) >= 50)[:, None]  # the last features live on light pairs only
    weights = np.where(np.arange(60) < 50, 1.0, 1e-18)[:, None]
    y = phi @ truth
    theta = critic.least_squares(critic.factorise(phi, weights), y)
    np.testing.assert_allclose(theta, truth, rtol=1e-5)
    X = phi[:, 0] * np.sqrt(weights)
    ridge_free = np.linalg.lstsq(X.T @ X, X.T @ (np.sqrt(weights) * y).ravel(), rcond=None)[0]
    assert np.abs(ridge_free - truth).max() > 0.1


def test_pairs_without_weight_do_not_matter():
    phi, weights, y = problem(3)
    weights = weights.copy()
    weights[10:] = 0.0
    few = critic.least_squares(critic.factorise(phi[:10], weights[:10]), y[:10])
    np.testing.assert_allclose(critic.least_squares(critic.factorise(phi, weights), y), few, atol=1e-10)


def test_sgd_with_a_practical_step_comes_near_least_squares():
    rng = np.random.default_rng(5)
    x = rng.dirichlet(np.ones(4), size=(3, 20_000))
    truth = np.array([1.0, -0.5, 0.3, 0.8])
    y = x @ truth + 0.1 * rng.normal(size=x.shape[:2])
    theta = critic.projected_sgd(x, y, W=2.0, step=0.5)
    np.testing.assert_allclose(theta, np.tile(truth, (3, 1)), atol=0.05)
