"""A dm_env environment behind Gymnasium's interface, such as bsuite's.

An episode that ends with discount 0 is terminated; with any other discount it is truncated.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pcpg.envs.options import InvalidOption


class DmEnv(gymnasium.Env):
    """A dm_env.Environment as a gymnasium.Env.

    dm_env has no seeds: those of Gymnasium are passed to `reseed(env, seed)` if given, and otherwise ignored.
    """

    def __init__(
        self, env: Any, *, max_steps: int | None = None, reseed: Callable[[Any, int], None] | None = None
    ) -> None:
        self.env, self.max_steps, self.reseed = env, max_steps, reseed
        self.observation_space = to_space(env.observation_spec())
        self.action_space = to_space(env.action_spec())

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        """Start an episode."""
        super().reset(seed=seed)
        del options
        if seed is not None and self.reseed is not None:
            self.reseed(self.env, seed)
        return self.env.reset().observation, {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        """Take one decision."""
        step = self.env.step(action)
        over = bool(step.last())
        terminated = over and float(step.discount) == 0.0
        return step.observation, float(step.reward or 0.0), terminated, over and not terminated, {}


def to_space(spec: Any) -> gymnasium.Space:
    """The Gymnasium space with the elements of a dm_env spec, or of a dictionary or sequence of specs."""
    if isinstance(spec, dict):
        return spaces.Dict({key: to_space(part) for key, part in spec.items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([to_space(part) for part in spec])
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    if not hasattr(spec, "shape") or np.dtype(spec.dtype).kind not in "biuf":
        raise InvalidOption(f"the dm_env spec {spec!r} is not supported: expected arrays of numbers")
    dtype = np.dtype(spec.dtype)
    low, high = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
    if dtype.kind in "biu":
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        low, high = np.maximum(low, limits[0]).astype(dtype), np.minimum(high, limits[1]).astype(dtype)
    low, high = (np.broadcast_to(bound, spec.shape).astype(dtype) for bound in (low, high))
    return spaces.Box(low, high, tuple(spec.shape), dtype.type)


LENGTHS = {"_episode_len": 0, "_size": 0, "_max_steps": 0, "_chain_length": 0, "_rows": -1, "_memory_length": 1}
"""Attributes in which bsuite environments keep the length of an episode, and what to add to them."""


def bsuite_env(name: str, options: Mapping[str, object]) -> DmEnv:
    """A bsuite environment: a sweep point such as "deep_sea/0", or a name whose options override those of point 0."""
    bsuite, sweep = (importlib.import_module(module) for module in ("bsuite", "bsuite.sweep"))
    experiment, _, point = name.partition("/")
    settings = sweep.SETTINGS.get(f"{experiment}/{point or 0}")
    if settings is None:
        valid = sorted({known.split("/")[0] for known in sweep.SETTINGS})
        raise InvalidOption(
            f"bsuite has no environment {name!r}; valid: {', '.join(valid)}, or a sweep point such as deep_sea/0"
        )
    # The settings of point 0 fix the random mapping of deep sea's actions, so all copies have the same.
    try:
        env = bsuite.load(experiment, {**settings, **options})
    except TypeError as error:
        raise InvalidOption(f"bsuite:{name}: {error}; options of point {point or 0}: {dict(settings)}") from error
    return DmEnv(env, max_steps=_length(env), reseed=_reseed)


def _length(env: object) -> int | None:
    """The length of an episode, if a bsuite environment or one inside it knows it."""
    while env is not None:
        own = vars(env)
        if "_max_time" in own and "_timescale" in own:  # of a pole, in seconds, which are added up with an error
            return round(own["_max_time"] / own["_timescale"]) + 1
        found = next((own[name] + more for name, more in LENGTHS.items() if name in own), None)
        if found is not None:
            return found
        env = own.get("_env")
    return None


def _reseed(env: Any, seed: int) -> None:
    """Reseed the generators of the environment and of each environment inside it."""
    while env is not None:
        if isinstance(getattr(env, "_rng", None), np.random.RandomState):
            env._rng = np.random.RandomState(seed)
        env = vars(env).get("_env")
