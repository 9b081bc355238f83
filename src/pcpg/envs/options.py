"""Options of environments: what a constructor takes, and clear refusals of what it does not."""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


class InvalidOption(ValueError):
    """An option that the environment does not have, or a value that it cannot take."""


class NoTimeLimit(InvalidOption):
    """An environment whose episodes may last for ever, and nobody said after how many steps they are cut."""


class Option(NamedTuple):
    """One option of a constructor."""

    name: str
    kind: Any  # the annotation, or None where there is none
    default: Any  # inspect.Parameter.empty where the option must be given

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def __str__(self) -> str:
        return f"{self.name} (required)" if self.required else f"{self.name}={self.default!r}"


MOST = 10_000_000
"""The largest number that an option can mean: beyond it, arrays of that size are asked for by mistake."""


def require_int(name: str, value: object, *, minimum: int, maximum: int = MOST) -> None:
    """Raise a ValueError that names the value, unless it is an integer between `minimum` and `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {value:,}")


def nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.0) -> str | None:
    """The choice most like `word`, letter case aside; None where none is as like as `cutoff`, of 1."""
    by_folded = {choice.casefold(): choice for choice in choices}
    matches = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[matches[0]] if matches else None


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


def check_options(owner: str, constructor: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise InvalidOption where an option is unknown, of the wrong type, or required and missing."""
    options = {option.name: option for option in options_of(constructor)}
    valid = ", ".join(str(option) for option in options.values())
    for name, value in given.items():
        if name not in options:
            hint = nearest(name, options)
            listing = f"did you mean {hint!r}? Valid options: {valid}" if hint else "it has no options"
            raise InvalidOption(f"{owner} has no option {name!r}; {listing}")
        kind = options[name].kind
        if not _matches(value, kind):
            raise InvalidOption(
                f"{owner}: option {name!r} must be {_text(kind)}, got {value!r} ({type(value).__name__}). "
                f"Valid options: {valid}"
            )
    missing = [name for name, option in options.items() if option.required and name not in given]
    if missing:
        raise InvalidOption(f"{owner} needs option {missing[0]!r}. Valid options: {valid}")


def _matches(value: object, kind: Any) -> bool:
    """Whether a value may be passed for an annotation; an annotation not known here takes everything."""
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_matches(value, part) for part in typing.get_args(kind))
    if kind in (int, float):  # True is an int to Python, never to a reader
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind in (bool, str, types.NoneType):
        return isinstance(value, kind)
    return True


def _text(kind: Any) -> str:
    """An annotation as a reader would write it."""
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(kind))
    return kind.__name__ if isinstance(kind, type) else str(kind)
