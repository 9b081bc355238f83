"""A Gymnasium environment, or a vector of them, as an environment on the host."""

import atexit
import contextlib
import dataclasses
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from pcpg.envs.adapters.places import LOCAL, place
from pcpg.envs.adapters.players import PlainPlayers, VectorPlayers
from pcpg.envs.adapters.spaces import Actions, Observations, actions_of, observations_of
from pcpg.envs.adapters.workers import WorkerPlayers
from pcpg.envs.host import HostEnvironment, Players
from pcpg.envs.options import InvalidOption, NoTimeLimit, require_int
from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete

LARGEST = 1e6
"""Bounds beyond which nobody means them."""

Maker = Callable[[], Any]
"""Makes a gymnasium.Env or a gymnasium.vector.VectorEnv."""


@dataclasses.dataclass(frozen=True)
class GymnasiumEnv(HostEnvironment):
    """Environments made by a function; equal where function and settings are."""

    name: str
    make: Maker
    max_steps_wanted: int = 0
    """Decisions of a training episode; 0: the environment's own limit."""
    num_envs: int = 32
    """Environments that play side by side."""
    workers: int = 0
    """Processes that step an environment each, beside this one; 0: all are stepped here."""
    step_timeout: float = 0.0
    """Seconds that a step or a reset may take; 0: as long as it takes."""

    def __post_init__(self) -> None:
        require_int("max_steps", self.max_steps_wanted, minimum=0)
        require_int("num_envs", self.num_envs, minimum=1)
        require_int("workers", self.workers, minimum=0)
        if isinstance(self.step_timeout, bool) or not isinstance(self.step_timeout, int | float):
            raise InvalidOption(f"step_timeout must be a number of seconds, got {self.step_timeout!r}")
        if not 0 <= self.step_timeout < 1e9:
            raise InvalidOption(f"step_timeout must be 0 (no limit) or more, got {self.step_timeout!r}")

    @functools.cached_property
    def _first(self) -> Any:
        """One environment, to ask for its spaces; it plays too."""
        env = self.make()
        _OPEN[id(self)] = self
        if not isinstance(env, gymnasium.Env | VectorEnv):
            raise InvalidOption(
                f"{self.name} must give a gymnasium.Env or a gymnasium.vector.VectorEnv, got a {type(env).__name__}"
            )
        return env

    @functools.cached_property
    def _observations(self) -> Observations:
        return observations_of(declared_space(self._first))

    @property
    def single_observation(self) -> gymnasium.Space[Any]:
        """The environment's own space."""
        first = self._first
        return first.single_observation_space if isinstance(first, VectorEnv) else first.observation_space

    @functools.cached_property
    def _actions(self) -> Actions:
        return actions_of(self.declared_spaces["action"])

    @property
    def declared_spaces(self) -> dict[str, gymnasium.Space[Any]]:
        """Its spaces as Gymnasium has them, for the files of a run."""
        actions = "single_action_space" if isinstance(self._first, VectorEnv) else "action_space"
        return {"observation": declared_space(self._first), "action": getattr(self._first, actions)}

    @property
    def observation_space(self) -> Box | Image:
        return self._observations.space

    @property
    def action_space(self) -> Discrete | MultiDiscrete | Box:
        return self._actions.space

    @functools.cached_property
    def limit(self) -> int | None:
        """The environment's own time limit, None where it has none."""
        return time_limit(self._first)

    @property
    def max_steps(self) -> int:
        if self.limit is None and not self.max_steps_wanted:
            raise NoTimeLimit(
                f"{self.name} has no time limit of its own (neither spec.max_episode_steps nor max_steps): "
                "say after how many steps an episode is cut, by the option max_steps (--env.max_steps)"
            )
        return min(self.limit or self.max_steps_wanted, self.max_steps_wanted or self.limit or 0)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        space = declared_space(self._first)
        if not isinstance(space, spaces.Box) or isinstance(self.observation_space, Image):
            return None
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        known = space.dtype != np.uint8 and bool(np.all(np.abs(np.stack([low, high])) < LARGEST))
        return (low, high) if known else None

    @property
    def notices(self) -> tuple[str, ...]:
        return self._observations.notices

    @property
    def evaluation_env(self) -> "GymnasiumEnv":
        is_whole = self.limit is None or self.max_steps == self.limit
        return self if is_whole else dataclasses.replace(self, max_steps_wanted=0)

    @property
    def solved_return(self) -> float | None:
        threshold = getattr(getattr(self._first, "spec", None), "reward_threshold", None)
        return None if threshold is None else float(threshold)

    @property
    def players(self) -> Players:
        return self._players

    @functools.cached_property
    def _players(self) -> Players:
        if isinstance(self._first, VectorEnv):
            return VectorPlayers(self._first, self._observations, self._actions)
        if self.workers:
            stage = (self.make, self._observations, self._actions)
            if place() == LOCAL:
                return WorkerPlayers(stage, self.workers, self.step_timeout)
            from pcpg.envs.adapters.ray_workers import ray_players

            return ray_players(place(), stage, self.workers, self.step_timeout, self.max_steps)
        envs = [self._first, *(self.make() for _ in range(self.num_envs - 1))]
        return PlainPlayers(envs, self._observations, self._actions, self.step_timeout)

    def close(self) -> None:
        """Close all environments that were made, with their processes; they are made anew when next asked for."""
        made: Any = [vars(self).pop(name, None) for name in ("_players", "_first")]
        _OPEN.pop(id(self), None)
        for one in made:
            with contextlib.suppress(Exception):  # it is gone one way or the other
                if one is not None:
                    one.close()

    def encode(self, observation: Any) -> np.ndarray:
        """An observation of the environment as networks see it."""
        return self._observations.encode(observation)

    def decode(self, action: np.ndarray) -> Any:
        """An action of a policy as the environment takes it."""
        return self._actions.decode(np.asarray(action)[None])[0]


