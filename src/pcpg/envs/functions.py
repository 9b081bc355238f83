"""A user's own Python functions by name: those that make environments, and feature maps."""

import contextlib
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any


class Functions:
    """A user's functions by name; a name stays that of the first function that got it."""

    def __init__(self) -> None:
        self._known: dict[str, Callable[..., Any]] = {}
        self._given: ContextVar[Mapping[str, Callable[..., Any]] | None] = ContextVar("given", default=None)

    def register(self, name: str, function: Callable[..., Any]) -> str:
        """The name of a function from now on: the one asked for, with a number where that is another's."""
        for number in itertools.count(1):
            own = name if number == 1 else f"{name}#{number}"
            if _is_same(self._known.setdefault(own, function), function):
                return own
        raise AssertionError  # there are always more numbers

    @contextlib.contextmanager
    def given(self, name: str, function: Callable[..., Any]) -> Iterator[None]:
        """In here the name is that of this function; afterwards too, where it was nobody's and nothing failed."""
        token = self._given.set({**(self._given.get() or {}), name: function})
        try:
            yield
        finally:
            self._given.reset(token)
        self._known.setdefault(name, function)

    def find(self, name: str) -> Callable[..., Any] | None:
        """The function of a name, None where there is none in this process."""
        return {**self._known, **(self._given.get() or {})}.get(name)


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    # A method is another object each time that it is asked for.
    return one is other or (isinstance(one, types.MethodType) and one == other)
