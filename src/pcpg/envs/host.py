"""Environments on the host: Python objects, stepped one call at a time.

The functional protocol (protocol.py) compiles whole episodes; here only acting and learning can be compiled. To the
agents both look the same: spaces, the length of an episode, an instance for each seed. `Players` play the episodes: a
fixed number of parallel environments, each with its own seed.
"""

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from pcpg.envs.protocol import Environment, Step
from pcpg.envs.spaces import Box, Space

if TYPE_CHECKING:
    import gymnasium

    from pcpg.envs.adapters.spaces import Actions, Observations


class EnvironmentFailed(RuntimeError):
    """An environment raised, died or did not answer; the message says where, to reproduce it."""

    def __init__(self, cause: str, where: dict[str, int] | None = None) -> None:
        super().__init__(cause, where)
        self.cause, self.where = cause, dict(where or {})

    def __str__(self) -> str:
        places = ", ".join(f"{name} {number}" for name, number in self.where.items())
        return f"the environment failed: {self.cause}" + (f"; {places}" if places else "")


@contextmanager
def locating(**where: int) -> Iterator[None]:
    """Inside, failures of environments name this place (seed, round, update)."""
    try:
        yield
    except EnvironmentFailed as error:
        named = {name: number for name, number in where.items() if name not in error.where}
        error.where = named | error.where
        raise


@contextmanager
def guarded(players: object) -> Iterator[None]:
    """Inside, an exception of an environment names its episode and step."""
    try:
        yield
    except EnvironmentFailed as error:
        error.where |= {name: n for name, n in getattr(players, "where", {}).items() if name not in error.where}
        raise
    except Exception as error:
        raise EnvironmentFailed(f"{type(error).__name__}: {error}", getattr(players, "where", {})) from error


FAR = 100.0
"""How far, in widths of the space, an observation may lie outside it; beyond, it counts as a mistake."""


def unsound(env: Environment, observations: np.ndarray) -> np.ndarray:
    """Which entries of observations [..., *shape] are not finite or lie far outside their space."""
    space = env.observation_space
    own = (space.low, space.high) if isinstance(space, Box) and not isinstance(env, HostEnvironment) else None
    low, high = getattr(env, "bounds", own) or (-np.inf, np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        width = FAR * np.subtract(high, low)
        return ~np.isfinite(observations) | (observations < low - width) | (observations > high + width)


def check_step(env: Environment, observation: np.ndarray, reward: Any, **where: int) -> None:
    """Refuse a reward that is not finite, and an observation with an unsound entry."""
    if not np.isfinite(reward):
        raise EnvironmentFailed(f"the reward is {reward:g}, not a finite number", where)
    bad = unsound(env, observation).reshape(-1)
    if bad.any():
        entry, space = int(np.argmax(bad)), env.observation_space
        value = observation.reshape(-1)[entry]
        raise EnvironmentFailed(f"entry {entry} of the observation is {value:g}, which is not in {space}", where)


class Moved(NamedTuple):
    """The result of one step of some environments."""

    observations: np.ndarray  # [n, ...] the true ones after the move: no reset is in between
    rewards: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool
    truncated: np.ndarray  # [n] bool


@runtime_checkable
class Players(Protocol):
    """Parallel environments; a wave of episodes starts together and is played to the end."""

    @property
    def count(self) -> int:
        """The number of parallel episodes."""
        ...

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in the first environments, one for each seed; the first observations [n, ...]."""
        ...

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Step the live environments; results for the others are meaningless."""
        ...


@runtime_checkable
class EpisodePlayers(Players, Protocol):
    """Players whose workers play whole episodes."""

    def play(self, perform: Callable[[Players, Any, Any], Any], shared: object, tasks: Sequence[object]) -> list[Any]:
        """The results of `perform(player, shared, task)` in the order of the tasks."""
        ...


class HostEnvironment(Environment[tuple[()], Any]):
    """Base of environments stepped on the host; subclasses are frozen dataclasses.

    Observations are in the form that networks see, actions in the form that policies output.
    """

    @property
    @abc.abstractmethod
    def players(self) -> Players:
        """The environments that play its episodes, the same at each call."""

    @property
    @abc.abstractmethod
    def declared_spaces(self) -> dict[str, "gymnasium.Space"]:
        """The spaces "observation" and "action" in Gymnasium's form, for the files of a run."""

    @functools.cached_property
    def coders(self) -> "tuple[Observations, Actions]":
        """The conversions of observations for networks and of actions for the environment."""
        from pcpg.envs.adapters.spaces import actions_of, observations_of

        return observations_of(self.declared_spaces["observation"]), actions_of(self.declared_spaces["action"])

    @property
    def observation_space(self) -> Space:
        return self.coders[0].space

    @property
    def action_space(self) -> Space:
        return self.coders[1].space

    def encode(self, observation: object) -> np.ndarray:
        """Convert the environment's observation to the form that networks see."""
        return self.coders[0].encode(observation)

    def decode(self, action: np.ndarray) -> object:
        """Convert a policy's action to the form that the environment takes."""
        return self.coders[1].decode(np.asarray(action)[None])[0]

    @property
    def single_observation(self) -> Any:
        """The space of one observation in the environment's form."""
        return self.declared_spaces["observation"]

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The smallest and largest value of each entry of a vector observation, if known."""
        return None

    @property
    def notices(self) -> tuple[str, ...]:
        return self.coders[0].notices

    def instance(self, seed: int) -> tuple[()]:
        """Nothing: episodes differ only by their seeds."""
        del seed
        return ()

    def reset(self, key: jax.Array, params: tuple[()]) -> tuple[jax.Array, object]:
        """Refused: there is nothing to compile."""
        raise TypeError(f"{self} is stepped on the host: play its episodes with `players`")

    def transition(self, key: jax.Array, state: object, action: jax.Array, params: tuple[()]) -> Step:
        """Refused: there is nothing to compile."""
        raise TypeError(f"{self} is stepped on the host: play its episodes with `players`")
