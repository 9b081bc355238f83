"""Advantages by hand, by a plain-Python reference, and at the two ends of lambda."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pcpg.learners.update import gae, normalise

STEPS, ENVS = 5, 3
REWARDS, VALUES, NEXT_VALUES = np.float32([1, 2, 3]), np.float32([0.5, 1, 1.5]), np.float32([1, 1.5, 2])
both_ways = pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])


@jax.jit
def compiled_gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    return gae(rewards, values, next_values, terminated, truncated, gamma=gamma, gae_lambda=lam)


def reference(rewards, values, next_values, terminated, truncated, gamma, lam):
    """A_t = sum_l (gamma lam)^l delta_{t+l} up to the end of the episode, term by term."""
    advantages = np.zeros(rewards.shape)
    for env in range(rewards.shape[1]):
        for t in range(len(rewards)):
            factor = 1.0
            for s in range(t, len(rewards)):
                follows = 0.0 if terminated[s, env] else float(next_values[s, env])
                advantages[t, env] += factor * (float(rewards[s, env]) + gamma * follows - float(values[s, env]))
                if terminated[s, env] or truncated[s, env]:
                    break
                factor *= gamma * lam
    return advantages


@both_ways
@pytest.mark.parametrize(
    ("terminated", "truncated", "advantages", "targets"),
    [
        # deltas 1, 1.75, 2.5; gamma lam = 1/4
        ([0, 0, 0], [0, 0, 0], [1.59375, 2.375, 2.5], [2.09375, 3.375, 4.0]),
        # the second delta loses its bootstrap, and nothing comes back over the end
        ([0, 1, 0], [0, 0, 0], [1.25, 1.0, 2.5], [1.75, 2.0, 4.0]),
        # the second delta keeps its bootstrap, and nothing comes back over the cut
        ([0, 0, 0], [0, 1, 0], [1.4375, 1.75, 2.5], [1.9375, 2.75, 4.0]),
        # where both are set the task has ended
        ([0, 1, 0], [0, 1, 0], [1.25, 1.0, 2.5], [1.75, 2.0, 4.0]),
    ],
    ids=["going on", "terminated", "truncated", "both"],
)
def test_advantages_and_targets_are_those_computed_by_hand(how, terminated, truncated, advantages, targets):
    function = how(functools.partial(gae, gamma=0.5, gae_lambda=0.5))
    result = function(REWARDS, VALUES, NEXT_VALUES, np.array(terminated, bool), np.array(truncated, bool))
    np.testing.assert_allclose(result[0], advantages, rtol=1e-6)
    np.testing.assert_allclose(result[1], targets, rtol=1e-6)


def floats():
    return hnp.arrays(np.float32, (STEPS, ENVS), elements=st.floats(-10, 10, width=32))


def ends():
    return hnp.arrays(np.bool_, (STEPS, ENVS))


unit = st.floats(0, 1, width=32).map(np.float32)


@settings(max_examples=60, deadline=None)
@given(floats(), floats(), floats(), ends(), ends(), unit, unit)
def test_advantages_are_the_sum_of_discounted_errors_of_the_definition(
    rewards, values, next_values, terminated, truncated, gamma, lam
):
    arguments = (rewards, values, next_values, terminated, truncated, gamma, lam)
    advantages, targets = compiled_gae(*arguments)
    expected = reference(*arguments[:5], float(gamma), float(lam))
    np.testing.assert_allclose(advantages, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(targets, expected + values, rtol=1e-4, atol=1e-3)


def random_episodes():
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, STEPS, ENVS)).astype(np.float32)
    last = rng.normal(size=(1, ENVS)).astype(np.float32)
    return rewards, values, np.concatenate([values[1:], last])


def test_with_lambda_one_the_target_is_the_discounted_return():
    rewards, values, next_values = random_episodes()
    terminated = np.zeros((STEPS, ENVS), bool)
    terminated[-1] = True
    targets = compiled_gae(rewards, values, next_values, terminated, np.zeros_like(terminated), 0.9, 1.0)[1]
    for t in range(STEPS):
        returns = sum(0.9 ** (s - t) * rewards[s].astype(np.float64) for s in range(t, STEPS))
        np.testing.assert_allclose(targets[t], returns, rtol=1e-4, atol=1e-5)


def test_with_lambda_one_a_truncated_return_goes_on_with_the_last_value():
    rewards, values, next_values = random_episodes()
    truncated = np.zeros((STEPS, ENVS), bool)
    truncated[-1] = True
    targets = compiled_gae(rewards, values, next_values, np.zeros_like(truncated), truncated, 0.9, 1.0)[1]
    returns = sum(0.9**s * rewards[s].astype(np.float64) for s in range(STEPS)) + 0.9**STEPS * next_values[-1]
    np.testing.assert_allclose(targets[0], returns, rtol=1e-4, atol=1e-5)


def test_with_lambda_zero_the_advantage_is_the_one_step_error():
    rewards, values, next_values = random_episodes()
    never = np.zeros((STEPS, ENVS), bool)
    advantages = compiled_gae(rewards, values, next_values, never, never, 0.9, 0.0)[0]
    np.testing.assert_allclose(advantages, rewards + 0.9 * next_values - values, rtol=1e-4, atol=1e-5)


ADVANTAGES, MASK = np.float32([1, 2, 3, 100]), np.array([True, True, True, False])
compiled_normalise = jax.jit(normalise)


@both_ways
@pytest.mark.parametrize(
    ("floor", "expected"),
    [
        (0.0, [-np.sqrt(1.5), 0, np.sqrt(1.5), 0]),  # standard deviation sqrt(2/3)
        (0.5, [-np.sqrt(1.5), 0, np.sqrt(1.5), 0]),
        (2.0, [-0.5, 0, 0.5, 0]),
    ],
)
def test_advantages_are_divided_by_their_deviation_or_by_the_floor_whichever_is_larger(how, floor, expected):
    np.testing.assert_allclose(how(normalise)(ADVANTAGES, MASK, floor), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("intruder", [np.nan, np.inf, 1e30])
def test_what_is_masked_never_enters_the_normaliser(intruder):
    advantages = np.where(MASK, ADVANTAGES, np.float32(intruder))
    np.testing.assert_array_equal(compiled_normalise(advantages, MASK, 0.0), compiled_normalise(ADVANTAGES, MASK, 0.0))


def test_equal_advantages_and_an_empty_mask_give_zeros():
    equal = np.full(4, 7, np.float32)
    np.testing.assert_array_equal(compiled_normalise(equal, np.ones(4, bool), 0.0), np.zeros(4))
    np.testing.assert_array_equal(compiled_normalise(ADVANTAGES, np.zeros(4, bool), 0.0), np.zeros(4))
