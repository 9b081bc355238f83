"""`pcpg reproduce environments`: PC-PG and PPO on other people's environments, never one cell twice."""

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from pcpg.experiments.common import Plan, Record, Scale, reproduce, steps_used, write_summary
from pcpg.experiments.environments.analysis import summarise, table
from pcpg.experiments.environments.measure import measure_run
from pcpg.experiments.environments.sweep import BASELINE, SEEDS, TASKS, make_cell


@dataclasses.dataclass(frozen=True)
class ReproduceEnvironments:
    """Other people's environments (Gymnasium, MiniGrid, bsuite) with default settings: PC-PG, PPO at equal steps."""

    scale: Scale = "laptop"
    """smoke: 1 seed, seconds, learns nothing; laptop and paper: 5 seeds, minutes for each environment."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Which environments."""
    baseline: bool = True
    """Run PPO as well."""
    seeds: int = 0
    """How many seeds; by default those of the scale."""
    seed: int | None = None
    """The first seed; by default 0, and 10 on DeepSea, whose preset was made after a look at 0 to 4."""
    out: str = "results/environments"
    """Folder of the results; cells that are done there are not run again."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __post_init__(self) -> None:
        unknown = set(self.tasks) - set(TASKS)
        if unknown:
            raise ValueError(f"unknown task {sorted(unknown)[0]!r}; valid: {', '.join(TASKS)}")
        if self.seeds < 0:
            raise ValueError(f"seeds must be 0 (those of the scale) or more, got {self.seeds}")

    def __call__(self, console: Console) -> int:
        return reproduce(self._plans(), measure_run, write_results, table, Path(self.out), console, as_json=self.json)

    def _plans(self) -> Iterator[Plan]:
        seeds = self.seeds or SEEDS[self.scale]
        for name in (known for known in TASKS if known in self.tasks):
            for algo in (TASKS[name].algo, BASELINE)[: 2 if self.baseline else 1]:
                yield functools.partial(self._plan, name, algo, seeds)

    def _plan(self, name: str, algo: str, seeds: int, records: list[Record]) -> Any:
        budget = steps_used(records, task=name, algo=TASKS[name].algo)
        first = TASKS[name].first_seed if self.seed is None else self.seed
        return make_cell(self.scale, name, algo, seeds, first, budget)


def write_results(out: Path) -> dict[str, Any]:
    """Write summary.json and table.md from all cells that are done in a folder; the summary."""
    summary = summarise([json.loads(path.read_text()) for path in sorted((out / "cells").glob("*.json"))])
    write_summary(out, summary, table)
    return summary
