"""What every experiment shares: cells are run once and kept as JSON records, then shown as a table and figures.

A claim is one file with constants and a few functions, gathered at its end in an `Experiment`. The harness runs its
cells one after the other, or reads those that are done; a record says which settings, command, commit and machine
made it. Baselines come after PC-PG and get as many environment steps as it used.
"""

import dataclasses
import datetime
import importlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from pcpg.api import Run, load
from pcpg.config import AgentConfig, BaselineConfig, from_plain
from pcpg.reports.figures import save
from pcpg.reports.statistics import wilson
from pcpg.reports.visits import read_visits
from pcpg.run_config import RunConfig
from pcpg.runs.disk import make_folder, write_file
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg.state import NonFinite
from pcpg.sweeps import plan as sweeps
from pcpg.sweeps.local import Engine
from pcpg.sweeps.status import SweepFolder
from pcpg.sweeps.sweep import run_sweep
from pcpg.training.loop import Observer, device_kind, start_run, train_run

Record = dict[str, Any]
Summary = dict[str, Any]
Scale = Literal["smoke", "laptop", "paper"]
Watch = Callable[[str], AbstractContextManager[Observer | None]]
"""From the name of a cell to somebody who watches its run."""

STOPPED = 130
"""Exit code of an experiment that Ctrl-C interrupted, as shells have it."""
PROVENANCE = ("command", "seconds", "device", "commit", "time")


class Cell(NamedTuple):
    """One unit of an experiment: the name of its record, the run, and the command that makes it."""

    name: str
    config: RunConfig
    command: str


@dataclasses.dataclass(frozen=True)
class Flags:
    """What can be asked of every experiment; each has its own flags on top."""

    scale: Scale = "laptop"
    """smoke: seconds, learns nothing; laptop: two cores; paper: a GPU."""
    algos: tuple[str, ...] = ()
    """Which algorithms; the default has all that are valid."""
    seeds: int = 0
    """How many seeds; 0: those of the scale."""
    seed: int = 0
    """The first seed."""
    out: str = ""
    """Folder of the results; cells that are done there are not run again."""

    def __post_init__(self) -> None:
        valid = type(self).algos
        unknown = set(self.algos) - set(valid)
        if unknown:
            raise ValueError(f"unknown algorithm {sorted(unknown)[0]!r}; valid: {', '.join(valid)}")
        if self.seeds < 0:
            raise ValueError(f"seeds must be 0 (those of the scale) or more, got {self.seeds}")

    def chosen(self, algos: Sequence[str]) -> list[str]:
        """Those algorithms that were asked for, in the order of the experiment."""
        return [algo for algo in algos if algo in self.algos]


F = TypeVar("F", bound=Flags)


