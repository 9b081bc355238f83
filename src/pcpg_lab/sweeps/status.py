"""The folder of a sweep, and the progress that anybody can read from it.

sweep.json        the plan               cells/ID/         the run folder of a cell
working.json      which cells run where  failed/ID.json    why it failed, until it is tried again
table.csv, table.json, report.html, timings.json           the results

One process drives a sweep and holds the lock of its folder; working.json counts while the lock is held. No clock is
read: the kernel releases the lock when the process ends, however it ends.

The results of a sweep: a table of all seeds as CSV, a table of groups as JSON, and a page with figures.

Nothing in the tables depends on where or when a cell ran: two engines give the same bytes.
"""

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pcpg.config import Json
from pcpg.reports.page import final_return, render, solved_share
from pcpg.reports.read import RunData, read_run
from pcpg.reports.statistics import Interval
from pcpg.runs.disk import exists, make_folder, refuse_strange, write_file, writing
from pcpg.runs.documents import read_object
from pcpg.runs.errors import DamagedFile, FolderInUse, FolderTaken, NotARun, RunError, understood
from pcpg.runs.folder import RunFolder
from pcpg.runs.lock import hold_lock, is_locked
from pcpg.runs.manifest import Manifest, read_manifest
from pcpg_lab.sweeps.plan import Cell, Plan, leaves

PLAN, WORKING, TIMINGS = "sweep.json", "working.json", "timings.json"
PARTS = (
    PLAN,
    WORKING,
    TIMINGS,
    "cells",
    "failed",
    "table.csv",
    "table.json",
    "report.html",
    "best.json",
    "study.jsonl",
)
"""Names in the folder of a sweep or a search that the library reads or writes."""
MOST_BYTES = 1 << 25
"""Of a file of a sweep: the plan of 10,000 cells is smaller."""
TIMES = ("seconds", "training_seconds", "compile_seconds", "lost_seconds", "attempts")


@dataclasses.dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep."""

    path: Path
    runs: Path | None = None
    """The parent of the run folders; None: the folder's own `cells`."""

    @classmethod
    def claimed(cls, path: Path | str) -> Self:
        """The folder at a path: empty, or that of a sweep already; an error if it holds something else."""
        folder = cls(Path(path))
        others = [found for found in folder.path.glob("*") if not found.name.startswith(".")]
        if others and not (folder.path / PLAN).exists():
            raise FolderTaken(f"{folder.path} is neither empty nor the folder of a sweep: choose another --out")
        return folder

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Keep every other sweep out of the folder while inside."""
        make_folder(self.path)
        refuse_strange(self.path, PARTS)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(self.path))
            except FolderInUse as error:
                raise FolderInUse(
                    f"{self.path} is in use by another sweep: wait for it, or choose another --out"
                ) from error
            try:
                self._nobody_works()  # a process that was killed left its own
                yield
            finally:
                self._nobody_works()

    def _nobody_works(self) -> None:
        with writing(self.path / WORKING):
            (self.path / WORKING).unlink(missing_ok=True)

    def write_working(self, cells: Mapping[str, str]) -> None:
        """Note where each running cell runs."""
        if cells != self.working():
            self.write(WORKING, cells)

    def working(self) -> dict[str, str] | None:
        """By running cell, where it runs; None where no process drives the sweep."""
        return self.read(WORKING) if is_locked(self.path) else None

    def cell(self, cell: str) -> Path:
        """The run folder of a cell."""
        return (self.runs or self.path / "cells") / cell

    def failure(self, cell: str) -> Path:
        return self.path / "failed" / f"{cell}.json"

    def manifest(self, cell: str) -> Manifest | None:
        """The files of a cell's run so far; None before the first checkpoint."""
        try:
            return read_manifest(self.cell(cell)) if exists(self.cell(cell) / "manifest.json") else None
        except RunError:
            return None

    def is_done(self, cell: str) -> bool:
        """Whether a cell is finished."""
        manifest = self.manifest(cell)
        return manifest is not None and manifest.finished

    def step(self, cell: str) -> int:
        """The round of a cell's last checkpoint; -1 where nothing is saved."""
        manifest = self.manifest(cell)
        return -1 if manifest is None else manifest.step

    def saved_at(self, cell: str) -> float:
        """The time of a cell's last checkpoint; 0 where there is none."""
        path = self.cell(cell) / "manifest.json"
        return os.lstat(path).st_mtime if exists(path) else 0.0

    def write_plan(self, plan: Plan) -> None:
        """Write the plan; cells of an earlier plan stay."""
        for folder in (self.path, self.runs or self.path / "cells", self.path / "failed"):
            make_folder(folder)
        self.write(PLAN, dataclasses.asdict(plan) | {"cells": [cell._asdict() for cell in plan.cells]})

    def read_plan(self) -> Plan:
        """The plan of the sweep in this folder."""
        said = self.read(PLAN)
        if said is None:
            raise NotARun(f"{self.path} is not the folder of a sweep: it holds no {PLAN}")
        refuse_strange(self.path, PARTS)
        with understood(self.path / PLAN):
            cells = tuple(Cell(**cell) for cell in said["cells"])
            for cell in cells:
                if not all(isinstance(text, str) for text in (cell.id, cell.label, cell.group)):
                    raise TypeError(f"a cell has the id {cell.id!r:.60}, the label {cell.label!r:.60}")
                if cell.id in ("", "..") or Path(cell.id).name != cell.id or "\0" in cell.id:
                    raise ValueError(f"{cell.id!r:.60} is not the id of a cell")
            return Plan(cells, said["cores"], said["gpus"])

    def read(self, name: str) -> Json | None:
        """The JSON object in a file, None where there is no such file; `DamagedFile` for anything else."""
        path = self.path / name
        try:
            return read_object(path, MOST_BYTES)
        except DamagedFile:
            if exists(path):
                raise
            return None

    def timings(self) -> dict[str, Json]:
        """What each cell took so far."""
        said = self.read(TIMINGS) or {"cells": {}}
        with understood(self.path / TIMINGS):
            for cell, one in said["cells"].items():
                if not all(0 <= float(one.get(name, 0.0)) < 1e9 for name in TIMES):
                    raise ValueError(f"cell {cell} has a time out of range")
            return dict(said["cells"])

    def write(self, name: str, content: object) -> None:
        """Write JSON into a file, whole or not at all."""
        write_file(self.path / name, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())

    def write_failure(self, cell: str, cause: str) -> None:
        write_file(self.failure(cell), json.dumps({"cell": cell, "cause": cause}).encode())

    def failures(self) -> dict[str, str]:
        """The causes of failure by cell."""
        found = {}
        for path in sorted((self.path / "failed").glob("*.json")):
            said = self.read(f"failed/{path.name}")
            if said is not None:  # else it is tried again
                found[path.stem] = str(said.get("cause"))
        return found