_OPEN: "weakref.WeakValueDictionary[int, GymnasiumEnv]" = weakref.WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    for env in list(_OPEN.values()):
        env.close()


def time_limit(env: Any) -> int | None:
    """The most steps of an episode: of the spec, of a TimeLimit wrapper, or an attribute `max_steps`."""
    spec = getattr(env, "spec", None)
    if spec is not None and spec.max_episode_steps:
        return int(spec.max_episode_steps)
    if getattr(env, "envs", None):  # of a vector, those of its first environment
        return time_limit(env.envs[0])
    if isinstance(env, gymnasium.Env):
        for name in ("_max_episode_steps", "max_steps"):
            value = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
            if isinstance(value, int | np.integer) and value > 0:
                return int(value)
    return None


def declared_space(env: Any) -> gymnasium.Space[Any]:
    """The observation space of an environment; the bytes of MiniGrid's grid declared as the codes that they are.

    MiniGrid's observations are not brightness but three integers a cell, for object, colour and state.
    """
    space = env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space
    inner: Any = getattr(env, "envs", [env])[0].unwrapped
    module = sys.modules.get("minigrid.minigrid_env")  # loaded, if the environment is one of its
    if module is None or not isinstance(inner, module.MiniGridEnv):
        return space
    views = ((inner.agent_view_size, inner.agent_view_size), (inner.width, inner.height))
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _codes(part, views) for key, part in space.spaces.items()})
    return _codes(space, views)


def _codes(space: gymnasium.Space[Any], views: tuple[tuple[int, int], ...]) -> gymnasium.Space[Any]:
    """A grid of codes [width, height, 3] as MultiDiscrete; other spaces, pictures among them, as they are."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or space.shape[:2] not in views:
        return space
    from minigrid.core import constants  # pyright: ignore[reportMissingImports]

    states = max(len(constants.STATE_TO_IDX), 4)  # the agent's direction is coded here too
    sizes = (len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), states)
    return spaces.MultiDiscrete(np.broadcast_to(sizes, space.shape).copy())
