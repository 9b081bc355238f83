"""What all claims share: cells are run once and kept as JSON records, then shown as a table and figures.

A claim is one file with constants and a few functions, gathered at its end in a `Claim`. The harness runs its cells one
after the other, or reads finished ones; a record says which settings, command, commit and machine made it. Baselines
come after PC-PG and get as many environment steps as it used.
"""

import dataclasses
import importlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pcpg.algorithms import ALGORITHMS
from pcpg.api import Run, load
from pcpg.bonuses.protocol import upgraded
from pcpg.config import from_plain
from pcpg.presets import preset
from pcpg.reports.visits import read_visits
from pcpg.run_config import RunConfig
from pcpg.runs.disk import exists, refuse_strange
from pcpg.runs.documents import read_object
from pcpg.runs.errors import DamagedFile, FolderTaken, understood
from pcpg.runs.folder import CONFIG, RunFolder, differences
from pcpg.runs.metrics import read_metrics
from pcpg.state import NonFinite
from pcpg.training.loop import Observer, device_kind, start_run, train_run
from pcpg_lab.claims.records import (
    PARTS,
    Columns,
    Figures,
    Record,
    Scale,
    Summary,
    origin,
    provenance,
    read_record,
    refuse_unknown,
    save,
    table_of,
    write_record,
    write_results,
)
from pcpg_lab.sweeps import plan as sweeps
from pcpg_lab.sweeps.crew import Engine
from pcpg_lab.sweeps.status import SweepFolder
from pcpg_lab.sweeps.sweep import run_sweep

Watch = Callable[[str], AbstractContextManager[Observer | None]]
"""From the name of a cell to an observer of its run."""


class Cell(NamedTuple):
    """A run of a claim: the name of its record, its configuration, and the command that makes it."""

    name: str
    config: RunConfig
    command: str


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of every claim; each adds its own."""

    scale: Scale = "laptop"
    """smoke: seconds, learns nothing; laptop: two cores; paper: a GPU."""
    algos: tuple[str, ...] = ()
    """Which algorithms; by default all."""
    seeds: int | None = None
    """Number of seeds; by default set by the scale."""
    seed: int = 0
    """The first seed."""
    out: str = ""
    """Folder of the results; finished cells found there are reused."""

    def __post_init__(self) -> None:
        refuse_unknown("algorithm", self.algos, self.known)
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")

    @property
    def known(self) -> Iterable[str]:
        """All algorithms that can be asked for."""
        return type(self).algos

    def chosen(self, algos: Sequence[str]) -> list[str]:
        """Those algorithms that were asked for, in the order of the claim."""
        return [algo for algo in algos if algo in self.algos]


F = TypeVar("F", bound=Flags)


@dataclasses.dataclass(frozen=True)
class Claim(Generic[F]):
    """A claim: its cells, measurements and presentation."""

    flags: type[F]
    """Its docstring is the help of the command."""
    cells: Callable[[F, list[Record]], Iterator[Cell]]
    """The cells in running order, each made once the records of earlier ones are in the list."""
    measure: Callable[[Run], Record]
    """The results of a finished run."""
    order: Callable[[Record], Any]
    """The key by which records are sorted before they are summarised and drawn."""
    about: Mapping[str, str]
    """The beginning of the summary: its criterion."""
    rows: Callable[[list[Record]], list[Record]]
    """The rows of the summary; `each` makes one of every record."""
    columns: Columns = dataclasses.field(default_factory=dict)
    more: Callable[[list[Record]], Summary] = lambda records: {}
    """How the summary ends."""
    layout: Callable[[Summary], str] | None = None
    """The summary as Markdown; by default a line for each row, by `columns`."""
    figures: Callable[[list[Record]], Figures] = lambda records: ()
    """Figures with the names of their files."""
    headline: Callable[[Record], str] = lambda record: ""
    """Printed for a finished cell, before its steps."""
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By the value of --part, the module of a claim on the results of this one; its folder lies inside."""

    def summarise(self, records: list[Record]) -> Summary:
        """What is known of all cells."""
        return {**self.about, "cells": self.rows(records), **self.more(records)}

    def table(self, summary: Summary) -> str:
        """The summary as Markdown."""
        return table_of(self.columns, summary) if self.layout is None else self.layout(summary)


