"""One way to say a setting: from Python, flags, TOML and config.json all go through `from_plain`.

It checks names, types and ranges before any work starts, and an error names the nearest valid name.
"""

import contextlib
import dataclasses
import difflib
import functools
import inspect
import json
import math
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pcpg.other_names import OTHER_NAMES

Json = dict[str, Any]
"""A JSON object, such as the config of a run, a report, or a summary."""


class ConfigError(ValueError):
    """An invalid configuration; the message names the value and what was expected."""


def positive(config: object, *names: str) -> None:
    """Refuse fields that are not positive."""
    for name in names:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(config, name)}")


def within(config: object, name: str, low: float, high: float) -> None:
    """Refuse a field outside two bounds, both included."""
    if not low <= getattr(config, name) <= high:
        raise ValueError(f"{name} must lie between {low} and {high}, got {getattr(config, name)}")


# Names.


def nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.0) -> str | None:
    """The choice most similar to `word`, ignoring case; None if no similarity reaches `cutoff`, of 1."""
    by_folded = {choice.casefold(): choice for choice in choices}
    matches = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[matches[0]] if matches else None


def meant(word: str, names: Iterable[str]) -> str | None:
    """The likely meaning of a wrong dotted name: another library's name, the same last part, or similar letters."""
    names, (part, _, last) = list(names), word.rpartition(".")
    same = [name for name in names if name.rpartition(".")[2] in OTHER_NAMES.get(last.casefold(), (last,))]
    here = [name for name in same if part and name.startswith(f"{part}.")]
    return (here or same or [nearest(word, names, cutoff=0.6)])[0]


def check_choice(what: str, value: object, valid: Iterable[str], also: Iterable[str] = ()) -> None:
    """Refuse a name that is not valid, and suggest the nearest one, or one of `also` if that is more likely."""
    valid = list(valid)
    if not isinstance(value, str) or value not in valid:
        hint = meant(str(value), [*valid, *also]) or nearest(str(value), valid)
        advice = f"; did you mean {hint!r}?" if hint else ";"
        raise ConfigError(f"unknown {what} {value!r}{advice} Valid: {', '.join(valid) or 'none'}")


# Settings.


class Entry(NamedTuple):
    """A setting: its annotation, and its default if it has one."""

    kind: Any
    default: Any = dataclasses.MISSING


@functools.cache
def entries_of(kind: Any) -> dict[str, Entry]:
    """The settings by name: the fields of a dataclass, or the keyword arguments of a function."""
    if not dataclasses.is_dataclass(kind):
        found = inspect.signature(kind, eval_str=True).parameters.values()
        arguments = [one for one in found if one.kind is inspect.Parameter.KEYWORD_ONLY]
        return {one.name: Entry(one.annotation, _or_missing(one.default)) for one in arguments}
    hints, fields = typing.get_type_hints(kind, include_extras=True), dataclasses.fields(kind)
    return {field.name: Entry(hints[field.name], _default(field)) for field in fields if field.init}


