"""What a person sees of a run in the terminal; all of it on stderr, stdout is for results."""

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pcpg.agents.training import Progress as RunProgress
from pcpg.envs.registry import make
from pcpg.reports.visits import CoverVisits
from pcpg.runs.folder import RunFolder

QUIET_SECONDS = 10.0
"""Least time between two lines where the output is no terminal."""


class Display:
    """Live progress of a run: a bar of rounds and the newest numbers; plain lines where there is no terminal."""

    def __init__(self, console: Console, title: str) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("round {task.completed}/{task.total} at most"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self.task = self.bar.add_task(title, total=None, left="compiling ...")
        self.live = Live(self._group("waiting for the first round"), console=console, refresh_per_second=4)
        self.last_line = 0.0

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def __call__(self, progress: RunProgress) -> None:
        """Show the newest round."""
        per_round = progress.seconds / max(progress.step, 1)
        left = f"at most {duration(per_round * (progress.max_steps - progress.step))} left"
        line = summary_line(progress)
        self.bar.update(self.task, completed=progress.step, total=progress.max_steps, left=left)
        if self.console.is_terminal:
            self.live.update(self._group(line))
        elif time.monotonic() - self.last_line > QUIET_SECONDS or self.last_line == 0.0:
            self.last_line = time.monotonic()
            self.console.print(f"round {progress.step}: {line}; {left}", highlight=False)

    def _group(self, line: str) -> Table:
        grid = Table.grid()
        grid.add_row(self.bar)
        grid.add_row(line)
        return grid


def summary_line(progress: RunProgress) -> str:
    """The newest round in one line: policies, steps, speed, bonus, return, coverage."""
    records = progress.records
    speed = progress.env_steps / max(progress.seconds, 1e-9)
    parts = [
        f"{_span(records, 'env_steps', '{:,.0f}')} steps a seed",
        f"{speed:,.0f} steps/s",
        f"return {_span(records, 'return', '{:.2f}')}",
    ]
    if any("policies" in record for record in records):
        parts.insert(0, f"{_span(records, 'policies', '{:.0f}')} policies")
    for name, label in (("train/bonus", "bonus"), ("coverage", "cells covered")):
        if any(record.get(name) is not None for record in records):
            parts.append(f"{label} {_span(records, name, '{:.2f}')}")
    return ", ".join(parts)


def _span(records: Iterable[dict[str, Any]], name: str, form: str) -> str:
    """Lowest to highest over the seeds."""
    values = [record[name] for record in records if record.get(name) is not None]
    if not values:
        return "-"
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """A time in words short enough for a line."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


SHADES = "░▒▓█"


def shade(share: float) -> str:
    """A block whose darkness tells how often a cell was visited, as a share of the most visited one."""
    return "·" if share <= 0 else SHADES[min(3, int(share * 4))]


def visits_table(visits: CoverVisits) -> Table:
    """A row a policy of the cover, a last one for the weighted cover; each panel of cells as shaded blocks."""
    table = Table(title=f"Visits of the cover, seed {visits.seed}: {visits.covered:.0%} of the cells", show_lines=True)
    for name in ("policy", "weight", "return", *visits.grid.panels):
        table.add_column(name, no_wrap=True)
    for index, counts in enumerate(visits.counts):
        numbers = (f"{visits.weights[index]:.3f}", f"{visits.returns[index]:.2f}")
        table.add_row(str(index), *numbers, *_panels(counts))
    table.add_row("cover", "1", "", *_panels(visits.mixture))
    return table


def _panels(counts: np.ndarray) -> list[str]:
    """Each panel as lines of blocks; the square root makes rare visits visible."""
    scale = np.sqrt(counts / max(counts.max(), 1e-12))
    return ["\n".join("".join(shade(share) for share in row) for row in panel) for panel in scale]


def result_table(folder: RunFolder) -> Table:
    """A row a seed: what a finished run spent and reached."""
    summary = folder.read_summary()
    env = make(folder.config["env"], **folder.config["env_options"])
    solved = env.solved_return
    table = Table("seed", "policies", "environment steps", "final return", "best return")
    if solved is not None:
        table.add_column("solved")
    for index, seed in enumerate(summary["seeds"]):
        final, best = summary["final_return"][index], summary["best_return"][index]
        row = [str(seed), str(summary["policies"][index]), f"{summary['env_steps'][index]:,}"]
        row += ["-" if value is None else f"{value:.2f}" for value in (final, best)]
        if solved is not None:
            row.append("yes" if final is not None and final > solved else "no")
        table.add_row(*row)
    return table
