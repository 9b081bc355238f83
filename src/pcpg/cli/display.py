"""What a person sees of a command in the terminal: tables, messages; and the JSON object of --json.

What needs JAX is imported for its types alone: this module loads at once.
"""

import contextlib
import json
import typing
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg.training.display import printable

if typing.TYPE_CHECKING:
    from pcpg.api import Evaluation, Run
    from pcpg.envs.registry import EnvironmentSpec
    from pcpg.reports.visits import CoverVisits
    from pcpg.runs.verify import Checked

STOPPED = 130
"""Exit code of a run that Ctrl-C interrupted, as shells have it."""

FAILED = 3
"""Exit code of a run that came to its end with seeds that failed."""


def answer(console: Console, as_json: bool) -> Console:
    """Where the answer for a person goes: to stdout, unless that is the JSON object's."""
    return console if as_json else Console()


def loading(console: Console, doing: str = "loading ...") -> Any:
    """Something to see while JAX is imported, which takes seconds, or while nothing else shows what is done."""
    return console.status(doing) if console.is_terminal else contextlib.nullcontext()


def print_json(result: dict[str, Any], wanted: bool) -> None:
    """Print the one JSON object on stdout, if it is wanted."""
    if wanted:
        print(json.dumps(result, allow_nan=False))


SHADES = "░▒▓█"


def shade(share: float) -> str:
    """A block whose darkness tells how often a grid cell was visited, relative to the most visited one."""
    return "·" if share <= 0 else SHADES[min(3, int(share * 4))]


def visits_table(visits: "CoverVisits") -> Table:
    """A row per policy of the cover and a last one for the weighted cover; panels of grid cells as shaded blocks."""
    seen = f"Visits of the cover, seed {visits.seed}: {visits.covered:.0%} of the grid cells"
    title = seen if visits.grid.size else f"The cover of seed {visits.seed}; this environment has no grid cells"
    rows = visits.grid.rows
    table = Table(title=title, title_justify="left", show_lines=len(rows) > 1)
    labels = ["\n".join(rows)] if 1 < len(rows) <= 4 else []  # a tall grid is a map that needs none
    for name in ("policy", "weight", "return", *("" for _ in labels), *visits.grid.panels):
        table.add_column(name, no_wrap=True)
    for index, counts in enumerate(visits.counts):
        numbers = (f"{visits.weights[index]:.3f}", f"{visits.returns[index]:.2f}")
        table.add_row(str(index), *numbers, *labels, *_panels(counts))
    table.add_row("cover", "1", "", *labels, *_panels(visits.mixture))
    return table


def _panels(counts: np.ndarray) -> list[str]:
    """Each panel as lines of blocks; the square root makes rare visits visible."""
    if not counts.size:
        return []
    scale = np.sqrt(counts / max(counts.max(), 1e-12))
    return ["\n".join("".join(shade(share) for share in row) for row in panel) for panel in scale]


def result_table(folder: RunFolder) -> Table:
    """A row per seed: what a finished run spent and reached."""
    from pcpg.training.trust import environment_of

    summary = folder.read_summary()
    solved = environment_of(folder).solved_return
    # Where there is no return to reach, what was visited says how far the run came.
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
            row.append("yes" if final is not None and final > solved else "no")
        if failed:
            row.append("yes" if str(seed) in failed else "no")
        table.add_row(*row)
    return table


def verify_table(found: Iterable["Checked"]) -> Table:
    """A row per file of a run: whether it is whole, what is wrong with it, and what that costs."""
    table = Table("file", "state", "what is wrong", "what it costs")
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
    """A row per environment: what it is, its options as flags with their defaults, its spaces."""
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