def each(row: Callable[[Record], Record]) -> Callable[[list[Record]], list[Record]]:
    """The function that makes a row of every record, with its origin."""
    return lambda records: [row(record) | provenance(record) for record in records]


class Results(NamedTuple):
    """The results of a claim."""

    summary: Summary
    table: str
    out: Path


def reproduce(
    claim: Claim[F],
    flags: F,
    watch: Watch = lambda name: nullcontext(),
    notice: Callable[[str], None] = lambda text: None,
    engine: Callable[[Path], Engine] | None = None,
) -> Results | None:
    """Run the unfinished cells of a claim and write its results; None if it was interrupted.

    With an engine, cells are trained there in parallel, PC-PG first: the others get as many steps.
    """
    out, part = Path(flags.out), getattr(flags, "part", "")
    if part in claim.parts:
        claim, out = importlib.import_module(claim.parts[part]).CLAIM, out / part
    refuse_strange(out, PARTS)
    if engine is not None:
        made = engine(out / "sweep")
        try:
            first = [cell for cell in claim.cells(flags, []) if is_ours(cell.config.algo)]
            train_cells(first, out, made, notice)
            known = [record for cell in first if (record := run_or_read(cell, out, claim.measure)) is not None]
            train_cells(claim.cells(flags, known), out, made, notice)
        finally:
            made.close()
    records: list[Record] = []
    for cell in claim.cells(flags, records):
        record = run_or_read(cell, out, claim.measure, watch)
        if record is None:
            return None
        if records:  # alone, a baseline may have any budget
            _check_budget(cell, record, out)
        steps = f"{max(record['env_steps']):,} steps per seed, {record['seconds']:.0f} s"
        notice(f"{cell.name}: {claim.headline(record)}{steps}")
        records.append(record)
    summary = summarised(claim, out)
    return Results(summary, claim.table(summary), out)


def train_cells(cells: Iterable[Cell], out: Path, engine: Engine, notice: Callable[[str], None]) -> None:
    """Train the runs of all cells without a record, in parallel on an engine."""
    wanted = [cell for cell in cells if read_record(out / "cells" / f"{cell.name}.json") is None]
    plain = [_plain(cell.config) for cell in wanted]
    named = [sweeps.Cell(cell.name, cell.name, cell.name, one) for cell, one in zip(wanted, plain, strict=True)]
    run_sweep(sweeps.Plan(tuple(named)), SweepFolder(out / "sweep", out / "runs"), engine, notice=notice)


def run_or_read(
    cell: Cell, out: Path, measure: Callable[[Run], Record], watch: Watch = lambda name: nullcontext()
) -> Record | None:
    """The record of a cell: read if it is finished, else trained from the last checkpoint; None if interrupted."""
    path = out / "cells" / f"{cell.name}.json"
    record = read_record(path)
    if record is not None:
        if record["seeds"] != cell.config.seed_list:
            raise ValueError(f"{path} holds seeds {record['seeds']}, not {cell.config.seed_list}: choose another --out")
        _check_settings(cell, record["config"], path)
        return record
    run_path = out / "runs" / cell.name
    folder = _begun(cell, run_path) or start_run(cell.config.resolved(), run_path)
    started = time.perf_counter()
    with watch(cell.name) as observer:
        trained = train_run(folder, observer=observer, trust=True)  # the environment is the claim's own
    if not trained.finished:
        return None
    if trained.failed:  # a claim needs all its seeds
        raise NonFinite(f"{cell.name}: {'; '.join(trained.failed.values())}")
    record = measure(load(folder.path, trust=True)) | origin(device_kind(), cell.command)
    record |= {
        "seconds": sum(row["seconds"] for row in read_metrics(folder.timings)),
        "seconds_of_last_process": time.perf_counter() - started,
    }
    write_record(path, record)
    return record


def _begun(cell: Cell, path: Path) -> RunFolder | None:
    """The run of a cell that has begun; refused unless it is the claim's, on the claim's environment."""
    if not exists(path / CONFIG):
        return None
    folder = RunFolder.open(path)
    _check_settings(cell, folder.config["agent"], path)
    asked, rest = _plain(cell.config), folder.config.keys() - {"agent"}  # entries that were added since are absent
    different = differences(*({name: one.get(name) for name in rest} for one in (folder.config, asked)))
    if different:
        raise FolderTaken(f"{path} holds a run whose config is not the claim's ({different}): choose another --out")
    return folder