def setting_paths(kind: Any, prefix: str = "") -> list[str]:
    """The dotted names of all settings of a dataclass, those of its parts among them."""
    found: list[str] = []
    for name, entry in entries_of(kind).items():
        if dataclasses.is_dataclass(entry.kind):
            found += setting_paths(entry.kind, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


def _or_missing(default: object) -> Any:
    return dataclasses.MISSING if default is inspect.Parameter.empty else default


def _default(field: dataclasses.Field[object]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def value_in(settings: object, name: str, entry: Entry) -> Any:
    """The value of a setting in settings that may be None, a mapping or a dataclass; else its default."""
    if isinstance(settings, Mapping):
        return settings.get(name, entry.default)
    return entry.default if settings is None else getattr(settings, name)


def alternatives(kind: object) -> tuple[Any, ...]:
    """The kinds that an annotation allows, None first."""
    if typing.get_origin(kind) is typing.Annotated:
        return alternatives(typing.get_args(kind)[0])
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return (kind,)
    return tuple(sorted(typing.get_args(kind), key=lambda one: one is not types.NoneType))


def paths_of(kind: object) -> list[str]:
    """The dotted names of all settings, those of their parts included."""
    paths = []
    for name, entry in entries_of(kind).items():
        parts = [one for one in alternatives(entry.kind) if dataclasses.is_dataclass(one)]
        paths += [name, *(f"{name}.{path}" for part in parts for path in paths_of(part))]
    return paths


def from_plain(kind: object, data: object, where: str, default: Any = None, *, text: bool = False) -> Any:
    """Settings from nested mappings, checked; absent entries come from `default`.

    Args:
        kind: A dataclass, a function whose keyword arguments are the settings (the result is a dict), or a simple type.
        data: Values by name; with `text` lists of words, as the command line has them.
        where: The place of the settings, for errors; with `text` the prefix of their flags.
        default: Settings of this kind.
        text: Whether values are words that stand for the field's type.
    """
    inner = [one for one in alternatives(kind) if dataclasses.is_dataclass(one) or inspect.isroutine(one)]
    if not inner or (data is None and types.NoneType in alternatives(kind)):
        return check_type(kind, read_words(kind, data) if text else data, where)
    if isinstance(inner[0], type) and "from_plain" in vars(inner[0]):  # one of several dataclasses, chosen by name
        return typing.cast(Any, inner[0]).from_plain(data, where, default, text=text)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} must be an object, got {data!r}")
    entries, values = entries_of(inner[0]), {}
    for name, value in data.items():
        check_choice(f"entry of {where}", name, entries, paths_of(inner[0]))
        place = f"{where}.{name}" if where else name
        flag = f"--{place.removeprefix('--')}".replace("_", "-")
        values[name] = from_plain(
            entries[name].kind, value, flag if text else place, value_in(default, name, entries[name]), text=text
        )
    try:
        if not isinstance(inner[0], type):
            return dict(default or {}) | values
        return dataclasses.replace(default, **values) if isinstance(default, inner[0]) else inner[0](**values)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}" if where else str(error)) from error


LARGEST = 2**62
"""The largest integer of a setting: larger ones would fail where they meet an array or a float."""

NOUNS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    Mapping: "an object",
    Path: "a path",
    os.PathLike: "a path",
    Callable: "a function",
    Sequence: "a list",
    Iterable: "a list",
    types.NoneType: "None",
}


def item_kinds(kind: object, count: int) -> Sequence[Any] | None:
    """The kinds of the items of a list with so many; None where the annotation is no list."""
    if typing.get_origin(kind) not in (tuple, list, Sequence):
        return None
    items = [one for one in typing.get_args(kind) if one is not Ellipsis]
    is_fixed = typing.get_origin(kind) is tuple and Ellipsis not in typing.get_args(kind)
    return items if is_fixed else items * count


def check_type(kind: object, value: object, where: str) -> Any:
    """A value of a simple type, or a ConfigError that says where it stands and what was expected."""
    first, *others = alternatives(kind)
    if others:
        with contextlib.suppress(ConfigError):
            return check_type(first, value, where)
        return check_type(functools.reduce(operator.or_, others), value, where)
    kind, origin = first, typing.get_origin(first) or first
    if origin is typing.Literal:
        check_choice(f"value of {where}", value, typing.get_args(kind))
        return value
    if (items := item_kinds(kind, len(value) if isinstance(value, list | tuple) else 0)) is not None:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list, got {value!r}")
        if len(items) != len(value):
            raise ConfigError(f"{where} must have {len(items)} entries, got {value!r}")
        return tuple(check_type(item, one, where) for item, one in zip(items, value, strict=True))
    if origin is types.NoneType and value is not None:
        raise ConfigError(f"{where} must be None, got {value!r}")
    if origin is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if origin in NOUNS and (not isinstance(value, origin) or (isinstance(value, bool) and origin is not bool)):
        raise ConfigError(f"{where} must be {NOUNS[origin]}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} must be finite, got {value}")
    if type(value) is int and abs(value) > LARGEST:
        raise ConfigError(f"{where} must lie between -{LARGEST:,} and {LARGEST:,}, got {value:,}")
    return value


Call = TypeVar("Call", bound=Callable[..., Any])


