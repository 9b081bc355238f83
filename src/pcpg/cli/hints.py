"""What a mistaken flag is likely to mean, and the help of a feature map's options, taken from its docstring."""

import dataclasses
import difflib
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any

OTHER_NAMES = {
    "lr": "learning-rate",
    "ent-coef": "entropy-coef",
    "vf-coef": "value-coef",
    "clip-range": "clip-eps",
    "n-epochs": "num-epochs",
    "batch-size": "minibatch-size",
    "net-arch": "hidden",
    "n-envs": "num-envs",
    "budget": "steps",
    "timesteps": "steps",
    "total-timesteps": "steps",
    "total-steps": "steps",
    "num-steps": "steps",
    "max-time": "time",
    "algorithm": "algo",
    "output": "out",
    "policies": "max-policies",
    "rounds": "num-rounds",
}
"""What other libraries call a setting, and what it is called here."""


def flags_of(kind: Any, prefix: str = "--") -> list[str]:
    """The flags that are made from a dataclass, those of its parts with their names in front."""
    flags: list[str] = []
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        own, *notes = typing.get_args(hint) if hasattr(hint, "__metadata__") else [hint]
        parts = [part for part in (own, *typing.get_args(own)) if dataclasses.is_dataclass(part)]
        name = field.name.replace("_", "-")
        if parts:
            is_apart = not any(getattr(note, "name", None) == "" for note in notes)
            flags += flags_of(parts[0], f"{prefix}{name}." if is_apart else prefix)
        else:
            flags.append(f"{prefix}{name}")
    return flags


def advice(words: Iterable[str], flags: Iterable[str]) -> str:
    """Which flags were likely meant by the unknown ones among some words; empty where there is nothing to say."""
    flags = list(flags)
    said = {word: meant(word.partition("=")[0], flags) for word in words if word.startswith("--")}
    return "; ".join(f"did you mean {flag} for {word.partition('=')[0]}?" for word, flag in said.items() if flag)


def meant(word: str, flags: Iterable[str]) -> str | None:
    """The flag that a word is likely to stand for: by another library's name, by its last part, or by its letters."""
    flags, word = list(flags), word.replace("_", "-")
    part, _, last = word.removeprefix("--").rpartition(".")
    named = OTHER_NAMES.get(last, last)
    same = [flag for flag in flags if re.split(r"\.|--", flag)[-1] == named]
    if same:
        return next((flag for flag in same if part and flag.startswith(f"--{part}.")), same[0])
    near = difflib.get_close_matches(word, flags, n=1, cutoff=0.6)
    return near[0] if near else None


def argument_help(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says about each argument, in its part `Args:`."""
    text = inspect.getdoc(function) or ""
    found = re.search(r"^Args:\n((?:[ ]{4}.*\n|\n)*)", f"{text}\n", flags=re.MULTILINE)
    if found is None:
        return {}
    entries = re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", found[1], flags=re.MULTILINE)
    return {name: re.sub(r"\s+", " ", said).strip() for name, said in entries}
