"""How far a sweep is, from its folder alone: whoever sees the folder can ask.

sweep.json        the plan               cells/ID/         the run folder of a cell
leases/ID.N       who works on it        failed/ID.json    why it failed, until it is tried again
table.csv, table.json, report.html, timings.json           what came out
"""

import dataclasses
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pcpg.runs.disk import exists, make_folder, write_file
from pcpg.runs.errors import FolderTaken, NotARun, RunError
from pcpg.runs.manifest import Manifest, read_manifest
from pcpg.sweeps.lease import PATIENCE, newest
from pcpg.sweeps.plan import Cell, Plan

PLAN = "sweep.json"


@dataclasses.dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep."""

    path: Path
    runs: Path | None = None
    """Where the run folders are; None: in the folder itself."""

    @classmethod
    def claimed(cls, path: Path | str) -> Self:
        """The folder at a path: empty, or that of a sweep already; an error where it holds something else."""
        folder = cls(Path(path))
        others = [found for found in folder.path.glob("*") if not found.name.startswith(".")]
        if others and not (folder.path / PLAN).exists():
            raise FolderTaken(f"{folder.path} is neither empty nor the folder of a sweep: choose another --out")
        return folder

    @property
    def leases(self) -> Path:
        return self.path / "leases"

    def cell(self, cell: str) -> Path:
        """The run folder of a cell."""
        return (self.runs or self.path / "cells") / cell

    def failure(self, cell: str) -> Path:
        return self.path / "failed" / f"{cell}.json"

    def manifest(self, cell: str) -> Manifest | None:
        """What a cell's run consists of so far; None where nothing is saved."""
        try:
            return read_manifest(self.cell(cell)) if exists(self.cell(cell) / "manifest.json") else None
        except RunError:
            return None

    def is_done(self, cell: str) -> bool:
        """Whether a cell came to its end."""
        manifest = self.manifest(cell)
        return manifest is not None and manifest.finished

    def write_plan(self, plan: Plan) -> None:
        """Write down what the sweep is; cells that an earlier one left there stay."""
        for folder in (self.path, self.runs or self.path / "cells", self.leases, self.path / "failed"):
            make_folder(folder)
        self.write(PLAN, dataclasses.asdict(plan) | {"cells": [cell._asdict() for cell in plan.cells]})

    def read_plan(self) -> Plan:
        """The plan of the sweep in this folder."""
        try:
            said = json.loads((self.path / PLAN).read_bytes())
            return Plan(tuple(Cell(**cell) for cell in said["cells"]), said["cores"], said["gpus"])
        except OSError as error:
            raise NotARun(f"{self.path} is not the folder of a sweep: it holds no {PLAN}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise NotARun(f"{self.path / PLAN} is not the plan of a sweep: {error}") from error

    def write(self, name: str, content: Any) -> None:
        """Write JSON into a file, whole or not at all."""
        write_file(self.path / name, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())

    def write_failure(self, cell: str, cause: str) -> None:
        write_file(self.failure(cell), json.dumps({"cell": cell, "cause": cause}).encode())

    def failures(self) -> dict[str, str]:
        """By cell, why it failed."""
        found = {}
        for path in sorted((self.path / "failed").glob("*.json")):
            found[path.stem] = str(json.loads(path.read_bytes()).get("cause"))
        return found


@dataclasses.dataclass(frozen=True)
class Status:
    """How far a sweep is."""

    cells: int
    done: list[str]
    running: dict[str, int]  # by cell, rounds done
    failed: dict[str, str]
    seconds_left: float | None  # None: nothing to go by yet

    @property
    def waiting(self) -> int:
        return self.cells - len(self.done) - len(self.running) - len(self.failed)

    def line(self) -> str:
        """In one line."""
        parts = [f"{len(self.done)} of {self.cells} cells done", f"{len(self.running)} running"]
        parts += [f"{self.waiting} waiting"] if self.waiting else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"waiting": self.waiting}


def status_of(folder: SweepFolder, plan: Plan, known_done: Iterable[str] = ()) -> Status:
    """How far a sweep is; cells that are known to be done are not looked at again."""
    done, running, known, now = [], {}, set(known_done), time.time()
    failed = folder.failures()
    for cell in plan.cells:
        held = None if cell.id in known else newest(folder.leases, cell.id)
        if cell.id in known or folder.is_done(cell.id):
            done.append(cell.id)
        elif held is not None and now - held.touched < PATIENCE:
            manifest = folder.manifest(cell.id)
            running[cell.id] = 0 if manifest is None else manifest.step
    ids = {cell.id for cell in plan.cells}
    failed = {cell: cause for cell, cause in failed.items() if cell in ids and cell not in (*done, *running)}
    left = len(plan.cells) - len(done) - len(failed)
    return Status(len(plan.cells), done, running, failed, _seconds_left(folder, left, max(1, len(running))))


def _seconds_left(folder: SweepFolder, left: int, side_by_side: int) -> float | None:
    try:
        timings: Mapping[str, Any] = json.loads((folder.path / "timings.json").read_bytes())["cells"]
    except (OSError, ValueError, KeyError):
        return None
    spent = [float(one["seconds"]) for one in timings.values() if one.get("state") == "done"]
    return left * sum(spent) / len(spent) / side_by_side if spent else None