def checked(function: Call) -> Call:
    """The function with its arguments checked by their annotations; a wrong one is refused by its name."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kinds = typing.get_type_hints(function)
        refuse_unknown(function, kwargs)
        for name, value in inspect.signature(function).bind(*args, **kwargs).arguments.items():
            if name in kinds:  # else `self`, or keywords of any name
                _check_argument(kinds[name], value, name)
        return function(*args, **kwargs)

    return typing.cast(Call, call)


def hinted(function: Call) -> Call:
    """The function, whose unknown keywords are refused with the nearest; for those that are called at every step."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except TypeError:
            refuse_unknown(function, kwargs)
            raise

    return typing.cast(Call, call)


def refuse_unknown(function: Callable[..., object], names: Iterable[str]) -> None:
    """Refuse keywords that a function does not have, and name the nearest."""
    known = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):
        return
    for name in names:
        if name not in known:
            near = meant(name, [one for one in known if one != "self"])
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"{function.__name__}() has no argument {name!r}{hint}")


def _check_argument(kind: object, value: object, name: str) -> None:
    """Refuse a value that no kind of an annotation allows."""
    kinds = alternatives(kind)
    if any(allows(one, value) for one in kinds):
        if os.PathLike in map(_origin, kinds) and isinstance(value, str) and "\0" in value:
            raise ConfigError(f"{name} must be a path, which has no NUL character, got {value!r:.80}")
        return
    *nouns, last = dict.fromkeys(_noun(_origin(one)) for one in sorted(kinds, key=_is_none))
    said = f"{', '.join(nouns)} or {last}" if nouns else last
    raise ConfigError(f"{name} must be {said}, got {value!r:.80}")


def _noun(kind: object) -> str:
    return NOUNS.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _is_none(kind: object) -> bool:
    return kind is types.NoneType


def allows(kind: Any, value: object) -> bool:
    """Whether a value is of a kind, as far as an annotation tells."""
    origin, items = _origin(kind), typing.get_args(kind)
    if origin is Callable:
        return callable(value)
    if origin in (Sequence, Iterable) and (isinstance(value, str) or not isinstance(value, Iterable)):
        return False
    if origin is Sequence:
        return isinstance(value, Sequence) and all(allows(items[0], one) for one in value)
    if origin in (int, float, str, bool):
        with contextlib.suppress(ConfigError):
            check_type(kind, value, "")
            return True
        return False
    return not isinstance(origin, type) or isinstance(value, origin)


def _origin(kind: Any) -> Any:
    return Mapping if typing.is_typeddict(kind) else typing.get_origin(kind) or kind


def nested(values: Mapping[str, object], separator: str = ".") -> Json:
    """A mapping of dotted names as nested mappings."""
    whole: Json = {}
    for path, value in values.items():
        *parts, last = path.split(separator)
        place = whole
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = value
    return whole


def read_words(kind: object, words: Any) -> Any:
    """The value that words of the command line stand for; where they stand for none, the words, to be refused."""
    if isinstance(words, bool):
        return words
    for one in alternatives(kind):
        with contextlib.suppress(ValueError, KeyError):
            return _read(one, words)
    return words[0] if len(words) == 1 else list(words)


def _read(kind: object, words: Sequence[str]) -> Any:
    is_open = Ellipsis in typing.get_args(kind) and str not in typing.get_args(kind)
    if is_open and len(words) == 1 and "," in words[0]:
        words = [word.strip() for word in words[0].strip("[]() ,").split(",")]  # 64,64 as well as 64 64
    items = item_kinds(kind, len(words))
    if items is not None:
        return tuple(read_words(item, [word]) for item, word in zip(items, words, strict=True))
    (word,) = words
    if kind in (int, float) and not word.isascii():
        raise ValueError(word)  # Python reads the digits of every script
    if kind in (int, float, Path):
        return kind(word)
    if kind in (bool, types.NoneType):
        return {bool: {"true": True, "false": False}, types.NoneType: {"none": None}}[kind][word.casefold()]
    return json.loads({"True": "true", "False": "false", "None": "null"}.get(word, word)) if kind is Any else word
