"""A Gymnasium environment, or a vector of them, as an environment on the host.

Also the part of `check_environment` for Gymnasium: supported spaces, and Gymnasium's interface.
"""

import atexit
import dataclasses
import functools
import importlib
import re
import sys
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from pcpg.config import Json, nearest
from pcpg.envs.adapters.from_module import arguments, make_findable
from pcpg.envs.adapters.goals import goals_of
from pcpg.envs.adapters.names import gymnasium_package, players_elsewhere
from pcpg.envs.adapters.players import PlainPlayers, VectorPlayers, ended, is_alive
from pcpg.envs.adapters.spaces import actions_of, observations_of
from pcpg.envs.adapters.worker_process import said
from pcpg.envs.adapters.workers import WorkerPlayers
from pcpg.envs.contract import ContractError
from pcpg.envs.host import HostEnvironment, Players
from pcpg.envs.options import InvalidOption, NoTimeLimit, require_int
from pcpg.envs.protocol import Goals
from pcpg.envs.spaces import Image
from pcpg.machine import available_cores

LARGEST = 1e6
"""Bounds beyond this count as none."""

Maker = Callable[[], Any]
"""Makes a gymnasium.Env or a gymnasium.vector.VectorEnv."""


@dataclasses.dataclass(frozen=True)
class GymnasiumEnv(HostEnvironment):
    """Environments made by a function; equal if function and settings are."""

    name: str
    make: Maker
    max_steps_wanted: int = 0
    """Steps of a training episode; 0: the environment's own limit."""
    num_envs: int = 32
    """Number of parallel environments."""
    workers: int = 0
    """Number of worker processes that step environments; 0: all are stepped in this process."""
    step_timeout: float = 0.0
    """Time limit of a step or reset in seconds; 0: none."""

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
        """One environment, whose spaces are read; it plays too."""
        try:
            env = self.make()
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "pcpg":
                raise
            raise InvalidOption(f"{self.name} cannot be made: {said(error)}") from error
        _OPEN[id(self)] = self
        if not isinstance(env, gymnasium.Env | VectorEnv):
            kind = type(env).__name__
            raise InvalidOption(f"{self.name} must give a gymnasium.Env or a gymnasium.vector.VectorEnv, got {kind}")
        single = "single_" if isinstance(env, VectorEnv) else ""
        for name in (f"{single}observation_space", f"{single}action_space"):
            if not isinstance(space := getattr(env, name, None), gymnasium.Space):
                raise InvalidOption(f"{self.name}: {name} must be a space of gymnasium.spaces, got {space!r:.60}")
        return env

    @property
    def single_observation(self) -> gymnasium.Space:
        """The environment's own space."""
        first = self._first
        return first.single_observation_space if isinstance(first, VectorEnv) else first.observation_space

    @property
    def declared_spaces(self) -> dict[str, gymnasium.Space]:
        actions = "single_action_space" if isinstance(self._first, VectorEnv) else "action_space"
        return {"observation": declared_space(self._first), "action": getattr(self._first, actions)}

    @functools.cached_property
    def limit(self) -> int | None:
        """The environment's own time limit, or None."""
        return time_limit(self._first)

    @property
    def max_steps(self) -> int:
        if self.limit is None and not self.max_steps_wanted:
            raise NoTimeLimit(
                f"{self.name} declares no time limit (no spec.max_episode_steps or max_steps): "
                "set one with the option max_steps (--env.max_steps)"
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
    def evaluation_env(self) -> "GymnasiumEnv":
        is_whole = self.limit is None or self.max_steps == self.limit
        return self if is_whole else dataclasses.replace(self, max_steps_wanted=0)

    @property
    def solved_return(self) -> float | None:
        threshold = getattr(getattr(self._first, "spec", None), "reward_threshold", None)
        return None if threshold is None else float(threshold)

    @property
    def observed_goals(self) -> Goals | None:
        return goals_of(self._first, self.single_observation)

    @property
    def players(self) -> Players:
        return self._players

    @functools.cached_property
    def _players(self) -> Players:
        if isinstance(self._first, VectorEnv):
            return VectorPlayers(self._first, *self.coders)
        if self.workers:
            stage = (self.make, *self.coders)
            hire = players_elsewhere()
            if hire is None:
                most = MOST_WORKERS * len(available_cores())
                require_int("workers on this machine", self.workers, minimum=1, maximum=most)
                return WorkerPlayers(stage, self.workers, self.step_timeout)
            return hire(stage, self.workers, self.step_timeout, self.max_steps)
        return PlainPlayers([self._first], *self.coders, self.step_timeout, self.make, self.num_envs)

    @property
    def is_alive(self) -> bool:
        """Whether all its vectors are open, with all their processes alive and answering."""
        return is_alive(vars(self).get("_first")) and is_alive(getattr(vars(self).get("_players"), "vector", None))

    def close(self) -> None:
        """Close all environments and their processes; they are recreated on demand."""
        _OPEN.pop(id(self), None)
        for name in ("_players", "_first"):
            ended(vars(self).pop(name, None))


MOST_WORKERS = 32
"""Of a core: simulators may wait for something else."""

_OPEN: "weakref.WeakValueDictionary[int, GymnasiumEnv]" = weakref.WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    for env in list(_OPEN.values()):
        env.close()


def gymnasium_env(name: str, options: Json) -> Any:
    """The environment that Gymnasium makes from an id, after importing its package."""
    if ":" in name and not re.fullmatch("[^:]+:[^:]+", name):
        raise InvalidOption(f"{name!r} is not a Gymnasium id: expected one such as CartPole-v1 or my_package:MyEnv-v0")
    package = gymnasium_package(name).name
    if package in ("ale_py", "gymnasium_robotics", "shimmy"):
        gymnasium.register_envs(importlib.import_module(package))  # importing it is what registers them
    if package == "minigrid" and name not in gymnasium.registry:
        importlib.import_module(package).register_minigrid_envs()
    if ":" not in name and name not in gymnasium.registry:
        hint = similar_id(name)
        advice = f"did you mean {hint!r}?" if hint else "Nothing similar exists."
        raise InvalidOption(
            f"Gymnasium has no environment {name!r}; {advice} For one registered by a package, put the module first: "
            f"gymnasium:my_package:{name}"
        )
    if ":" in name:
        make_findable(package)
    try:
        if options.get("render_mode") is not None:
            _check_render_mode(name, options["render_mode"])
        # The passive checker looks at every step, at a third of the time of one.
        made = gymnasium.make(name, disable_env_checker=True, **options)
    except (TypeError, ImportError, gymnasium.error.Error) as error:
        module, _, last = name.rpartition(":")
        is_class = hasattr(sys.modules.get(module), last)
        hint = f" It is no id but a name in a module: {name}" if is_class else ""
        raise InvalidOption(f"gymnasium.make({name!r}, {options}): {error}{hint}") from error
    if _is_minigrid(made):
        importlib.import_module("pcpg.envs.adapters.minigrid_view").hasten(made.unwrapped)
    return made


def arguments_of(name: str) -> list[str]:
    """The arguments of the maker behind an id, as far as they are known beforehand."""
    try:
        return arguments(_creator(name))
    except ImportError:
        return []


def _creator(name: str) -> Any:
    entry: Any = getattr(gymnasium.registry.get(name), "entry_point", None)
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _check_render_mode(name: str, mode: str) -> None:
    """Refuse a render mode that is not among the declared ones."""
    creator = _creator(name)
    known = [str(one) for one in (getattr(creator, "metadata", None) or {}).get("render_modes") or ()]
    # Gymnasium itself makes these two of others.
    made = [f"{one}_list" for one in known] + (["human"] if "rgb_array" in known else [])
    if known and mode not in (*known, *made):
        raise InvalidOption(f"render_mode of {name} must be one of {', '.join(known)}, got {mode!r}")


def similar_id(name: str) -> str | None:
    """The Gymnasium id that a name probably means: another version, or a misspelling."""
    registry = [known for known in gymnasium.registry if not known.startswith("pcpg/")]  # where our bridge puts ours
    stem = re.sub(r"-v\d+$", "", name).casefold()
    versions = [known for known in registry if known.casefold().startswith(f"{stem}-v")]
    if name in registry or versions:
        return name if name in registry else max(versions, key=lambda known: int(known.rpartition("-v")[2]))
    return nearest(name, registry, cutoff=0.7)


def time_limit(env: Any) -> int | None:
    """The time limit of an episode: from the spec, a TimeLimit wrapper, or an attribute `max_steps`."""
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


def declared_space(env: gymnasium.Env | VectorEnv) -> gymnasium.Space:
    """The observation space of an environment, with the bytes of MiniGrid's grid declared as codes.

    MiniGrid's observations are not pixels but three integers per cell: object, colour and state.
    """
    space = env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space
    if not _is_minigrid(env):
        return space
    inner: Any = getattr(env, "envs", [env])[0].unwrapped
    views = ((inner.agent_view_size, inner.agent_view_size), (inner.width, inner.height))
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _codes(part, views) for key, part in space.spaces.items()})
    return _codes(space, views)


