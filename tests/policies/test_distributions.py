"""Action distributions against scipy: densities, entropies and the frequencies of what is sampled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete
from pcpg.policies.distributions import categorical, for_space, gaussian, num_outputs

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(scale=3, size=(40, 7)).astype(np.float32)
MEANS, LOG_STDS = RNG.normal(size=(2, 40, 3)).astype(np.float32)
NORMAL_OUTPUTS = np.concatenate([MEANS, LOG_STDS], axis=-1)
BOX = Box(-1.0, 2.0, (3,))
CATEGORICAL, GAUSSIAN = categorical(7), gaussian(BOX)
KEY = jax.random.key(1)
random_log_prob = jax.jit(GAUSSIAN.random_log_prob)


def eager(function):
    return function


both_ways = pytest.mark.parametrize("how", [eager, jax.jit], ids=["eager", "jit"])


@both_ways
def test_categorical_log_probabilities_are_those_of_a_softmax(how):
    actions = RNG.integers(7, size=40).astype(np.int32)
    expected = special.log_softmax(LOGITS.astype(np.float64), axis=-1)[np.arange(40), actions]
    np.testing.assert_allclose(how(CATEGORICAL.log_prob)(LOGITS, actions), expected, rtol=1e-5, atol=1e-5)


@both_ways
def test_categorical_entropy_agrees_with_scipy(how):
    expected = stats.entropy(special.softmax(LOGITS.astype(np.float64), axis=-1), axis=-1)
    np.testing.assert_allclose(how(CATEGORICAL.entropy)(LOGITS), expected, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_a_categorical_log_probability_is_the_unit_vector_minus_the_probabilities():
    gradient = jax.jit(jax.grad(CATEGORICAL.log_prob))(LOGITS[0], np.int32(4))
    expected = np.eye(7)[4] - special.softmax(LOGITS[0].astype(np.float64))
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@both_ways
def test_gaussian_log_densities_agree_with_scipy(how):
    actions = RNG.normal(size=(40, 3)).astype(np.float32)
    expected = stats.norm(MEANS, np.exp(LOG_STDS)).logpdf(actions).sum(axis=-1)
    np.testing.assert_allclose(how(GAUSSIAN.log_prob)(NORMAL_OUTPUTS, actions), expected, rtol=1e-4, atol=1e-4)


@both_ways
def test_gaussian_entropy_agrees_with_scipy(how):
    expected = stats.norm(MEANS, np.exp(LOG_STDS)).entropy().sum(axis=-1)
    np.testing.assert_allclose(how(GAUSSIAN.entropy)(NORMAL_OUTPUTS), expected, rtol=1e-5, atol=1e-5)


def test_categorical_actions_occur_as_often_as_their_probabilities_say():
    logits = np.array([[0.3, -1.0, 2.0, 0.5], [0.0, 0.0, -3.0, 1.0]], np.float32)
    draws = np.asarray(jax.jit(categorical(4).sample)(KEY, np.broadcast_to(logits[:, None], (2, 20_000, 4))))
    assert draws.dtype == np.int32
    for row, row_logits in zip(draws, logits, strict=True):
        expected = 20_000 * special.softmax(row_logits.astype(np.float64))
        assert stats.chisquare(np.bincount(row, minlength=4), expected).pvalue > 0.01


def test_gaussian_actions_are_distributed_as_their_parameters_say():
    outputs = np.array([0.5, -2.0, 0.0, -1.0, 0.5, 0.0], np.float32)
    draws = np.asarray(jax.jit(GAUSSIAN.sample)(KEY, np.broadcast_to(outputs, (10_000, 6))))
    assert draws.shape == (10_000, 3)
    for i in range(3):
        assert stats.kstest(draws[:, i], stats.norm(outputs[i], np.exp(outputs[3 + i])).cdf).pvalue > 0.01
    # Independent components: the correlation of 10,000 pairs has standard deviation 0.01.
    assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.04


def test_two_keys_give_two_samples_and_one_key_gives_one():
    sample = jax.jit(lambda seed: CATEGORICAL.sample(jax.random.key(seed), jnp.zeros((64, 7))))
    first, again, other = (np.asarray(sample(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_at_extreme_logits_only_actions_with_probability_are_sampled():
    logits = np.outer([1e2, 1e5, 1e30], [-1, 0, 1, 1, -1]).astype(np.float32)
    draws = np.asarray(jax.jit(categorical(5).sample)(KEY, np.broadcast_to(logits[:, None], (3, 5_000, 5))))
    assert [set(row.tolist()) for row in draws] == [{2, 3}] * 3


@pytest.mark.parametrize("point", [0.0, 1 - 2**-24, 1.0])
def test_the_ends_of_the_unit_interval_give_an_action_of_the_space(monkeypatch, point):
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, *rest: jnp.full(shape, point, jnp.float32))
    draws = np.asarray(CATEGORICAL.sample(KEY, LOGITS))
    assert np.all(draws == (0 if point == 0.0 else 6))


@both_ways
def test_the_mode_is_the_most_probable_action(how):
    modes = how(CATEGORICAL.mode)(LOGITS)
    assert modes.dtype == jnp.int32
    np.testing.assert_array_equal(modes, LOGITS.argmax(axis=-1))
    np.testing.assert_array_equal(how(GAUSSIAN.mode)(NORMAL_OUTPUTS), MEANS)


def test_random_discrete_actions_are_uniform_and_know_it():
    draws = np.asarray(jax.jit(lambda key: CATEGORICAL.random(key, (14_000,)))(KEY))
    assert draws.dtype == np.int32
    assert stats.chisquare(np.bincount(draws, minlength=7)).pvalue > 0.01
    log_prob = np.asarray(CATEGORICAL.random_log_prob(draws))
    assert log_prob.shape == draws.shape
    np.testing.assert_allclose(log_prob, np.log(1 / 7), rtol=1e-6)


def test_random_continuous_actions_are_uniform_over_the_box_and_know_it():
    draws = np.asarray(jax.jit(lambda key: GAUSSIAN.random(key, (5_000,)))(KEY))
    assert draws.shape == (5_000, 3)
    for column in draws.T:
        assert stats.kstest(column, stats.uniform(-1.0, 3.0).cdf).pvalue > 0.01
    expected = stats.uniform(-1.0, 3.0).logpdf(draws).sum(axis=-1)
    np.testing.assert_allclose(random_log_prob(draws), expected, rtol=1e-6)


def test_the_uniform_density_is_zero_outside_the_box():
    actions = np.float32([[-1.0, 2.0, 0.0], [-1.0, 2.0, 2.001], [-1.5, 0.0, 0.0]])
    np.testing.assert_allclose(random_log_prob(actions), [-3 * np.log(3), -np.inf, -np.inf], rtol=1e-6)


def test_the_environment_sees_actions_clipped_to_its_box():
    actions = np.float32([[-7.0, 0.25, 2.5], [-1.0, 2.0, 1e30]])
    np.testing.assert_array_equal(GAUSSIAN.to_env(actions), np.float32([[-1.0, 0.25, 2.0], [-1.0, 2.0, 2.0]]))
    np.testing.assert_array_equal(CATEGORICAL.to_env(np.int32([0, 6])), [0, 6])


def test_the_distribution_and_the_number_of_outputs_follow_from_the_space():
    assert num_outputs(Discrete(4)) == 4
    assert num_outputs(BOX) == 3
    for space, outputs, actions in ((Discrete(4), 4, (2,)), (BOX, 6, (2, 3))):
        sampled = jax.eval_shape(for_space(space).sample, KEY, np.zeros((2, outputs), np.float32))
        assert sampled.shape == actions


def test_spaces_without_a_distribution_are_refused():
    with pytest.raises(ValueError, match="actions must be Discrete, MultiDiscrete or Box, got Image"):
        for_space(Image(4, 4, 3))
    with pytest.raises(ValueError, match=r"continuous actions must be vectors, got shape \(2, 2\)"):
        for_space(Box(0.0, 1.0, (2, 2)))


def test_a_factored_policy_is_a_product_of_softmaxes():
    sizes = (2, 3)
    distribution = for_space(MultiDiscrete(sizes))
    outputs = jnp.asarray(np.random.default_rng(0).normal(size=(5,)), jnp.float32)
    pairs = jnp.asarray([(i, j) for i in range(2) for j in range(3)], jnp.int32)
    log_probs = distribution.log_prob(jnp.broadcast_to(outputs, (6, 5)), pairs)
    first, second = np.exp(outputs[:2]), np.exp(outputs[2:])
    expected = np.outer(first / first.sum(), second / second.sum()).reshape(-1)
    np.testing.assert_allclose(np.exp(log_probs), expected, rtol=1e-5)
    np.testing.assert_allclose(distribution.entropy(outputs), -np.sum(expected * np.log(expected)), rtol=1e-5)
    samples = np.asarray(distribution.sample(jax.random.key(0), jnp.broadcast_to(outputs, (20000, 5))))
    counts = np.bincount(samples[:, 0] * 3 + samples[:, 1], minlength=6) / 20000
    np.testing.assert_allclose(counts, expected, atol=0.02)
    np.testing.assert_array_equal(distribution.mode(outputs), [np.argmax(first), np.argmax(second)])
    random = distribution.random(jax.random.key(1), (1000,))
    assert random.shape == (1000, 2) and {tuple(row) for row in np.asarray(random).tolist()} == set(
        map(tuple, np.asarray(pairs).tolist())
    )
    np.testing.assert_allclose(distribution.random_log_prob(random[0]), -np.log(6), rtol=1e-6)
