"""Flags and their help from dataclasses: command-line words become nested mappings for `config.from_plain`."""

import ast
import contextlib
import inspect
import re
import sys
import textwrap
import typing
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple

from rich.console import Console
from rich.text import Text

from pcpg.config import alternatives, entries_of, from_plain, item_kinds, meant, nested, read_words, value_in
from pcpg.elsewhere import flag_elsewhere, hint_of
from pcpg.other_names import OTHER_NAMES

HELP = ("-h", "--help")


class Mistake(Exception):
    """An invalid command; the message says what was expected."""


class Arg(NamedTuple):
    """How a flag is written if its type does not say it; used in `Annotated`."""

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
        """The types of its values, without None."""
        return tuple(one for one in alternatives(self.kind) if one is not NoneType)

    @property
    def takes_many(self) -> bool:
        return any(item_kinds(one, 0) is not None for one in self.kinds)

    def spellings(self) -> dict[str, bool]:
        """All spellings, with whether each turns it on."""
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
    """Whether values of a type can be written as words."""
    items = [item_kinds(one, 1) or [one] for one in alternatives(kind)]
    simple = (int, float, bool, str, Path, NoneType)
    return all(one in simple or typing.get_origin(one) is Literal for many in items for one in many)


def parse(kind: object, arguments: Sequence[str], program: str) -> Any:
    """A dataclass filled in from arguments; --help exits."""
    return parse_parts([Part(kind)], arguments, program)[0]


def parse_parts(parts: Sequence[Part], arguments: Sequence[str], program: str, about: str = "") -> list[Any]:
    """The settings of each part from shared arguments; an error suggests the nearest flag."""
    sections = [part.sections() for part in parts]
    if set(HELP) & set(arguments):
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
    """Options of another library's environment, whose types are unknown: JSON values, or text."""
    own = {path: words for path, words in found.items() if path.startswith(f"{prefix}.")}
    return {path.removeprefix(f"{prefix}."): read_words(Any, words) for path, words in own.items()}


def is_flag(word: str) -> bool:
    """Whether a word is a flag, not a value such as a negative number."""
    return word.startswith("--") or re.fullmatch("-[A-Za-z]", word) is not None


def _advice(unknown: Sequence[str], flags: Sequence[Flag]) -> str:
    """Suggestions for unknown flags."""
    paths, said = {flag.path: flag.name for flag in flags}, ""
    for word in (word.partition("=")[0] for word in unknown if is_flag(word)):
        name = word.lstrip("-").replace("-", "_")
        known, own = flag_elsewhere(name, paths) or "", [path for path in OTHER_NAMES.get(name, ()) if path in paths]
        first = known.split(" ")[0]
        if own and first not in paths.values():
            known = first = paths[own[0]]  # of this command
        if known and (first in paths.values() or first[:6] == "--env." or first[:2] != "--"):
            said += f"; {hint_of(known)}"
        elif near := meant(name, paths):
            said += f"; did you mean {paths[near]} for {word}?"
    return said


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


WIDEST = 100
COLUMN = 30
"""Width of the column of flags; on narrow screens the help text goes below them."""


def print_help(program: str, sections: Sequence[Section], about: str | None) -> None:
    """Print the usage, what the command does, and its flags by section."""
    console = Console(highlight=False)
    width = min(console.width, WIDEST)
    positional = [flag for section in sections for flag in section.flags if flag.arg.positional]
    words = " ".join(flag.arg.metavar for flag in positional)
    console.print(f"usage: [bold]{program}[/] {words + ' ' if words else ''}\\[OPTIONS]\n", soft_wrap=True)
    for text in re.split(r"\n\s*\n", inspect.cleandoc(about or "")):
        console.print(textwrap.fill(re.sub(r"\s+", " ", text), width) + "\n", markup=False)
    for number, section in enumerate(one for one in sections if one.flags):
        if number:
            _print_head(console, section, width)
        docs = docs_of(section.kind)
        for flag in sorted(section.flags, key=lambda flag: not flag.arg.positional):
            _print_flag(console, flag, flag.arg.help or docs.get(flag.path.rpartition(".")[2], ""), width)


def _print_head(console: Console, section: Section, width: int) -> None:
    about = (inspect.getdoc(section.kind) or "").partition("\n")[0]
    head = Text.assemble((f"\n{section.title}", "bold"), (f": {about}" if about else "", "dim"))
    console.print(head, width=width)


def _print_flag(console: Console, flag: Flag, said: str, width: int) -> None:
    """A flag beside its help, or above it if the screen is narrow or the flag is long."""
    name, values = _spelling(flag), _metavar(flag)
    indent = COLUMN if width >= 80 else 6
    default = _default(flag)
    if flag.arg.help != said:  # a docstring, broken at its own width
        said = re.sub(r"\s+", " ", said)
    lines = [
        line for part in f"{said} {default}".splitlines() for line in textwrap.wrap(part.strip(), width - indent)
    ] or [""]
    head = Text.assemble("  ", (name, "bold"), (f" {values}" if values else "", "cyan"))
    if len(head) + 2 <= indent:
        head.append(" " * (indent - len(head)) + lines.pop(0))
    console.print(head, soft_wrap=True)
    for line in lines:
        console.print(" " * indent + line, markup=False, soft_wrap=True)


def _spelling(flag: Flag) -> str:
    if flag.arg.positional:
        return flag.arg.metavar
    if not (flag.is_switch and flag.default is True):
        return flag.name
    part, dot, last = flag.name.removeprefix("--").rpartition(".")
    return f"--{part}{dot}[no-]{last}"


def _metavar(flag: Flag) -> str:
    """The values that a flag takes, in capitals or as a choice."""
    if flag.is_switch or flag.arg.positional:
        return ""
    return flag.arg.metavar or "|".join(dict.fromkeys(map(_kind_text, flag.kinds)))


def _kind_text(kind: object) -> str:
    items = item_kinds(kind, 1)
    if items is not None:
        is_open = Ellipsis in typing.get_args(kind) or len(items) == 1
        return f"{_kind_text(items[0])} ..." if is_open else " ".join(map(_kind_text, items))
    if typing.get_origin(kind) is Literal:
        return "{" + ",".join(map(str, typing.get_args(kind))) + "}"
    return {int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _default(flag: Flag) -> str:
    """The default in brackets, if worth mentioning."""
    value = flag.default
    if value is None or value is False or value in ("", ()) or flag.arg.positional:
        return ""
    if value is True:
        return "(default: on)"
    return f"(default: {' '.join(map(str, value)) if isinstance(value, tuple | list) else value})"


# The strings below fields.


def docs_of(kind: object) -> dict[str, str]:
    """What the source says about each field of a dataclass, or about each argument of a function."""
    if not isinstance(kind, type):
        return _arguments(inspect.getdoc(kind) or "")
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        with contextlib.suppress(OSError, TypeError, SyntaxError):  # a class without source
            tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            docs |= _strings(tree) if isinstance(tree, ast.ClassDef) else {}
    return docs


def _strings(tree: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Constant):
            docs[field.target.id] = str(text.value)
    return docs


def _arguments(text: str) -> dict[str, str]:
    """The entries of a docstring's part `Args:`."""
    found = re.search(r"^Args:\n((?:[ ]{4}.*\n|\n)*)", f"{text}\n", flags=re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", found[1] if found else "", flags=re.MULTILINE)
    return dict(entries)
