"""Settings found by Optuna: each trial is a cell, stopped early where its metrics fall behind, on a sweep's engines.

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

import dataclasses
import importlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcpg.config import ConfigError, check_choice, check_type
from pcpg.runs.errors import DamagedFile, MissingExtra
from pcpg.runs.metrics import read_metrics
from pcpg.sweeps.cells import DONE, STOPPED, Outcome
from pcpg.sweeps.lease import PATIENCE
from pcpg.sweeps.local import Engine, Worker, WorkerLost
from pcpg.sweeps.plan import Cell, Plan, merged, plan_of
from pcpg.sweeps.status import SweepFolder
from pcpg.sweeps.sweep import ATTEMPTS, LOOK

SEARCH = ("low", "high", "log", "step")


@dataclasses.dataclass(frozen=True)
class Search:
    """What is looked for, and where."""

    search: dict[str, Any]
    metric: str = "return"
    direction: str = "maximize"
    trials: int = 20
    seed: int = 0
    warmup: int = 3
    """Rounds before which no trial is stopped."""
    prune: bool = True

    def __post_init__(self) -> None:
        check_choice("value of tune.direction", self.direction, ("maximize", "minimize"))
        if self.trials < 1:
            raise ConfigError(f"tune.trials must be at least 1, got {self.trials}")
        if not self.search:
            raise ConfigError("tune.search must name at least one setting")
        for name, space in self.search.items():
            if isinstance(space, Mapping):
                for entry in space:
                    check_choice(f"entry of tune.search.{name}", entry, SEARCH)
                if not {"low", "high"} <= space.keys():
                    raise ConfigError(f"tune.search.{name} needs a low and a high end, got {dict(space)}")
            elif not isinstance(space, list | tuple) or not space:
                raise ConfigError(f"tune.search.{name} must be a range or a list of choices, got {space!r}")


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What was found."""

    best: dict[str, Any] | None
    value: float | None
    trials: list[dict[str, Any]]


def search_of(entries: Mapping[str, Any]) -> Search:
    """What a file asks for; its first point is tried as a cell, so that a setting which does not exist is named."""
    said = entries.get("tune")
    if not isinstance(said, Mapping):
        raise ConfigError("a file for `pcpg tune` needs a table [tune]")
    hints = {field.name: field.type for field in dataclasses.fields(Search)}
    for name, value in said.items():
        check_choice("entry of tune", name, hints)
        check_type({"search": Mapping}.get(name, hints[name]), value, f"tune.{name}")
    search = Search(**{**said, "search": dict(said.get("search", {}))})
    for end in ("low", "high"):
        cell_of(entries, {name: _end(space, end) for name, space in search.search.items()})
    return search


def _end(space: Any, end: str) -> Any:
    return space[end] if isinstance(space, Mapping) else space[0 if end == "low" else -1]


