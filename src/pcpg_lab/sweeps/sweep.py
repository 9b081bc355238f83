"""Run the cells of a plan on an engine: each to its end once, whatever is lost on the way."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pcpg.run_config import RunConfig
from pcpg.runs.disk import exists
from pcpg.runs.errors import DamagedFile, FolderInUse, FolderTaken
from pcpg.runs.folder import CONFIG, RunFolder, differences
from pcpg.training.loop import Progress, start_run, train_run
from pcpg_lab.sweeps.crew import DONE, FAILED, STOPPED, Boss, Crew, Current, Engine, Job, Outcome, Say, Task
from pcpg_lab.sweeps.plan import Cell, Plan, Settings
from pcpg_lab.sweeps.status import TIMINGS, Status, SweepFolder, status_of

Watch = Callable[[Status], None]


@dataclasses.dataclass(frozen=True)
class Swept:
    """How a sweep went in this process."""

    finished: bool
    ran: list[str]
    failed: dict[str, str]
    seconds: float
    lost_seconds: float
    losses: int
    timings: Mapping[str, Outcome]


def run_sweep(
    plan: Plan,
    folder: SweepFolder,
    engine: Engine,
    *,
    watch: Watch = lambda status: None,
    notice: Say = lambda text: None,
    stop: threading.Event | None = None,
) -> Swept:
    """Run all cells of a plan that are not done in a folder; those that failed before are tried again.

    A folder in the place of a cell that holds another run is refused before any cell runs.
    """
    with folder.driving():
        for cell in plan.cells:
            begun_cell(folder.cell(cell.id), cell.config)
        folder.write_plan(plan)
        return _Sweep(plan, folder, engine, notice).run(watch, stop)


class _Sweep:
    def __init__(self, plan: Plan, folder: SweepFolder, engine: Engine, notice: Say) -> None:
        self.plan, self.folder, self.notice = plan, folder, notice
        self.done = {cell.id for cell in plan.cells if folder.is_done(cell.id)}
        self.outcomes, self.ran, self.failed = _kept(folder), list[str](), dict[str, str]()
        self.labels, self.lost = {cell.id: cell.label for cell in plan.cells}, 0.0
        waiting = [cell for cell in plan.cells if cell.id not in self.done]
        for cell in waiting:
            folder.failure(cell.id).unlink(missing_ok=True)
        tasks = [Task(cell.id, job_of(cell, folder.cell(cell.id))) for cell in waiting]
        self.crew = Crew(engine, tasks, self._over, notice=notice, progress=lambda task: folder.step(task.id))

    def run(self, watch: Watch, stop: threading.Event | None) -> Swept:
        """Work until every cell is done or has failed, or until `stop` is set."""
        began = time.monotonic()

        def look() -> None:
            self.folder.write_working({current.task.id: current.worker.where for current in self._working()})
            watch(status_of(self.folder, self.plan, self.done))

        self._write_timings()
        try:
            self.crew.run(look, stop)
        finally:
            self._write_timings()
        look()
        finished = len(self.done) + len(self.failed) == len(self.plan.cells)
        spent = time.monotonic() - began
        return Swept(finished, self.ran, self.failed, spent, self.lost, self.crew.losses, self.outcomes)

    def _working(self) -> list[Current]:
        with self.crew.changed:
            return list(self.crew.working.values())

    def _over(self, current: Current, outcome: Outcome) -> tuple[()]:
        """Take down how an attempt at a cell ended."""
        cell = current.task.id
        if outcome.pop("lost", False):
            outcome["lost_seconds"] = max(0.0, time.time() - max(current.since, self.folder.saved_at(cell)))
        self.lost += outcome.get("lost_seconds", 0.0)
        self.outcomes[cell] = added(self.outcomes.get(cell, {}), outcome) | {"where": current.worker.where}
        self._write_timings()
        if outcome["state"] == DONE:
            self.done.add(cell)
            self.ran.append(cell)
        elif outcome["state"] == FAILED and not outcome["again"]:
            self.failed[cell] = outcome["cause"]
            self.folder.write_failure(cell, outcome["cause"])
            self.notice(f"failed: {self.labels[cell]}: {outcome['cause']}")
        return ()

    def _write_timings(self) -> None:
        """What each cell took, apart from the table: it differs from time to time."""
        self.folder.write(TIMINGS, {"cells": self.outcomes})


def _kept(folder: SweepFolder) -> dict[str, Outcome]:
    with contextlib.suppress(DamagedFile):  # they are for information: what is lost is no reason to stop
        return folder.timings()
    return {}


def added(before: Outcome, now: Outcome) -> Outcome:
    """An outcome with the time that earlier attempts took."""
    names = ("seconds", "training_seconds", "compile_seconds", "lost_seconds")
    sums: dict[str, float] = {name: before.get(name, 0.0) + now.get(name, 0.0) for name in names}
    return before | now | sums | {"attempts": before.get("attempts", 0) + 1}


PATIENCE = 30.0
"""Seconds in which the process of a worker that was lost has to let go of the run folder."""


def job_of(cell: Cell, path: Path) -> Job:
    """The job of a cell whose run folder is at a path."""
    does = f"{__name__}:{run_cell.__name__}"
    return {"does": does, "cell": cell.id, "config": cell.config, "path": str(path.absolute())}


def begun_cell(path: Path, config: Settings) -> RunFolder | None:
    """The run folder of a cell that has begun; refused unless its config is the one that the user's file gives."""
    if not exists(path / CONFIG):
        return None
    folder = RunFolder.open(path)
    different = differences(folder.config, config)
    if different:
        raise FolderTaken(
            f"{path} holds a run whose config is not the plan's ({different}): remove that folder, "
            "or choose another --out"
        )
    return folder


def run_cell(job: Job, boss: Boss) -> Outcome:
    """Run a cell to its end, from its last checkpoint."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return {"cell": job["cell"]} | _train(job, Path(job["path"]), boss)
        except FolderInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _train(job: Job, path: Path, boss: Boss) -> Outcome:
    folder = begun_cell(path, job["config"]) or start_run(RunConfig.from_json(job["config"]), path)
    known = -1

    def watch(progress: Progress) -> bool:
        nonlocal known
        if not job["shared"] and (manifest := RunFolder.open(path).manifest) is not None and manifest.step > known:
            known = manifest.step
            boss.saved(known)
        return not boss.stop.is_set()

    trained = train_run(folder, observer=watch, trust=True)  # the environment is named by the sweep's own file
    if not job["shared"]:
        boss.saved(-1)
    busy = {"training_seconds": trained.seconds, "compile_seconds": trained.compile_seconds}
    return busy | {"state": DONE if trained.finished else STOPPED}
