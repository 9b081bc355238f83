"""Episodes of Gymnasium environments, one after the other or as a vector environment in any autoreset mode.

An episode is played from its own seed to its end, and the observation after its last step is the true final one:

    DISABLED    the vector gives it, and must be reset before it moves again
    NEXT_STEP   the vector gives it, and spends its next move on a reset
    SAME_STEP   the vector has reset already and keeps it in info["final_obs"]

A vector cannot move some of its environments alone: those whose episode is over play on, and nobody looks.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate

from pcpg.envs.adapters.spaces import Actions, Observations
from pcpg.envs.host import Moved
from pcpg.envs.options import InvalidOption


class PlainPlayers:
    """Single environments, stepped one after the other; ended ones are left alone."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], observations: Observations, actions: Actions) -> None:
        self.envs, self.observations, self.actions = list(envs), observations, actions
        self._seen = np.zeros((len(self.envs), *observations.space.shape), observations.space.dtype)

    @property
    def count(self) -> int:
        return len(self.envs)

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in the first environments."""
        for index, seed in enumerate(seeds):
            self._seen[index] = self.observations.encode(_first(self.envs[index].reset(seed=seed)))
        return self._seen[: len(seeds)]

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move the environments that are alive."""
        decoded = self.actions.decode(actions)
        choices = decoded.tolist() if decoded.ndim == 1 else decoded  # a discrete action is a Python integer
        encode, seen, envs = self.observations.encode, self._seen, self.envs
        outcomes = np.zeros((3, len(actions)))
        for index in np.flatnonzero(alive).tolist():
            observation, reward, terminated, truncated, _ = envs[index].step(choices[index])
            seen[index] = encode(observation)
            outcomes[:, index] = _number(reward), bool(terminated), bool(truncated)
        return Moved(seen[: len(actions)], outcomes[0], outcomes[1] > 0, outcomes[2] > 0)


class VectorPlayers:
    """A vector environment."""

    def __init__(self, vector: VectorEnv[Any, Any, Any], observations: Observations, actions: Actions) -> None:
        self.vector, self.observations, self.actions = vector, observations, actions
        self.mode = autoreset_mode(vector)
        self._over = np.zeros(vector.num_envs, bool)  # where a reset is due, for DISABLED

    @property
    def count(self) -> int:
        return self.vector.num_envs

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in every environment; those without a seed get that of the last."""
        padded = seeds + [seeds[-1]] * (self.count - len(seeds))
        # Other vectors than Gymnasium's two take one integer, and give each environment its own from that.
        has_list = isinstance(self.vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seed: Any = padded if has_list else padded[0]
        observation = _first(self.vector.reset(seed=seed))
        self._over[:] = False
        return self._encoded(observation)[: len(seeds)]

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move all environments; the true final observations of those that ended."""
        del alive
        if self.mode is AutoresetMode.DISABLED and self._over.any():
            self.vector.reset(options={"reset_mask": self._over.copy()})
        n = len(actions)
        padded = np.concatenate([actions, np.repeat(actions[-1:], self.count - n, axis=0)])
        observation, reward, terminated, truncated, info = self.vector.step(self.actions.decode(padded))
        self._over = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        seen = self._encoded(observation)
        if self.mode is AutoresetMode.SAME_STEP:
            for index in np.flatnonzero(self._over):
                seen[index] = self.observations.encode(info["final_obs"][index])
        ended = (np.array(terminated, bool), np.array(truncated, bool))
        return Moved(seen[:n], _numbers(reward, self.count)[:n], ended[0][:n], ended[1][:n])

    def _encoded(self, observation: Any) -> np.ndarray:
        parts = iterate(self.vector.observation_space, observation)
        return np.stack([self.observations.encode(part) for part in parts])


def autoreset_mode(vector: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """How a vector environment goes on after the end of an episode, as it declares itself."""
    mode = vector.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        valid = ", ".join(f"AutoresetMode.{known.name}" for known in AutoresetMode)
        raise InvalidOption(
            f"a vector environment must say how it resets: metadata['autoreset_mode'] is {mode!r}, expected {valid}"
        ) from None


def _first(result: Any) -> Any:
    """The observation of what a reset returned."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        got = f"{type(result).__name__} of length {len(result)}" if hasattr(result, "__len__") else repr(result)
        raise ValueError(f"reset must return an observation and a dict, got {got}")
    return result[0]


def _number(reward: Any) -> float:
    """A reward as a number; an array with one entry counts as one."""
    if isinstance(reward, float | int):
        return reward
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"a reward must be one number, got {reward!r}")
    return float(array.reshape(()))


def _numbers(rewards: Any, count: int) -> np.ndarray:
    """The rewards of a vector environment, one number each."""
    array = np.asarray(rewards, np.float64)
    if array.size != count:
        raise ValueError(f"rewards must be {count} numbers, one for each environment, got shape {array.shape}")
    return array.reshape(-1)