def cell_of(entries: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[Cell, Plan]:
    """The one cell of a point, with all its seeds in it."""
    base = merged(entries.get("base", {}), params)
    resources = {name: entries[name] for name in ("cores", "gpus") if name in entries}
    plan = plan_of(resources | {"block": max(1, int(base.get("seeds", 1))), "base": base})
    label = ", ".join(f"{name.split('.')[-1]} {value}" for name, value in params.items())
    return plan.cells[0]._replace(label=label), plan


def tune(
    entries: Mapping[str, Any],
    out: Path | str,
    engine: Engine,
    notice: Callable[[str], None] = lambda text: None,
    patience: float = PATIENCE,
) -> Tuned:
    """Run trials until there are as many as asked for; those of an earlier call count, and interrupted ones go on."""
    return _Tuner(entries, SweepFolder(Path(out)), engine, notice, patience).run()


class _Tuner:
    def __init__(
        self,
        entries: Mapping[str, Any],
        folder: SweepFolder,
        engine: Engine,
        notice: Callable[[str], None],
        patience: float,
    ) -> None:
        self.entries, self.folder, self.engine, self.notice, self.patience = entries, folder, engine, notice, patience
        self.search, self.lock, self.cells = search_of(entries), threading.Lock(), dict[str, Cell]()
        self.errors: list[BaseException] = []
        self.optuna = _imported()
        _, self.plan = cell_of(entries, {name: _end(space, "low") for name, space in self.search.search.items()})
        folder.write_plan(dataclasses.replace(self.plan, cells=()))
        self.study = self._study()
        for trial in self.study.trials:
            if "cell" in trial.user_attrs:
                self._know(cell_of(entries, json.loads(trial.user_attrs["settings"]))[0])

    def _study(self) -> Any:
        optuna = self.optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        backend = optuna.storages.journal.JournalFileBackend(str(self.folder.path / "study.log"))
        pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=self.search.warmup)
        study = optuna.create_study(
            study_name="pcpg",
            storage=optuna.storages.JournalStorage(backend),
            sampler=optuna.samplers.TPESampler(seed=self.search.seed),
            pruner=pruner if self.search.prune else optuna.pruners.NopPruner(),
            direction=self.search.direction,
            load_if_exists=True,
        )
        states = optuna.trial.TrialState
        for trial in study.get_trials(states=(states.RUNNING,)):  # of a process that is gone: its cell goes on
            study.tell(trial.number, state=states.FAIL)
            study.enqueue_trial(trial.params)
        return study

    def run(self) -> Tuned:
        slots = min(self.engine.slots(), self.search.trials)
        threads = [threading.Thread(target=self._hand, args=(slot,), daemon=True) for slot in range(slots)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        states = self.optuna.trial.TrialState
        done = self.study.get_trials(states=(states.COMPLETE,))
        rows = [self._row(trial) for trial in self.study.trials if "cell" in trial.user_attrs]
        found = self.study.best_trial if done else None
        best = None if found is None else json.loads(found.user_attrs["settings"])
        if found is not None:
            self.folder.write("best.json", self.cells[found.user_attrs["cell"]].config)
        return Tuned(best, None if found is None else found.value, rows)

    def _row(self, trial: Any) -> dict[str, Any]:
        names = {"COMPLETE": "done", "PRUNED": "stopped early", "FAIL": "failed"}
        return {
            "trial": trial.number,
            "cell": trial.user_attrs["cell"],
            "settings": json.loads(trial.user_attrs["settings"]),
            "state": names.get(trial.state.name, trial.state.name.lower()),
            "value": trial.value,
            "rounds": len(trial.intermediate_values),
        }

    def _hand(self, slot: int) -> None:
        worker: Worker | None = None
        try:
            while (trial := self._ask()) is not None:
                for attempt in range(ATTEMPTS):
                    worker = worker or self.engine.hire(slot, lambda: bool(self.errors))
                    if worker is None:
                        return
                    try:
                        self._try(trial, worker)
                        break
                    except WorkerLost as error:
                        self.notice(f"{worker.where}: {error}")
                        worker.close()
                        worker = None
                        if attempt == ATTEMPTS - 1:
                            self._tell(trial, None, str(error))
        except BaseException as error:
            self.errors.append(error)
        finally:
            if worker is not None:
                worker.close()

    def _ask(self) -> Any:
        """The next trial; None where there are enough. A point that cannot be built is a trial that failed."""
        states = self.optuna.trial.TrialState
        while True:
            with self.lock:
                counted = [t for t in self.study.trials if t.state not in (states.FAIL, states.WAITING)]
                broken = [t for t in self.study.trials if t.state == states.FAIL and "cause" in t.user_attrs]
                if self.errors or len(counted) + len(broken) >= self.search.trials:
                    return None
                trial = self.study.ask()
                params = {name: _suggested(trial, name, space) for name, space in self.search.search.items()}
                trial.set_user_attr("settings", json.dumps(params))
                try:
                    cell, _ = cell_of(self.entries, params)
                    trial.set_user_attr("cell", cell.id)
                    self._know(cell)
                    return trial
                except ConfigError as error:
                    cause = str(error)
            self._tell(trial, None, cause)

    def _know(self, cell: Cell) -> None:
        self.cells[cell.id] = cell
        self.folder.write_plan(dataclasses.replace(self.plan, cells=tuple(self.cells.values())))

    def _try(self, trial: Any, worker: Worker) -> None:
        cell = self.cells[trial.user_attrs["cell"]]
        job = {
            "cell": cell.id,
            "config": cell.config,
            "path": str(self.folder.cell(cell.id).absolute()),
            "leases": str(self.folder.leases.absolute()),
            "patience": self.patience,
            "shared": worker.shared,
        }
        over, seen, pruned = threading.Event(), set[int](), threading.Event()
        watcher = threading.Thread(target=self._watch, args=(trial, cell, worker, over, seen, pruned), daemon=True)
        watcher.start()
        try:
            outcome: Outcome = worker.run(job)
        finally:
            over.set()
            watcher.join()
        values = self._values(cell)
        if outcome["state"] == DONE:
            self._tell(trial, values[max(values)] if values else None, "it has no value of the metric")
        elif outcome["state"] == STOPPED and pruned.is_set():
            with self.lock:
                self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)
        else:
            self._tell(trial, None, outcome.get("cause", "it was stopped"))

    def _watch(
        self, trial: Any, cell: Cell, worker: Worker, over: threading.Event, seen: set[int], pruned: threading.Event
    ) -> None:
        """Report the metric of every round as it comes, and stop a trial that falls behind."""
        while not over.wait(LOOK):
            for step, value in self._values(cell).items():
                if step in seen:
                    continue
                seen.add(step)
                with self.lock:
                    trial.report(value, step)
                    is_behind = self.search.prune and trial.should_prune()
                if is_behind and not pruned.is_set():
                    pruned.set()
                    worker.stop()

    def _values(self, cell: Cell) -> dict[int, float]:
        """By round the mean of the metric over the seeds that have it."""
        found: dict[int, list[float]] = {}
        try:
            for record in read_metrics(self.folder.cell(cell.id) / "metrics.jsonl"):
                if record.get(self.search.metric) is not None:
                    found.setdefault(record["step"], []).append(float(record[self.search.metric]))
        except DamagedFile:  # not begun
            return {}
        return {step: sum(values) / len(values) for step, values in found.items()}

    def _tell(self, trial: Any, value: float | None, cause: str) -> None:
        with self.lock:
            if value is not None:
                self.study.tell(trial, value)
                return
            trial.set_user_attr("cause", cause)
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
        self.notice(f"trial {trial.number} failed: {cause}")


def _suggested(trial: Any, name: str, space: Any) -> Any:
    if not isinstance(space, Mapping):
        # Optuna keeps numbers and words alone: a list is chosen by its place.
        return space[trial.suggest_categorical(name, list(range(len(space))))]
    more = {key: space[key] for key in ("log", "step") if key in space}
    is_whole = all(type(space[end]) is int for end in ("low", "high"))
    suggest = trial.suggest_int if is_whole else trial.suggest_float
    return suggest(name, space["low"], space["high"], **more)


def _imported() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise MissingExtra("tune", "pcpg tune") from error
