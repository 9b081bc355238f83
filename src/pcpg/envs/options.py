"""Options of environments: the arguments of a constructor, and clear errors for invalid ones.

Also functions by name: the user's own, which make environments, feature maps and networks, and the library's.
"""

import contextlib
import functools
import importlib
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from pcpg.config import ConfigError, alternatives, check_type, item_kinds, nearest


class InvalidOption(ValueError):
    """An unknown option of an environment, or an invalid value."""


class NoTimeLimit(InvalidOption):
    """The environment has no time limit, and none was given."""


class Option(NamedTuple):
    """One option of a constructor."""

    name: str
    kind: object  # the annotation, or None where there is none
    default: object  # inspect.Parameter.empty where the option must be given

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def __str__(self) -> str:
        return f"{self.name} (required)" if self.required else f"{self.name}={self.default!r}"


MOST = 10_000_000
"""The largest value of an option; larger ones are mistakes that would ask for arrays of that size."""


def require_int(name: str, value: object, *, minimum: int, maximum: int = MOST) -> None:
    """Raise a ValueError unless the value is an integer between `minimum` and `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {value:,}")


def options_of(constructor: Callable[..., Any]) -> tuple[Option, ...]:
    """The options of a constructor, in the order of its signature."""
    try:
        signature = inspect.signature(constructor, eval_str=True)
    except NameError:  # an annotation written as text that names something absent at run time
        signature = inspect.signature(constructor)
    return tuple(
        Option(p.name, None if p.annotation is inspect.Parameter.empty else p.annotation, p.default)
        for p in signature.parameters.values()
        if p.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    )


def check_options(owner: str, constructor: Callable[..., object], given: Mapping[str, object]) -> None:
    """Raise InvalidOption if an option is unknown, of the wrong type, or required and missing."""
    options = {option.name: option for option in options_of(constructor)}
    valid = f"Valid options: {', '.join(map(str, options.values()))}"
    for name, value in given.items():
        if name not in options:
            hint = nearest(name, options)
            listing = f"did you mean {hint!r}? {valid}" if hint else "it has no options"
            raise InvalidOption(f"{owner} has no option {name!r}; {listing}")
        kind = options[name].kind
        if any(item_kinds(one, 0) is not None for one in alternatives(kind)):
            continue  # the environment knows which lists it takes
        try:
            check_type(kind, value, f"option {name!r}")
        except ConfigError as error:
            raise InvalidOption(f"{owner}: {error}. {valid}") from error
    missing = [name for name, option in options.items() if option.required and name not in given]
    if missing:
        raise InvalidOption(f"{owner} needs option {missing[0]!r}. {valid}")


def load(home: str) -> Any:
    """Import the object with a name such as "package.module:NAME"."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


class Functions:
    """The user's functions by name, such as python:module.function; the first function to get a name keeps it."""

    def __init__(self, prefix: str, argument: str) -> None:
        """`argument`: the name of the argument with which a run is given such a function."""
        self.prefix, self.argument = prefix, argument
        self._known: dict[str, Callable[..., Any]] = {}
        self._given: ContextVar[Mapping[str, Callable[..., Any]] | None] = ContextVar("given", default=None)

    def register(self, function: Callable[..., object]) -> str:
        """Register a function; returns its name, with a number if the name is taken."""
        inner = function.func if isinstance(function, functools.partial) else function
        module, own = getattr(inner, "__module__", ""), getattr(inner, "__qualname__", type(inner).__name__)
        for number in itertools.count(1):
            name = f"{self.prefix}:{module}.{own}" if number == 1 else f"{self.prefix}:{module}.{own}#{number}"
            if _is_same(self._known.setdefault(name, function), function):
                return name
        raise AssertionError  # there are always more numbers

    @contextlib.contextmanager
    def given(self, name: str, function: Callable[..., object]) -> Iterator[None]:
        """Inside, the name stands for this function; afterwards too, if it was free and nothing failed."""
        token = self._given.set({**(self._given.get() or {}), name: function})
        try:
            yield
        finally:
            self._given.reset(token)
        self._known.setdefault(name, function)

    def find(self, name: str) -> Callable[..., Any] | None:
        """The function registered under a name in this process, or None."""
        return {**self._known, **(self._given.get() or {})}.get(name)

    def needed(self, name: str, what: str) -> Callable[..., Any]:
        """The function with a name; if this process has none, raises an error that begins with `what`."""
        function = self.find(name)
        if function is None:
            given = f"(folder, {self.argument}=...)"
            raise InvalidOption(
                f"{what} a Python function, which a run folder does not hold: use pcpg.resume{given} or "
                f"pcpg.load{given} with the function it was trained with"
            )
        return function


def _is_same(one: Callable[..., object], other: Callable[..., object]) -> bool:
    # A method is another object each time that it is asked for, and a maker of copies each time that it is made.
    return one is other or (not isinstance(one, types.FunctionType | type) and bool(one == other))
