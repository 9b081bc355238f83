"""Random Fourier features against scikit-learn's sampler and the exact kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics.pairwise import rbf_kernel

from pcpg.envs.mountain_car import MountainCarContinuous
from pcpg.features import make_features
from pcpg.features.examples import fit_inputs
from pcpg.features.fourier import draw_fourier, median_distance

CAR = MountainCarContinuous()
PAIRS = CAR.examples(np.random.default_rng(3), 200)


@jax.jit
def features_of(phi, observations, actions):
    return phi.batch(observations, actions)


def scaled(pairs):
    """The pairs' input vectors, from the definition."""
    x = np.hstack(pairs).astype(np.float64)
    return (x - x.mean(0)) / x.std(0)


@pytest.mark.parametrize("bandwidth", [0.7, None])
def test_products_of_features_approach_the_exact_kernel(bandwidth):
    phi = make_features("fourier", CAR, 0, num_features=20_000, bandwidth=bandwidth, pairs=PAIRS)
    x = scaled(PAIRS)[:40]
    features = np.asarray(features_of(phi, PAIRS[0][:40], PAIRS[1][:40]), np.float64)
    h = np.median(pdist(scaled(PAIRS))) if bandwidth is None else bandwidth
    error = features @ features.T - rbf_kernel(x, gamma=1 / (2 * h**2))
    # Each entry is a mean of 20,000 terms within [-2, 2]: its deviation is below 1 / sqrt(20,000) = 0.007.
    assert np.abs(error).max() < 5 / np.sqrt(20_000)
    assert np.abs(error.mean()) < 0.004


def test_estimates_of_the_kernel_are_distributed_as_scikit_learn_s():
    h, num_features, draws = 1.3, 10, 1500
    x = np.random.default_rng(0).standard_normal((2, 3))

    def ours(seed):
        weights, offsets = draw_fourier(np.random.default_rng(seed), 3, num_features, h)
        features = np.sqrt(2 / num_features) * np.cos(x @ weights + offsets)
        return features[0] @ features[1]

    def theirs(seed):
        sampler = RBFSampler(gamma=1 / (2 * h**2), n_components=num_features, random_state=seed)
        features = sampler.fit_transform(x)
        return features[0] @ features[1]

    a, b = ([f(seed) for seed in range(draws)] for f in (ours, theirs))
    assert stats.ks_2samp(a, b).pvalue > 0.01
    exact = rbf_kernel(x, gamma=1 / (2 * h**2))[0, 1]
    assert abs(np.mean(a) - exact) < 4 * np.std(a) / np.sqrt(draws)


def test_weights_are_normal_with_the_inverse_bandwidth_and_offsets_uniform():
    weights, offsets = draw_fourier(np.random.default_rng(0), 4, 2000, 2.5)
    assert weights.shape == (4, 2000) and weights.dtype == offsets.dtype == np.float32
    assert stats.kstest(weights.ravel() * 2.5, "norm").pvalue > 0.01
    assert stats.kstest(offsets / (2 * np.pi), "uniform").pvalue > 0.01


def test_the_median_heuristic_is_the_median_of_distances_between_different_rows():
    x = np.random.default_rng(0).standard_normal((100, 3))
    assert median_distance(x) == pytest.approx(np.median(pdist(x)))
    assert median_distance(np.vstack([x] * 2)) == pytest.approx(np.median(pdist(x)))
    with pytest.raises(ValueError, match="at least two different"):
        median_distance(np.ones((5, 2)))


def test_inputs_are_scaled_and_actions_clipped_to_what_the_environment_uses():
    phi = make_features("fourier", CAR, 0, pairs=PAIRS)
    inputs, vectors = fit_inputs(CAR, PAIRS, with_actions=True)
    np.testing.assert_allclose(vectors, scaled(PAIRS), atol=1e-5)
    np.testing.assert_allclose(jax.vmap(inputs)(*PAIRS), vectors, atol=1e-4)
    observation = jnp.asarray(PAIRS[0][0])
    assert np.array_equal(phi(observation, jnp.asarray([7.0])), phi(observation, jnp.asarray([1.0])))
    assert not np.allclose(phi(observation, jnp.asarray([-1.0])), phi(observation, jnp.asarray([1.0])))
    without = make_features("fourier", CAR, 0, pairs=PAIRS, with_actions=False)
    assert np.array_equal(without(observation, jnp.asarray([-1.0])), without(observation, jnp.asarray([1.0])))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"bandwidth": 0.0}, "bandwidth must be positive"),
        ({"num_features": 0}, "num_features must be at least 1"),
        ({"pairs": (np.zeros((5, 3)), np.zeros((5, 1)))}, r"pairs have shapes \(5, 3\)"),
        ({"pairs": (np.full((5, 2), np.nan), np.zeros((5, 1)))}, "must be finite"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_features("fourier", CAR, 0, **options)
