"""Kernels, and the dual forms of bonus and critic against the primal ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as other

from pcpg_theory import critic, exact
from pcpg_theory.kernel import RBF, DualCover, DualRegression, Indicator, Linear, Product

seeds = st.integers(0, 2**31)


def points(seed, count, dim=3):
    return np.random.default_rng(seed).normal(size=(count, dim)) / 2


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RBF(0.7), other.RBF(0.7)),
        (Linear(), other.DotProduct(0.0)),
    ],
    ids=str,
)
def test_kernels_agree_with_scikit_learn(ours, theirs):
    x, y = points(0, 6), points(1, 5)
    np.testing.assert_allclose(ours(x, y), theirs(x, y), atol=1e-12)
    np.testing.assert_allclose(ours.diagonal(x), np.diag(ours(x, x)), atol=1e-12)


def test_a_product_kernel_multiplies_state_and_action():
    kernel = Product(RBF(0.5), Indicator(), split=2)
    x = np.array([[0.0, 0.0, 1.0], [0.5, 0.0, 1.0], [0.5, 0.0, 2.0]])
    np.testing.assert_allclose(kernel(x, x), [[1, np.exp(-0.5), 0], [np.exp(-0.5), 1, 0], [0, 0, 1]], atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(x), 1.0)


def test_distances_far_from_the_origin_keep_their_digits():
    x = points(2, 20) + 1e6
    np.testing.assert_allclose(RBF(0.5)(x, x), RBF(0.5)(x - 1e6, x - 1e6), atol=1e-8)


@pytest.mark.parametrize("bad", [lambda: RBF(0.0), lambda: Product(RBF(), RBF(), 0)])
def test_kernels_out_of_range_are_refused(bad, unchecked):
    with pytest.raises(ValueError, match="must be"):
        bad()
    with pytest.raises(ValueError, match="points"):
        RBF()(np.zeros(3), np.zeros((2, 3)))


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([1e-3, 1.0]), st.sampled_from([1, 3, 7]))
def test_with_the_linear_kernel_the_dual_bonus_equals_the_primal_one(seed, ridge, blocks):
    x, queries = points(seed, 40), points(seed + 1, 15)
    weights = np.random.default_rng(seed).random(40) / 10
    dual = DualCover(Linear(), ridge)
    for part in np.array_split(np.arange(40), blocks):  # added block by block
        dual.extend(x[part], weights[part])
    sigma = (x.T * weights) @ x + ridge * np.eye(3)
    primal = exact.form(queries[:, None], sigma)[:, 0]
    np.testing.assert_allclose(dual.form(queries, block=4), primal, rtol=1e-8, atol=1e-8)
    assert dual.information_gain() == pytest.approx(np.linalg.slogdet(sigma / ridge)[1], abs=1e-8)


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([0.05, 0.5, np.inf]))
def test_with_the_linear_kernel_the_dual_critic_equals_the_primal_one(seed, W):
    rng = np.random.default_rng(seed)
    x, y, weights, queries = points(seed, 30), rng.normal(size=30), rng.dirichlet(np.ones(30)), points(seed + 1, 10)
    theta = critic.least_squares(critic.factorise(x[:, None], weights[:, None]), y, W)
    dual = DualRegression(Linear(), x, weights).fit(y, W)
    np.testing.assert_allclose(dual(queries), queries @ theta, atol=1e-8)
    assert dual.norm == pytest.approx(np.linalg.norm(theta), abs=1e-8) and dual.norm <= W * (1 + 1e-9)


def test_an_empty_cover_knows_nothing_and_visits_lower_the_form():
    dual, queries = DualCover(RBF(0.5), 0.1), points(0, 8)
    np.testing.assert_allclose(dual.form(queries), 10.0)
    dual.extend(queries[:1], np.ones(1))
    after = dual.form(queries)
    assert after[0] == pytest.approx(1 / 1.1) and (after <= 10.0 + 1e-9).all()
    with pytest.raises(ValueError, match="weights"):
        dual.extend(queries, -np.ones(8))
    with pytest.raises(ValueError, match="ridge"):
        DualCover(RBF(), 0.0)
