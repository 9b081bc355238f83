"""Other people's environments by name: gymnasium:ID, bsuite:NAME, gymnax:NAME; and those of a Python function.

Options of ours (`max_steps`, `num_envs`, `workers`, `step_timeout`) are taken out; the others go to whoever makes the
environment.
"""

import contextlib
import functools
import importlib
import importlib.util
import json
import re
import sysconfig
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcpg.envs.functions import Functions
from pcpg.envs.options import InvalidOption, nearest
from pcpg.envs.protocol import Environment

OURS: dict[str, Any] = {"max_steps": 0, "num_envs": 32, "workers": 0, "step_timeout": 0.0}
"""Options of every environment on the host, with their defaults."""

OWN: dict[str, dict[str, Any]] = {
    # As in the paper, training episodes are a fifth of the environment's own; the evaluation has all 999 steps.
    "gymnasium:MountainCarContinuous-v0": {"max_steps": 200},
}
"""Options of environments that have other defaults."""

PACKAGES = {"gymnasium": "gymnasium", "bsuite": "bsuite", "gymnax": "gymnax"}
"""The package behind each prefix, which is also the name of the extra that installs it."""

PYTHON = "python"
"""The prefix of environments that a Python function makes."""

MODULES = {"MiniGrid": "minigrid", "BabyAI": "minigrid", "ALE": "ale_py"}
"""Packages that register environments on import, by how their ids begin."""

NO_EXTRA = {"ale_py": "ale-py"}
"""Packages that are installed by themselves, under the name that pip knows."""


_FUNCTIONS = Functions()


def is_adapted(env_id: str) -> bool:
    """Whether an id names somebody else's environment, by its prefix."""
    return ":" in env_id and env_id.split(":")[0] in (*PACKAGES, PYTHON)


def is_on_host(env_id: str) -> bool:
    """Whether it is also stepped on the host; gymnax's are compiled like ours."""
    return is_adapted(env_id) and not env_id.startswith("gymnax:")


class Untrusted(ValueError):
    """An environment that a run folder names and that lies in a module which nobody vouched for."""


def outside_module(env_id: str, options: Mapping[str, Any]) -> str | None:
    """What making an environment would import or open beyond what is installed here and known; None: nothing.

    Known are the library's environments, those of Gymnasium itself, and those of the packages of our extras. A function
    that a user gave in Python is none of a folder's doing.
    """
    prefix, _, name = env_id.partition(":")
    if not is_adapted(env_id) or prefix == PYTHON:
        return None
    package = MODULES.get(name.split("-")[0]) if prefix == "gymnasium" else PACKAGES[prefix]
    if ":" in name:
        return f"the module {name.partition(':')[0]!r}"
    if package is not None and not _is_installed(package):
        return f"the module {package!r}, which is not installed as a package"
    if prefix == "gymnasium" and package is None:
        import gymnasium

        entry = getattr(gymnasium.registry.get(name), "entry_point", "gymnasium.")  # an unknown name imports nothing
        if not isinstance(entry, str) or not entry.startswith("gymnasium."):
            return f"the module {entry.partition(':')[0] if isinstance(entry, str) else entry!r}"
    strange = [key for key, value in options.items() if not _is_simple(value)]
    return f"what its option {strange[0]!r} names" if strange else None


def _is_installed(package: str) -> bool:
    """Whether a package would come from where packages are installed, and not from a folder that lies about."""
    spec = importlib.util.find_spec(package)
    places = {Path(path).resolve() for key, path in sysconfig.get_paths().items() if key in ("purelib", "platlib")}
    found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    return spec is None or (found is not None and any(found.is_relative_to(place) for place in places))


def _is_simple(value: Any) -> bool:
    """Whether an option is a number, a word or a list of them: a path or the name of a module is none."""
    if isinstance(value, list | tuple):
        return all(_is_simple(item) for item in value)
    if isinstance(value, str):
        return re.fullmatch(r"[\w -]*", value) is not None
    return value is None or isinstance(value, bool | int | float)


def is_own_function(env_id: str) -> bool:
    """Whether an id is that of an environment which a Python function makes."""
    return env_id.startswith(f"{PYTHON}:")


def knows_function(env_id: str) -> bool:
    """Whether the function of an id was given in this process."""
    return _FUNCTIONS.find(env_id) is not None


def register_function(function: Callable[..., Any]) -> str:
    """Make an environment's function known in this process; the id under which `make_adapted` finds it."""
    _check_callable(function)
    inner = function.func if isinstance(function, functools.partial) else function
    module, name = getattr(inner, "__module__", ""), getattr(inner, "__qualname__", type(inner).__name__)
    return _FUNCTIONS.register(f"{PYTHON}:{module}.{name}", function)


