"""External environments by name: gymnasium:ID, bsuite:NAME, gymnax:NAME, MODULE:NAME, FILE.py:NAME; and those made by a
Python function.

A new kind is a file with a function of a name and options, and a line in ADAPTERS. For environments on the host, our
own options (`max_steps`, `num_envs`, `workers`, `step_timeout`) are separated from the rest.
"""

import contextlib
import contextvars
import dataclasses
import functools
import importlib
import importlib.util
import json
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pcpg.config import Json
from pcpg.envs.adapters.from_module import Copies, accepts, arguments, check_arguments, maker_in, sources
from pcpg.envs.options import Functions, InvalidOption, load
from pcpg.envs.protocol import Environment

if TYPE_CHECKING:
    from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv

OURS: dict[str, object] = {"max_steps": 0, "num_envs": 32, "workers": 0, "step_timeout": 0.0}
"""Options of every environment on the host, with their defaults."""

OWN: dict[str, dict[str, object]] = {
    # As in the paper, training episodes are a fifth of the environment's own; the evaluation has all 999 steps.
    "gymnasium:MountainCarContinuous-v0": {"max_steps": 200},
}
"""Environments with other defaults."""

MOVED = {"pcpg.envs.adapters.own_tasks": "pcpg_lab.envs.own_tasks"}
"""Renamed modules of ours, by their former names in ids."""


class Package(NamedTuple):
    """A module imported to create an environment."""

    name: str
    pip: str  # what installs it; "" for a module that only the id names, which may be anybody's


GYMNASIUM = Package("gymnasium", "gymnasium")
REGISTERING = {
    "(MiniGrid|BabyAI)[-/]": Package("minigrid", "pcpg[minigrid]"),
    "ALE[-/]": Package("ale_py", "pcpg[atari]"),
    "dm_control[-/]": Package("shimmy", "pcpg[dmc]"),
    "(Point|Ant)Maze_|Fetch|Hand(Reach|Manipulate)|AdroitHand|FrankaKitchen": Package(
        "gymnasium_robotics", "pcpg[robotics]"
    ),
}
"""Packages that register environments with Gymnasium, by a regular expression for the beginning of their ids."""


def gymnasium_package(name: str) -> Package:
    """The package behind a Gymnasium id: named before its colon, known by its beginning, or Gymnasium itself."""
    module, colon, _ = name.partition(":")
    if colon:
        return Package(module, "")
    return next((package for start, package in REGISTERING.items() if re.match(start, name)), GYMNASIUM)


class Adapter(NamedTuple):
    """A kind of external environment."""

    home: str  # "module:NAME" of the function that makes one from its name and options
    package: Callable[[str], Package | None]  # what making the environment of a name imports
    on_host: bool = True  # whether it is stepped by calls of Gymnasium's interface, not compiled like ours


PYTHON = "python"
"""The prefix of environments made by a Python function, which must be registered in this process."""

ADAPTERS: dict[str, Adapter] = {
    "gymnasium": Adapter("pcpg.envs.adapters.from_gymnasium:gymnasium_env", gymnasium_package),
    "bsuite": Adapter("pcpg.envs.adapters.from_dm_env:bsuite_env", lambda name: Package("bsuite", "pcpg[bsuite]")),
    "gymnax": Adapter(
        "pcpg_lab.envs.from_gymnax:gymnax_env", lambda name: Package("gymnax", "pcpg[gymnax]"), on_host=False
    ),
    PYTHON: Adapter("", lambda name: None),
}
"""By the prefix of their ids."""

IN_MODULE = re.compile(r"([\w./-]+\.py|[^\W\d][\w.]*):[^\W\d][\w.]*")
MODULE = Adapter("pcpg.envs.adapters.from_module:module_env", lambda name: Package(name.rpartition(":")[0], ""))
"""Of an id that names a module or file and what makes the environment in it."""

_FUNCTIONS = Functions(PYTHON, "env_fn")


