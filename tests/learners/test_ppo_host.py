"""Episodes of environments on the host: who acts, what is recorded, and what is learned from them."""

import functools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from pcpg.cover.cover import RollIn
from pcpg.engine.episodes import play, rollout_of
from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv
from pcpg.envs.gymnasium_bridge import FunctionalEnv
from pcpg.learners.ppo import ImproveInputs, Learner, make_task
from pcpg.learners.ppo_host import HostImprove
from pcpg.learners.settings import PPOConfig
from pcpg.learners.update import init_adam
from pcpg.policies.distributions import for_space
from pcpg.policies.networks import init_actor_critic
from tests import probes

LIMIT = 6


class Stopwatch(gymnasium.Env):
    """Action 2 terminates, the clock truncates after LIMIT decisions; the start comes from the seed.

    The observation is (time, start), the reward 10 * time + action.
    """

    observation_space = spaces.Box(0.0, 100.0, (2,))
    action_space = spaces.Discrete(3)
    max_steps = LIMIT

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.time, self.start = 0, float(self.np_random.uniform())
        return self._observe(), {}

    def step(self, action: int):
        reward = 10.0 * self.time + action
        self.time += 1
        terminated = bool(action == 2)
        return self._observe(), reward, terminated, self.time >= LIMIT and not terminated, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.time, self.start], np.float32)


def policy_for(env, seed: int = 0):
    rng = np.random.default_rng(seed)
    return init_actor_critic(rng, env.observation_space, env.action_space, hidden=(8,), shared_body=True)


def vector_of(make, mode: AutoresetMode, count: int = 4):
    return SyncVectorEnv([make] * count, autoreset_mode=mode)


def in_each_way(make, limit: int = LIMIT) -> dict[str, GymnasiumEnv]:
    """The same environment as single ones and as a vector in each autoreset mode."""
    made = {"single": GymnasiumEnv("single", make, limit, num_envs=4)}
    for mode in AutoresetMode:
        made[mode.name] = GymnasiumEnv(mode.name, functools.partial(vector_of, make, mode), limit)
    return made


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_all_autoreset_modes_play_the_same_episodes():
    played = {
        name: play(env, policy_for(env), np.random.default_rng(3), 30) for name, env in in_each_way(Stopwatch).items()
    }
    first = played["single"]
    assert first.terminated.any() and first.truncated.any()
    assert all(same(first, other) for other in played.values())


def test_episodes_end_with_their_true_last_observation_and_stay_there():
    env = in_each_way(Stopwatch)["SAME_STEP"]
    played = play(env, policy_for(env), np.random.default_rng(3), 10)
    lengths = played.alive.sum(axis=0)
    for episode, length in enumerate(lengths):
        times = played.observations[:, episode, 0]
        np.testing.assert_array_equal(times, np.minimum(np.arange(LIMIT + 1), length))
        over = played.terminated[length - 1, episode] or played.truncated[length - 1, episode]
        assert over and not played.rewards[length:, episode].any()
    assert len(np.unique(played.observations[0, :, 1])) == 10, "every episode has a seed of its own"


def test_episodes_beyond_the_horizon_are_cut_as_truncated():
    env = GymnasiumEnv("short", Stopwatch, 3)
    played = play(env, policy_for(env), np.random.default_rng(0), 8)
    assert env.max_steps == 3 and env.evaluation_env.max_steps == LIMIT
    assert played.alive.shape == (3, 8)
    np.testing.assert_array_equal(played.truncated[2], played.alive[2] & ~played.terminated[2])


def test_the_cover_acts_during_the_roll_in_and_the_policy_after_it():
    env = GymnasiumEnv("single", Stopwatch, num_envs=3)
    choices = [policy_for(env, seed) for seed in range(3)]
    for index, policy in enumerate(choices[:2]):  # members that always take action 0, and 1
        policy.actor_head.bias[:] = np.eye(3)[index] * 100
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *choices[:2])
    roll_in = RollIn(stacked, np.array([0, 2, 3, 1, 4, 5]))
    policy = policy_for(env, 7)
    policy.actor_head.bias[:] = np.eye(3)[2] * 100  # terminates at once
    played = play(env, policy, np.random.default_rng(1), 6, roll_in=roll_in, epsilon=0.0)
    np.testing.assert_array_equal(played.alive.sum(axis=0), np.asarray(roll_in.length) + 1)
    assert (played.actions[:3, 2] == 0).all() and (played.actions[:4, 4] == 1).all()
    data = rollout_of(played, policy, for_space(env.action_space), 0.1)
    own = np.arange(LIMIT)[:, None] == np.asarray(roll_in.length)
    np.testing.assert_array_equal(data.own, own)
    # At the first own step: epsilon uniform, else the policy, which is certain.
    np.testing.assert_allclose(np.asarray(data.log_probs)[own], np.log(0.9 + 0.1 / 3), rtol=1e-5)


