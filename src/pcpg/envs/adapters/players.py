"""Episodes of Gymnasium environments: single ones, or a vector environment in any autoreset mode.

An episode is played from its own seed to its end, and the observation after its last step is the true final one:

    DISABLED    the vector gives it, and must be reset before it moves again
    NEXT_STEP   the vector gives it, and spends its next move on a reset
    SAME_STEP   the vector has reset already and keeps it in info["final_obs"]

A vector cannot step only some of its environments: finished ones keep playing, and their results are ignored.
"""

import contextlib
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import iterate

from pcpg.envs.adapters.spaces import Actions, Observations
from pcpg.envs.host import EnvironmentFailed, Moved
from pcpg.envs.options import InvalidOption

Made = TypeVar("Made")


class PlainPlayers:
    """Single environments, stepped one after the other; finished ones are skipped.

    Up to `count` of them, created on demand, since some are slow to create.
    """

    def __init__(
        self,
        envs: Sequence[gymnasium.Env],
        observations: Observations,
        actions: Actions,
        timeout: float = 0.0,
        make: Callable[[], Any] | None = None,
        count: int = 0,
    ) -> None:
        self.envs, self.observations, self.actions, self.timeout = list(envs), observations, actions, timeout
        self._make, self._count = make, max(count, len(self.envs))
        self._seen = np.zeros((self._count, *observations.space.shape), observations.space.dtype)
        self._seeds: list[int] = []
        self._step, self._at = 0, 0

    @property
    def where(self) -> dict[str, int]:
        """The place at which something may just have gone wrong."""
        seed = {"episode seed": self._seeds[self._at]} if self._at < len(self._seeds) else {}
        return seed | {"step": self._step, "environment": self._at}

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            ended(env)

    @property
    def count(self) -> int:
        return self._count

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in the first environments."""
        self._seeds, self._step = list(seeds), 0
        while self._make is not None and len(self.envs) < len(seeds):
            self.envs.append(self._make())
        for index, seed in enumerate(seeds):
            self._at = index
            found = self._within_limit(lambda env=self.envs[index], seed=seed: env.reset(seed=seed))
            self._seen[index] = self.observations.encode(first_observation(found))
        return self._seen[: len(seeds)]

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move the environments that are alive."""
        decoded = self.actions.decode(actions)
        choices = decoded.tolist() if decoded.ndim == 1 else decoded  # a discrete action is a Python integer
        encode, seen, envs = self.observations.encode, self._seen, self.envs
        outcomes, limited = np.zeros((3, len(actions))), self.timeout > 0
        for index in np.flatnonzero(alive).tolist():
            self._at = index
            env, choice = envs[index], choices[index]
            moved = self._within_limit(lambda env=env, choice=choice: env.step(choice)) if limited else env.step(choice)
            observation, reward, terminated, truncated, _ = moved
            seen[index] = encode(observation)
            outcomes[:, index] = reward_number(reward), bool(terminated), bool(truncated)
        self._step += 1
        return Moved(seen[: len(actions)], outcomes[0], outcomes[1] > 0, outcomes[2] > 0)

    def _within_limit(self, call: Callable[[], Made]) -> Made:
        with time_limit_of(self.timeout):
            return call()


class VectorPlayers:
    """A vector environment."""

    def __init__(self, vector: VectorEnv, observations: Observations, actions: Actions) -> None:
        self.vector, self.observations, self.actions = vector, observations, actions
        self.mode = autoreset_mode(vector)
        self._over = np.zeros(vector.num_envs, bool)  # where a reset is due, for DISABLED
        self._seed, self._step = 0, 0

    @property
    def where(self) -> dict[str, int]:
        """The place to report for a failure; which environment failed is known to the vector alone."""
        return {"first episode seed": self._seed, "step": self._step}

    def close(self) -> None:
        """Close the environments, with their processes where they have any."""
        ended(self.vector)

    @property
    def count(self) -> int:
        return self.vector.num_envs

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in every environment; those without a seed get the last one."""
        self._seed, self._step = seeds[0], 0
        padded = seeds + [seeds[-1]] * (self.count - len(seeds))
        # Other vectors take one integer and derive the seeds of their environments from it.
        has_list = isinstance(self.vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seed: Any = padded if has_list else padded[0]
        observation = first_observation(self.vector.reset(seed=seed))
        self._over[:] = False
        return self._encoded(observation)[: len(seeds)]

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Step all environments; returns the true final observations of finished ones."""
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
        self._step += 1
        ended = (np.array(terminated, bool), np.array(truncated, bool))
        return Moved(seen[:n], _numbers(reward, self.count)[:n], ended[0][:n], ended[1][:n])

    def _encoded(self, observation: object) -> np.ndarray:
        parts = iterate(self.vector.observation_space, observation)
        return np.stack([self.observations.encode(part) for part in parts])


def ended(env: Any) -> None:
    """Close an environment, a vector or players, without waiting for the processes of a vector."""
    hard = {"terminate": True} if isinstance(getattr(env, "unwrapped", None), AsyncVectorEnv) else {}
    with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):  # it is gone one way or the other
        if env is not None:
            env.close(**hard)


def is_alive(env: object) -> bool:
    """Whether an environment is usable: a vector needs all its processes and no pending call."""
    vector = getattr(env, "unwrapped", None)
    if not isinstance(vector, AsyncVectorEnv):
        return True
    is_whole = None not in vector.parent_pipes and all(process.is_alive() for process in vector.processes)
    return is_whole and not vector.closed and getattr(vector, "_state", None) is AsyncState.DEFAULT


@contextlib.contextmanager
def time_limit_of(seconds: float) -> Iterator[None]:
    """Interrupt the code inside after so many seconds (0: never), as far as Python can."""
    if not seconds or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(signum: int, frame: object) -> None:
        raise EnvironmentFailed(f"it did not answer within {seconds:g} s (--env.step-timeout)")

    before, began = signal.signal(signal.SIGALRM, expire), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001) if left else 0.0, interval)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)


def autoreset_mode(vector: VectorEnv) -> AutoresetMode:
    """The declared autoreset mode of a vector environment."""
    mode = vector.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        valid = ", ".join(f"AutoresetMode.{known.name}" for known in AutoresetMode)
        raise InvalidOption(
            f"vector environments must declare how they reset: metadata['autoreset_mode'] is {mode!r}, expected {valid}"
        ) from None


def first_observation(result: Any) -> Any:
    """The observation that a reset returned."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        got = f"{type(result).__name__} of length {len(result)}" if hasattr(result, "__len__") else repr(result)
        raise ValueError(f"reset must return an observation and a dict, got {got}")
    return result[0]


def reward_number(reward: object) -> float:
    """A reward as a number; an array with one entry counts as one."""
    if isinstance(reward, float | int):
        return reward
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"a reward must be one number, got {reward!r}")
    return float(array.reshape(()))


def _numbers(rewards: object, count: int) -> np.ndarray:
    """The rewards of a vector environment, one number each."""
    array = np.asarray(rewards, np.float64)
    if array.size != count:
        raise ValueError(f"rewards must be {count} numbers, one per environment, got shape {array.shape}")
    return array.reshape(-1)
