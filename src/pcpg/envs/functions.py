"""Functions by name: a user's own, which make environments, feature maps and networks, and the library's, in tables."""

import contextlib
import functools
import importlib
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from pcpg.envs.options import InvalidOption


def load(home: str) -> Any:
    """The object of a name such as "package.module:NAME", imported when it is asked for."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


class Functions:
    """A user's functions by name, such as python:module.function; a name stays that of the first that got it."""

    def __init__(self, prefix: str, argument: str) -> None:
        """`argument` is what they are called where a run is given one."""
        self.prefix, self.argument = prefix, argument
        self._known: dict[str, Callable[..., Any]] = {}
        self._given: ContextVar[Mapping[str, Callable[..., Any]] | None] = ContextVar("given", default=None)

    def register(self, function: Callable[..., object]) -> str:
        """The name of a function from now on: its own, with a number where that is another's."""
        inner = function.func if isinstance(function, functools.partial) else function
        module, own = getattr(inner, "__module__", ""), getattr(inner, "__qualname__", type(inner).__name__)
        for number in itertools.count(1):
            name = f"{self.prefix}:{module}.{own}" if number == 1 else f"{self.prefix}:{module}.{own}#{number}"
            if _is_same(self._known.setdefault(name, function), function):
                return name
        raise AssertionError  # there are always more numbers

    @contextlib.contextmanager
    def given(self, name: str, function: Callable[..., object]) -> Iterator[None]:
        """In here the name is that of this function; afterwards too, where it was nobody's and nothing failed."""
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
        """The function of a name; an error that begins with `what` where there is none in this process."""
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
