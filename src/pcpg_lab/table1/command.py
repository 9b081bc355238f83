"""`pcpg reproduce table1`: the paper's table with two measured columns, cell by cell, never one twice.

Cells of the table: each is measured once, by a worker of an engine, and kept as a JSON record.

Which cells there are is known only as records come in: see `plan`.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from pcpg.envs.adapters.names import LOCAL, check_place
from pcpg.runs.disk import read_file, refuse_strange
from pcpg.runs.documents import read_object
from pcpg.runs.errors import understood
from pcpg_lab.claims.records import PARTS, Record, Scale, origin, write_json, write_record, write_results
from pcpg_lab.cli import say_stopped, show
from pcpg_lab.sweeps.crew import DONE, Boss, Job, Outcome, Task, map_tasks
from pcpg_lab.sweeps.local import engine_for_calls
from pcpg_lab.table1 import measures
from pcpg_lab.table1.figures import draw_all
from pcpg_lab.table1.plan import CellKind, Table1Cell, cells_after, first_cells
from pcpg_lab.table1.problems import ASTRAY
from pcpg_lab.table1.settings import SETTINGS, Experiment, Table1Settings, check_algos
from pcpg_lab.table1.summary import summarise
from pcpg_lab.table1.table import short_table, tables
from pcpg_theory import own
from pcpg_theory.learners.registry import COMPARATORS, OLD_NAMES, current_name
from pcpg_theory.own import check_problem, check_processes, load_learner

MEASURES: dict[CellKind, Callable[..., Record]] = {
    "tuning": measures.tune,
    "A": measures.measure_samples,
    "own": measures.measure_own,
    "eps": measures.measure_accuracy,
    "gap": measures.measure_gaps,
    "bare": measures.measure_samples,
    "theory": measures.measure_samples,
    "problem": measures.measure_problem,
    "B": measures.measure_losses,
    "C": measures.measure_trees,
}
ORDER: tuple[CellKind, ...] = ("tuning", "A", "problem", "eps", "gap", "own", "B", "bare", "theory", "C")
"""Cells that others follow go first."""


@dataclasses.dataclass(frozen=True)
class Store:
    """The folder of the records, and the provenance of each."""

    out: Path
    command: str

    def path(self, cell: Table1Cell) -> Path:
        """The path of a cell's record, under an old name of its algorithm if only that exists."""
        path = self.out / "cells" / f"{cell.name}.json"
        for old, algo in OLD_NAMES.items():
            before = path.with_name(path.name.replace(f"-{algo}", f"-{old}"))
            if cell.arguments.get("algo") == algo and before.exists() and not path.exists():
                return before
        return path

    def read(self, cell: Table1Cell) -> Record | None:
        """The record of a cell if it is done with this code; a ValueError if it was measured otherwise."""
        path = self.path(cell)
        if not path.exists():
            return None
        record = _read(path)
        if record.get("source") != source_of(cell):
            return None
        if record["arguments"] != json.loads(json.dumps(cell.arguments)):
            changed = [key for key in cell.arguments if record["arguments"].get(key) != cell.arguments[key]]
            raise ValueError(f"{path} was measured with other settings ({', '.join(changed)}): choose another --out")
        return record

    def write(self, cell: Table1Cell, found: Record, seconds: float) -> Record:
        """Write the record of a cell, with its origin; the record as JSON holds it."""
        about = {"kind": cell.kind, "name": cell.name, "arguments": cell.arguments, "source": source_of(cell)}
        record = found | about | {"seconds": round(seconds, 2)} | origin("cpu", self.command)
        write_record(self.path(cell), record)
        return json.loads(json.dumps(record))

    def all(self) -> list[Record]:
        """Every record of the folder whose algorithm there is."""
        records = [_read(path) for path in sorted((self.out / "cells").glob("*.json"))]
        return [record for record in records if record["arguments"].get("algo", "pcpg") in COMPARATORS]


def _read(path: Path) -> Record:
    """A record, with the current name of its algorithm."""
    record = read_object(path)
    with understood(path):
        if "algo" in record["arguments"]:
            record["arguments"]["algo"] = current_name(record["arguments"]["algo"])
    return record


def source_of(cell: Table1Cell) -> str:
    """The digest of the code behind a cell's numbers: its learner, the actions of the tree, the problem of a user."""
    algo, reference = cell.arguments.get("algo", "pcpg"), cell.arguments.get("reference")
    digest = own.source_digest(algo)
    marks = ["practical"] * (cell.arguments.get("algo") == "pcpg")  # it once had other settings here than now
    if cell.kind == "tuning" or cell.arguments.get("family") == "tree":
        marks.append(f"astray {ASTRAY}")
    for mark in marks:
        digest = hashlib.sha256(f"{digest} {mark}".encode()).hexdigest()[:16]
    if reference is None:
        return digest
    file = read_file(Path(reference.rpartition(":")[0]))
    return hashlib.sha256(digest.encode() + file).hexdigest()[:16]


def measure(cell: Table1Cell, references: dict[str, str | None] | None = None) -> tuple[Record, float]:
    """What is measured in a cell, and the seconds of processor time it took.

    `references` are those of learners that are not the library's: a process of its own has to find them.
    """
    for name, reference in (references or {}).items():
        if name not in COMPARATORS and reference is not None:
            own.learner(name, own.load(reference))
    started = time.process_time()
    found = MEASURES[cell.kind](**cell.arguments)
    return found, time.process_time() - started


def measure_job(job: Job, boss: Boss) -> Outcome:
    """Measure a cell in the process of a worker."""
    found, seconds = measure(Table1Cell(*job["cell"]), job["references"])
    return {"state": DONE, "found": found, "core_seconds": seconds}


def run_cells(
    first: list[Table1Cell],
    follow: Callable[[Record], list[Table1Cell]],
    store: Store,
    jobs: int,
    notice: Callable[[Record], None],
    on: str = LOCAL,
) -> list[Record]:
    """The records of the first cells and of all that follow from records.

    They are measured by at most `jobs` workers, 0: as many as there are cores; one job runs in this process.
    """
    records: list[Record] = []
    cells: dict[str, Table1Cell] = {}

    def tasks_of(todo: Iterable[Table1Cell]) -> Iterable[Task]:
        for cell in todo:
            record = store.read(cell)
            if record is None:
                cells[cell.name] = cell
                job = {"does": f"{__name__}:measure_job", "cell": cell, "references": dict(own.REFERENCES)}
                yield Task(cell.name, job, ORDER.index(cell.kind))
            else:
                records.append(record)
                yield from tasks_of(follow(record))

    def done(task: Task, outcome: Outcome) -> Iterable[Task]:
        record = store.write(cells[task.id], outcome["found"], outcome["core_seconds"])
        notice(record)
        records.append(record)
        return tasks_of(follow(record))

    map_tasks(engine_for_calls(jobs, store.out, on), tasks_of(first), done)
    return records


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
        refuse_strange(out, PARTS)
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
