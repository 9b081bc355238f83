"""Flags from dataclasses: words of the command line become nested mappings, which `config.from_plain` converts."""

import re
import sys
import typing
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple

from pcpg.config import alternatives, entries_of, from_plain, item_kinds, meant, nested, read_words, value_in
from pcpg.elsewhere import flag_elsewhere

HELP = ("-h", "--help")


class Mistake(Exception):
    """An invalid command; the message says what was expected."""


class Arg(NamedTuple):
    """The form of a flag, if its type does not suffice: a note in `Annotated`."""

    metavar: str = ""
    help: str = ""  # by default the string below the field
    positional: bool = False
    aliases: tuple[str, ...] = ()


class Flag(NamedTuple):
    """A setting on the command line."""

    path: str  # "explore.bonus_coef"
    kind: Any
    default: Any
    arg: Arg

    @property
    def name(self) -> str:
        return f"--{self.path}".replace("_", "-")

    @property
    def is_switch(self) -> bool:
        return self.kinds == (bool,)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The kinds of its values, None left out."""
        return tuple(one for one in alternatives(self.kind) if one is not NoneType)

    @property
    def takes_many(self) -> bool:
        return any(item_kinds(one, 0) is not None for one in self.kinds)

    def spellings(self) -> dict[str, bool]:
        """All spellings, and whether each turns it on."""
        part, dot, last = self.name.rpartition(".")
        negated = f"{part}.no-{last}" if dot else f"--no-{self.name[2:]}"
        return dict.fromkeys((self.name, *self.arg.aliases), True) | ({negated: False} if self.is_switch else {})


Found = dict[str, bool | list[str]]
"""The words of each flag by its path; True or False for a switch."""


class Section(NamedTuple):
    """The flags of one dataclass or function."""

    kind: Any
    title: str
    flags: tuple[Flag, ...]


class Part(NamedTuple):
    """Settings filled in by flags."""

    kind: Any  # a dataclass, a function whose keyword arguments are the settings, or dict: any options
    default: Any = None
    prefix: str = ""  # of its flags, such as "env"
    title: str = "options"
    args: Mapping[str, Arg] = {}  # in place of its fields' own, by path

    def sections(self) -> list[Section]:
        """Its flags and those of the parts of its dataclass."""
        return [] if self.kind is dict else list(_sections(self.kind, self.default, self.prefix, self.title, self.args))


def _sections(kind: object, settings: object, prefix: str, title: str, args: Mapping[str, Arg]) -> Iterator[Section]:
    own, inner = [], []
    for name, entry in entries_of(kind).items():
        value, path = value_in(settings, name, entry), f"{prefix}.{name}" if prefix else name
        if is_dataclass(value):
            inner.append((type(value), value, path, path, args))
        elif _is_simple(entry.kind):
            notes = getattr(entry.kind, "__metadata__", ())
            arg = next((note for note in notes if isinstance(note, Arg)), Arg())
            own.append(Flag(path, entry.kind, value, args.get(path, arg)))
    yield Section(kind, title, tuple(own))
    for part in inner:
        yield from _sections(*part)


def _is_simple(kind: object) -> bool:
    """Whether words can stand for values of a kind."""
    items = [item_kinds(one, 1) or [one] for one in alternatives(kind)]
    simple = (int, float, bool, str, Path, NoneType)
    return all(one in simple or typing.get_origin(one) is Literal for many in items for one in many)


def parse(kind: object, arguments: Sequence[str], program: str) -> Any:
    """A dataclass from arguments; --help ends the process."""
    return parse_parts([Part(kind)], arguments, program)[0]


def parse_parts(parts: Sequence[Part], arguments: Sequence[str], program: str, about: str = "") -> list[Any]:
    """The settings of each part from shared arguments; an error suggests the nearest flag."""
    sections = [part.sections() for part in parts]
    if set(HELP) & set(arguments):
        from pcpg.cli.help import print_help

        print_help(program, [section for group in sections for section in group], about or parts[0].kind.__doc__)
        sys.exit(0)
    flags = [[flag for section in group for flag in section.flags] for group in sections]
    every = [flag for group in flags for flag in group]
    found, unknown = collect(arguments, every, [part.prefix for part in parts if part.kind is dict])
    if unknown:
        advice = _advice(unknown, every)
        raise Mistake(f"Unrecognized options: {', '.join(unknown)}{advice} (see {program} --help)")
    required = [flag for flag in every if flag.default is MISSING and flag.path not in found]
    if absent := [flag.arg.metavar or flag.name for flag in required]:
        raise Mistake(f"Missing from {program}: {', '.join(absent)} (see {program} --help)")
    made = []
    for part, group in zip(parts, flags, strict=True):
        if part.kind is dict:
            made.append(dict(part.default or {}) | open_options(part.prefix, found))
            continue
        own = {flag.path.removeprefix(f"{part.prefix}."): found[flag.path] for flag in group if flag.path in found}
        where = f"--{part.prefix}" if part.prefix else ""
        made.append(from_plain(part.kind, nested(own), where, part.default, text=True))
    return made


def collect(arguments: Sequence[str], flags: Sequence[Flag], open_to: Sequence[str] = ()) -> tuple[Found, list[str]]:
    """The words of each flag by its path, and the remaining words.

    With `open_to` every flag with one of these prefixes, such as `--env.KEY`, takes a value.
    """
    known = {name: (flag, is_on) for flag in flags for name, is_on in flag.spellings().items()}
    waiting = [flag for flag in flags if flag.arg.positional]
    found: Found = {}
    unknown, rest = [], deque(arguments)

    def take() -> list[str]:
        words = []
        while rest and not is_flag(rest[0]):
            words.append(rest.popleft())
        return words

    while rest:
        word = rest.popleft()
        name, equals, value = word.partition("=")
        flag, is_on = known.get(name.replace("_", "-"), (None, True))
        path = flag.path if flag else name.removeprefix("--").replace("-", "_")
        if not is_flag(word) and waiting:
            flag = waiting.pop(0)
            found[flag.path] = [word, *(take() if flag.takes_many else [])]
        elif not is_flag(word):
            unknown.append(word)
        elif flag is None and not path.startswith(tuple(f"{prefix}." for prefix in open_to)):
            unknown += [word, *take()]
        elif equals:
            found[path] = [value]
        elif flag and flag.is_switch:
            found[path] = is_on
        elif flag and flag.takes_many:
            found[path] = take()
        elif (not rest or is_flag(rest[0])) and flag is None:  # a switch of what is not known yet
            part, _, last = path.rpartition(".")
            found[f"{part}.{last.removeprefix('no_')}"] = ["false" if last.startswith("no_") else "true"]
        elif not rest or is_flag(rest[0]):
            raise Mistake(f"{name} needs a value")
        else:
            found[path] = [rest.popleft()]
    return found, unknown


def open_options(prefix: str, found: Found) -> dict[str, object]:
    """The options of another library, whose types are unknown: values as written in JSON, or text."""
    own = {path: words for path, words in found.items() if path.startswith(f"{prefix}.")}
    return {path.removeprefix(f"{prefix}."): read_words(Any, words) for path, words in own.items()}


def is_flag(word: str) -> bool:
    """Whether a word is the name of a flag and not a value, such as a negative number."""
    return word.startswith("--") or re.fullmatch("-[A-Za-z]", word) is not None


def _advice(unknown: Sequence[str], flags: Sequence[Flag]) -> str:
    """Suggestions for unknown flags."""
    paths, said = {flag.path: flag.name for flag in flags}, ""
    for word in (word.partition("=")[0] for word in unknown if is_flag(word)):
        name = word.lstrip("-").replace("-", "_")
        near, known = meant(name, paths), flag_elsewhere(name, paths)
        said += f"; here: {known}" if known else f"; did you mean {paths[near]} for {word}?" if near else ""
    return said


# Shared flags.

Folder = Annotated[str, Arg("DIR", "Run folder.", positional=True)]
JsonFlag = Annotated[bool, Arg(help="Print one JSON object to stdout and everything else to stderr.")]
StepsFlag = Annotated[str, Arg("STEPS")]
TimeFlag = Annotated[str, Arg("TIME")]
TrustFlag = Annotated[
    bool, Arg(help="Import the environment module named in the run folder. Use only for runs you trust.")
]
LogFlag = Annotated[
    tuple[Literal["tensorboard", "wandb"], ...],
    Arg(help="Also log to these services; each needs the extra of the same name."),
]
OnFlag = Annotated[str, Arg("local|ray|ray://HOST:PORT")]
StorageFlag = Annotated[
    Literal["auto", "shared", "ray"],
    Arg(help="How runs return from other machines: through shared storage or through Ray."),
]
