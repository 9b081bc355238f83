"""Settings found by Optuna: each trial is a cell, stopped early if its metrics fall behind, on a sweep's engines.

[base]
env = "CombinationLock-v0"
algo = "ppo"

[tune]
metric = "return"                # of metrics.jsonl, the mean over the seeds
direction = "maximize"
trials = 20

[tune.search]
"agent.ppo.learning_rate" = { low = 1e-4, high = 1e-2, log = true }
"agent.ppo.num_epochs" = { low = 1, high = 8 }
"agent.ppo.entropy_coef" = [0.0, 0.01, 0.05]
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

from pcpg.config import ConfigError, Json, check_choice
from pcpg.runs.errors import DamagedFile, understood
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg_lab.sweeps import crew
from pcpg_lab.sweeps.crew import LOOK, STOPPED, Crew, Current, Engine, Outcome, Task
from pcpg_lab.sweeps.plan import Cell
from pcpg_lab.sweeps.status import SweepFolder
from pcpg_lab.sweeps.study import (
    DONE,
    FAILED,
    PRUNED,
    RUNNING,
    STUDY,
    Study,
    Trial,
    cell_of,
    end_of,
    is_value,
    search_of,
)
from pcpg_lab.sweeps.sweep import job_of


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The best settings and all trials."""

    best: Json | None
    value: float | None
    trials: list[Json]


def tune(entries: Json, out: Path | str, engine: Engine, notice: Callable[[str], None] = lambda text: None) -> Tuned:
    """Run trials up to the requested number; trials of earlier calls count, and interrupted ones resume."""
    folder = SweepFolder.claimed(out)
    with folder.driving():
        return _Tuner(entries, folder, engine, notice).run()


class _Tuner:
    """A study whose trials are tasks of a crew: one begins when another ends."""

    def __init__(self, entries: Json, folder: SweepFolder, engine: Engine, notice: Callable[[str], None]) -> None:
        self.entries, self.folder, self.engine, self.notice = entries, folder, engine, notice
        self.search, self.lock = search_of(entries), threading.RLock()
        self.cells: dict[int, Cell] = {}  # by number of the trial
        self.trials: dict[str, Trial] = {}  # by task
        self.stopped: set[str] = set()
        _, self.plan = cell_of(entries, {name: end_of(space, "low") for name, space in self.search.search.items()})
        folder.write_plan(dataclasses.replace(self.plan, cells=()))
        self.study = Study(folder.path / STUDY, self.search)
        for trial in self.study.trials:
            with contextlib.suppress(ConfigError):  # one that could not be built
                self.cells[trial.number] = cell_of(entries, trial.settings)[0]
        self._write_plan()
        self.interrupted = [trial for trial in self.study.trials if trial.state == RUNNING]

    def run(self) -> Tuned:
        """Run the trials that are missing; the best of all."""
        first = [task for _ in range(min(self.engine.slots(), self.search.trials)) for task in self._next()]
        self.crew = Crew(
            self.engine, first, self._over, notice=self.notice, progress=lambda task: self.folder.step(task.job["cell"])
        )
        self.crew.run(self._look, pause=LOOK)
        best, rows = self.study.best, [self._row(trial) for trial in self.study.trials if trial.number in self.cells]
        if best is None:
            return Tuned(None, None, rows)
        self.folder.write("best.json", self.cells[best.number].config)
        return Tuned(best.settings, best.value, rows)

    def _next(self) -> list[Task]:
        """The task of the next trial; none where there are enough. A point that cannot be built is a failed trial."""
        while True:
            with self.lock:
                if self.interrupted:
                    trial = self.interrupted.pop(0)
                elif len(self.study.trials) < self.search.trials:
                    trial = self.study.ask()
                else:
                    return []
                try:
                    cell, _ = cell_of(self.entries, trial.settings)
                except ConfigError as error:
                    self._tell(trial, None, str(error))
                    continue
                self.cells[trial.number] = cell
                self._write_plan()
                task = Task(f"trial {trial.number}", job_of(cell, self.folder.cell(cell.id)))
                self.trials[task.id] = trial
                return [task]

    def _write_plan(self) -> None:
        cells = {cell.id: cell for cell in self.cells.values()}  # trials may meet again
        self.folder.write_plan(dataclasses.replace(self.plan, cells=tuple(cells.values())))

    def _look(self) -> None:
        """Report the metric of every new round, and stop trials that fall behind."""
        with self.crew.changed:
            working = list(self.crew.working.values())
        self.folder.write_working({current.task.job["cell"]: current.worker.where for current in working})
        for task, worker, _ in working:
            self._report(task, list(self._values(task).items())[:-1])  # the last round may still be written
            if self.trials[task.id].behind is not None and task.id not in self.stopped:
                self.stopped.add(task.id)
                worker.stop()

    def _report(self, task: Task, values: list[tuple[int, float]]) -> None:
        with self.lock:
            for step, value in values:
                self.study.report(self.trials[task.id], step, value)

    def _over(self, current: Current, outcome: Outcome) -> list[Task]:
        """Tell the study how a trial ended; the next one."""
        task = current.task
        if outcome["again"]:
            return []
        with self.lock:
            trial, values = self.trials[task.id], self._values(task)
            self._report(task, list(values.items()))
            is_done, behind = outcome["state"] == crew.DONE, trial.behind
            if behind is not None and (behind < max(values, default=0) if is_done else outcome["state"] == STOPPED):
                self.study.tell(trial, PRUNED)
            elif is_done:
                value = values[max(values)] if values else self._final(task)
                self._tell(trial, value, "no round has a value of the metric")
            else:
                self._tell(trial, None, outcome.get("cause", "it was stopped"))
        return self._next()

    def _final(self, task: Task) -> float | None:
        """The final return of a finished trial of which no round reported one; no other metric is in its summary."""
        if self.search.metric == "return":
            final = RunFolder.open(task.job["path"]).read_summary()["final_return"]
            found = [value for value in final if value is not None]
            return sum(found) / len(found) if found else None
        path = Path(task.job["path"]) / "metrics.jsonl"
        names = {name for record in read_metrics(path) for name, value in record.items() if type(value) in (int, float)}
        check_choice("metric", self.search.metric, sorted(names | {"return"}))  # no other trial will report it
        return None

    def _values(self, task: Task) -> dict[int, float]:
        """By round the mean of the metric over the seeds that have it."""
        found: dict[int, list[float]] = {}
        with contextlib.suppress(DamagedFile):  # not begun
            path = Path(task.job["path"]) / "metrics.jsonl"
            for record in read_metrics(path):
                if record.get(self.search.metric) is not None:
                    with understood(path):
                        found.setdefault(record["step"], []).append(float(record[self.search.metric]))
        return {step: sum(values) / len(values) for step, values in found.items()}

    def _tell(self, trial: Trial, value: float | None, cause: str) -> None:
        if is_value(value):
            self.study.tell(trial, DONE, value)
        else:
            self.study.tell(trial, FAILED, cause=cause)
            self.notice(f"trial {trial.number} failed: {cause}")

    def _row(self, trial: Trial) -> Json:
        shown = {"trial": trial.number, "cell": self.cells[trial.number].id, "settings": trial.settings}
        return shown | {"state": trial.state, "value": trial.value, "rounds": len(trial.reported)}