def _is_minigrid(env: gymnasium.Env | VectorEnv) -> bool:
    """Whether an environment, or the first of a vector, is from MiniGrid."""
    module = sys.modules.get("minigrid.minigrid_env")  # loaded, if the environment is one of its
    return module is not None and isinstance(getattr(env, "envs", [env])[0].unwrapped, module.MiniGridEnv)


def _codes(space: gymnasium.Space, views: tuple[tuple[int, int], ...]) -> gymnasium.Space:
    """A grid of codes [width, height, 3] as MultiDiscrete; other spaces, including pictures, unchanged."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or space.shape[:2] not in views:
        return space
    constants = importlib.import_module("minigrid.core.constants")
    states = max(len(constants.STATE_TO_IDX), 4)  # the agent's direction is coded here too
    sizes = (len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), states)
    return spaces.MultiDiscrete(np.broadcast_to(sizes, space.shape).copy())


def check_gymnasium(made: Any, seed: int, num_steps: int) -> None:
    """Play at random, and raise a ContractError for the first problem that training would hit."""
    name = getattr(made, "__name__", type(made).__name__)

    def refuse(what: str) -> NoReturn:
        raise ContractError(f"{name}: {what}")

    env = made if isinstance(made, gymnasium.Env) else made() if callable(made) else None
    if not isinstance(env, gymnasium.Env):
        refuse(f"expected a gymnasium.Env, its class, or a function that makes one, got {env or made!r}")
    for side, coder in (("observation_space", observations_of), ("action_space", actions_of)):
        space = getattr(env, side, None)
        if not isinstance(space, gymnasium.Space):
            refuse(f"{side} must be a space of gymnasium.spaces, got {space!r}")
        try:
            coder(space)
        except ValueError as error:
            refuse(str(error))
    if not np.array_equal(_flat(env, _reset(env, seed, refuse)), _flat(env, _reset(env, seed, refuse))):
        refuse("two resets with the same seed must give the same observation: draw from self.np_random")
    env.action_space.seed(seed)
    is_over = False
    for at in range(num_steps):
        if is_over:
            _reset(env, None, refuse)
        is_over = _step(env, at, refuse)


def _reset(env: gymnasium.Env, seed: int | None, refuse: Any) -> Any:
    found: Any = env.reset(seed=seed)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
        refuse("reset(seed=...) must return (observation, info), with a dict for info")
    _check_observation(env, found[0], "reset", refuse)
    return found[0]


def _step(env: gymnasium.Env, at: int, refuse: Any) -> bool:
    found: Any = env.step(env.action_space.sample())
    if not (isinstance(found, tuple) and len(found) == 5):
        refuse("step(action) must return (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, _ = found
    _check_observation(env, observation, f"step {at}", refuse)
    if not (np.ndim(reward) == 0 and np.isreal(reward) and np.isfinite(reward)):
        refuse(f"step {at}: the reward must be a finite number, got {reward!r}")
    for side, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            refuse(f"step {at}: {side} must be True or False, got {value!r}")
    return bool(terminated or truncated)


def _check_observation(env: gymnasium.Env, observation: Any, when: str, refuse: Any) -> None:
    if not env.observation_space.contains(observation):
        refuse(f"{when}: the observation is not in observation_space {env.observation_space}: {observation!r}")


def _flat(env: gymnasium.Env, observation: Any) -> np.ndarray:
    return observations_of(env.observation_space).encode(observation)
