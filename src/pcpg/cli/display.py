"""The output of commands: tables and messages for the terminal, and the JSON object of --json.

Modules that need JAX are imported for their types alone, so this one loads at once.
"""

import contextlib
import contextvars
import json
import os
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg.training.display import printable, say

if typing.TYPE_CHECKING:
    from pcpg.api import Evaluation, Run
    from pcpg.envs.registry import EnvironmentSpec
    from pcpg.reports.visits import CoverVisits
    from pcpg.runs.verify import Checked

STOPPED = 130
"""Exit code of a run that Ctrl-C interrupted, as in shells."""

FAILED = 3
"""Exit code of a run that finished with failed seeds."""


def answer(console: Console, as_json: bool) -> Console:
    """The console for human-readable output: stdout, unless the JSON object goes there."""
    return console if as_json else Console()


def tell(console: Console, as_json: bool, shown: object, result: Mapping[str, object], code: int = 0) -> int:
    """Print the result of a command, as a line or table and as the JSON object; returns the exit code."""
    out = answer(console, as_json)
    if isinstance(shown, str):
        say(out, shown)
    else:
        out.print(shown)
    print_json(result, as_json)
    return code


def loading(console: Console, doing: str = "loading ...") -> contextlib.AbstractContextManager[object]:
    """A spinner while JAX is imported, or while nothing else shows progress."""
    return console.status(doing) if console.is_terminal else contextlib.nullcontext()


def print_json(result: Mapping[str, object], wanted: bool) -> None:
    """Print the JSON object on stdout if --json was given."""
    if wanted:
        line, answers = json.dumps(result, allow_nan=False), _ANSWERS.get()
        print(line) if answers is None else answers.append(line)


_ANSWERS: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("answers", default=None)


@contextlib.contextmanager
def answers_apart() -> Iterator[list[str]]:
    """Inside, `print_json` writes to stdout and all other output, including that of other processes, goes to stderr."""
    answers: list[str] = []
    token = _ANSWERS.set(answers)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield answers
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        _ANSWERS.reset(token)


LIGHT = 0.0005
"""Smallest weight that the table does not round to 0."""
SHADES = "░▒▓█"


def shade(share: float) -> str:
    """Blocks of increasing darkness, for visits of a grid cell relative to the most visited one."""
    return "·" if share <= 0 else SHADES[min(3, int(share * 4))]


def visits_table(visits: "CoverVisits", most: int | None = None) -> Group:
    """A row per policy of the cover and a last one for the weighted cover; panels of grid cells as shaded blocks.

    With `most`, the heaviest policies come first, and one line sums up the rest.
    """
    seen = f"Visits of the cover, seed {visits.seed}: {visits.covered:.0%} of the grid cells"
    title = seen if visits.grid.size else f"The cover of seed {visits.seed}; this environment has no grid cells"
    rows = visits.grid.rows
    table = Table(show_lines=len(rows) > 1)
    labels = ["\n".join(rows)] if 1 < len(rows) <= 4 else []  # a tall grid is a map that needs none
    for name in ("policy", "weight", "return", *("" for _ in labels), *visits.grid.panels):
        table.add_column(name, no_wrap=True)
    order = np.arange(len(visits.weights))
    if most is not None:
        heaviest = np.argsort(-visits.weights, kind="stable")[:most]
        order = heaviest[: max(1, int((visits.weights[heaviest] >= LIGHT).sum()))]
    for index in order:
        counts = visits.counts[index]
        numbers = (f"{visits.weights[index]:.3f}", f"{visits.returns[index]:.2f}")
        table.add_row(str(index), *numbers, *labels, *_panels(counts))
    if rest := sorted(set(range(len(visits.weights))) - set(order.tolist())):
        low, high = visits.returns[rest].min(), visits.returns[rest].max()
        returns = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        table.add_row(f"{len(rest)} more", f"{visits.weights[rest].sum():.3f}", returns, *("" for _ in labels))
    table.add_row("cover", "1", "", *labels, *_panels(visits.mixture))
    return Group(Text(title), table)


def _panels(counts: np.ndarray) -> list[str]:
    """Each panel as lines of blocks; the square root makes rare visits visible."""
    if not counts.size:
        return []
    scale = np.sqrt(counts / max(counts.max(), 1e-12))
    return ["\n".join("".join(shade(share) for share in row) for row in panel) for panel in scale]


def result_table(folder: RunFolder) -> Table:
    """A row per seed: the policies, steps and returns of a finished run."""
    from pcpg.training.trust import environment_of

    summary = folder.read_summary()
    solved = environment_of(folder).solved_return
    # Without a return that counts as solved, coverage shows how far the run came.
    rows = read_metrics(folder.metrics) if solved is None else []
    visited = {row["seed"]: row["coverage"] for row in rows if "coverage" in row}
    table = Table("seed")
    for name in (
        "policies",
        "environment steps",
        *(["grid cells visited"] if visited else []),
        "final return",
        "best return",
    ):
        table.add_column(name, justify="right")
    if solved is not None:
        table.add_column(f"solved (> {solved:g})")
    failed = summary.get("failed", {})
    if failed:
        table.add_column("failed")
    for index, seed in enumerate(summary["seeds"]):
        final, best = summary["final_return"][index], summary["best_return"][index]
        row = [str(seed), str(summary["policies"][index] or "-"), f"{summary['env_steps'][index]:,}"]
        row += [f"{visited[seed]:.1%}"] if visited else []
        row += ["-" if value is None else f"{value:.2f}" for value in (final, best)]
        if solved is not None:
            row.append("-" if final is None else "yes" if final > solved else "no")
        if failed:
            row.append("yes" if str(seed) in failed else "no")
        table.add_row(*row)
    return table


def verify_table(found: Iterable["Checked"]) -> Table:
    """A row per file of a run: its state, the problem, and its consequence."""
    table = Table("file", "state", "problem", "consequence")
    for one in found:
        style = "red" if one.state == "damaged" else None
        table.add_row(*(Text(printable(text)) for text in one), style=style)
    return table


def evaluation_table(run: "Run", played: "Evaluation") -> Table:
    """A row per seed: the mean return over fresh episodes."""
    solved = run.env.solved_return
    table = Table("seed")
    for name in ("mean return", "standard error"):
        table.add_column(name, justify="right")
    if solved is not None:
        table.add_column(f"solved (> {solved:g})")
    for seed, mean, error in zip(played.seeds, played.mean_return, played.standard_error, strict=True):
        mark = [] if solved is None else ["yes" if mean > solved else "no"]
        table.add_row(str(seed), f"{mean:.3f}", f"{error:.3f}", *mark)
    return table


def envs_table(entries: Iterable["EnvironmentSpec"]) -> Table:
    """A row per environment: a summary, its options as flags with their defaults, its spaces."""
    table = Table("environment", "what it is", show_lines=True)
    table.columns[0].no_wrap = True
    for entry in entries:
        options = [
            f"--env.{option.name}{' ...' if option.required else f' {option.default}'}" for option in entry.options
        ]
        facts = Table.grid(padding=(0, 2, 0, 0))
        facts.add_column(style="dim", no_wrap=True)
        facts.add_row("options", "  ".join(options) or "none")
        facts.add_row("observations", entry.observation_space)
        facts.add_row("actions", entry.action_space)
        table.add_row(entry.id, Group(entry.summary, facts))
    return table