def split_id(env_id: str) -> tuple[Adapter | None, str]:
    """The adapter of an id, or None for a built-in environment, and the name after its prefix."""
    prefix, colon, name = str(env_id).partition(":")  # a file may hold anything
    if prefix not in ADAPTERS and IN_MODULE.fullmatch(str(env_id)):
        return MODULE, str(env_id)
    module, inner_colon, rest = name.partition(":")
    return (ADAPTERS.get(prefix) if colon else None), MOVED.get(module, module) + inner_colon + rest


def is_adapted(env_id: str) -> bool:
    """Whether an id names an external environment, by its prefix."""
    return split_id(env_id)[0] is not None


def is_on_host(env_id: str) -> bool:
    """Whether an id names an external environment that is stepped on the host."""
    adapter, _ = split_id(env_id)
    return adapter is not None and adapter.on_host


class Untrusted(ValueError):
    """The environment is in a module that only the run folder names."""


def outside_module(env_id: str, options: Mapping[str, object]) -> str | None:
    """What creating an environment would import or open besides known, installed packages, or None.

    Known packages are the library, Gymnasium and the extras. A user's own function was given in Python; a folder cannot
    name another one.
    """
    adapter, name = split_id(env_id)
    package = None if adapter is None else adapter.package(name)
    if package is None:
        return None
    if not package.pip:
        return f"the module {package.name!r}"
    if package is GYMNASIUM:
        import gymnasium

        entry = getattr(gymnasium.registry.get(name), "entry_point", "gymnasium.")  # an unknown name imports nothing
        if not isinstance(entry, str) or not entry.startswith("gymnasium."):
            return f"the module {entry.partition(':')[0] if isinstance(entry, str) else entry!r}"
    elif not _is_installed(package.name):
        return f"the module {package.name!r}, which is not installed as a package"
    strange = [key for key, value in options.items() if not _is_simple(value)]
    return f"the target of its option {strange[0]!r}" if strange else None


def sources_of(env_id: str) -> list[Path]:
    """The files that creating an environment would import if its id names a module; empty if unknown."""
    adapter, name = split_id(env_id)
    package = None if adapter is None else adapter.package(name)
    return [] if package is None or package.pip else sources(package.name)


def _is_installed(package: str) -> bool:
    """Whether a package would be imported from an installation, not from the working folder."""
    spec = importlib.util.find_spec(package)
    places = {Path(path).resolve() for key, path in sysconfig.get_paths().items() if key in ("purelib", "platlib")}
    found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    return spec is None or (found is not None and any(found.is_relative_to(place) for place in places))


def _is_simple(value: object) -> bool:
    """Whether an option is a number, a word or a list of them, and so no path or module name."""
    if isinstance(value, list | tuple):
        return all(_is_simple(item) for item in value)
    if isinstance(value, str):
        return re.fullmatch(r"[\w -]*", value) is not None
    return value is None or isinstance(value, bool | int | float)


def is_own_function(env_id: str) -> bool:
    """Whether an id is that of an environment made by a Python function."""
    return env_id.startswith(f"{PYTHON}:")


def knows_function(env_id: str) -> bool:
    """Whether the function of an id was given in this process."""
    return _FUNCTIONS.find(env_id) is not None


def register_function(made: object) -> str:
    """Register a function, class or environment in this process; returns its id for `make_adapted`."""
    return _FUNCTIONS.register(_maker_of(made))


def given_function(env_id: str, made: object) -> contextlib.AbstractContextManager[None]:
    """A context in which an id stands for this function, whatever is registered."""
    return _FUNCTIONS.given(env_id, _maker_of(made))


def _maker_of(made: object) -> Callable[..., object]:
    if not isinstance(made, type) and hasattr(made, "reset") and hasattr(made, "step"):
        return Copies(made)
    if not callable(made):
        raise InvalidOption(
            f"an environment must be an id, a class, an environment or a function that makes one, got {made!r}"
        )
    return made


def adapter_options(env_id: str) -> Json:
    """The options that every environment of this kind has, with their defaults."""
    return OURS | OWN.get(env_id, {}) if is_on_host(env_id) else {}


def arguments_of(env_id: str) -> list[str]:
    """The names of the arguments of the function or class behind an id; empty if unknown."""
    if is_own_function(env_id):
        return arguments(_FUNCTIONS.find(env_id))
    adapter, name = split_id(env_id)
    if adapter is MODULE:
        return arguments(maker_in(name))
    if adapter is ADAPTERS["gymnasium"]:
        return load("pcpg.envs.adapters.from_gymnasium:arguments_of")(name)
    return []