@dataclasses.dataclass(frozen=True)
class Experiment(Generic[F]):
    """A claim: what is run for it, what is measured, and how that is shown."""

    flags: type[F]
    """Its docstring is the help of the command."""
    cells: Callable[[F, list[Record]], Iterator[Cell]]
    """The cells in the order in which they run, each made when the records of those before it are in the list."""
    measure: Callable[[Run], Record]
    """What a finished run reached."""
    order: Callable[[Record], Any]
    """The key by which records are sorted before they are summarised and drawn."""
    summarise: Callable[[list[Record]], Summary]
    table: Callable[[Summary], str]
    """The summary as Markdown."""
    figures: Callable[[list[Record]], Iterable[tuple[str, Any]]] = lambda records: ()
    """Figures with the names of their files."""
    headline: Callable[[Record], str] = lambda record: ""
    """What is said of a cell that is done, before its steps."""
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By the value of --part, the module of an experiment on what this one left behind; its folder lies inside."""


class Results(NamedTuple):
    """What an experiment left behind."""

    summary: Summary
    table: str
    out: Path


def reproduce(
    experiment: Experiment[F],
    flags: F,
    watch: Watch = lambda name: nullcontext(),
    notice: Callable[[str], None] = lambda text: None,
    engine: Callable[[Path], Engine] | None = None,
) -> Results | None:
    """Run all cells of an experiment that are not done and write its results; None if it was interrupted.

    With an engine, cells are trained there side by side, those of PC-PG first: the others get as many steps.
    """
    out, part = Path(flags.out), getattr(flags, "part", "")
    if part in experiment.parts:
        experiment, out = importlib.import_module(experiment.parts[part]).EXPERIMENT, out / part
    if engine is not None:
        made = engine(out / "sweep")
        try:
            first = [cell for cell in experiment.cells(flags, []) if cell.config.algo.startswith("pcpg")]
            train_cells(first, out, made, notice)
            known = [record for cell in first if (record := run_or_read(cell, out, experiment.measure)) is not None]
            train_cells(experiment.cells(flags, known), out, made, notice)
        finally:
            made.close()
    records: list[Record] = []
    for cell in experiment.cells(flags, records):
        record = run_or_read(cell, out, experiment.measure, watch)
        if record is None:
            return None
        if records:  # alone, a baseline may have any budget
            _check_budget(cell, record, out)
        steps = f"{max(record['env_steps']):,} steps per seed, {record['seconds']:.0f} s"
        notice(f"{cell.name}: {experiment.headline(record)}{steps}")
        records.append(record)
    summary = write_results(experiment, out)
    return Results(summary, experiment.table(summary), out)


def train_cells(cells: Iterable[Cell], out: Path, engine: Engine, notice: Callable[[str], None]) -> None:
    """Train the runs of all cells that have no record, side by side on an engine; what fails is told in its turn."""
    wanted = [cell for cell in cells if _read_record(out / "cells" / f"{cell.name}.json") is None]
    plain = [json.loads(json.dumps(cell.config.resolved().to_json())) for cell in wanted]
    named = [sweeps.Cell(cell.name, cell.name, cell.name, one) for cell, one in zip(wanted, plain, strict=True)]
    run_sweep(sweeps.Plan(tuple(named)), SweepFolder(out / "sweep", out / "runs"), engine, notice=notice)


# One cell.


def run_or_read(
    cell: Cell, out: Path, measure: Callable[[Run], Record], watch: Watch = lambda name: nullcontext()
) -> Record | None:
    """The record of a cell: read if it is done, else trained from where it stopped; None if it was interrupted."""
    path = out / "cells" / f"{cell.name}.json"
    record = _read_record(path)
    if record is not None:
        if record["seeds"] != cell.config.seed_list:
            raise ValueError(f"{path} holds seeds {record['seeds']}, not {cell.config.seed_list}: choose another --out")
        _check_settings(cell, record["config"], path)
        return record
    run_path = out / "runs" / cell.name
    is_begun = (run_path / "config.json").exists()
    folder = RunFolder.open(run_path) if is_begun else start_run(cell.config.resolved(), run_path)
    _check_settings(cell, folder.config["agent"], run_path)
    started = time.perf_counter()
    with watch(cell.name) as observer:
        trained = train_run(folder, observer=observer, trust=True)  # the environment is the experiment's own
    if not trained.finished:
        return None
    if trained.failed:  # a claim needs all its seeds
        raise NonFinite(f"{cell.name}: {'; '.join(trained.failed.values())}")
    record = measure(load(folder.path, trust=True)) | {
        "device": device_kind(),
        "commit": commit(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": cell.command,
        "seconds": sum(row["seconds"] for row in read_metrics(folder.timings)),
        "seconds_of_last_process": time.perf_counter() - started,
    }
    make_folder(path.parent)
    write_file(path, json.dumps(record, allow_nan=False).encode())  # whole or not at all
    return record


def _read_record(path: Path) -> Record | None:
    """A record that is there; None for one that a full disk or a kill cut, which is measured again from its run."""
    try:
        record = json.loads(path.read_bytes())
        return record if isinstance(record, dict) and {"seeds", "config"} <= record.keys() else None
    except (FileNotFoundError, ValueError):
        return None


def _check_settings(cell: Cell, kept: Mapping[str, Any], where: Path) -> None:
    """Refuse what was made with other settings than those asked for; the budget of a baseline is its own matter."""
    asked = _flat(json.loads(json.dumps(cell.config.resolved().to_json()["agent"])))
    # Entries that came later have their defaults in what is kept.
    other = [name for name, value in _flat(kept).items() if name != "budget" and asked.get(name) != value]
    if other:
        raise ValueError(f"{where} was made with other settings ({', '.join(other)}): choose another --out")


def _check_budget(cell: Cell, record: Record, out: Path) -> None:
    """Refuse a kept baseline that had other steps than PC-PG has used now."""
    kept, asked = record["config"].get("budget"), getattr(cell.config.agent, "budget", None)
    if kept != asked:
        raise ValueError(
            f"{cell.name} in {out} was run for {kept:,} steps, not for {asked:,}, as many as PC-PG used: "
            "choose another --out"
        )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Record:
    """Nested settings as one mapping, with names such as ppo.hidden."""
    parts = [
        _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
        for name, value in tree.items()
    ]
    return {name: value for part in parts for name, value in part.items()}


def commit() -> str | None:
    """The commit of the source tree, "-dirty" where tracked files differ; PCPG_COMMIT names it where git cannot."""
    if named := os.environ.get("PCPG_COMMIT"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


# What cells are made of.


def changed(agent: AgentConfig, changes: Mapping[str, Any], budget: int = 0) -> AgentConfig:
    """Settings with some entries changed; a baseline gets the budget, unless that is 0."""
    if budget and isinstance(agent, BaselineConfig):
        agent = dataclasses.replace(agent, budget=budget)
    return from_plain(type(agent), changes, "config", agent)


def steps_used(records: Iterable[Record], **entries: Any) -> int:
    """The most steps that a seed of PC-PG used, in the records with these entries; 0 where there is none."""
    ours = [record for record in records if record["algo"].startswith("pcpg")]
    same = [record for record in ours if all(record[name] == value for name, value in entries.items())]
    return max((max(record["env_steps"]) for record in same), default=0)


# What is measured of a run.


def facts_of(run: Run, **entries: Any) -> Record:
    """The entries that the record of every experiment has, and the experiment's own."""
    return {
        "algo": run.config.algo,
        "seeds": run.config.seed_list,
        "config": run.folder.config["agent"],
        "env_steps": run.summary["env_steps"],
    } | entries


