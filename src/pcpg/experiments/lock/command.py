"""`pcpg reproduce lock`: the table of the paper from one command, cell by cell, never one twice."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from pcpg.experiments.lock.analysis import summarise, table
from pcpg.experiments.lock.figures import draw_all
from pcpg.experiments.lock.measure import run_cell
from pcpg.experiments.lock.sweep import ALGOS, HORIZONS, Cell, Scale, cell_config, paper_budget

STOPPED = 130


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
        unknown = set(self.algos) - set(ALGOS)
        if unknown:
            raise ValueError(f"unknown algorithm {sorted(unknown)[0]!r}; valid: {', '.join(ALGOS)}")
        if any(horizon < 1 for horizon in self.horizons):
            raise ValueError(f"horizons must be at least 1, got {self.horizons}")
        if self.seeds < 0:
            raise ValueError(f"seeds must be 0 (those of the scale) or more, got {self.seeds}")

    def __call__(self, console: Console) -> int:
        from pcpg.console import Display

        smoke = self.scale == "smoke"
        horizons = self.horizons or (HORIZONS[:2] if smoke else HORIZONS)
        seeds = self.seeds or (4 if smoke else 20)
        out = Path(self.out)
        records: list[dict[str, Any]] = []
        for algo, horizon in itertools.product((algo for algo in ALGOS if algo in self.algos), horizons):
            kind, budget = ("own", 0) if algo == "pcpg" else self.budget(records, horizon)
            cell = Cell(algo, horizon, seeds, self.seed, kind, cell_config(self.scale, algo, horizon, budget))
            record = run_cell(cell, self.scale, out, lambda config, name=cell.name: Display(console, name))
            if record is None:
                console.print("stopped; the same command goes on where it stopped", highlight=False)
                return STOPPED
            returns = np.array(record["final_return"])
            console.print(
                f"{cell.name}: {record['successes']} of {len(returns)} seeds solved, "
                f"{max(record['env_steps']):,} steps a seed, {record['seconds']:.0f} s",
                highlight=False,
            )
            records.append(record)
        summary = write_results(out)
        console.print(Markdown(table(summary)))
        console.print(f"written to {out}", highlight=False)
        if self.json:
            print(json.dumps(summary, allow_nan=False))
        return 0

    def budget(self, records: list[dict[str, Any]], horizon: int) -> tuple[str, int]:
        """Steps of a baseline's seed: the paper's, or the most that a seed of PC-PG used at this horizon."""
        used = [max(r["env_steps"]) for r in records if r["algo"] == "pcpg" and r["horizon"] == horizon]
        if used and (self.baselines == "equal" or self.scale == "smoke"):
            return "equal", used[0]
        return "paper", paper_budget(horizon)


def write_results(out: Path) -> dict[str, Any]:
    """Write summary.json, table.md and the figures from all cells that are done in a folder; the summary."""
    records = [json.loads(path.read_text()) for path in sorted((out / "cells").glob("*.json"))]
    summary = summarise(records)
    (out / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    (out / "table.md").write_text(table(summary))
    draw_all(records, out)
    return summary
