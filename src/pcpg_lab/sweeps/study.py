"""The study of a search: Optuna's, in memory, and a journal of events from which it follows.

A line of the journal is an event: a point was asked for, a value was reported, a trial ended. Each line has the seal of
all lines before it. Reading a journal repeats its events on a new study. Points are asked for again and must be the
recorded ones, so a journal never chooses a setting. What a killed process left of a last line is dropped.

The search of a [tune] table: the settings that it offers, and the cell of a point of it.
"""

import dataclasses
import hashlib
import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.config import ConfigError, Json, check_choice, check_type
from pcpg.runs.disk import append, exists, read_file, truncate
from pcpg.runs.documents import parse_object
from pcpg.runs.errors import DamagedFile, FolderTaken, MissingExtra, understood
from pcpg_lab.sweeps.plan import Cell, Plan, merged, plan_of

SEARCH = ("low", "high", "log", "step")


@dataclasses.dataclass(frozen=True)
class Search:
    """The search of a [tune] table."""

    search: Json
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
        if self.seed < 0:
            raise ConfigError(f"tune.seed must be 0 or more, got {self.seed}")
        if not self.search:
            raise ConfigError("tune.search must name at least one setting")
        for name, space in self.search.items():
            if isinstance(space, Mapping):
                for entry in space:
                    check_choice(f"entry of tune.search.{name}", entry, SEARCH)
                if not {"low", "high"} <= space.keys():
                    raise ConfigError(f"tune.search.{name} needs a low and a high end, got {dict(space)}")
                _check_range(name, dict(space))
            elif not isinstance(space, list | tuple) or not space:
                raise ConfigError(f"tune.search.{name} must be a range or a list of choices, got {space!r}")


def _check_range(name: str, space: Json) -> None:
    """Refuse a range from which Optuna cannot draw."""
    numbers = {entry: space[entry] for entry in ("low", "high", "step") if entry in space}
    for entry, value in numbers.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ConfigError(f"tune.search.{name}.{entry} must be a finite number, got {value!r:.60}")
    low, high, step, log = space["low"], space["high"], space.get("step"), space.get("log", False)
    if type(log) is not bool:
        raise ConfigError(f"tune.search.{name}.log must be true or false, got {log!r:.60}")
    if low > high:
        raise ConfigError(f"tune.search.{name}: low must be at most high, got {low} and {high}")
    if step is not None and (log or step <= 0):
        raise ConfigError(f"tune.search.{name}.step must be positive, and cannot go with log, got {dict(space)}")
    if type(low) is type(high) is int and type(step) not in (int, type(None)):
        raise ConfigError(f"tune.search.{name}.step must be an integer between integer ends, got {step}")
    if log and low <= 0:
        raise ConfigError(f"tune.search.{name}.low must be positive with log, got {low}")


def search_of(entries: Json) -> Search:
    """The search in a file; both ends are built as cells, so that an unknown setting is refused at once."""
    said = entries.get("tune")
    if not isinstance(said, Mapping):
        raise ConfigError("a file for `pcpg tune` needs a table [tune]")
    hints = {field.name: field.type for field in dataclasses.fields(Search)}
    for name, value in said.items():
        check_choice("entry of tune", name, hints)
        check_type({"search": Mapping}.get(name, hints[name]), value, f"tune.{name}")
    search = Search(**{**said, "search": dict(said.get("search", {}))})
    for end in ("low", "high"):
        cell_of(entries, {name: end_of(space, end) for name, space in search.search.items()})
    return search


def end_of(space: Any, end: str) -> Any:
    return space[end] if isinstance(space, Mapping) else space[0 if end == "low" else -1]


def cell_of(entries: Json, params: Json) -> tuple[Cell, Plan]:
    """The one cell of a point, with all its seeds in it."""
    base = entries.get("base", {})
    if not isinstance(base, Mapping):
        raise ConfigError(f"base must be a table of settings, got {base!r:.60}")
    base = merged(dict(base), params)
    resources = {name: entries[name] for name in ("cores", "gpus") if name in entries}
    seeds = base.get("seeds", 1)
    plan = plan_of(resources | {"block": max(1, seeds) if type(seeds) is int else 1, "base": base})
    label = ", ".join(f"{name.split('.')[-1]} {value}" for name, value in params.items())
    return plan.cells[0]._replace(label=label), plan


def suggested(trial: Any, name: str, space: Any) -> Any:
    """The value of a setting in a trial of Optuna."""
    if not isinstance(space, Mapping):
        # Optuna keeps numbers and words alone: a list is chosen by its place.
        return space[trial.suggest_categorical(name, list(range(len(space))))]
    more = {key: space[key] for key in ("log", "step") if key in space}
    is_whole = all(type(space[end]) is int for end in ("low", "high"))
    suggest = trial.suggest_int if is_whole else trial.suggest_float
    return suggest(name, space["low"], space["high"], **more)


STUDY = "study.jsonl"
MOST_BYTES = 1 << 28
RUNNING, DONE, PRUNED, FAILED = "running", "done", "stopped early", "failed"


@dataclasses.dataclass
class Trial:
    """A point of the search, and what came of it."""

    number: int
    settings: Json
    asked: Any  # Optuna's
    reported: dict[int, float] = dataclasses.field(default_factory=dict)
    behind: int | None = None
    """The round in which it fell behind."""
    state: str = RUNNING
    value: float | None = None
    cause: str = ""


