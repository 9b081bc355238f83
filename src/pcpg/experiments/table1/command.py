"""`pcpg reproduce table1`: the paper's table with two measured columns, cell by cell, never one twice."""

import dataclasses
import json
import os
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from pcpg.envs.adapters.places import LOCAL, check_place
from pcpg.experiments.harness import STOPPED, Record, Scale
from pcpg.experiments.table1.cells import Store, run_cells
from pcpg.experiments.table1.figures import draw_all
from pcpg.experiments.table1.plan import cells_after, first_cells
from pcpg.experiments.table1.settings import SETTINGS, Experiment, Table1Settings, check_algos
from pcpg.experiments.table1.summary import summarise
from pcpg.experiments.table1.table import short_table, tables
from pcpg.theory.learners.registry import current_name
from pcpg.theory.own import check_problem, check_processes, load_learner

EXPERIMENTS: tuple[Experiment, ...] = ("A", "B", "C")


@dataclasses.dataclass(frozen=True)
class ReproduceTable1:
    """The paper's table of sample complexities with two measured columns, and the binary tree."""

    scale: Scale = "laptop"
    """smoke: seconds, measures nothing; laptop: 10 seeds, under an hour on two cores; paper: 20 times the samples."""
    only: tuple[Experiment, ...] = EXPERIMENTS
    """Which experiments: A exploration, B misspecified aggregation, C the binary tree."""
    algos: tuple[str, ...] = ()
    """Which algorithms; by default all."""
    learners: tuple[str, ...] = ()
    """Learners of your own beside them, each as FILE:NAME."""
    problems: tuple[str, ...] = ()
    """Problems of your own beside the families, each as FILE:NAME of a function from seeds to a problem."""
    seeds: int = 0
    """How many seeds in A and B; by default those of the scale."""
    out: str = "results/table1"
    """Folder of the results; cells that are done there are not run again."""
    jobs: int = 0
    """How many processes; by default one per core."""
    on: str = LOCAL
    """Where they are: local, ray, or ray://HOST:PORT; the numbers are the same."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __post_init__(self) -> None:
        check_algos(self.algos)
        check_place(self.on)
        unknown = set(self.only) - set(EXPERIMENTS)
        if unknown or not self.only:
            raise ValueError(f"only must be some of {', '.join(EXPERIMENTS)}, got {', '.join(self.only) or 'none'}")
        if self.seeds < 0:
            raise ValueError(f"seeds must be 0 (those of the scale) or more, got {self.seeds}")
        if self.jobs < 0:
            raise ValueError(f"jobs must be 0 (one per core) or more, got {self.jobs}")

    def __call__(self, console: Console) -> int:
        is_local = self.on == LOCAL
        settings, out, jobs = self.settings, Path(self.out), self.jobs
        if is_local:  # a cluster is asked for its cores
            jobs = jobs or os.cpu_count() or 1
        for reference in self.learners:
            load_learner(reference)
        problems = [check_problem(reference) for reference in self.problems]
        check_processes(jobs if is_local else 2)
        store = Store(out, self.command)
        first = first_cells(settings, check_algos(self.algos), self.only)

        def notice(record: Record) -> None:
            console.print(f"{record['name']}: {record['seconds']:.0f} s", highlight=False)

        try:
            run_cells(
                first,
                lambda record: cells_after(record, settings, self.only, problems),
                store,
                jobs,
                notice,
                self.on,
            )
        except KeyboardInterrupt:
            console.print("stopped; run the same command again to resume", highlight=False)
            return STOPPED
        summary = write_results(store, settings)
        console.print(Markdown(short_table(summary)))
        console.print(f"written to {out}", highlight=False)
        if self.json:
            print(json.dumps(summary, allow_nan=False))
        return 0

    @property
    def settings(self) -> Table1Settings:
        """The settings of the scale, with as many seeds as were asked for."""
        settings = SETTINGS[self.scale]
        return dataclasses.replace(settings, seeds=self.seeds) if self.seeds else settings

    @property
    def command(self) -> str:
        """The command line that makes these results."""
        algos = f" --algos {' '.join(map(current_name, self.algos))}" if self.algos else ""
        only = f" --only {' '.join(self.only)}" if self.only != EXPERIMENTS else ""
        seeds = f" --seeds {self.seeds}" if self.seeds else ""
        learners = f" --learners {' '.join(self.learners)}" if self.learners else ""
        problems = f" --problems {' '.join(self.problems)}" if self.problems else ""
        return f"pcpg reproduce table1 --scale {self.scale}{only}{algos}{learners}{problems}{seeds}"


def write_results(store: Store, settings: Table1Settings) -> Record:
    """Write tuning.json, summary.json, table.md and the figures from all cells that are done; the summary."""
    records = store.all()
    summary = summarise(records, settings)
    tuned = {r["arguments"]["algo"]: r for r in records if r["kind"] == "tuning"}
    (store.out / "tuning.json").write_text(json.dumps(tuned, indent=1, allow_nan=False) + "\n")
    (store.out / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    (store.out / "table.md").write_text(tables(summary))
    draw_all(summary, store.out)
    return summary
