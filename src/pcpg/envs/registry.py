"""The environments by name: what `make` can build, and what the command line lists."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pcpg.envs import probes
from pcpg.envs.adapters.names import (
    adapter_options,
    is_adapted,
    make_adapted,
    module_of,
    similar_in_gymnasium,
)
from pcpg.envs.chain import Chain
from pcpg.envs.deep_sea import DeepSea
from pcpg.envs.lock import CombinationLock
from pcpg.envs.maze import Maze
from pcpg.envs.mountain_car import MountainCarContinuous
from pcpg.envs.options import InvalidOption, Option, check_options, nearest, options_of
from pcpg.envs.protocol import Environment

Constructor = Callable[..., Environment[Any, Any]]


class UnknownEnvironment(ValueError):
    """An id under which no environment is registered."""


class Entry(NamedTuple):
    """What is registered under an id."""

    constructor: Constructor
    summary: str
    hidden: bool = False  # listed apart: made for tests, not for research


class EnvironmentSpec(NamedTuple):
    """What there is to know about a registered environment before it is made."""

    id: str
    summary: str
    options: tuple[Option, ...]
    observation_space: str
    action_space: str
    max_steps: int | None  # None where it depends on options that must be given
    hidden: bool


_ENTRIES: dict[str, Entry] = {
    "CombinationLock-v0": Entry(CombinationLock, "two combination locks, the hard-exploration task of the paper"),
    "Maze-v0": Entry(Maze, "a random maze seen as an image, without reward unless it has a goal"),
    "MountainCarContinuous-v0": Entry(MountainCarContinuous, "a car too weak to climb straight to its flag"),
    "DeepSea-v0": Entry(DeepSea, "a descent whose treasure needs one right sequence of moves (bsuite)"),
    "Chain-v0": Entry(Chain, "a row of states with a large reward at the far end and a lure at the near end"),
    "ProbeOneStep-v0": Entry(probes.OneStep, "one decision, reward 1", hidden=True),
    "ProbeTwoStates-v0": Entry(probes.TwoStates, "one decision, the reward is the observation", hidden=True),
    "ProbeDelayed-v0": Entry(probes.Delayed, "two decisions, the second pays for the first", hidden=True),
    "ProbeTruncation-v0": Entry(probes.Truncation, "reward 1 for ever, cut by a time limit", hidden=True),
    "ProbeAction-v0": Entry(probes.Action, "one decision, action 1 pays 1", hidden=True),
    "ProbeContinuous-v0": Entry(probes.Continuous, "one real action, best at 0.5", hidden=True),
    "ProbeNonFinite-v0": Entry(probes.NonFinite, "a NaN after some decisions", hidden=True),
}


def make(env_id: str, **options: Any) -> Environment[Any, Any]:
    """The environment registered under `env_id`.

    Args:
        env_id: Such as "Maze-v0"; other people's environments have a prefix, such as gymnasium:FrozenLake-v1.
        **options: Of the environment, such as `size`.

    Returns:
        The environment, which is hashable: the same id and options give an equal one.

    Raises:
        UnknownEnvironment: Where nothing is registered under the id; the nearest that is, is named.
        InvalidOption: Where there is no such option, or it cannot have this value.

    >>> make("Maze-v0", size=10)
    Maze(size=10, steps=200, goal=None, goals=0)
    """
    if is_adapted(env_id):
        return make_adapted(env_id, options)
    constructor = _entry(env_id).constructor
    check_options(env_id, constructor, options)
    try:
        return constructor(**options)
    except ValueError as error:  # a value out of range, refused by the environment itself
        valid = ", ".join(str(option) for option in options_of(constructor))
        raise InvalidOption(f"{env_id}: {error}. Valid options: {valid}") from error


def register(
    env_id: str, constructor: Constructor, summary: str, *, hidden: bool = False, overwrite: bool = False
) -> None:
    """Make an environment known under an id.

    Args:
        env_id: A name and a version, such as "MyMaze-v0".
        constructor: A class or function that gives the environment; its arguments are the options.
        summary: What it is, in a line.
        hidden: Whether it is listed apart: made for tests.
        overwrite: Whether another one may be replaced.

    >>> from pcpg.envs import Chain
    >>> register("LongChain-v0", lambda length=50: Chain(length, 2 * length), "a long chain", overwrite=True)
    >>> make("LongChain-v0")
    Chain(length=50, horizon=100)
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*-v[0-9]+", env_id):
        raise ValueError(f"an environment id is a name and a version such as 'MyMaze-v0', got {env_id!r}")
    if not callable(constructor):
        raise TypeError(f"the constructor of {env_id} must be callable, got {constructor!r}")
    if env_id in _ENTRIES and not overwrite:
        raise ValueError(f"{env_id} is already registered; pass overwrite=True to replace it")
    _ENTRIES[env_id] = Entry(constructor, summary, hidden)


def spec(env_id: str | None = None) -> tuple[EnvironmentSpec, ...]:
    """A description of every registered environment, or of the one named.

    Args:
        env_id: One id; by default all.

    Returns:
        Id, summary, options and spaces of each.

    >>> [str(option) for option in spec("DeepSea-v0")[0].options]
    ['size=10']
    """
    entries = _ENTRIES if env_id is None else {env_id: _entry(env_id)}
    return tuple(_describe(name, entry) for name, entry in entries.items())


def complete_options(env_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an environment with the defaults of all that are not given."""
    if is_adapted(env_id):
        return adapter_options(env_id) | dict(options)
    defaults = {option.name: option.default for option in spec(env_id)[0].options if not option.required}
    return defaults | dict(options)


def _entry(env_id: str) -> Entry:
    if env_id not in _ENTRIES:
        listed = ", ".join(name for name, entry in _ENTRIES.items() if not entry.hidden)
        raise UnknownEnvironment(
            f"unknown environment {env_id!r}; did you mean {_meant(str(env_id))!r}? Valid ids: {listed}; "
            "Gymnasium's and others' have a prefix, as in gymnasium:FrozenLake-v1"
        )
    return _ENTRIES[env_id]


def _meant(env_id: str) -> str | None:
    """What an unknown id is likely to stand for: one of Gymnasium's without its prefix, or the nearest of ours."""
    name = env_id.rpartition(":")[2]
    ours = nearest(env_id, _ENTRIES, cutoff=0.8)
    if ours is not None:
        return ours
    if module_of(name) is not None:
        return f"gymnasium:{name}"
    try:
        theirs = similar_in_gymnasium(name)
    except ImportError:
        theirs = None
    return f"gymnasium:{theirs}" if theirs else nearest(env_id, _ENTRIES)


def _describe(env_id: str, entry: Entry) -> EnvironmentSpec:
    options = options_of(entry.constructor)
    if any(option.required for option in options):
        observations = actions = "depends on the options"
        max_steps = None
    else:
        env = entry.constructor()
        observations, actions, max_steps = str(env.observation_space), str(env.action_space), env.max_steps
    return EnvironmentSpec(env_id, entry.summary, options, observations, actions, max_steps, entry.hidden)
