"""The environments by name, for `make` and for the command line."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pcpg.config import nearest
from pcpg.envs.adapters.from_module import sources
from pcpg.envs.adapters.names import (
    ADAPTERS,
    GYMNASIUM,
    adapter_options,
    arguments_of,
    gymnasium_package,
    is_adapted,
    make_adapted,
)
from pcpg.envs.options import InvalidOption, Option, check_options, load, options_of
from pcpg.envs.protocol import Environment

Constructor = Callable[..., Environment]


class UnknownEnvironment(ValueError):
    """No environment is registered under this id."""


class Entry(NamedTuple):
    """The entry of an id."""

    home: str | Constructor  # "module:NAME" of the constructor, imported when it is asked for, or the constructor
    summary: str

    @property
    def constructor(self) -> Constructor:
        return load(self.home) if isinstance(self.home, str) else self.home


class EnvironmentSpec(NamedTuple):
    """The description of a registered environment before it is created."""

    id: str
    summary: str
    options: tuple[Option, ...]
    observation_space: str
    action_space: str
    max_steps: int | None  # None where it depends on options that must be given


# A new environment is a file and a line here.
_ENTRIES: dict[str, Entry] = {
    "CombinationLock-v0": Entry(
        "pcpg.envs.lock:CombinationLock", "two combination locks, the paper's hard-exploration task"
    ),
    "Maze-v0": Entry("pcpg.envs.maze:Maze", "a random maze seen as an image, reward-free unless a goal is set"),
    "MountainCarContinuous-v0": Entry(
        "pcpg.envs.mountain_car:MountainCarContinuous", "a car too weak to climb straight to its flag"
    ),
    "DeepSea-v0": Entry(
        "pcpg.envs.deep_sea:DeepSea", "a descent whose treasure needs one right sequence of moves (bsuite)"
    ),
    "Chain-v0": Entry(
        "pcpg.envs.chain:Chain", "a row of states with a large reward at the far end and a lure at the near end"
    ),
    "PointMass-v0": Entry("pcpg.envs.mechanics:PointMass", "a point mass in a box, with a wall before the far corner"),
    "Arm-v0": Entry("pcpg.envs.mechanics:Arm", "an arm of five links whose tip is to reach a place behind it"),
    "SwingUp-v0": Entry("pcpg.envs.mechanics:SwingUp", "a pole that hangs from a cart and is to be held upright"),
    "Rooms-v0": Entry("pcpg.envs.rooms:Rooms", "a chain of rooms with doors, another one at every reset, partly seen"),
}


def make(env_id: str, **options: object) -> Environment:
    """The environment registered under `env_id`.

    Args:
        env_id: Such as "Maze-v0"; environments from other libraries have a prefix, as in gymnasium:FrozenLake-v1.
        **options: Of the environment, such as `size`.

    Returns:
        The environment, which is hashable: the same id and options give an equal one.

    Raises:
        UnknownEnvironment: If the id is not registered; the message suggests the nearest one.
        InvalidOption: If an option is unknown or its value invalid.

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


def register(env_id: str, constructor: Constructor, summary: str, *, overwrite: bool = False) -> None:
    """Register an environment under an id.

    Args:
        env_id: A name and a version, such as "MyMaze-v0".
        constructor: A class or function that gives the environment; its arguments are the options.
        summary: A description in one line.
        overwrite: Whether to replace an existing one.

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
    _ENTRIES[env_id] = Entry(constructor, summary)


def known_as(env: object) -> tuple[str, dict[str, object]] | None:
    """The id and options of an environment of ours, which runs are told by; None: it is somebody else's."""
    kind = env if isinstance(env, type) else type(env)
    if not issubclass(kind, Environment):
        return None
    for env_id, entry in _ENTRIES.items():
        if entry.constructor is kind:
            fields = dataclasses.fields(env) if dataclasses.is_dataclass(env) and env is not kind else ()
            return env_id, {field.name: getattr(env, field.name) for field in fields if field.init}
    name = kind.__name__
    raise UnknownEnvironment(
        f"{name} has no id, by which runs find it again: pcpg.register('{name}-v0', {name}, 'what it is'), "
        f"then pass '{name}-v0'"
    )


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


def declared_options(env_id: str) -> list[str]:
    """The names of options that an environment says it has; those that only some wrapper takes are not among them."""
    if is_adapted(env_id):
        return [*adapter_options(env_id), *arguments_of(env_id)]
    return [option.name for option in options_of(_entry(env_id).constructor)]


def complete_options(env_id: str, options: Mapping[str, object]) -> dict[str, object]:
    """The options of an environment with the defaults of all that are not given."""
    if is_adapted(env_id):
        return adapter_options(env_id) | dict(options)
    defaults = {option.name: option.default for option in spec(env_id)[0].options if not option.required}
    return defaults | dict(options)


def _entry(env_id: str) -> Entry:
    if env_id not in _ENTRIES:
        meant = _meant(str(env_id))
        raise UnknownEnvironment(
            f"unknown environment {env_id!r}{f'; did you mean {meant!r}?' if meant else '.'} Your own are FILE.py:NAME "
            f"or MODULE:NAME, other libraries have a prefix, as in gymnasium:FrozenLake-v1. Ids: {', '.join(_ENTRIES)}"
        )
    return _ENTRIES[env_id]


def _meant(env_id: str) -> str | None:
    """The likely meaning of an unknown id: one of Gymnasium's without its prefix, or the nearest of ours."""
    if env_id.endswith(".py"):
        return f"{env_id}:NAME"
    module, _, last = env_id.replace("/", ".").rpartition(".")
    if module and sources(module) and last.isidentifier():
        return f"{module}:{last}"
    if env_id.isidentifier() and sources(env_id):
        return f"{env_id}:NAME"
    if game := re.fullmatch(r"(\w+?)(NoFrameskip|Deterministic)?-v[04]", env_id) if "NoFrameskip" in env_id else None:
        return f"gymnasium:ALE/{game[1]}-v5"
    before, colon, name = env_id.rpartition(":")
    if colon and before not in ADAPTERS and sources(before) and re.fullmatch(r".+-v\d+", name):
        return f"gymnasium:{env_id}"  # registered in a module of that name
    ours = nearest(env_id, _ENTRIES, cutoff=0.8)
    if ours is not None:
        return ours
    if gymnasium_package(name) is not GYMNASIUM:
        return f"gymnasium:{name}"
    try:
        from pcpg.envs.adapters.from_gymnasium import similar_id

        theirs = similar_id(name)
    except ImportError:
        theirs = None
    part = next((ours for ours in _ENTRIES if env_id.casefold() in ours.casefold()), None)
    return f"gymnasium:{theirs}" if theirs else part or nearest(env_id, _ENTRIES, cutoff=0.6)


def _describe(env_id: str, entry: Entry) -> EnvironmentSpec:
    options = options_of(entry.constructor)
    if any(option.required for option in options):
        observations = actions = "depends on the options"
        max_steps = None
    else:
        env = entry.constructor()
        observations, actions, max_steps = str(env.observation_space), str(env.action_space), env.max_steps
    return EnvironmentSpec(env_id, entry.summary, options, observations, actions, max_steps)
