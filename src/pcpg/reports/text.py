"""Numbers, names and commands as text for the page."""

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pcpg.envs.adapters.names import PYTHON, is_adapted
from pcpg.reports.read import RunData
from pcpg.reports.statistics import Interval

NONE = "\u2013"
"""Placeholder for a missing number."""


def run_labels(runs: list[RunData]) -> list[str]:
    """A name for each run: the algorithm, plus the folder if two runs share one."""
    names = [run.algo for run in runs]
    return [
        f"{name} ({shown(run.path.name)})" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def shown(text: str) -> str:
    """A text without characters that XML forbids, such as control codes."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def number(value: float | None) -> str:
    """A number with three digits and a true minus sign; a dash if there is none."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    size = abs(value)
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.3g}" if size < 1 else f"{value:.2f}"
    return text.replace("-", "\u2212")


def steps_text(steps: float) -> str:
    """A number of steps in thousands or millions."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.3g}{letter}"
    return f"{steps:.0f}"


def interval_text(interval: Interval | None) -> str:
    """A value with its interval, as in 0.75 [0.53, 0.89]."""
    if interval is None:
        return NONE
    if np.isnan(interval.low):  # of one seed: nothing is known of the others
        return number(interval.value)
    return f"{number(interval.value)} [{number(interval.low)}, {number(interval.high)}]"


def span_text(values: Sequence[float] | np.ndarray, show: Callable[[float], str] = number) -> str:
    """The smallest and largest value, or the common one; a dash if there is none."""
    if not len(values):
        return NONE
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def seeds_text(count: int) -> str:
    """A number of seeds."""
    return f"{count} seed{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """A duration short enough for a table."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def listed(words: list[str]) -> str:
    """A list of words: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def place(run: RunData) -> str:
    """The path of a run for commands, relative to the current folder if it is inside."""
    path, here = run.path, Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def repeat(run: RunData) -> str:
    """The command that repeats a run from its folder; empty if it uses the user's own functions."""
    config = run.config
    if run.source:
        seeds = ["--seed", str(config["seed"]), "--seeds", str(config["seeds"])]
        return shlex.join(["pcpg", "exploit", run.source, *seeds, *env_flags(run), "--out", f"{run.path}-again"])
    if f'"{PYTHON}:' in json.dumps(config):
        return ""
    return shlex.join(["pcpg", "train", "--config", f"{run.path}/config.json", "--out", f"{run.path}-again"])


def env_flags(run: RunData) -> list[str]:
    """The options of a run's environment as words of a command."""
    words = []
    for name, value in run.env_options.items():
        flag = f"--env.{name.replace('_', '-')}"
        if isinstance(value, bool) and not is_adapted(run.config["env"]):
            words.append(flag if value else f"--env.no-{flag.removeprefix('--env.')}")
        else:
            words += [flag, *(map(str, value) if isinstance(value, list) else [str(value)])]
    return words
