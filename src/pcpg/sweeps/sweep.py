"""Run the cells of a plan on an engine: each to its end once, whatever is lost on the way."""

import dataclasses
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from pcpg.sweeps.cells import DONE, FAILED, STOPPED, Job, Outcome
from pcpg.sweeps.lease import PATIENCE
from pcpg.sweeps.local import Engine, Worker, WorkerLost
from pcpg.sweeps.plan import Cell, Plan
from pcpg.sweeps.status import Status, SweepFolder, status_of

ATTEMPTS = 3
"""Times that a cell may end its worker without having saved anything in between."""
LOOK = 0.5
"""Seconds between two looks at the folder."""

Watch = Callable[[Status], None]
Say = Callable[[str], None]


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
    patience: float = PATIENCE,
) -> Swept:
    """Run all cells of a plan that are not done in a folder; those that failed before are tried again."""
    folder.write_plan(plan)
    return Crew(plan, folder, engine, notice, patience).run(watch, stop or threading.Event())


class Crew:
    """Workers, each in a thread that sends it one cell after the other."""

    def __init__(self, plan: Plan, folder: SweepFolder, engine: Engine, notice: Say, patience: float) -> None:
        self.plan, self.folder, self.engine, self.notice, self.patience = plan, folder, engine, notice, patience
        self.done = {cell.id for cell in plan.cells if folder.is_done(cell.id)}
        self.waiting = deque(cell for cell in plan.cells if cell.id not in self.done)
        self.working: dict[str, Worker] = {}
        self.outcomes: dict[str, Outcome] = _kept(folder)
        self.ran: list[str] = []
        self.failed: dict[str, str] = {}
        self.attempts: Counter[str] = Counter()
        self.saved: dict[str, int] = {}
        self.losses, self.lost = 0, 0.0
        self.changed, self.errors = threading.Condition(), list[BaseException]()
        self.is_stopped = False
        for cell in self.waiting:
            folder.failure(cell.id).unlink(missing_ok=True)

    def run(self, watch: Watch, stop: threading.Event) -> Swept:
        """Work until every cell is done or has failed, or until `stop` is set."""
        began, threads = time.monotonic(), []
        try:
            while not self.is_over():
                for slot in range(len(threads), min(self.engine.slots(), len(self.waiting) + len(self.working))):
                    threads.append(threading.Thread(target=self._hand, args=(slot,), daemon=True))
                    threads[-1].start()
                watch(status_of(self.folder, self.plan, self.done))
                if stop.is_set() and not self.is_stopped:
                    self._stop()
                with self.changed:
                    self.changed.wait(LOOK)
            for thread in threads if not self.errors else ():
                thread.join()
        finally:
            self.is_stopped = True
            self._write_timings()
            for worker in list(self.working.values()):
                worker.close()
        if self.errors:
            raise self.errors[0]
        watch(status_of(self.folder, self.plan, self.done))
        spent = time.monotonic() - began
        finished = len(self.done) + len(self.failed) == len(self.plan.cells)
        return Swept(finished, self.ran, self.failed, spent, self.lost, self.losses, self.outcomes)

    def is_over(self) -> bool:
        """Whether nothing is left to do, as far as this process goes."""
        with self.changed:
            return bool(self.errors) or (not self.working and (self.is_stopped or not self.waiting))

    def _stop(self) -> None:
        with self.changed:
            self.is_stopped = True
            workers = list(self.working.values())
        for worker in workers:
            worker.stop()

    def _hand(self, slot: int) -> None:
        """One worker after the other for a slot, until there is nothing to do."""
        try:
            while (worker := self.engine.hire(slot, self._has_nothing)) is not None:
                try:
                    while (cell := self._next(worker)) is not None:
                        self._work(worker, cell)
                    if self._has_nothing():
                        return
                except WorkerLost as error:
                    self.notice(f"{worker.where}: {error}")
                finally:
                    worker.close()
        except BaseException as error:
            with self.changed:
                self.errors.append(error)
                self.changed.notify_all()

    def _has_nothing(self) -> bool:
        with self.changed:
            return self.is_stopped or bool(self.errors) or (not self.waiting and not self.working)

    def _next(self, worker: Worker) -> Cell | None:
        """The next cell; waited for while others work, whose cells may come back."""
        with self.changed:
            while not self.waiting:
                if self.is_stopped or not self.working or self.errors:
                    return None
                self.changed.wait(LOOK)
            if self.is_stopped:
                return None
            cell = self.waiting.popleft()
            self.working[cell.id] = worker
            return cell

    def _work(self, worker: Worker, cell: Cell) -> None:
        job: Job = {
            "cell": cell.id,
            "config": cell.config,
            "path": str(self.folder.cell(cell.id).absolute()),
            "leases": str(self.folder.leases.absolute()),
            "patience": self.patience,
            "shared": worker.shared,
        }
        try:
            outcome = worker.run(job)
        except WorkerLost as error:
            ended = {"state": FAILED, "cause": str(error), "again": True, "lost_seconds": error.lost_seconds}
            self._over(cell, {"cell": cell.id} | ended, worker)
            with self.changed:
                self.losses += 1
            raise
        self._over(cell, outcome, worker)

    def _over(self, cell: Cell, outcome: Outcome, worker: Worker) -> None:
        """What follows from how a cell ended."""
        manifest = self.folder.manifest(cell.id)
        with self.changed:
            del self.working[cell.id]
            self.lost += outcome.get("lost_seconds", 0.0)
            self.outcomes[cell.id] = added(self.outcomes.get(cell.id, {}), outcome) | {"where": worker.where}
            step = -1 if manifest is None else manifest.step
            self.attempts[cell.id] = 1 if step > self.saved.get(cell.id, -1) else self.attempts[cell.id] + 1
            self.saved[cell.id] = step
            is_last = self.attempts[cell.id] >= ATTEMPTS or self.is_stopped
            if outcome["state"] == DONE:
                self.done.add(cell.id)
                self.ran.append(cell.id)
            elif outcome["state"] == FAILED and outcome["again"] and not is_last:
                self.waiting.append(cell)
            elif outcome["state"] == FAILED:
                self.failed[cell.id] = outcome["cause"]
            elif outcome["state"] == STOPPED:
                self.waiting.appendleft(cell)
            self._write_timings()
            self.changed.notify_all()
        if cell.id in self.failed:
            self.folder.write_failure(cell.id, outcome["cause"])
            self.notice(f"failed: {cell.label}: {outcome['cause']}")

    def _write_timings(self) -> None:
        """What each cell took, apart from the table: it differs from time to time."""
        self.folder.write("timings.json", {"cells": self.outcomes})


def _kept(folder: SweepFolder) -> dict[str, Outcome]:
    try:
        return dict(json.loads((folder.path / "timings.json").read_bytes())["cells"])
    except (OSError, ValueError, KeyError):
        return {}


def added(before: Outcome, now: Outcome) -> Outcome:
    """An outcome with the time that earlier attempts took."""
    names = ("seconds", "training_seconds", "compile_seconds", "lost_seconds")
    sums: dict[str, Any] = {name: before.get(name, 0.0) + now.get(name, 0.0) for name in names}
    return before | now | sums | {"attempts": before.get("attempts", 0) + 1}