def takes(env_id: str, option: str) -> bool:
    """Whether the maker of the environment takes an option; True if its arguments are unknown."""
    if is_own_function(env_id):
        return accepts(_FUNCTIONS.find(env_id), option)
    adapter, name = split_id(env_id)
    return adapter is not MODULE or accepts(maker_in(name), option)


@dataclasses.dataclass(frozen=True)
class Maker:
    """A call that creates an environment and can be sent to another process; equal calls create equal environments."""

    env_id: str
    options: str  # as JSON
    function: Callable[..., object] | None = None  # a user's own

    def __call__(self) -> Any:
        options = json.loads(self.options)
        if self.function is not None:
            check_arguments(self.function, options, self.env_id.removeprefix(f"{PYTHON}:"))
            return self.function(**options)
        adapter, name = split_id(self.env_id)
        assert adapter is not None
        _import(adapter.package(name))
        return load(adapter.home)(name, options)


def _import(package: Package | None) -> None:
    """Import what an environment needs, except a module named in its id, which Gymnasium imports."""
    if package is None or not package.pip:
        return
    try:
        importlib.import_module(package.name)
    except ImportError as error:
        raise InvalidOption(f"{package.name} is not installed ({error}): pip install '{package.pip}'") from error


def make_adapted(env_id: str, options: Mapping[str, object]) -> Environment:
    """The environment with this id; errors name the mistake in the id or options."""
    if not split_id(env_id)[1]:
        raise InvalidOption(f"{env_id!r} is not an environment id: expected one such as gymnasium:FrozenLake-v1")
    ours = OURS if is_on_host(env_id) else {}
    own = ours | {key: value for key, value in options.items() if key in ours}
    rest = {key: value for key, value in options.items() if key not in ours}
    function = _FUNCTIONS.needed(env_id, f"the environment {env_id} is made by") if is_own_function(env_id) else None
    file, colon, inner = env_id.rpartition(".py:")
    at = f"{Path(file).absolute()}{colon}{inner}" if colon else env_id  # an environment may change the current folder
    try:
        maker = Maker(at, json.dumps(rest, sort_keys=True), function)
        hash(maker)
    except TypeError as error:
        raise InvalidOption(f"{env_id}: options must be numbers, text, true or false, got {rest}") from error
    if not ours:
        return maker()
    env = _environment(env_id, maker, *own.values())
    if not env.is_alive:  # a process failed or never answered: stop and restart all of them
        env.close()
    return env


@functools.lru_cache(maxsize=8)
def _environment(*arguments: Any) -> "GymnasiumEnv":
    """The environment is cached, since a configuration is checked more than once and some are slow to create."""
    from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv

    env = GymnasiumEnv(*arguments)
    for asked in ("observation_space", "action_space", "max_steps"):
        getattr(env, asked)  # what cannot be trained on is refused here
    return env


LOCAL, RAY = "local", "ray"
PLACES = "local, ray, or the address of a cluster as in ray://host:10001"
PLAYERS = {RAY: "pcpg_lab.cluster:ray_players"}
"""What starts workers elsewhere, by the kind of place."""

_PLACE = contextvars.ContextVar("pcpg-place", default=LOCAL)


def check_place(name: str) -> None:
    """Refuse an unknown place."""
    if name not in (LOCAL, RAY) and not name.startswith(f"{RAY}://"):
        raise InvalidOption(f"--on must be {PLACES}, got {name!r}")


def players_elsewhere() -> Callable[..., Any] | None:
    """What starts the workers of environments at the current place; None for local processes."""
    place = _PLACE.get()
    return None if place == LOCAL else functools.partial(load(PLAYERS[place.partition("://")[0]]), place)


@contextlib.contextmanager
def workers_on(name: str) -> Iterator[None]:
    """Inside, the workers of environments are started there."""
    check_place(name)
    token = _PLACE.set(name)
    try:
        yield
    finally:
        _PLACE.reset(token)