@dataclasses.dataclass(frozen=True)
class Status:
    """The progress of a sweep."""

    cells: int
    done: list[str]
    running: dict[str, int]  # rounds by cell
    failed: dict[str, str]
    seconds_left: float | None  # None: not known yet

    @property
    def waiting(self) -> int:
        return self.cells - len(self.done) - len(self.running) - len(self.failed)

    def line(self) -> str:
        """In one line."""
        parts = [f"{len(self.done)} of {self.cells} cells done", f"{len(self.running)} running"]
        parts += [f"{self.waiting} waiting"] if self.waiting else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        return ", ".join(parts)

    def as_json(self) -> Json:
        return dataclasses.asdict(self) | {"waiting": self.waiting}


def status_of(folder: SweepFolder, plan: Plan, known_done: Iterable[str] = ()) -> Status:
    """The progress of a sweep; cells that are known to be done are not looked at again."""
    known = set(known_done)
    done = [cell.id for cell in plan.cells if cell.id in known or folder.is_done(cell.id)]
    working = folder.working() or {}
    running = {cell.id: max(0, folder.step(cell.id)) for cell in plan.cells if cell.id in working.keys() - set(done)}
    failed = folder.failures()
    ids = {cell.id for cell in plan.cells}
    failed = {cell: cause for cell, cause in failed.items() if cell in ids and cell not in (*done, *running)}
    left = len(plan.cells) - len(done) - len(failed)
    return Status(len(plan.cells), done, running, failed, _seconds_left(folder, left, max(1, len(running))))


def _seconds_left(folder: SweepFolder, left: int, side_by_side: int) -> float | None:
    spent = [float(one["seconds"]) for one in folder.timings().values() if one.get("state") == "done"]
    return left * sum(spent) / len(spent) / side_by_side if spent else None


COLUMNS = ("env_steps", "policies", "final_return", "best_return")