def _plain(config: RunConfig) -> Record:
    return json.loads(json.dumps(config.resolved().to_json()))


def _check_settings(cell: Cell, kept: Mapping[str, object], where: Path) -> None:
    """Refuse results of other settings; budgets of baselines are checked apart."""
    asked = dict(sweeps.leaves(_plain(cell.config)["agent"]))
    # Settings that were added since are absent from kept results.
    other = [name for name, value in sweeps.leaves(upgraded(kept)) if name != "budget" and asked.get(name) != value]
    if other:
        raise ValueError(f"{where} was made with other settings ({', '.join(other)}): choose another --out")


def _check_budget(cell: Cell, record: Record, out: Path) -> None:
    """Refuse a kept baseline with another budget than the steps that PC-PG used."""
    kept, asked = record["config"].get("budget"), budget_of(cell.config.agent)
    if kept != asked:
        raise ValueError(
            f"{cell.name} in {out} was run for {kept:,} steps, not for {asked:,}, as many as PC-PG used: "
            "choose another --out"
        )


def steps_used(records: Iterable[Record], **entries: object) -> int:
    """The most steps that a seed of PC-PG used, in the records with these entries; 0 where there is none."""
    same = [record for record in records if is_ours(record["algo"]) and entries.items() <= record.items()]
    return max((max(record["env_steps"]) for record in same), default=0)


# Settings.


def is_ours(algo: str) -> bool:
    """Whether an algorithm is a version of PC-PG, whose steps are the budget of the baselines, by its name."""
    return algo.startswith("pcpg")


def settings(env: str, algo: str, changes: Mapping[str, object], budget: int = 0) -> Any:
    """The settings of an algorithm on an environment with some entries changed; see `changed`."""
    return changed(preset(env, algo), changes, budget)


def defaults(algo: str, changes: Mapping[str, object]) -> Any:
    """The settings of an algorithm on compiled environments with some entries changed."""
    return changed(ALGORITHMS[algo].presets.compiled, changes)


def changed(agent: Any, changes: Mapping[str, object], budget: int = 0) -> Any:
    """Settings with some entries changed; settings with a budget of steps get this one, unless it is 0."""
    if budget and budget_of(agent) is not None:
        agent = dataclasses.replace(agent, budget=budget)
    return from_plain(type(agent), changes, "config", agent)


def budget_of(agent: Any) -> int | None:
    """The budget of steps in settings; None if they end by their own rule."""
    return {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}.get("budget")


# What is measured of a run.


def facts_of(run: Run, **entries: object) -> Record:
    """The entries of every record, and those of the claim."""
    return {
        "algo": run.config.algo,
        "seeds": run.config.seed_list,
        "config": run.folder.config["agent"],
        "env_steps": run.summary["env_steps"],
    } | entries


def histories(run: Run, more: Callable[[Record], Sequence[object]]) -> dict[str, list[list[float]]]:
    """By seed, a row for each round: steps so far, mean return, and more of the metrics."""
    rows: dict[str, list[list[float]]] = {}
    for metrics in read_metrics(run.folder.metrics):
        row = [metrics["env_steps"], metrics["return"], *more(metrics)]
        rows.setdefault(str(metrics["seed"]), []).append(row)
    return rows


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


def read_records(claim: Claim, out: Path) -> list[Record]:
    """The records of all cells that are done in a folder, in the order of the claim."""
    records = []
    for path in sorted((out / "cells").glob("*.json")):
        try:
            with understood(path):
                records.append(read_object(path))
                claim.order(records[-1])
        except DamagedFile as error:
            raise DamagedFile(path, f"{error.cause}; rerun its cell, or remove it") from error
    return sorted(records, key=claim.order)


def summarised(claim: Claim, out: Path) -> Summary:
    """Write summary.json, table.md and the figures from all cells that are done in a folder; the summary."""
    records = read_records(claim, out)
    with understood(out / "cells"):
        summary = claim.summarise(records)
        text, figures = claim.table(summary), list(claim.figures(records))
    write_results(out, summary, text)
    for name, figure in figures:
        save(figure, out / name)
    return summary
