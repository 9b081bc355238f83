"""`pcpg reproduce lock`: the table of the paper from one command, cell by cell, never one twice."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from pcpg.experiments import common
from pcpg.experiments.common import Record, check_flags, reproduce, steps_used, write_summary
from pcpg.experiments.lock.analysis import summarise, table
from pcpg.experiments.lock.figures import draw_all
from pcpg.experiments.lock.measure import measure_run, run_of
from pcpg.experiments.lock.sweep import ALGOS, HORIZONS, Cell, Scale, cell_config, paper_budget


@dataclasses.dataclass(frozen=True)
class ReproduceLock:
    """The combination-lock table of the paper: PPO, PPO+RND and PC-PG by horizon, and its figures."""

    scale: Scale = "laptop"
    """smoke: H = 2 and 5, 4 seeds, minutes; laptop: the whole table; paper: the released code's budgets, for a GPU."""
    algos: tuple[str, ...] = ALGOS
    """Which rows."""
    horizons: tuple[int, ...] = ()
    """Which columns; by default those of the scale."""
    seeds: int = 0
    """How many seeds; by default those of the scale."""
    seed: int = 0
    """The first seed."""
    baselines: Literal["paper", "equal"] = "paper"
    """Budget of PPO and PPO+RND: the paper's 3M episodes, which gives both columns, or PC-PG's steps alone."""
    out: str = "results/lock"
    """Folder of the results; cells that are done there are not run again."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __post_init__(self) -> None:
        check_flags(self.algos, ALGOS, self.seeds)
        if any(horizon < 1 for horizon in self.horizons):
            raise ValueError(f"horizons must be at least 1, got {self.horizons}")

    def __call__(self, console: Console) -> int:
        horizons = self.horizons or (HORIZONS[:2] if self.scale == "smoke" else HORIZONS)
        plans = [
            lambda records, algo=algo, horizon=horizon: self.cell(records, algo, horizon)
            for algo, horizon in itertools.product((algo for algo in ALGOS if algo in self.algos), horizons)
        ]

        def headline(record: Record) -> str:
            return f"{record['successes']} of {len(record['final_return'])} seeds solved, "

        out = Path(self.out)
        return reproduce(plans, measure_run, write_results, table, out, console, as_json=self.json, headline=headline)

    def cell(self, records: list[Record], algo: str, horizon: int) -> common.Cell:
        """The cell of an algorithm at a horizon, after the cells of PC-PG."""
        kind, budget = ("own", 0) if algo == "pcpg" else self.budget(records, horizon)
        seeds = self.seeds or (4 if self.scale == "smoke" else 20)
        config = cell_config(self.scale, algo, horizon, budget)
        return run_of(Cell(algo, horizon, seeds, self.seed, kind, config), self.scale)

    def budget(self, records: list[Record], horizon: int) -> tuple[str, int]:
        """Steps of a baseline's seed: the paper's, or the most that a seed of PC-PG used at this horizon."""
        used = steps_used(records, horizon=horizon)
        if used and (self.baselines == "equal" or self.scale == "smoke"):
            return "equal", used
        return "paper", paper_budget(horizon)


def write_results(out: Path) -> dict[str, Any]:
    """Write summary.json, table.md and the figures from all cells that are done in a folder; the summary."""
    records = [json.loads(path.read_text()) for path in sorted((out / "cells").glob("*.json"))]
    summary = summarise(records)
    write_summary(out, summary, table)
    draw_all(records, out)
    return summary
