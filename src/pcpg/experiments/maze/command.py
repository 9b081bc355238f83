"""`pcpg reproduce maze`: two parts, no run of either twice.

explore: share of the open cells visited against environment steps, PC-PG beside PPO+RND and PPO, without reward.
goals: policies for goal cells given afterwards, trained on the covers of the first part, beside PPO from scratch.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from pcpg.experiments.common import Scale, check_flags, read_records, reproduce, steps_used, write_summary
from pcpg.experiments.maze import goals, goals_results
from pcpg.experiments.maze.analysis import summarise, table
from pcpg.experiments.maze.figures import draw_all
from pcpg.experiments.maze.measure import measure_run
from pcpg.experiments.maze.sweep import ALGOS, SEEDS, SIZES, make_cell


@dataclasses.dataclass(frozen=True)
class ReproduceMaze:
    """Mazes from pixels: exploration without reward at equal environment steps, then goals given afterwards."""

    scale: Scale = "laptop"
    """smoke: size 6, 2 seeds, learns nothing; laptop: 2.8M steps for two cores; paper: 10M, for a GPU."""
    part: Literal["explore", "goals"] = "explore"
    """explore: how much of the mazes is visited; goals: policies trained on the covers that this left behind."""
    algos: tuple[str, ...] = ALGOS
    """Which curves; PPO+RND has none for goals."""
    size: int = 0
    """Rows and columns of the mazes; by default those of the scale."""
    seeds: int = 0
    """How many seeds; by default those of the scale, and for goals those of the covers."""
    seed: int = 0
    """The first seed; for goals it is that of the covers."""
    goals: int = 0
    """Goals for each maze; by default those of the scale."""
    out: str = "results/maze"
    """Folder of the results, those of goals in a folder there; cells that are done are not run again."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __post_init__(self) -> None:
        check_flags(self.algos, ALGOS, self.seeds)
        if self.part == "goals" and not set(self.algos) & set(goals.ALGOS):
            raise ValueError(f"goals are solved by {' and '.join(goals.ALGOS)}, got {', '.join(self.algos)}")
        if self.goals < 0:
            raise ValueError(f"goals must be 0 (those of the scale) or more, got {self.goals}")

    def __call__(self, console: Console) -> int:
        out, size = Path(self.out), self.size or SIZES[self.scale]
        if self.part == "goals":
            return self._goals(out, size, console)
        seeds = self.seeds or SEEDS[self.scale]
        plans = [
            lambda records, algo=algo: make_cell(self.scale, algo, size, seeds, self.seed, steps_used(records))
            for algo in ALGOS
            if algo in self.algos
        ]
        return reproduce(plans, measure_run, write_results, table, out, console, as_json=self.json)

    def _goals(self, out: Path, size: int, console: Console) -> int:
        cover, count = goals.find_cover(out, self.scale, size), self.goals or goals.GOALS[self.scale]
        plans = [
            lambda records, algo=algo: goals.make_cell(self.scale, algo, cover, count, steps_used(records))
            for algo in goals.ALGOS
            if algo in self.algos
        ]
        return reproduce(
            plans,
            goals.measure_run,
            goals_results.write_results,
            goals_results.table,
            out / "goals",
            console,
            as_json=self.json,
        )


def write_results(out: Path) -> dict[str, Any]:
    """Write summary.json, table.md and the figures from all cells that are done in a folder; the summary."""
    records = read_records(out, ALGOS)
    summary = summarise(records)
    write_summary(out, summary, table)
    draw_all(records, out)
    return summary
