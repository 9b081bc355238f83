"""Options of environments: the arguments of a constructor, and clear errors for invalid ones."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pcpg.config import ConfigError, alternatives, check_type, item_kinds, nearest


class InvalidOption(ValueError):
    """An unknown option of an environment, or an invalid value."""


class NoTimeLimit(InvalidOption):
    """An environment without a time limit, and none was given."""


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
"""The largest number that an option can mean: beyond it, arrays of that size are asked for by mistake."""


def require_int(name: str, value: object, *, minimum: int, maximum: int = MOST) -> None:
    """Raise a ValueError that names the value, unless it is an integer between `minimum` and `maximum`."""
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
    """Raise InvalidOption where an option is unknown, of the wrong type, or required and missing."""
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