def histories(run: Run, more: Callable[[Record], list[Any]]) -> dict[str, list[list[float]]]:
    """By seed, a row for each round: steps so far, mean return, and more of the metrics."""
    rows: dict[str, list[list[float]]] = {}
    for metrics in read_metrics(run.folder.metrics):
        row = [metrics["env_steps"], metrics["return"], *more(metrics)]
        rows.setdefault(str(metrics["seed"]), []).append(row)
    return rows


def value_at(rows: list[list[float]], grid: np.ndarray, column: int) -> np.ndarray:
    """The newest value of a column of a history at each number of steps; NaN before the first row."""
    steps, values = np.array([row[0] for row in rows]), np.array([row[column] for row in rows])
    index = np.searchsorted(steps, grid, side="right") - 1
    return np.where(index < 0, np.nan, values[np.maximum(index, 0)])


def cover_on_a_map(run: Run, origin: Literal["upper", "lower"]) -> Record:
    """Where the policies of the first seed's cover went, in an environment whose grid cells are one map."""
    visits = read_visits(run.folder, run.config.seed)
    reachable = run.env.reachable_cells(run.env.instance(run.config.seed))
    return {
        "counts": visits.counts[:, 0].tolist(),
        "weights": visits.weights.tolist(),
        "reachable": reachable.reshape(visits.grid.shape[1:]).tolist(),
        "origin": origin,
    }


# What is shown.


def read_records(experiment: Experiment[Any], out: Path) -> list[Record]:
    """The records of all cells that are done in a folder, in the order of the experiment."""
    records = []
    for path in sorted((out / "cells").glob("*.json")):
        try:
            records.append(json.loads(path.read_bytes()))
        except ValueError as error:
            raise ValueError(f"{path} is not whole ({error}): ask for its cell again, or remove it") from error
    return sorted(records, key=experiment.order)


def write_results(experiment: Experiment[Any], out: Path) -> Summary:
    """Write summary.json, table.md and the figures from all cells that are done in a folder; the summary."""
    records = read_records(experiment, out)
    summary = experiment.summarise(records)
    write_file(out / "summary.json", (json.dumps(summary, indent=1, allow_nan=False) + "\n").encode())
    write_file(out / "table.md", experiment.table(summary).encode())
    for name, figure in experiment.figures(records):
        save(figure, out / name)
    return summary


def provenance(record: Record) -> Record:
    """Where a record came from."""
    return {name: record[name] for name in PROVENANCE}


def share_solved(successes: int, seeds: int) -> Record:
    """How many seeds are solved, with the Wilson interval of their share."""
    share = wilson(successes, seeds)
    return {"seeds": seeds, "successes": successes, "interval": [share.low, share.high]}


def share_text(count: int, total: int, interval: Sequence[float]) -> str:
    """A count with the interval of its share, as in a table."""
    low, high = interval
    return f"**{count}/{total}** [{low:.2f}, {high:.2f}]"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    first, *others = ["|" + "".join(f" {text} |" if text else " |" for text in line) for line in (head, *rows)]
    return "\n".join([first, "|" + "---|" * len(head), *others]) + "\n"


Columns = Mapping[str, Callable[[Record], str]]
"""From the head of a column to its text for a row of the summary."""


def table_of(columns: Columns) -> Callable[[Summary], str]:
    """The function that shows a summary as a table, a line for each of its cells."""
    return lambda summary: markdown(
        list(columns), [[text(row) for text in columns.values()] for row in summary["cells"]]
    )
