"""An environment named by its module or file: my_envs:KeyDoor, or my_envs.py:KeyDoor.

The current folder is not on the path: libraries, such as the plugins of JAX and Gymnasium, import whatever they find
there, and the folder may be untrusted. It is searched only for the named module; if the module is there and nowhere
else, the folder is put last on the path.
"""

import contextlib
import copy
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from pcpg.config import nearest
from pcpg.envs.options import InvalidOption

HERE = ""
"""The current folder at startup; an environment may change it."""
with contextlib.suppress(OSError):
    HERE = "" if sys.flags.safe_path else os.getcwd()


class Copies:
    """Copies one environment, since each parallel player needs its own."""

    def __init__(self, env: object) -> None:
        self.env, self.__module__, self.__qualname__ = env, type(env).__module__, type(env).__qualname__

    def __call__(self) -> Any:
        try:
            return copy.deepcopy(self.env)
        except Exception as error:
            raise InvalidOption(
                f"this {type(self.env).__name__} cannot be copied ({type(error).__name__}: {error}): pass its class, "
                "or a function that makes one"
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Copies) and self.env is other.env

    def __hash__(self) -> int:
        return id(self.env)


def module_env(name: str, options: Mapping[str, object]) -> Any:
    """The environment made by the class or function MODULE:NAME, or a copy of the environment of that name."""
    make = maker_in(name)
    check_arguments(make, options, Path(name).name)
    return make(**options)


def maker_in(name: str) -> Callable[..., Any]:
    """The class or function MODULE:NAME; if it is an environment, a function that copies it."""
    where, _, path = name.rpartition(":")
    found: Any = module_of(where)
    where = Path(where).name if where.endswith(".py") else where  # of a path the end is enough
    for part in path.split("."):
        if not hasattr(found, part):
            hint = nearest(part, [one for one in vars(found) if not one.startswith("_")], cutoff=0.6)
            raise InvalidOption(f"{where} has no {part!r}" + (f"; did you mean {where}:{hint}?" if hint else ""))
        found = getattr(found, part)
    return found if callable(found) else Copies(found)


def _signature(make: Callable[..., Any] | None) -> inspect.Signature | None:
    try:
        return None if make is None else inspect.signature(make)
    except (TypeError, ValueError):  # of a builtin
        return None


def arguments(make: Callable[..., Any] | None) -> list[str]:
    """The names of the arguments of a maker, as far as they are known."""
    found = signature.parameters.values() if (signature := _signature(make)) else ()
    return [one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]


def accepts(make: Callable[..., Any] | None, name: str) -> bool:
    """Whether a maker accepts an argument of this name; True if unknown."""
    found = signature.parameters.values() if (signature := _signature(make)) else None
    return found is None or name in arguments(make) or any(one.kind is one.VAR_KEYWORD for one in found)


def check_arguments(make: Callable[..., Any], options: Mapping[str, object], name: str) -> None:
    """Refuse options that the maker of an environment does not take."""
    if (signature := _signature(make)) is None:
        return
    taken = arguments(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        hints = [nearest(one, taken, cutoff=0.6) for one in options if one not in taken]
        meant = f"did you mean {hints[0]!r}? " if hints and hints[0] else ""
        listed = f"its options: {', '.join(taken)}" if taken else "it has no options"
        raise InvalidOption(f"{name}: {error}; {meant}{listed}") from error


def module_of(where: str) -> ModuleType:
    """The module with this name, or in this file."""
    path = Path(where)
    if path.suffix == ".py" and not os.path.isfile(path):
        raise InvalidOption(f"there is no file {where}")
    try:
        if path.suffix == ".py":
            return _of_file(path.resolve())
        make_findable(where)
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where.partition(".")[0] and error.name != where:
            raise _failed(where, error) from error
        raise InvalidOption(
            f"there is no module {where!r}, here or installed; name a file by its path, as in "
            f"{where.replace('.', '/')}.py:Name"
        ) from error
    except Exception as error:
        raise _failed(where, error) from error


def _failed(where: str, error: Exception) -> InvalidOption:
    from pcpg.envs.adapters.worker_process import said  # and Gymnasium, which is not needed before

    return InvalidOption(f"importing {where} failed: {said(error)}")


def sources(where: str) -> list[Path]:
    """The files that importing the module or package would run, found without importing it; empty if unknown."""
    if where.endswith(".py"):
        return [Path(where).resolve()] if os.path.isfile(where) else []
    spec = _installed(where) or _here(where)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return []
    path = Path(spec.origin).resolve()
    if not spec.submodule_search_locations:
        return [path]
    found = list(path.parent.rglob("*"))
    if any(one.is_symlink() for one in found):  # what lies behind it is not looked at
        return []
    return sorted(one for one in found if one.name.endswith(IMPORTED) and one.parent.name != "__pycache__")


IMPORTED = tuple(importlib.machinery.all_suffixes())


def _installed(where: str) -> ModuleSpec | None:
    """Where a module is found on the path."""
    try:
        return importlib.util.find_spec(where.partition(".")[0])  # of what is inside it would import the package
    except (ImportError, ValueError):
        return None


def _here(where: str) -> ModuleSpec | None:
    """Where a module is found in the current folder."""
    return importlib.machinery.PathFinder.find_spec(where.partition(".")[0], [HERE]) if HERE else None


def make_findable(where: str) -> None:
    """Put the current folder last on the path if the module that a user named is there and nowhere else."""
    if _installed(where) is None and _here(where) is not None:
        put_on_path(Path(HERE))


def put_on_path(folder: Path) -> None:
    """Find modules in a folder, but after installed ones."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@functools.cache
def _of_file(path: Path) -> ModuleType:
    """The module in a file; it can import its neighbours, as if run by Python."""
    put_on_path(path.parent)
    known = getattr(sys.modules.get(path.stem), "__file__", None)
    if known is not None and Path(known).resolve() == path:
        return sys.modules[path.stem]
    # The name of another module stays that module's.
    unique = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = path.stem if known is None and path.stem not in sys.modules else f"{path.stem}_{unique}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