def test_epsilon_makes_the_first_own_action_random_and_no_other():
    env = GymnasiumEnv("single", Stopwatch)
    policy = policy_for(env)
    policy.actor_head.bias[:] = np.eye(3)[0] * 100
    stacked = jax.tree.map(lambda leaf: leaf[None], policy)
    length = np.full(64, 2)
    played = play(env, policy, np.random.default_rng(1), 64, roll_in=RollIn(stacked, length), epsilon=1.0)
    assert set(np.unique(played.actions[2])) == {0, 1, 2}
    assert not played.actions[[0, 1, 3, 4, 5]][played.alive[[0, 1, 3, 4, 5]]].any()


def improved(env, config: PPOConfig, rounds: int = 1):
    """The policy after some rounds of PPO on the reward."""
    improve = HostImprove(Learner(env, config), env)
    policy = policy_for(env)
    adam = init_adam((policy, None))
    rate = (config.learning_rate, config.learning_rate)
    task = make_task(
        reward_coef=1.0, bonus_coef=0.0, start_share=1.0, epsilon=0.0, learning_rate=rate, entropy_coef=(0.0, 0.0),
        advantage_floor=0.0,
    )  # fmt: skip
    output: Any = None
    for index in range(rounds):
        inputs = ImproveInputs(np.uint32(1), np.int32(index), (), policy, adam, task, None, None)
        [output] = improve([inputs])
        policy, adam = output.policy, output.adam
    return policy, output, improve


CONFIG = PPOConfig(num_updates=4, num_episodes=8, num_epochs=4, minibatch_size=16, hidden=(8,), gamma=0.5)


def test_training_is_the_same_in_all_autoreset_modes():
    policies = [improved(env, CONFIG)[0] for env in in_each_way(Stopwatch).values()]
    assert all(same(policies[0], other) for other in policies[1:])


@pytest.mark.parametrize("way", ["single", "SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_a_cut_episode_is_valued_as_if_it_went_on_for_ever(way: str):
    probe = probes.Truncation(limit=4)
    env = in_each_way(functools.partial(FunctionalEnv, probe), limit=4)[way]
    config = PPOConfig(num_updates=40, num_episodes=8, num_epochs=8, minibatch_size=32, hidden=(8,), gamma=0.5,
                       learning_rate=2e-2)  # fmt: skip
    policy, output, improve = improved(env, config, rounds=2)
    value = policy.value(jnp.ones((1, 1), jnp.float32))
    np.testing.assert_allclose(value, [1 / (1 - 0.5)], atol=0.05)
    assert int(output.env_steps) == 40 * 8 * 4 and np.asarray(output.finite).all()
    assert sum(program.compilations for program in improve.programs) == 1


def test_replayed_in_the_functional_protocol_the_episodes_are_the_same():
    probe = probes.Delayed()
    env = GymnasiumEnv("bridge", functools.partial(FunctionalEnv, probe), probe.max_steps, num_envs=4)
    played = play(env, policy_for(env), np.random.default_rng(5), 4)
    for episode in range(4):
        state = probes.ProbeState(jnp.int32(0), jnp.asarray(played.observations[0, episode, 0]))
        for t in range(probe.max_steps):
            step = probe.transition(jax.random.key(0), state, jnp.asarray(played.actions[t, episode]), ())
            state = step.state
            np.testing.assert_array_equal(step.observation, played.observations[t + 1, episode])
            assert float(step.reward) == played.rewards[t, episode]
            assert bool(step.terminated) == played.terminated[t, episode]


def test_early_ends_leave_no_room_for_empty_samples():
    env = GymnasiumEnv("single", Stopwatch)
    improve = HostImprove(Learner(env, PPOConfig(num_episodes=16, minibatch_size=4)), env)
    policy = policy_for(env)
    policy.actor_head.bias[:] = np.eye(3)[2] * 100
    played = play(env, policy, np.random.default_rng(0), 16)  # one step each
    assert improve._keep(played) == 24  # a quarter of 16 * 6
    policy.actor_head.bias[:] = np.eye(3)[0] * 100
    assert improve._keep(play(env, policy, np.random.default_rng(0), 16)) == 96


def test_another_process_steps_the_same_episodes():
    env = GymnasiumEnv("here", functools.partial(gymnasium.make, "CartPole-v1"), 20)
    away = GymnasiumEnv("away", functools.partial(gymnasium.make, "CartPole-v1"), 20, workers=2)
    try:
        one, other = (play(e, policy_for(env), np.random.default_rng(0), 4) for e in (env, away))
    finally:
        away.close()
    np.testing.assert_array_equal(one.alive, other.alive)
    np.testing.assert_allclose(one.observations, other.observations, rtol=1e-6)
