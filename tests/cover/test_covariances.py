"""The covariance of features against NumPy in float64."""

import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from pcpg.cover.bonus import covariance

PHI = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
both_ways = pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])


@both_ways
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_covariance_is_the_mean_of_the_outer_products_of_the_masked_pairs(how, share):
    mask = np.random.default_rng(1).random(200) <= share
    chosen = PHI[mask].astype(np.float64)
    expected = chosen.T @ chosen / len(chosen)
    np.testing.assert_allclose(how(covariance)(PHI, mask), expected, rtol=1e-5, atol=1e-6)


def test_tabular_features_give_the_frequencies_of_the_pairs():
    visits = [0, 0, 0, 2, 2, 1, 3, 3]
    mask = np.array([True] * 6 + [False] * 2)
    sigma = covariance(np.eye(4, dtype=np.float32)[visits], mask)
    np.testing.assert_allclose(sigma, np.diag([3 / 6, 1 / 6, 2 / 6, 0]), rtol=1e-6)


@pytest.mark.parametrize("intruder", [np.nan, np.inf])
def test_what_is_masked_may_hold_anything(intruder):
    mask = np.arange(200) < 150
    phi = np.where(mask[:, None], PHI, np.float32(intruder))
    np.testing.assert_array_equal(covariance(phi, mask), covariance(PHI, mask))


def test_nothing_seen_gives_a_covariance_of_zero():
    np.testing.assert_array_equal(covariance(PHI, np.zeros(200, bool)), np.zeros((6, 6)))


def test_a_value_that_is_not_finite_is_not_hidden():
    phi = PHI.copy()
    phi[3, 2] = np.nan
    assert np.isnan(np.asarray(covariance(phi, np.ones(200, bool)))).any()


def products(jaxpr):
    """The precision of every matrix product of a program, those of its inner programs included."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found.append(equation.params["precision"])
        for inner in jaxprs_in_params(equation.params):
            found += products(inner)
    return found


def test_the_covariance_is_computed_at_full_precision_on_every_device():
    # Even where the user has asked for less elsewhere: on a GPU the default, TF32, has 10 bits.
    with jax.default_matmul_precision("tensorfloat32"):
        program = jax.make_jaxpr(covariance)(PHI, np.ones(200, bool))
    highest = jax.lax.Precision.HIGHEST
    assert products(program.jaxpr) == [(highest, highest)]