def given_function(env_id: str, function: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """A context in which an id is that of this function, whatever is registered under it."""
    _check_callable(function)
    return _FUNCTIONS.given(env_id, function)


def _check_callable(function: Any) -> None:
    if not callable(function):
        raise InvalidOption(f"an environment must be an id or a function that makes one, got {function!r}")


def adapter_options(env_id: str) -> dict[str, Any]:
    """The options that every environment of this kind has, with their defaults."""
    return OURS | OWN.get(env_id, {}) if is_on_host(env_id) else {}


def make_adapted(env_id: str, options: Mapping[str, Any]) -> Environment[Any, Any]:
    """The environment of this id; a mistake in the id or the options is named."""
    prefix, _, name = env_id.partition(":")
    if not name:
        raise InvalidOption(f"{env_id!r} names no environment: expected such as gymnasium:FrozenLake-v1")
    _import(PACKAGES.get(prefix, "gymnasium"))
    if prefix == "gymnax":
        from pcpg.envs.adapters.from_gymnax import gymnax_env

        return gymnax_env(name, options)
    from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv

    own: dict[str, Any] = OURS | {key: value for key, value in options.items() if key in OURS}
    rest = {key: value for key, value in options.items() if key not in OURS}
    try:
        function = _function_of(env_id) if prefix == PYTHON else None
        make = _maker(prefix, name, json.dumps(rest, sort_keys=True), function)
    except TypeError as error:
        raise InvalidOption(f"{env_id}: options must be numbers, text, true or false, got {rest}") from error
    env = _environment(GymnasiumEnv, env_id, make, *own.values())
    if not _is_alive(env):
        _environment.cache_clear()
        env = _environment(GymnasiumEnv, env_id, make, *own.values())
    return env


@functools.lru_cache(maxsize=8)
def _environment(kind: Callable[..., Any], *arguments: Any) -> Any:
    """The environment itself is kept: a configuration is checked more than once, and some take long to make."""
    env = kind(*arguments)
    for asked in ("observation_space", "action_space", "max_steps"):
        getattr(env, asked)  # what cannot be trained on is refused here
    return env


def _is_alive(env: Any) -> bool:
    """Whether an environment can go on; else its processes, one of which failed or never answered, are ended."""
    from gymnasium.vector import AsyncVectorEnv
    from gymnasium.vector.async_vector_env import AsyncState

    made = [vars(env).get("_first"), getattr(vars(env).get("_players"), "vector", None)]
    for vector in (getattr(one, "unwrapped", None) for one in made):
        if not isinstance(vector, AsyncVectorEnv):
            continue
        is_whole = None not in vector.parent_pipes and all(process.is_alive() for process in vector.processes)
        if vector.closed or not is_whole or getattr(vector, "_state", None) is not AsyncState.DEFAULT:
            with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
                vector.close(terminate=True)
            return False
    return True


@functools.lru_cache(maxsize=64)
def _maker(prefix: str, name: str, options: str, function: Callable[..., Any] | None) -> Callable[[], Any]:
    """What makes the environment; the same object for the same arguments, so that environments compare equal."""
    return _Maker(prefix, name, json.loads(options), function)


class _Maker:
    """A call that can be sent to another process."""

    def __init__(
        self, prefix: str, name: str, options: dict[str, Any], function: Callable[..., Any] | None = None
    ) -> None:
        self.prefix, self.name, self.options, self.function = prefix, name, options, function

    def __call__(self) -> Any:
        if self.function is not None:
            return self.function(**self.options)
        if self.prefix == "bsuite":
            from pcpg.envs.adapters.from_dm_env import bsuite_env

            return bsuite_env(self.name, self.options)
        return _gymnasium_env(self.name, self.options)


def _function_of(env_id: str) -> Callable[..., Any]:
    function = _FUNCTIONS.find(env_id)
    if function is None:
        raise InvalidOption(
            f"the environment {env_id} is made by a Python function, which a run folder does not hold: use "
            "pcpg.resume(folder, env_fn=...) or pcpg.load(folder, env_fn=...) with the function it was trained on"
        )
    return function


def _gymnasium_env(name: str, options: dict[str, Any]) -> Any:
    import gymnasium

    module = module_of(name)
    if module is not None:
        _import(module)
    if module == "ale_py":
        gymnasium.register_envs(importlib.import_module(module))
    if module == "minigrid" and name not in gymnasium.registry:
        importlib.import_module("minigrid").register_minigrid_envs()
    if ":" not in name and name not in gymnasium.registry:
        hint = similar_in_gymnasium(name)
        advice = f"did you mean {hint!r}?" if hint else "there is none like it."
        raise InvalidOption(
            f"Gymnasium knows no environment {name!r}; {advice} One that a package registers has its module before it: "
            f"gymnasium:my_package:{name}"
        )
    try:
        # The passive checker looks at every step, at a third of the time of one.
        return gymnasium.make(name, disable_env_checker=True, **options)
    except (TypeError, ImportError, gymnasium.error.Error) as error:
        raise InvalidOption(f"gymnasium.make({name!r}, {options}): {error}") from error


def module_of(name: str) -> str | None:
    """The package that registers an environment of Gymnasium, where it is not Gymnasium itself and known here."""
    return MODULES.get(re.split("[-/]", name)[0])


def similar_in_gymnasium(name: str) -> str | None:
    """The id of Gymnasium that a name is likely to stand for: another version of it, or one with a slip in it."""
    import gymnasium

    registry = [known for known in gymnasium.registry if not known.startswith("pcpg/")]  # where our bridge puts ours
    stem = re.sub(r"-v\d+$", "", name).casefold()
    versions = [known for known in registry if known.casefold().startswith(f"{stem}-v")]
    if name in registry or versions:
        return name if name in registry else max(versions, key=lambda known: int(known.rpartition("-v")[2]))
    return nearest(name, registry, cutoff=0.7)


def _import(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        wanted = NO_EXTRA.get(package, f"pcpg[{package}]")
        raise InvalidOption(f"{package} is not installed ({error}): pip install '{wanted}'") from error
