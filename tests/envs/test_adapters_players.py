"""What is asked of the resets and rewards of other people's environments."""

import functools
import os
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv
from pcpg.envs.adapters.players import PlainPlayers, VectorPlayers
from pcpg.envs.adapters.spaces import actions_of, observations_of

OBSERVED = spaces.Box(0.0, 1.0, (2,))


class Given(gymnasium.Env):
    """Returns the results it was given."""

    observation_space = OBSERVED
    action_space = spaces.Discrete(2)

    def __init__(self, reset: Any = None, reward: Any = 1.0, terminated: Any = True) -> None:
        self.result, self.reward, self.terminated = reset, reward, terminated

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.result

    def step(self, action: Any) -> Any:
        return np.ones(2), self.reward, self.terminated, False, {}


class GivenVector(VectorEnv):
    """Two environments that return the results they were given."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    num_envs = 2
    observation_space = spaces.Box(0.0, 1.0, (2, 2))

    def __init__(self, reset: Any = None, reward: Any = (1.0, 2.0)) -> None:
        self.result, self.reward = reset, reward

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        return self.result

    def step(self, actions: Any) -> Any:
        return np.ones((2, 2)), self.reward, np.ones(2, bool), np.zeros(2, bool), {}


def plain(**given: Any) -> PlainPlayers:
    return PlainPlayers([Given(**given)], observations_of(OBSERVED), actions_of(spaces.Discrete(2)))


def vector(**given: Any) -> VectorPlayers:
    return VectorPlayers(GivenVector(**given), observations_of(OBSERVED), actions_of(spaces.Discrete(2)))


@pytest.mark.parametrize("result", [np.zeros(3), (np.zeros(2), {}, 0), None])
@pytest.mark.parametrize("players", [plain, vector])
def test_a_reset_must_return_an_observation_and_a_dict(players: Any, result: Any):
    with pytest.raises(ValueError, match="reset must return an observation and a dict"):
        players(reset=result).reset([0])


@pytest.mark.parametrize("players", [plain, vector])
def test_a_reset_that_returns_only_an_observation_of_two_entries_is_refused(players: Any):
    with pytest.raises(ValueError, match="reset must return an observation and a dict, got ndarray of length 2"):
        players(reset=np.zeros(2)).reset([0])


@pytest.mark.parametrize("reward", [2, 2.0, np.float32(2), np.array(2), np.array([2.0]), [2.0], np.array([[2]])])
def test_a_reward_may_come_as_an_array_with_one_entry(reward: Any):
    moved = plain(reward=reward, terminated=np.array([True])).step(np.array([0]), np.ones(1, bool))
    assert moved.rewards.tolist() == [2.0] and moved.terminated.tolist() == [True]


@pytest.mark.parametrize("reward", [np.zeros(2), [], None, "1"])
def test_a_reward_must_be_one_number(reward: Any):
    with pytest.raises(ValueError, match="a reward must be one number, got "):
        plain(reward=reward).step(np.array([0]), np.ones(1, bool))


def test_rewards_of_a_vector_are_one_number_for_each_environment():
    for reward in ([1.0, 2.0], np.array([[1.0], [2.0]])):
        assert vector(reward=reward).step(np.array([0, 1]), np.ones(2, bool)).rewards.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"rewards must be 2 numbers, one per environment, got shape \(3,\)"):
        vector(reward=np.zeros(3)).step(np.array([0, 1]), np.ones(2, bool))


def test_a_worker_leaves_an_interruption_to_the_process_that_trains():
    env = GymnasiumEnv("CartPole", functools.partial(gymnasium.make, "CartPole-v1"), workers=1)
    players: Any = env.players
    players.reset([3])  # it has begun to play
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(players._workers[0].process.pid, signum)
    assert players.reset([3]).shape == (1, 4), "it still plays"
    env.close()
