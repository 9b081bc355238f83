"""`pcpg reproduce mountaincar`: return against environment steps of three algorithms, never one twice."""

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console

from pcpg.experiments.common import Scale, check_flags, read_records, reproduce, steps_used, write_summary
from pcpg.experiments.mountaincar.analysis import summarise, table
from pcpg.experiments.mountaincar.figures import draw_all
from pcpg.experiments.mountaincar.measure import measure_run
from pcpg.experiments.mountaincar.sweep import ALGOS, SEEDS, make_cell


@dataclasses.dataclass(frozen=True)
class ReproduceMountainCar:
    """MountainCar with continuous actions: PC-PG with the reward bonus, PPO+RND and PPO at equal environment steps."""

    scale: Scale = "laptop"
    """smoke: 2 seeds, seconds, learns nothing; laptop: 5 seeds, minutes; paper: a cover of 40 policies, for a GPU."""
    algos: tuple[str, ...] = ALGOS
    """Which curves."""
    seeds: int = 0
    """How many seeds; by default those of the scale."""
    seed: int = 0
    """The first seed."""
    out: str = "results/mountaincar"
    """Folder of the results; cells that are done there are not run again."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __post_init__(self) -> None:
        check_flags(self.algos, ALGOS, self.seeds)

    def __call__(self, console: Console) -> int:
        seeds = self.seeds or SEEDS[self.scale]
        plans = [
            lambda records, algo=algo: make_cell(self.scale, algo, seeds, self.seed, steps_used(records))
            for algo in ALGOS
            if algo in self.algos
        ]
        return reproduce(plans, measure_run, write_results, table, Path(self.out), console, as_json=self.json)


def write_results(out: Path) -> dict[str, Any]:
    """Write summary.json, table.md and the figures from all cells that are done in a folder; the summary."""
    records = read_records(out, ALGOS)
    summary = summarise(records)
    write_summary(out, summary, table)
    draw_all(records, out)
    return summary
