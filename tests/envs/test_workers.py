"""Episodes in other processes, of this machine or of a cluster: the same whoever plays them, and whoever dies."""

import functools
import os
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pcpg.engine.episodes import Played, play
from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv
from pcpg.envs.adapters.names import workers_on
from pcpg.envs.host import EnvironmentFailed
from pcpg.features.examples import host_play
from pcpg.policies.networks import init_actor_critic


class Drift(gymnasium.Env):
    """A walk from a start that the seed draws, whose observations show every bit of the actions."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,))
    action_space = spaces.Box(-1.0, 1.0, (1,))
    max_steps = 12

    def __init__(self, deadly: bool = False) -> None:
        self.deadly = deadly

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.place = self.np_random.standard_normal(3).astype(np.float32)
        self.time = 0
        return self.place, {}

    def step(self, action: np.ndarray):
        self.place = np.sin(self.place * 1.7 + action).astype(np.float32)
        self.time += 1
        if self.deadly and self.time == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.place, float(self.place.sum()), bool(self.place[0] > 0.99), self.time >= self.max_steps, {}


def env_of(workers: int, **options: Any) -> GymnasiumEnv:
    return GymnasiumEnv("drift", functools.partial(Drift, **options), workers=workers)


def played(env: GymnasiumEnv, number: int = 11) -> Played:
    rng = np.random.default_rng(0)
    policy = init_actor_critic(rng, env.observation_space, env.action_space, hidden=(64, 64), shared_body=True)
    return play(env, policy, np.random.default_rng(5), number)


def same(one: Played, other: Played) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True) if a is not None)


@pytest.fixture(scope="module")
def alone() -> Played:
    """What one worker plays."""
    env = env_of(1)
    try:
        return played(env)
    finally:
        env.close()


@pytest.mark.filterwarnings("ignore:worker . died")
def test_episodes_are_the_same_for_every_number_of_workers_and_after_two_were_killed(alone: Played):
    assert alone.terminated.any() and alone.truncated.any() and alone.observations.shape == (13, 11, 3)
    env = env_of(3)
    try:
        assert same(played(env), alone)
        for worker in env.players._workers[:2]:
            os.kill(worker.process.pid, signal.SIGKILL)
        assert same(played(env), alone)
    finally:
        env.close()


def test_episodes_here_and_in_workers_are_the_same_but_for_rounding(alone: Played):
    here = played(env_of(0))
    np.testing.assert_array_equal(here.alive, alone.alive)
    np.testing.assert_allclose(here.observations, alone.observations, atol=1e-4)


def test_the_examples_of_feature_maps_do_not_depend_on_the_number_of_workers():
    found = []
    for workers in (1, 2):
        env = env_of(workers)
        try:
            found.append(host_play(env, np.random.default_rng(0), 50))
        finally:
            env.close()
    for one, other in zip(*found, strict=True):
        assert len(one) >= 50
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore:worker . died")
def test_an_episode_that_kills_every_worker_is_told_with_its_seed():
    env = env_of(2, deadly=True)
    try:
        with pytest.raises(EnvironmentFailed, match=r"twice at the same step \(signal SIGKILL\); episode seed \d+"):
            played(env)
    finally:
        env.close()


def test_workers_are_put_where_the_name_of_a_place_says():
    with pytest.raises(ValueError, match="--on must be local, ray"), workers_on("moon"):
        pass
    with pytest.raises(ValueError, match="nothing answers"), workers_on("ray://127.0.0.1:1"):
        played(env_of(1))


def test_flags_of_workers_need_an_environment_that_has_some(cli):
    for words, said in (
        (("CombinationLock-v0", "--workers", "2"), "is compiled"),
        (("gymnasium:CartPole-v1", "--on", "ray"), "requires a number of workers"),
        (("gymnasium:CartPole-v1", "--workers", "2", "--on", "moon"), "--on must be"),
    ):
        found = cli("train", *words)
        assert found.code == 2 and said in found.err
