"""gymnax's environments in our functional protocol: the same compiled programs as for our own."""

import dataclasses
import functools
import importlib
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.config import nearest
from pcpg.envs.options import InvalidOption
from pcpg.envs.protocol import Environment, Step
from pcpg.envs.spaces import Box, Discrete

LIMIT = "max_steps_in_episode"


@dataclasses.dataclass(frozen=True)
class GymnaxEnv(Environment):
    """An environment of gymnax, its observations as vectors; options are its parameters."""

    name: str
    options: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        gymnax = importlib.import_module("gymnax")
        if self.name not in gymnax.registered_envs:
            hint = nearest(self.name, gymnax.registered_envs)
            raise InvalidOption(f"gymnax has no environment {self.name!r}; did you mean {hint!r}?")
        known = vars(self._made[1])
        for option, _ in self.options:
            if option not in known:
                hint = nearest(option, known)
                raise InvalidOption(f"gymnax:{self.name} has no parameter {option!r}; did you mean {hint!r}?")

    @functools.cached_property
    def _made(self) -> tuple[Any, Any]:
        gymnax = importlib.import_module("gymnax")
        env, params = gymnax.make(self.name)
        return env, params

    @functools.cached_property
    def _params(self) -> Any:
        return self._made[1].replace(**dict(self.options))

    @property
    def observation_space(self) -> Box:
        space = self._made[0].observation_space(self._params)
        if hasattr(space, "n"):
            return Box(0.0, 1.0, (int(space.n),))
        if not hasattr(space, "low"):
            raise InvalidOption(f"observations of gymnax:{self.name} are {space}; supported: Discrete and Box")
        low, high = float(np.min(np.asarray(space.low))), float(np.max(np.asarray(space.high)))
        return Box(low, max(high, low + 1.0), (math.prod(space.shape),))

    @property
    def action_space(self) -> Discrete | Box:
        space = self._made[0].action_space(self._params)
        if hasattr(space, "n"):
            return Discrete(int(space.n))
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        if not np.isfinite(low).all() or len({*low.tolist()}) > 1 or len({*high.tolist()}) > 1:
            raise InvalidOption(f"actions of gymnax:{self.name} are {space}; a Box needs one finite bound for all")
        return Box(float(low[0]), float(high[0]), (max(math.prod(space.shape), 1),))

    @property
    def max_steps(self) -> int:
        return int(vars(self._params)[LIMIT])

    def instance(self, seed: int) -> object:
        """The parameters, the same for every seed."""
        del seed
        return jax.tree.map(np.asarray, self._params)

    def reset(self, key: jax.Array, params: object) -> tuple[jax.Array, object]:
        observation, state = self._made[0].reset_env(key, params)
        # Python's numbers make weak types, of which a carry has none.
        return self._encode(observation), jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)

    def transition(self, key: jax.Array, state: object, action: jax.Array, params: object) -> Step:
        env = self._made[0]
        shape = getattr(env.action_space(self._params), "shape", ())
        observation, moved, reward, terminated, _ = env.step_env(key, state, action.reshape(shape), params)
        truncated = env.is_truncated(moved, params)
        moved = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), moved, state)
        ended = jnp.asarray(terminated, bool)
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return Step(self._encode(observation), moved, reward, ended, jnp.asarray(truncated, bool) & ~ended, {})

    def _encode(self, observation: jax.Array) -> jax.Array:
        space = self._made[0].observation_space(self._params)
        if hasattr(space, "n"):
            return jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
        return jnp.asarray(observation, jnp.float32).reshape(-1)


def gymnax_env(name: str, options: Mapping[str, object]) -> GymnaxEnv:
    """The environment of this name; options are its parameters, `max_steps` its time limit."""
    renamed = {LIMIT if option == "max_steps" else option: value for option, value in options.items()}
    return GymnaxEnv(name, tuple(sorted(renamed.items())))
