"""Environments that live on the host: somebody's Python objects, stepped one call at a time.

The functional protocol (protocol.py) compiles whole episodes; here only acting and learning can be compiled. What the
agents ask of an environment is the same: spaces, the length of an episode, an instance for each seed. Episodes are
played by `Players`, a fixed number of environments side by side, each from a seed of its own.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from pcpg.envs.protocol import Environment, Step


class EnvironmentFailed(RuntimeError):
    """Somebody's environment raised, ended or did not answer; the message says where, so that it can be repeated."""

    def __init__(self, cause: str, where: dict[str, int] | None = None) -> None:
        super().__init__(cause, where)
        self.cause, self.where = cause, dict(where or {})

    def __str__(self) -> str:
        places = ", ".join(f"{name} {number}" for name, number in self.where.items())
        return f"the environment failed: {self.cause}" + (f"; {places}" if places else "")


@contextmanager
def locating(**where: int) -> Iterator[None]:
    """Whatever environment fails in here is said to have failed there: seed, round, update."""
    try:
        yield
    except EnvironmentFailed as error:
        named = {name: number for name, number in where.items() if name not in error.where}
        error.where = named | error.where
        raise


@contextmanager
def guarded(players: Any) -> Iterator[None]:
    """An exception of an environment in here says in which episode and at which step it came."""
    try:
        yield
    except EnvironmentFailed as error:
        error.where |= {name: n for name, n in getattr(players, "where", {}).items() if name not in error.where}
        raise
    except Exception as error:
        raise EnvironmentFailed(f"{type(error).__name__}: {error}", getattr(players, "where", {})) from error


class Moved(NamedTuple):
    """What one move of some environments gives back."""

    observations: np.ndarray  # [n, ...] the true ones after the move: no reset is in between
    rewards: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool
    truncated: np.ndarray  # [n] bool


@runtime_checkable
class Players(Protocol):
    """Some environments side by side; all of one wave start together and are played to their ends."""

    @property
    def count(self) -> int:
        """How many episodes can be played at a time."""
        ...

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in the first environments, one for each seed; the first observations [n, ...]."""
        ...

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move those that are alive; what is given back for the others means nothing."""
        ...


@runtime_checkable
class EpisodePlayers(Players, Protocol):
    """Players that take whole episodes, each from somebody who plays it from its start to its end."""

    def play(self, perform: Callable[[Players, Any, Any], Any], shared: Any, tasks: Sequence[Any]) -> list[Any]:
        """What `perform(player, shared, task)` gives for each task, in the order of the tasks, whoever played which."""
        ...


class HostEnvironment(Environment[tuple[()], Any]):
    """Base of the environments that are stepped on the host; subclasses are frozen dataclasses.

    Observations are vectors or images as networks see them, and actions as policies give them.
    """

    @property
    @abc.abstractmethod
    def players(self) -> Players:
        """The environments that play its episodes, the same at each call."""

    @abc.abstractmethod
    def encode(self, observation: Any) -> np.ndarray:
        """An observation as the environment gives it, as networks see it."""

    @abc.abstractmethod
    def decode(self, action: np.ndarray) -> Any:
        """An action as a policy gives it, as the environment takes it."""

    def close(self) -> None:
        """Close the environments that play, with their processes; they are made anew when next asked for."""

    @property
    def single_observation(self) -> Any:
        """The space of one observation as the environment gives it."""
        return self.observation_space

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The least and the largest observation, entry by entry, where it is a vector and they are known."""
        return None

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know: what was left out or taken for granted."""
        return ()

    def instance(self, seed: int) -> tuple[()]:
        """Nothing: what differs between episodes follows from their seeds."""
        del seed
        return ()

    def reset(self, key: jax.Array, params: tuple[()]) -> tuple[jax.Array, Any]:
        """Refused: there is nothing to compile."""
        raise TypeError(f"{self} is stepped on the host: play its episodes by `players`")

    def transition(self, key: jax.Array, state: Any, action: jax.Array, params: tuple[()]) -> Step[Any]:
        """Refused: there is nothing to compile."""
        raise TypeError(f"{self} is stepped on the host: play its episodes by `players`")
