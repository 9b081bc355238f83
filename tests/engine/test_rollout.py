"""Rollouts: who acts when, what is recorded, and what happens after the end of an episode."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from pcpg.cover.cover import RollIn
from pcpg.engine.rollout import rollout
from pcpg.envs.mountain_car import MountainCarContinuous, MountainCarParams
from pcpg.envs.protocol import CellGrid, Environment, Step
from pcpg.envs.spaces import Box, Discrete
from pcpg.policies.distributions import for_space
from pcpg.policies.networks import init_actor_critic
from tests import probes

LIMIT, EPISODES, ACTIONS = 5, 64, 4


class Clock(NamedTuple):
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Stopwatch(Environment[tuple[()], Clock]):
    """Action 3 terminates, the clock truncates after LIMIT decisions; after the end its clock would go on.

    The observation is (time, 1), the reward 10 * time + action, the cell the time.
    """

    @property
    def observation_space(self):
        return Box(0.0, 100.0, (2,))

    @property
    def action_space(self):
        return Discrete(ACTIONS)

    @property
    def max_steps(self):
        return LIMIT

    @property
    def cells(self):
        return CellGrid(("panel",), ("row",), tuple(map(str, range(LIMIT))))

    def instance(self, seed):
        return ()

    def reset(self, key, params):
        state = Clock(jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def transition(self, key, state, action, params):
        moved = Clock(state.time + 1)
        reward = 10.0 * state.time + action
        terminated = action == 3
        return Step(self.observe(moved), moved, reward, terminated, (moved.time >= LIMIT) & ~terminated, {})

    def observe(self, state):
        return jnp.stack([state.time.astype(jnp.float32), jnp.ones(())])

    def cell(self, state):
        return state.time


ENV = Stopwatch()
DISTRIBUTION = for_space(ENV.action_space)


def network(seed=0, env=ENV):
    rng = np.random.default_rng(seed)
    return init_actor_critic(rng, env.observation_space, env.action_space, hidden=(16,), shared_body=True)


def always(action):
    """A policy that takes one action, whatever it sees."""
    zero = jax.tree.map(np.zeros_like, network())
    head = dataclasses.replace(zero.actor_head, bias=np.float32(200 * np.eye(ACTIONS)[action]))
    return dataclasses.replace(zero, actor_head=head)


def tilted(seed):
    """A policy that is far from uniform and depends on what it sees."""
    policy = network(seed)
    return dataclasses.replace(policy, actor_head=jax.tree.map(lambda leaf: 100 * leaf, policy.actor_head))


@functools.partial(jax.jit, static_argnames=("greedy", "autoreset"))
def play(seed, policy, roll_in=None, epsilon=0.0, greedy=False, autoreset=False):
    key, options = jax.random.key(seed), {"num_episodes": EPISODES, "greedy": greedy, "autoreset": autoreset}
    return rollout(ENV, (), policy, DISTRIBUTION, key, roll_in=roll_in, epsilon=epsilon, **options)


def played(*args, **kwargs):
    return jax.device_get(play(*args, **kwargs))


def log_softmax(policy, observations):
    """Log-probabilities of all actions, by NumPy."""
    x = observations.astype(np.float64)
    for layer in policy.actor_body.layers:
        x = np.maximum(x @ layer.weight + layer.bias, 0.0)
    return special.log_softmax(x @ policy.actor_head.weight + policy.actor_head.bias, axis=-1)


def chosen(log_probs, actions):
    return np.take_along_axis(log_probs, actions[..., None], axis=-1)[..., 0]


@pytest.fixture(scope="module")
def alone():
    """A nearly uniform policy on its own: episodes of all lengths."""
    return played(0, network())


def lengths_of(data):
    return data.alive.sum(axis=0)


def test_an_episode_is_alive_up_to_its_end_and_never_after(alone):
    ended = alone.terminated | alone.truncated
    for episode in range(EPISODES):
        stop = np.flatnonzero(alone.actions[:, episode] == 3)
        length = min(stop[0] + 1 if len(stop) else LIMIT, LIMIT)
        np.testing.assert_array_equal(alone.alive[:, episode], np.arange(LIMIT) < length)
        np.testing.assert_array_equal(ended[:, episode], np.arange(LIMIT) == length - 1)
        by_action = bool(alone.actions[length - 1, episode] == 3)
        assert (alone.terminated[length - 1, episode], alone.truncated[length - 1, episode]) == (
            by_action,
            not by_action,
        )
    assert set(lengths_of(alone)) == {1, 2, 3, 4, 5}


def test_without_roll_in_all_steps_that_are_alive_are_the_policy_s_own(alone):
    np.testing.assert_array_equal(alone.own, alone.alive)


def test_after_the_end_the_final_observation_stays_although_the_environment_would_go_on(alone):
    assert alone.observations.shape == (LIMIT + 1, EPISODES, 2)
    expected = np.minimum(np.arange(LIMIT + 1)[:, None], lengths_of(alone))
    np.testing.assert_array_equal(alone.observations[..., 0], expected)


def test_rewards_are_the_environment_s_up_to_the_end_and_zero_after(alone):
    times = np.arange(LIMIT)[:, None]
    np.testing.assert_array_equal(alone.rewards, np.where(alone.alive, 10 * times + alone.actions, 0))


def test_cells_are_those_of_the_states_acted_in_and_nowhere_after_the_end(alone):
    times = np.broadcast_to(np.arange(LIMIT)[:, None], alone.cells.shape)
    np.testing.assert_array_equal(alone.cells, np.where(alone.alive, times, -1))


def test_recorded_log_probabilities_are_those_of_the_policy():
    policy = tilted(1)
    data = played(1, policy)
    expected = chosen(log_softmax(policy, data.observations[:-1]), data.actions)
    assert np.ptp(expected[data.alive]) > 0.5
    np.testing.assert_allclose(data.log_probs[data.alive], expected[data.alive], rtol=1e-4, atol=1e-5)


def test_actions_are_sampled_from_the_policy_anew_in_each_episode_and_step():
    data = played(2, network())
    assert stats.chisquare(np.bincount(data.actions[:3].reshape(-1), minlength=ACTIONS)).pvalue > 0.01
    assert len({tuple(column) for column in data.actions.T}) > EPISODES // 2


def test_a_greedy_rollout_takes_the_mode():
    policy = tilted(3)
    data = played(0, policy, greedy=True)
    np.testing.assert_array_equal(data.actions, log_softmax(policy, data.observations[:-1]).argmax(axis=-1))
    assert (data.actions == data.actions[:, :1]).all()


# With autoreset one episode follows another.


@pytest.fixture(scope="module")
def filled():
    """The same policy with autoreset."""
    return played(0, network(), autoreset=True)


def ended(data):
    return data.terminated | data.truncated


def test_with_autoreset_every_place_is_filled_and_a_new_episode_begins_where_one_ended(filled):
    assert filled.alive.all() and filled.own.all()
    times = filled.observations[..., 0]
    assert (times[0] == 0).all()
    np.testing.assert_array_equal(times[1:], np.where(ended(filled), 0, times[:-1] + 1))
    np.testing.assert_array_equal(filled.rewards, 10 * times[:-1] + filled.actions)
    np.testing.assert_array_equal(filled.cells, times[:-1])
    assert ended(filled).sum(axis=0).max() > 2


def test_with_autoreset_the_observations_that_followed_are_the_true_ones_also_at_an_end(filled):
    assert filled.next_observations.shape == (LIMIT, EPISODES, 2)
    np.testing.assert_array_equal(filled.next_observations[..., 0], filled.observations[:-1, :, 0] + 1)


def test_with_autoreset_a_time_limit_counts_from_the_start_of_the_episode_and_the_last_step_cuts_without_a_mark(filled):
    by_action = filled.actions == 3
    np.testing.assert_array_equal(filled.terminated, by_action)
    np.testing.assert_array_equal(filled.truncated, (filled.observations[:-1, :, 0] == LIMIT - 1) & ~by_action)
    assert not ended(filled)[-1].all() and filled.truncated[-1].any()


def test_with_autoreset_the_first_episode_of_a_place_is_the_one_without(filled, alone):
    assert alone.next_observations is None and alone.ends is None
    for name in ("actions", "log_probs", "rewards", "terminated", "truncated", "cells"):
        one, other = getattr(filled, name), getattr(alone, name)
        np.testing.assert_array_equal(one[alone.alive], other[alone.alive], err_msg=name)
    np.testing.assert_array_equal(filled.following[alone.alive], alone.following[alone.alive])


def test_with_autoreset_every_episode_has_a_start_of_its_own():
    env = MountainCarContinuous(steps=6)
    # Beside the flag the first push forward ends the episode.
    params = MountainCarParams(np.float32([0.45, 0.5]))
    policy, key = network(env=env), jax.random.key(0)
    run = jax.jit(
        lambda key: rollout(env, params, policy, for_space(env.action_space), key, num_episodes=32, autoreset=True)
    )
    data = jax.device_get(run(key))
    starts = [data.observations[0, :, 0], data.observations[1:][ended(data)][:, 0]]
    positions = np.concatenate(starts)
    assert len(starts[1]) > 32 and len(set(positions.tolist())) == len(positions)
    assert positions.min() >= np.float32(0.45) and positions.max() <= 0.5


def test_with_autoreset_nothing_can_be_rolled_in():
    with pytest.raises(ValueError, match="with autoreset no episode can be rolled in"):
        play(0, always(0), roll_in_with(*[always(1)] * GROUPS), autoreset=True)


GROUPS = 4
LENGTHS = np.arange(EPISODES, dtype=np.int32) % LIMIT  # 0 .. LIMIT - 1 in every group
OWN_TURN = np.arange(LIMIT)[:, None] >= LENGTHS
FIRST_OWN = np.arange(LIMIT)[:, None] == LENGTHS


def roll_in_with(*policies):
    assert len(policies) == GROUPS
    return RollIn(jax.tree.map(lambda *leaves: np.stack(leaves), *policies), LENGTHS)


def test_the_cover_s_policy_of_the_group_acts_for_the_length_and_the_own_policy_after():
    data = played(0, always(0), roll_in_with(always(1), always(2), always(1), always(1)), np.float32(1e-6))
    group = np.arange(EPISODES) // (EPISODES // GROUPS)
    np.testing.assert_array_equal(data.actions, np.where(OWN_TURN, 0, np.array([1, 2, 1, 1])[group]))
    np.testing.assert_array_equal(data.own, OWN_TURN)
    assert data.alive.all()


def test_an_episode_that_ends_during_the_roll_in_has_no_own_step():
    data = played(0, always(0), roll_in_with(*[always(3)] * GROUPS), np.float32(1e-6))
    np.testing.assert_array_equal(lengths_of(data), np.where(LENGTHS > 0, 1, LIMIT))
    np.testing.assert_array_equal(data.own, data.alive & OWN_TURN)
    assert not data.own[:, LENGTHS > 0].any()


def test_only_the_first_own_step_is_random_with_probability_epsilon():
    rolls = [played(seed, always(0), roll_in_with(*[always(1)] * GROUPS), np.float32(0.5)) for seed in range(8)]
    actions = np.concatenate([data.actions for data in rolls], axis=1)
    first, own = np.tile(FIRST_OWN, 8), np.tile(OWN_TURN, 8)
    assert (actions[own & ~first] == 0).all()
    assert (actions[~own] == 1).all()
    counts = np.bincount(actions[first], minlength=ACTIONS)
    assert stats.chisquare(counts, counts.sum() * np.array([0.625, 0.125, 0.125, 0.125])).pvalue > 0.01


def test_recorded_log_probabilities_are_those_of_whoever_chose_and_mixed_at_the_first_own_step():
    own, cover, epsilon = tilted(1), [tilted(seed) for seed in (2, 3, 4, 5)], 0.3
    data = played(0, own, roll_in_with(*cover), np.float32(epsilon))
    observations = data.observations[:-1]
    by_own = log_softmax(own, observations)
    by_cover = np.concatenate(
        [log_softmax(p, part) for p, part in zip(cover, np.split(observations, GROUPS, axis=1), strict=True)], axis=1
    )
    plain = chosen(np.where(OWN_TURN[..., None], by_own, by_cover), data.actions)
    mixed = np.log((1 - epsilon) * np.exp(plain) + epsilon / ACTIONS)
    expected = np.where(FIRST_OWN, mixed, plain)
    np.testing.assert_allclose(data.log_probs[data.alive], expected[data.alive], rtol=1e-4, atol=1e-5)


def test_continuous_actions_are_recorded_as_sampled_and_clipped_for_the_environment():
    env = probes.Continuous()

    @jax.jit
    def run(policy, key):
        return rollout(env, (), policy, for_space(env.action_space), key, num_episodes=256)

    policy = network(env=env)
    data = jax.device_get(run(policy, jax.random.key(0)))
    actions = data.actions[0, :, 0]
    assert actions.min() < -1.0 and actions.max() > 1.0
    np.testing.assert_allclose(data.rewards[0], -((np.clip(actions, -1, 1) - 0.5) ** 2), rtol=1e-5, atol=1e-6)
    mean = np.asarray(policy.outputs(np.ones((1, 1), np.float32)))[0, 0]
    np.testing.assert_allclose(data.log_probs[0], stats.norm(mean, 1).logpdf(actions), rtol=1e-4, atol=1e-5)
    assert (data.cells == -1).all()  # the probe has no cells
