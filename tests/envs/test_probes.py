"""Probe environments: what they promise is what they play."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import probes


def play(env: Any, actions: list, seed: int = 0) -> tuple[list, list, list]:
    """Observations, rewards and (terminated, truncated) of an episode that takes `actions`."""
    key, *keys = jax.random.split(jax.random.key(seed), len(actions) + 1)
    observation, state = env.reset(key, ())
    observations, rewards, ends = [observation.tolist()], [], []
    for key, action in zip(keys, actions, strict=True):
        moved = env.transition(key, state, jnp.asarray(action), ())
        state = moved.state
        observations.append(moved.observation.tolist())
        rewards.append(float(moved.reward))
        ends.append((bool(moved.terminated), bool(moved.truncated)))
    return observations, rewards, ends


@pytest.mark.parametrize("action", [0, 1])
def test_one_step_pays_one_and_ends(action: int):
    assert play(probes.OneStep(), [action]) == ([[1.0], [0.0]], [1.0], [(True, False)])


def test_two_states_pay_their_observation_and_both_occur():
    episodes = [play(probes.TwoStates(), [0], seed) for seed in range(12)]
    assert {observations[0][0] for observations, _, _ in episodes} == {-1.0, 1.0}
    assert all(rewards == observations[0] for observations, rewards, _ in episodes)
    assert all(ends == [(True, False)] for _, _, ends in episodes)


def test_delayed_pays_at_the_second_decision_for_the_first():
    seen = set()
    for seed in range(12):
        for first in (0, 1):
            for second in (0, 1):
                observations, rewards, ends = play(probes.Delayed(), [first, second], seed)
                cue = observations[0][0]
                matched = (first == 1) == (cue == 1.0)
                assert observations == [[cue, 0.0], [1.0 if matched else -1.0, 1.0], [0.0, 0.0]]
                assert rewards == [0.0, float(matched)]
                assert ends == [(False, False), (True, False)]
                seen.add((cue, first, second))
    assert len(seen) == 8


def test_truncation_is_cut_by_the_clock_and_looks_the_same_to_the_end():
    observations, rewards, ends = play(probes.Truncation(limit=3), [0, 1, 0])
    assert observations == [[1.0]] * 4
    assert rewards == [1.0] * 3
    assert ends == [(False, False), (False, False), (False, True)]


def test_only_action_one_pays():
    assert [play(probes.Action(), [action])[1] for action in (0, 1)] == [[0.0], [1.0]]


def test_the_continuous_probe_is_a_parabola_with_its_top_at_one_half():
    rewards = [play(probes.Continuous(), [np.float32([action])])[1][0] for action in (-1.0, 0.0, 0.5, 1.0)]
    assert rewards == pytest.approx([-2.25, -0.25, 0.0, -0.25])


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_non_finite_fails_after_its_finite_steps_and_only_where_it_says(where: Any):
    observations, rewards, ends = play(probes.NonFinite(finite_steps=2, where=where), [0, 0, 0])
    expected_rewards = [1.0, 1.0, float("nan") if where == "reward" else 1.0]
    expected_last = float("nan") if where == "observation" else 0.0
    np.testing.assert_equal(rewards, expected_rewards)
    np.testing.assert_equal(observations, [[1.0], [1.0], [1.0], [expected_last]])
    assert ends == [(False, False), (False, False), (True, False)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: probes.Truncation(limit=0), "limit must be at least 1, got 0"),
        (lambda: probes.NonFinite(finite_steps=-1), "finite_steps must be at least 0, got -1"),
        (lambda: probes.NonFinite(where="loss"), "where must be 'reward' or 'observation', got 'loss'"),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