class Study:
    """The trials of a search, of this process and of those before it."""

    def __init__(self, path: Path, search: Search) -> None:
        self.path, self.search, self.trials = path, search, list[Trial]()
        self.optuna, self.seal = _imported(), ""
        optuna = self.optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        median = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=search.warmup)
        pruner = median if search.prune else optuna.pruners.NopPruner()
        self.study = optuna.create_study(pruner=pruner, direction=search.direction)
        kept = dataclasses.asdict(search)
        del kept["trials"]  # a search may go on
        events = self._events()
        self.begins = {"search": hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()}
        if not events:
            self._write(self.begins)
        elif events[0] != self.begins:
            raise FolderTaken(f"{path} is the journal of another search: choose another --out")
        for number, event in enumerate(events[1:], start=2):
            with understood(path):
                self._repeat(number, **event)

    def ask(self) -> Trial:
        """A new trial at the next point."""
        trial = self._asked()
        self._write({"trial": trial.number, "settings": trial.settings})
        return trial

    def report(self, trial: Trial, step: int, value: float) -> None:
        """Report the metric of a round; ignored once the trial is behind, so that when we look changes nothing."""
        if trial.behind is None and step not in trial.reported:
            self._write({"trial": trial.number, "step": step, "value": value})
            self._reported(trial, step, value)

    def tell(self, trial: Trial, state: str, value: float | None = None, cause: str = "") -> None:
        """Tell how a trial ended."""
        self._write({"trial": trial.number, "state": state, "value": value, "cause": cause})
        self._told(trial, state, value, cause)

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best value."""
        done = [trial for trial in self.trials if trial.state == DONE]
        sign = 1 if self.search.direction == "maximize" else -1
        return max(done, key=lambda trial: sign * (trial.value or 0.0), default=None)

    # The same for what happens and for what is repeated.

    def _asked(self) -> Trial:
        """Random numbers of a point follow from its number alone, whatever was interrupted before."""
        asked, settings = self.study.ask(), {}
        for place, (name, space) in enumerate(self.search.search.items()):
            seed = int(np.random.SeedSequence([self.search.seed, asked.number, place]).generate_state(1)[0])
            self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)
            settings[name] = suggested(asked, name, space)
        self.trials.append(Trial(asked.number, settings, asked))
        return self.trials[-1]

    def _reported(self, trial: Trial, step: int, value: float) -> None:
        trial.reported[step] = value
        trial.asked.report(value, step)
        if self.search.prune and trial.asked.should_prune():
            trial.behind = step

    def _told(self, trial: Trial, state: str, value: float | None, cause: str) -> None:
        trial.state, trial.value, trial.cause = state, value, cause
        states = self.optuna.trial.TrialState
        told = {DONE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[state]
        self.study.tell(trial.asked, value if state == DONE else None, state=told)

    def _repeat(self, number: int, trial: int, **event: Any) -> None:
        if "settings" in event:
            found = self._asked()
            if (found.number, json.dumps(found.settings)) != (trial, json.dumps(event["settings"])):
                raise FolderTaken(
                    f"{self.path}: line {number} has other settings than this search gives: it was written by another "
                    "version of Optuna, or altered; choose another --out"
                )
            return
        known = {one.number: one for one in self.trials}[trial]
        if known.state != RUNNING:
            raise ValueError(f"trial {trial} ended before line {number}")
        if "step" in event:
            step, value = event["step"], event["value"]
            if type(step) is not int or type(value) not in (int, float) or step in known.reported:
                raise ValueError(f"line {number} reports {step!r:.60}: {value!r:.60}")
            self._reported(known, step, value)
        else:
            state, value = event["state"], event["value"]
            if state not in (DONE, PRUNED, FAILED) or (type(value) is float) != (state == DONE):
                raise ValueError(f"line {number} ends a trial with {state!r:.60} and {value!r:.60}")
            self._told(known, state, value, str(event["cause"]))

    # The journal.

    def _write(self, event: Mapping[str, object]) -> None:
        line, self.seal = _line(event, self.seal)
        append(self.path, line)

    def _events(self) -> list[Json]:
        """The events of the journal, sealed; none where there is no journal."""
        if not exists(self.path):
            return []
        data = read_file(self.path, MOST_BYTES)
        *lines, rest = data.split(b"\n")
        found = []
        for number, line in enumerate(lines, start=1):
            try:
                event = parse_object(line)
            except ValueError as error:
                raise DamagedFile(self.path, f"line {number} is damaged: {error}") from error
            said = event.pop("seal", None)
            _, self.seal = _line(event, self.seal)
            if said != self.seal:
                raise DamagedFile(self.path, f"line {number} was altered or moved: its seal does not match")
            found.append(event)
        if rest and not rest.startswith(b"{"):
            raise DamagedFile(self.path, "not the journal of a search")
        if rest:
            truncate(self.path, len(data) - len(rest))
        return found


def _line(event: Mapping[str, object], before: str) -> tuple[bytes, str]:
    """The line of an event, and its seal."""
    seal = hashlib.sha256(f"{before}{json.dumps(event, allow_nan=False)}".encode()).hexdigest()
    return json.dumps(dict(event) | {"seal": seal}).encode() + b"\n", seal


def is_value(value: float | None) -> bool:
    """Whether a trial may end with this value."""
    return value is not None and math.isfinite(value)


def _imported() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise MissingExtra("tune", "pcpg tune") from error
