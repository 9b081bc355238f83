"""`pcpg reproduce table1`: the paper's table with two measured columns, cell by cell, never one twice."""

import dataclasses
from pathlib import Path

from rich.console import Console

from pcpg.envs.adapters.names import LOCAL, check_place
from pcpg_lab.claims.records import Record, Scale, write_json, write_results
from pcpg_lab.cli.reproduce import say_stopped, show
from pcpg_lab.table1.cells import Store, run_cells
from pcpg_lab.table1.figures import draw_all
from pcpg_lab.table1.plan import Table1Cell, cells_after, first_cells
from pcpg_lab.table1.settings import SETTINGS, Experiment, Table1Settings, check_algos
from pcpg_lab.table1.summary import summarise
from pcpg_lab.table1.table import short_table, tables
from pcpg_theory.learners.registry import current_name
from pcpg_theory.own import check_problem, check_processes, load_learner

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
    """Your own learners to add, each as FILE:NAME."""
    problems: tuple[str, ...] = ()
    """Your own problems to add, each as FILE:NAME of a function from seeds to a problem."""
    seeds: int | None = None
    """Number of seeds in A and B; by default set by the scale."""
    out: str = "results/table1"
    """Folder of the results; finished cells found there are reused."""
    jobs: int = 0
    """Number of processes; by default one per core."""
    on: str = LOCAL
    """Where processes run: local, ray, or ray://HOST:PORT. Results are identical."""
    json: bool = False
    """Print one JSON object to stdout and everything else to stderr."""

    def __post_init__(self) -> None:
        check_algos(self.algos)
        check_place(self.on)
        unknown = set(self.only) - set(EXPERIMENTS)
        if unknown or not self.only:
            raise ValueError(f"only must be some of {', '.join(EXPERIMENTS)}, got {', '.join(self.only) or 'none'}")
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        if self.jobs < 0:
            raise ValueError(f"jobs must be 0 (one per core) or more, got {self.jobs}")

    def __call__(self, console: Console) -> int:
        settings, out = self.settings, Path(self.out)
        for reference in self.learners:
            load_learner(reference)
        problems = [check_problem(reference) for reference in self.problems]
        check_processes(1 if self.jobs == 1 and self.on == LOCAL else 2)
        store = Store(out, self.command)

        def follow(record: Record) -> list[Table1Cell]:
            return cells_after(record, settings, self.only, problems)

        def notice(record: Record) -> None:
            console.print(f"{record['name']}: {record['seconds']:.0f} s", highlight=False)

        try:
            first = first_cells(settings, check_algos(self.algos), self.only)
            run_cells(first, follow, store, self.jobs, notice, self.on)
        except KeyboardInterrupt:
            return say_stopped(console)
        summary = write_all(store, settings)
        return show(console, summary, short_table(summary), out, self.json)

    @property
    def settings(self) -> Table1Settings:
        """The settings of the scale, with as many seeds as were asked for."""
        settings = SETTINGS[self.scale]
        return dataclasses.replace(settings, seeds=self.seeds) if self.seeds else settings

    @property
    def command(self) -> str:
        """The command line that makes these results."""
        only = self.only if self.only != EXPERIMENTS else ()
        algos = tuple(map(current_name, self.algos))
        given = {"only": only, "algos": algos, "learners": self.learners, "problems": self.problems}
        flags = "".join(f" --{name} {' '.join(values)}" for name, values in given.items() if values)
        seeds = f" --seeds {self.seeds}" if self.seeds else ""
        return f"pcpg reproduce table1 --scale {self.scale}{flags}{seeds}"


def write_all(store: Store, settings: Table1Settings) -> Record:
    """Write tuning.json, summary.json, table.md and the figures from all cells that are done; the summary."""
    records = store.all()
    summary = summarise(records, settings)
    write_json(store.out / "tuning.json", {r["arguments"]["algo"]: r for r in records if r["kind"] == "tuning"})
    write_results(store.out, summary, tables(summary))
    draw_all(summary, store.out)
    return summary
