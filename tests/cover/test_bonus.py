"""The elliptical bonus: the whitening, its three forms, and what a cover does to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg.cover.bonus import bonus_of_form, quadratic_form, ridge_of, whitening

RNG = np.random.default_rng(0)
both_ways = pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
compiled_form = jax.jit(quadratic_form)


def random_covariance(rank, dim=6, seed=0):
    directions = np.random.default_rng(seed).normal(size=(dim, rank))
    return directions @ directions.T


@pytest.mark.parametrize("rank", [0, 1, 4, 6])
@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0])
def test_the_whitening_is_a_root_of_the_inverse(rank, ridge):
    sigma = random_covariance(rank)
    whiten = whitening(sigma, ridge)
    assert whiten.dtype == np.float64
    inverse = np.linalg.inv(sigma + ridge * np.eye(6))
    np.testing.assert_allclose(whiten @ whiten.T, inverse, rtol=1e-6, atol=1e-9 / ridge)


@both_ways
def test_the_form_is_the_quadratic_form_of_the_inverse(how):
    sigma = random_covariance(4)
    phi = RNG.normal(size=(3, 5, 6)).astype(np.float32)
    inverse = np.linalg.inv(sigma + 0.01 * np.eye(6))
    expected = np.einsum("...i,ij,...j->...", phi.astype(np.float64), inverse, phi.astype(np.float64))
    form = how(quadratic_form)(phi, whitening(sigma, 0.01).astype(np.float32))
    np.testing.assert_allclose(form, expected, rtol=1e-4)


def test_the_form_of_tabular_features_is_one_over_the_count_plus_lambda():
    counts, ridge = np.array([0.0, 0.5, 3.0, 7.25]), 0.1
    form = compiled_form(np.eye(4, dtype=np.float32), whitening(np.diag(counts), ridge).astype(np.float32))
    np.testing.assert_allclose(form, 1 / (counts + ridge), rtol=1e-5)


@both_ways
def test_the_three_forms_are_the_form_its_root_and_an_indicator(how):
    form = jnp.float32([0.0, 0.25, 1.0, 4.0])
    np.testing.assert_array_equal(how(lambda form: bonus_of_form(form, "quadratic"))(form), form)
    np.testing.assert_allclose(how(lambda form: bonus_of_form(form, "root"))(form), [0, 0.5, 1, 2])
    indicator = how(lambda form: bonus_of_form(form, "indicator", beta=1.0, gamma=0.9))(form)
    np.testing.assert_allclose(indicator, [0, 0, 10, 10], rtol=1e-6)  # unknown at beta itself, as in the paper


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(0, 6), ridge=st.floats(1e-6, 1.0), scale=st.floats(1e-3, 1e3))
def test_the_form_is_finite_and_never_negative_however_ill_conditioned(seed, rank, ridge, scale):
    phi = scale * np.random.default_rng(seed).normal(size=(7, 6)).astype(np.float32)
    whiten = whitening(random_covariance(rank, seed=seed), ridge).astype(np.float32)
    form = np.asarray(compiled_form(phi.astype(np.float32), whiten))
    assert np.all(np.isfinite(form))
    assert np.all(form >= 0)


def test_a_policy_that_covers_a_direction_lowers_the_bonus_there_and_raises_it_nowhere():
    before = random_covariance(3)
    direction = RNG.normal(size=6)
    direction /= np.linalg.norm(direction)
    after = before + np.outer(direction, direction)
    phi = np.concatenate([[direction], RNG.normal(size=(50, 6))]).astype(np.float32)
    old, new = (np.asarray(compiled_form(phi, whitening(sigma, 0.1).astype(np.float32))) for sigma in (before, after))
    # Sherman-Morrison along the direction: f / (1 + f).
    np.testing.assert_allclose(new[0], old[0] / (1 + old[0]), rtol=1e-4)
    assert np.all(new <= old * (1 + 1e-5))


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("nan")])
def test_a_ridge_that_is_not_positive_is_refused(ridge):
    with pytest.raises(ValueError, match=f"ridge must be positive, got {ridge}"):
        whitening(np.eye(2), ridge)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_covariance_that_is_not_finite_is_refused(value):
    sigma = np.eye(2)
    sigma[0, 1] = value
    with pytest.raises(ValueError, match="the covariance of the cover contains a non-finite value"):
        whitening(sigma, 0.1)


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_form_is_refused_with_the_valid_ones():
    with pytest.raises(ValueError, match="unknown form of the bonus 'rot'; valid: indicator, quadratic, root"):
        bonus_of_form(np.ones(1), "rot")


def test_the_form_is_computed_at_full_precision_on_every_device():
    with jax.default_matmul_precision("tensorfloat32"):
        program = jax.make_jaxpr(quadratic_form)(np.ones((4, 6), np.float32), np.eye(6, dtype=np.float32))
    products = [equation for equation in program.jaxpr.eqns if equation.primitive.name == "dot_general"]
    highest = jax.lax.Precision.HIGHEST
    assert [product.params["precision"] for product in products] == [(highest, highest)]


def test_a_covariance_that_rounding_made_slightly_indefinite_is_taken_at_its_nonnegative_part():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    values = np.array([1.0, 0.5, 0.1, 0.0, 0.0, -3e-6])
    sigma = (basis * values) @ basis.T
    whiten = whitening(sigma, 1e-6)
    expected = (basis / (np.maximum(values, 0.0) + 1e-6)) @ basis.T
    np.testing.assert_allclose(whiten @ whiten.T, expected, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_with_a_ridge_relative_to_the_features_the_bonus_does_not_depend_on_their_scale(scale: float) -> None:
    phi = np.random.default_rng(0).standard_normal((50, 4)) * np.array([1.0, 1.0, 0.1, 0.0])
    forms = []
    for features in (phi, scale * phi):
        sigma = features.T @ features / len(features)
        ridge = ridge_of(sigma[None], "features", 1e-4)
        unseen = np.sqrt(np.trace(sigma)) * np.eye(4)[3:]  # as long as the others, in a direction nobody has seen
        pairs = np.concatenate([features, unseen]).astype(np.float32)
        forms.append(quadratic_form(pairs, whitening(sigma, ridge).astype(np.float32)))
    np.testing.assert_allclose(forms[0], forms[1], rtol=1e-4)
    assert float(forms[0][-1]) == pytest.approx(1e4, rel=1e-4), "what is new is paid at most 1 / ridge"
