"""The study of a search: Optuna's, in memory, and a journal of events from which it follows.

A line of the journal is an event: a point was asked for, a value was reported, a trial ended. Each line has the seal of
all lines before it. Reading a journal repeats its events on a new study. Points are asked for again and must be the
recorded ones, so a journal never chooses a setting. What a killed process left of a last line is dropped.
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

from pcpg.runs.disk import append, exists, read_file, truncate
from pcpg.runs.documents import parse_object
from pcpg.runs.errors import DamagedFile, FolderTaken, MissingExtra, understood
from pcpg_lab.sweeps.search import Search, suggested

STUDY = "study.jsonl"
MOST_BYTES = 1 << 28
RUNNING, DONE, PRUNED, FAILED = "running", "done", "stopped early", "failed"


@dataclasses.dataclass
class Trial:
    """A point of the search, and what came of it."""

    number: int
    settings: dict[str, Any]
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

    def _events(self) -> list[dict[str, Any]]:
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
