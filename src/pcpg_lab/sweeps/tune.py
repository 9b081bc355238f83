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
import importlib
import json
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pcpg.config import ConfigError
from pcpg.runs.disk import exists, read_file, truncate
from pcpg.runs.documents import parse_object
from pcpg.runs.errors import DamagedFile, FolderTaken, MissingExtra, understood
from pcpg.runs.metrics import read_metrics
from pcpg_lab.sweeps.crew import DONE, LOOK, STOPPED, Crew, Current, Engine, Outcome, Task
from pcpg_lab.sweeps.plan import Cell
from pcpg_lab.sweeps.search import cell_of, end_of, is_within, search_of, suggested
from pcpg_lab.sweeps.status import SweepFolder
from pcpg_lab.sweeps.sweep import job_of

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial


STUDY = "study.log"
MOST_BYTES = 1 << 28
"""Of the journal of a study."""


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The best settings and all trials."""

    best: dict[str, Any] | None
    value: float | None
    trials: list[dict[str, Any]]


def tune(
    entries: Mapping[str, object], out: Path | str, engine: Engine, notice: Callable[[str], None] = lambda text: None
) -> Tuned:
    """Run trials up to the requested number; trials of earlier calls count, and interrupted ones resume."""
    folder = SweepFolder.claimed(out)
    with folder.driving():
        return _Tuner(entries, folder, engine, notice).run()


class _Tuner:
    """A study whose trials are tasks of a crew: one begins when another ends."""

    def __init__(
        self, entries: Mapping[str, object], folder: SweepFolder, engine: Engine, notice: Callable[[str], None]
    ) -> None:
        self.entries, self.folder, self.engine, self.notice = entries, folder, engine, notice
        self.search, self.lock, self.cells = search_of(entries), threading.RLock(), dict[str, Cell]()
        self.path = folder.path / STUDY
        self.trials: dict[str, Any] = {}  # by task
        self.seen: dict[str, int] = {}  # rounds that were reported
        self.behind: dict[str, int] = {}  # the round after which a trial is stopped
        self.stopped: set[str] = set()
        self.optuna = _imported()
        self.states = self.optuna.trial.TrialState
        _, self.plan = cell_of(entries, {name: end_of(space, "low") for name, space in self.search.search.items()})
        folder.write_plan(dataclasses.replace(self.plan, cells=()))
        self.study = self._study()
        for trial in self.study.trials:
            if "cell" in trial.user_attrs or trial.state == self.states.COMPLETE:
                self._know(self._earlier(trial))
        running = self.study.get_trials(states=(self.states.RUNNING,))  # of a process that is gone: they go on
        self.interrupted = [self.optuna.trial.Trial(self.study, trial._trial_id) for trial in running]

    def _study(self) -> Any:
        optuna = self.optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        check_journal(self.path)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=self.search.warmup)
        try:
            backend = optuna.storages.journal.JournalFileBackend(str(self.path))
            study = optuna.create_study(
                study_name="pcpg",
                storage=optuna.storages.JournalStorage(backend),
                pruner=pruner if self.search.prune else optuna.pruners.NopPruner(),
                direction=self.search.direction,
                load_if_exists=True,
            )
            study.get_trials()
        except Exception as error:  # Optuna believes what a journal says, and fails in any way where it is wrong
            raise DamagedFile(
                self.path, f"not the journal of a study ({type(error).__name__}: {error!s:.200})"
            ) from error
        if study.direction.name.lower() != self.search.direction:
            raise FolderTaken(f"{self.path} is of a study to {study.direction.name.lower()}: choose another --out")
        return study

    def run(self) -> Tuned:
        """Run the trials that are missing; the best of all."""
        first = [task for _ in range(min(self.engine.slots(), self.search.trials)) for task in self._next()]
        self.crew = Crew(
            self.engine, first, self._over, notice=self.notice, progress=lambda task: self.folder.step(task.job["cell"])
        )
        self.crew.run(self._look, pause=LOOK)
        done = self.study.get_trials(states=(self.states.COMPLETE,))
        rows = [_row(trial) for trial in self.study.trials if "cell" in trial.user_attrs and not self._is_void(trial)]
        if not done:
            return Tuned(None, None, rows)
        found = self.study.best_trial
        self.folder.write("best.json", self.cells[found.user_attrs["cell"]].config)
        return Tuned(json.loads(found.user_attrs["settings"]), found.value, rows)

    def _next(self) -> list[Task]:
        """The task of the next trial; none where there are enough. A point that cannot be built is a failed trial."""
        while True:
            with self.lock:
                trial = self._ask()
                if trial is None:
                    return []
                params = self._suggested(trial)
                trial.set_user_attr("settings", json.dumps(params))
                try:
                    cell, _ = cell_of(self.entries, params)
                except ConfigError as error:
                    self._tell(trial, None, str(error))
                    continue
                trial.set_user_attr("cell", cell.id)
                self._know(cell)
                task = Task(f"trial {trial.number}", job_of(cell, self.folder.cell(cell.id)))
                self.trials[task.id] = trial
                self._recall(task, trial)
                return [task]

    def _is_void(self, trial: "FrozenTrial") -> bool:
        """Whether a trial counts for nothing: it waits, or an older version took its interruption for a failure."""
        is_lost = trial.state == self.states.FAIL and "cause" not in trial.user_attrs
        return is_lost or trial.state == self.states.WAITING

    def _ask(self) -> "Trial | FrozenTrial":
        """An interrupted trial, or a new one; None where there are enough."""
        if self.interrupted:
            return self.interrupted.pop(0)
        counted = sum(not self._is_void(trial) for trial in self.study.trials)
        return None if counted >= self.search.trials else self.study.ask()

    def _suggested(self, trial: Any) -> dict[str, Any]:
        """The point of a trial. Its random numbers follow from its number, whatever was interrupted before."""
        params = {}
        for place, (name, space) in enumerate(self.search.search.items()):
            seed = int(np.random.SeedSequence([self.search.seed, trial.number, place]).generate_state(1)[0])
            self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)
            with understood(self.path):
                params[name] = suggested(trial, name, space)
                if not is_within(params[name], space):
                    raise ValueError(f"trial {trial.number} has {name} {params[name]!r:.100}")
        return params

    def _recall(self, task: Task, trial: Any) -> None:
        """Take up what was reported of an interrupted trial."""
        reported = self.study.trials[trial.number].intermediate_values
        if reported:
            self.seen[task.id] = max(reported)
            if self.search.prune and trial.should_prune():
                self.behind[task.id] = max(reported)

    def _earlier(self, trial: "FrozenTrial") -> Cell:
        """The cell of a trial in the journal; refused unless the user's file gives it the same settings."""
        with understood(self.path):
            settings, name = parse_object(trial.user_attrs["settings"].encode()), str(trial.user_attrs["cell"])
            if trial.value is not None and not math.isfinite(trial.value):
                raise ValueError(f"trial {trial.number} has the value {trial.value}")
        strange = [name for name in self.search.search if not is_within(settings.get(name), self.search.search[name])]
        strange += sorted(settings.keys() - self.search.search.keys())
        if strange:
            said = f"{strange[0]} {settings.get(strange[0], 'not set')!r:.100}"
            raise FolderTaken(
                f"{self.path}: trial {trial.number} has {said}, which tune.search does not offer: choose another --out"
            )
        cell = cell_of(self.entries, settings)[0]
        if cell.id != name:
            raise FolderTaken(
                f"{self.path}: trial {trial.number} ran with other settings than this file gives: choose another --out"
            )
        return cell

    def _know(self, cell: Cell) -> None:
        self.cells[cell.id] = cell
        self.folder.write_plan(dataclasses.replace(self.plan, cells=tuple(self.cells.values())))

    def _look(self) -> None:
        """Report the metric of every new round, and stop trials that fall behind."""
        with self.crew.changed:
            working = list(self.crew.working.values())
        self.folder.write_working({current.task.job["cell"]: current.worker.where for current in working})
        for task, worker, _ in working:
            values = self._values(task)
            self._report(task, dict(list(values.items())[:-1]))  # the last round may still be written
            if task.id in self.behind and task.id not in self.stopped:
                self.stopped.add(task.id)
                worker.stop()

    def _report(self, task: Task, values: dict[int, float]) -> None:
        """Report the new rounds of a trial, up to the one in which it falls behind: when we look changes nothing."""
        trial = self.trials[task.id]
        with self.lock:
            for step, value in values.items():
                if step > self.seen.get(task.id, -1) and task.id not in self.behind:
                    self.seen[task.id] = step
                    trial.report(value, step)
                    if self.search.prune and trial.should_prune():
                        self.behind[task.id] = step

    def _over(self, current: Current, outcome: Outcome) -> list[Task]:
        """Tell the study how a trial ended; the next one."""
        task = current.task
        if outcome["again"]:
            return []
        with self.lock:
            trial, values = self.trials[task.id], self._values(task)
            self._report(task, values)
            is_done, behind = outcome["state"] == DONE, self.behind.get(task.id)
            if behind is not None and (behind < max(values, default=0) if is_done else outcome["state"] == STOPPED):
                self.study.tell(trial, state=self.states.PRUNED)
            elif is_done:
                self._tell(trial, values[max(values)] if values else None, "no round has a value of the metric")
            else:
                self._tell(trial, None, outcome.get("cause", "it was stopped"))
        return self._next()

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

    def _tell(self, trial: Any, value: float | None, cause: str) -> None:
        if value is not None:
            self.study.tell(trial, value)
            return
        trial.set_user_attr("cause", cause)
        self.study.tell(trial, state=self.states.FAIL)
        self.notice(f"trial {trial.number} failed: {cause}")


def check_journal(path: Path) -> None:
    """Refuse a file that is no journal before Optuna opens it; what a killed process left of a line is dropped."""
    if not exists(path):
        return
    data = read_file(path, MOST_BYTES)
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            parse_object(line)
        except ValueError as error:
            raise DamagedFile(path, f"line {number} is damaged: {error}") from error
    if rest:
        truncate(path, len(data) - len(rest))


def _row(trial: "FrozenTrial") -> dict[str, Any]:
    names = {"COMPLETE": "done", "PRUNED": "stopped early", "FAIL": "failed"}
    return {
        "trial": trial.number,
        "cell": trial.user_attrs["cell"],
        "settings": json.loads(trial.user_attrs["settings"]),
        "state": names.get(trial.state.name, trial.state.name.lower()),
        "value": trial.value,
        "rounds": len(trial.intermediate_values),
    }


def _imported() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise MissingExtra("tune", "pcpg tune") from error
