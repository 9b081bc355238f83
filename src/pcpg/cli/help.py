"""The help of a command, from its dataclasses and the strings below their fields."""

import ast
import contextlib
import inspect
import re
import textwrap
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from pcpg.cli.flags import Flag, Section
from pcpg.config import item_kinds

WIDEST = 100
COLUMN = 30
"""Width of the column of flags; on narrow screens help stands below them."""


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
    """A flag next to its help, or above it if the screen is narrow or the flag long."""
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
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            docs[field.target.id] = str(typing.cast(Any, below).value.value)
    return docs


def _arguments(text: str) -> dict[str, str]:
    """The entries of a docstring's part `Args:`."""
    found = re.search(r"^Args:\n((?:[ ]{4}.*\n|\n)*)", f"{text}\n", flags=re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", found[1] if found else "", flags=re.MULTILINE)
    return dict(entries)
