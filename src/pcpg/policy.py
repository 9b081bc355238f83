"""A trained policy: it acts, it can be pickled, and it can be taken elsewhere as NumPy arrays or ONNX."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.config import ConfigError, Json, hinted
from pcpg.elsewhere import OF_A_POLICY, missing
from pcpg.envs.host import HostEnvironment
from pcpg.envs.options import load
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import describe, recorded
from pcpg.envs.spaces import Box
from pcpg.policies.host import Actor, choose, draw

PORTABLE = "pcpg.portable:write_numpy", "pcpg.portable:write_onnx"
"""Loaded when a policy is saved."""


@dataclasses.dataclass(frozen=True, repr=False)
class Policy:
    """A trained policy: observations in, actions out."""

    network: Any
    env: Environment

    @hinted
    def act(self, observation: object, *, greedy: bool = False, seed: int | None = None) -> Any:
        """An action for one observation, as the environment takes it: the likeliest, or a sample.

        With a `seed` the sample is a function of it; otherwise each call draws from the policy's own stream.
        """
        if seed is not None and not (isinstance(seed, int) and seed >= 0):
            raise ConfigError(f"seed must be an integer of at least 0, got {seed!r}")
        return self._act([observation], self._rng if seed is None else np.random.default_rng(seed), greedy)[0]

    def predict(
        self, observation: object, state: object = None, episode_start: object = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """An action for one observation, or one for each of many, and `state` as it was given.

        This is the interface that Stable-Baselines3's `evaluate_policy` and callbacks expect. A batch of observations
        has one more axis, in each part of a Dict or Tuple.
        """
        del episode_start  # policies here keep no memory
        single = self.env.single_observation if isinstance(self.env, HostEnvironment) else self.env.observation_space
        count = number_of(observation, single)
        if count is None:
            return self._act([observation], self._rng, deterministic)[0], state
        seen = [entry_of(observation, index) for index in range(count)]
        return np.stack(self._act(seen, self._rng, deterministic)), state

    def encode(self, observation: object) -> np.ndarray:
        """An observation as the network sees it: one vector, or a picture."""
        space = self.env.observation_space
        seen = self.env.encode(observation) if isinstance(self.env, HostEnvironment) else np.asarray(observation)
        if np.shape(seen) != space.shape:
            raise ConfigError(f"an observation must have shape {space.shape}, got {np.shape(seen)}")
        return np.asarray(seen, space.dtype)

    def save_numpy(self, path: str | os.PathLike[str]) -> Path:
        """Write the greedy policy as arrays that NumPy alone reads and ten lines play (docs/how-to/deploy.md)."""
        return load(PORTABLE[0])(self, Path(path))

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the greedy policy as an ONNX graph, from encoded observations to actions; needs the extra `onnx`."""
        return load(PORTABLE[1])(self, Path(path))

    def _act(self, observations: Sequence[object], rng: np.random.Generator, greedy: bool) -> list[Any]:
        space, seen = self.env.action_space, np.stack([self.encode(one) for one in observations])
        actions = choose(space, self._actor(seen), draw(rng, space, 1, len(seen)).noise[0], greedy=greedy)
        if isinstance(self.env, HostEnvironment):
            return [self.env.decode(action) for action in actions]
        return list(np.clip(actions, space.low, space.high) if isinstance(space, Box) else actions)

    @functools.cached_property
    def _actor(self) -> Actor:
        return Actor(self.network)

    @functools.cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(0)

    def __repr__(self) -> str:
        kind = type(self.network).__name__
        return f"Policy({self.env.observation_space} -> {self.env.action_space}, {kind})"

    def __getattr__(self, name: str) -> Any:
        raise missing("a policy", name, OF_A_POLICY, [one for one in dir(type(self)) if not one.startswith("_")])

    def __reduce__(self) -> tuple[Any, ...]:
        """What is needed to act: simulators stay behind."""
        if not isinstance(self.env, HostEnvironment):
            return Policy, (self.network, self.env)
        return _restored, (self.network, describe("", self.env, ()))


def _restored(network: Any, described: Json) -> Policy:
    return Policy(network, recorded("", described))


def number_of(observation: Any, space: Any) -> int | None:
    """The number of observations in a batch; None: a single one, without a batch axis."""
    if isinstance(observation, Mapping):
        key = next(iter(observation))
        return number_of(observation[key], space[key])
    if isinstance(observation, tuple) and not isinstance(getattr(space, "shape", None), tuple):
        return number_of(observation[0], space[0])
    shape = np.shape(observation)
    return shape[0] if len(shape) == len(space.shape or ()) + 1 else None


def entry_of(observations: Any, index: int) -> Any:
    """One observation of a batch."""
    if isinstance(observations, Mapping):
        return {key: entry_of(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(entry_of(part, index) for part in observations)
    return observations[index]