def write_tables(folder: SweepFolder, plan: Plan, notice: Callable[[str], object] = str) -> Json:
    """Write table.csv and table.json from all finished cells; the content of the second. Damage is told."""
    done = [cell for cell in plan.cells if folder.is_done(cell.id)]
    varied = varied_settings(plan.cells)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["cell", "env", "algo", *varied, "seed", *COLUMNS, "failed"])
    for cell in done:
        settings = dict(leaves(cell.config))
        summary = RunFolder.open(folder.cell(cell.id)).read_summary()
        for place, seed in enumerate(summary["seeds"]):
            named = [cell.id, cell.config["env"], cell.config["algo"], *(settings.get(name, "") for name in varied)]
            reached = ["" if (value := summary[name][place]) is None else value for name in COLUMNS]
            writer.writerow([*named, seed, *reached, summary.get("failed", {}).get(str(seed), "")])
    write_file(folder.path / "table.csv", text.getvalue().encode())
    failed, found = folder.failures(), groups(folder, done)
    for run in (run for _, runs in found for run in runs):
        for note in run.notes:
            notice(f"{run.path}: {note}")
    table = {
        "cells": len(plan.cells),
        "done": len(done),
        "groups": [group_row(cells, runs, varied) for cells, runs in found],
        "failed": [
            {"cell": cell.id, "label": cell.label, "cause": failed[cell.id]} for cell in plan.cells if cell.id in failed
        ],
    }
    folder.write("table.json", table)
    return table


def write_page(folder: SweepFolder, plan: Plan) -> Any:
    """Write report.html: one section for each group of cells that differ in their seeds alone; its path."""
    done = [cell for cell in plan.cells if folder.is_done(cell.id)]
    runs = [joined for _, runs in groups(folder, done) for joined in joined_runs(runs)]
    path = folder.path / "report.html"
    if not runs:
        return None
    write_file(path, render(runs).encode("utf-8", "replace"))
    return path


def varied_settings(cells: Iterable[Cell]) -> list[str]:
    """The settings, seeds aside, in which cells of one algorithm on one environment differ."""
    values: dict[str, dict[tuple[str, str], set[str]]] = {}
    for cell in cells:
        for name, value in leaves(cell.config):
            if name not in ("seed", "seeds"):
                alike = values.setdefault(name, {}).setdefault((cell.config["env"], cell.config["algo"]), set())
                alike.add(repr(value))
    return [name for name, found in values.items() if any(len(alike) > 1 for alike in found.values())]


def groups(folder: SweepFolder, cells: Iterable[Cell]) -> list[tuple[list[Cell], list[RunData]]]:
    """Cells that differ only in their seeds, with the results of their runs."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.group, []).append(cell)
    each = [sorted(group, key=lambda cell: cell.config["seed"]) for group in found.values()]
    return [(group, [read_run(folder.cell(cell.id)) for cell in group]) for group in each]


def group_row(cells: list[Cell], runs: list[RunData], varied: list[str]) -> dict[str, object]:
    """A group in the table: the interquartile mean of the final return, and the share of seeds that are solved."""
    settings, whole = dict(leaves(cells[0].config)), joined(runs)
    returns = whole.final_returns
    return {
        "env": cells[0].config["env"],
        "algo": cells[0].config["algo"],
        "settings": {name: settings[name] for name in varied if name in settings},
        "seeds": sum(len(run.seeds) for run in runs),
        "failed_seeds": sum(len(run.failed) for run in runs),
        "final_return": _interval(final_return(whole)),
        "solved": None if not returns else _interval(solved_share(whole)),
        "most_env_steps": max((run.last(seed, "env_steps") or 0 for run in runs for seed in run.seeds), default=0),
        "cells": [cell.id for cell in cells],
    }


def _interval(found: Interval | None) -> list[float | None] | None:
    return None if found is None else [value if value == value else None for value in found]


def joined_runs(runs: list[RunData]) -> list[RunData]:
    """Runs whose seeds follow each other as one; others as they are."""
    follow = all(a.seeds[-1] + 1 == b.seeds[0] for a, b in itertools.pairwise(runs))
    return [joined(runs)] if follow else runs


def joined(runs: list[RunData]) -> RunData:
    """Runs of the same settings as one with all their seeds."""
    first, summaries = runs[0], [run.summary or {} for run in runs]
    summary = {
        name: [value for one in summaries for value in one.get(name, [])] for name in ("seeds", "env_steps", *COLUMNS)
    }
    return dataclasses.replace(
        first,
        config=first.config | {"seeds": sum(len(run.seeds) for run in runs)},
        summary=summary | {"rounds": max(one.get("rounds", 0) for one in summaries)},
        records={seed: records for run in runs for seed, records in run.records.items()},
        timings=[timing for run in runs for timing in run.timings],
        covers={seed: cover for run in runs for seed, cover in run.covers.items()},
        notes=tuple(note for run in runs for note in run.notes),
        failed={seed: cause for run in runs for seed, cause in run.failed.items()},
    )
