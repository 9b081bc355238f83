"""`pcpg reproduce maze`: share of open cells visited against environment steps of three algorithms, never one twice."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from pcpg.experiments.common import STOPPED, Scale, read_records, run_all
from pcpg.experiments.maze.analysis import summarise, table
from pcpg.experiments.maze.figures import draw_all
from pcpg.experiments.maze.measure import measure_run
from pcpg.experiments.maze.sweep import ALGOS, SEEDS, SIZES, make_cell


@dataclasses.dataclass(frozen=True)
class ReproduceMaze:
    """Mazes from pixels without reward: PC-PG, PPO+RND and PPO at equal environment steps."""

    scale: Scale = "laptop"
    """smoke: size 6, 2 seeds, learns nothing; laptop: 1.2M steps for two cores; paper: 10M, for a GPU."""
    algos: tuple[str, ...] = ALGOS
    """Which curves."""
    size: int = 0
    """Rows and columns of the mazes; by default those of the scale."""
    seeds: int = 0
    """How many seeds; by default those of the scale."""
    seed: int = 0
    """The first seed."""
    out: str = "results/maze"
    """Folder of the results; cells that are done there are not run again."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __post_init__(self) -> None:
        unknown = set(self.algos) - set(ALGOS)
        if unknown:
            raise ValueError(f"unknown algorithm {sorted(unknown)[0]!r}; valid: {', '.join(ALGOS)}")
        if self.seeds < 0:
            raise ValueError(f"seeds must be 0 (those of the scale) or more, got {self.seeds}")

    def __call__(self, console: Console) -> int:
        out, seeds = Path(self.out), self.seeds or SEEDS[self.scale]
        algos = [algo for algo in ALGOS if algo in self.algos]
        size = self.size or SIZES[self.scale]
        records = run_all(
            algos,
            lambda algo, budget: make_cell(self.scale, algo, size, seeds, self.seed, budget),
            measure_run,
            out,
            console,
        )
        if records is None:
            return STOPPED
        summary = write_results(out)
        console.print(Markdown(table(summary)))
        console.print(f"written to {out}", highlight=False)
        if self.json:
            print(json.dumps(summary, allow_nan=False))
        return 0


def write_results(out: Path) -> dict[str, Any]:
    """Write summary.json, table.md and the figures from all cells that are done in a folder; the summary."""
    records = read_records(out, ALGOS)
    summary = summarise(records)
    (out / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    (out / "table.md").write_text(table(summary))
    draw_all(records, out)
    return summary
