"""Settings found by Optuna: trials are cells, those that fall behind are stopped, and a search goes on."""

import contextlib
import importlib.util
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg.config import ConfigError
from pcpg.runs.errors import RunError
from pcpg_lab.sweeps import study as study_module
from pcpg_lab.sweeps.tune import search_of, tune
from tests.lab.conftest import Engine

needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("optuna") is None, reason="Optuna is not installed: pip install 'pcpg[tune]'"
)
RATE = "agent.ppo.learning_rate"


def entries_of(tiny: Callable[..., Any], **tuned: Any) -> dict[str, Any]:
    search = {RATE: {"low": 1e-4, "high": 1e-1, "log": True}, "agent.ppo.num_epochs": {"low": 1, "high": 3}}
    return {"base": tiny("ppo", seeds=2), "tune": {"trials": 6, "search": search, "warmup": 0} | tuned}


class Paper(Engine):
    """One worker that writes metrics: the higher the rate, the better, round by round."""

    def __init__(self) -> None:
        self.ran: list[dict[str, Any]] = []

    def work(self, job: dict[str, Any], stopped: threading.Event) -> dict[str, Any]:
        self.ran.append(job["config"])
        stopped.clear()
        rate, path = job["config"]["agent"]["ppo"]["learning_rate"], Path(job["path"])
        path.mkdir(parents=True, exist_ok=True)
        with (path / "metrics.jsonl").open("w") as file:
            for step in range(1, 4):
                for seed in (0, 1):
                    print(json.dumps({"step": step, "seed": seed, "return": rate * step + seed}), file=file, flush=True)
                if stopped.wait(0.3):
                    return {"cell": job["cell"], "state": "stopped"}
        return {"cell": job["cell"], "state": "done"}


@needs_optuna
def test_the_best_trial_is_found_losers_are_stopped_and_a_search_goes_on(tmp_path: Path, tiny, monkeypatch):
    monkeypatch.setattr("pcpg_lab.sweeps.tune.LOOK", 0.05)
    engine = Paper()
    found = tune(entries_of(tiny), tmp_path, engine)
    states = [row["state"] for row in found.trials]
    assert len(states) == 6 and "stopped early" in states and set(states) <= {"done", "stopped early"}
    done = [row for row in found.trials if row["state"] == "done"]
    best = max(done, key=lambda row: row["value"])
    assert found.best == best["settings"] and found.value == pytest.approx(3 * found.best[RATE] + 0.5)
    kept = json.loads((tmp_path / "best.json").read_text())
    assert kept["agent"]["ppo"]["learning_rate"] == found.best[RATE] and kept["seeds"] == 2
    more = tune(entries_of(tiny, trials=7), tmp_path, engine)
    assert len(engine.ran) == 7 and more.trials[:6] == found.trials
    assert {type(row["settings"]["agent.ppo.num_epochs"]) for row in more.trials} == {int}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"search": {"agent.ppo.rate": [1, 2]}}, "'rate'"),
        ({"search": {}}, "at least one setting"),
        ({"search": {RATE: {"low": 1e-4}}}, "needs a low and a high end"),
        ({"search": {RATE: {"low": 1e-4, "hi": 1}}}, "'hi'"),
        ({"search": {RATE: 3}}, "a range or a list"),
        ({"search": {RATE: {"low": 1e-1, "high": 1e-2}}}, "low must be at most high"),
        ({"search": {RATE: {"low": "a", "high": "b"}}}, "low must be a finite number"),
        ({"search": {RATE: {"low": 1e-3, "high": float("inf")}}}, "high must be a finite number"),
        ({"search": {RATE: {"low": 1e-3, "high": 1e-2, "step": -1}}}, "step must be positive"),
        ({"search": {RATE: {"low": 1e-3, "high": 1e-2, "step": 1e-3, "log": True}}}, "cannot go with log"),
        ({"search": {RATE: {"low": 1e-3, "high": 1e-2, "log": 3}}}, "log must be true or false"),
        ({"search": {RATE: {"low": 0.0, "high": 1e-2, "log": True}}}, "low must be positive with log"),
        ({"search": {"seeds": {"low": 1, "high": 2, "step": 0.5}}}, "step must be an integer"),
        ({"direction": "up"}, "'up'"),
        ({"trials": 0}, "at least 1"),
        ({"trial": 3}, "'trial'"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_any_work(tiny, changes: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        search_of(entries_of(tiny, **changes))


def test_a_base_that_is_no_table_of_settings_is_refused(tiny):
    for base, said in (
        (3, "base must be a table"),
        ({"seeds": "x"}, "seeds"),
        ({"agent": 3}, "agent is 3, not a table"),
    ):
        with pytest.raises(ConfigError, match=said):
            search_of(entries_of(tiny) | {"base": base if base == 3 else tiny("ppo") | base})


def test_a_file_without_a_table_to_tune_is_refused(cli, tmp_path: Path, tiny):
    (tmp_path / "a.py").write_text(f"SWEEP = {{'base': {tiny('ppo')!r}}}")
    found = cli("tune", tmp_path / "a.py")
    assert found.code == 2 and "needs a table [tune]" in found.err


class Killed(BaseException):
    """What ends the command in the middle of its work."""


class FastPaper(Paper):
    """All rounds are written at once, unless the command is killed after some."""

    def __init__(self, kill_at: int = 0) -> None:
        super().__init__()
        self.kill_at = kill_at

    def work(self, job: dict[str, Any], stopped: threading.Event) -> dict[str, Any]:
        self.ran.append(job["config"])
        rate, path = job["config"]["agent"]["ppo"]["learning_rate"], Path(job["path"])
        is_killed = len(self.ran) == self.kill_at
        path.mkdir(parents=True, exist_ok=True)
        rows = [{"step": step, "seed": seed, "return": rate * step + seed} for step in (1, 2, 3) for seed in (0, 1)]
        (path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[: 3 if is_killed else 6]))
        if is_killed:
            time.sleep(0.2)  # the command looks
            raise Killed
        return {"cell": job["cell"], "state": "done"}


@needs_optuna
def test_a_search_that_was_killed_ends_in_the_same_trials(tmp_path: Path, tiny, monkeypatch):
    monkeypatch.setattr("pcpg_lab.sweeps.tune.LOOK", 0.02)
    entries = entries_of(tiny, trials=13)
    expected = tune(entries, tmp_path / "whole", FastPaper())
    assert {row["state"] for row in expected.trials} == {"done", "stopped early"}
    suggested, calls = study_module.suggested, Counter[str]()

    def killed(*arguments: Any) -> Any:
        calls["suggested"] += 1
        if calls["suggested"] in (4, 26):  # the second setting of a trial
            raise Killed
        return suggested(*arguments)

    monkeypatch.setattr(study_module, "suggested", killed)
    found = []
    for kill_at in (2, 5, 3, 1, 0, 0, 0):
        with contextlib.suppress(Killed):
            found.append(tune(entries, tmp_path / "killed", FastPaper(kill_at)))
    assert calls["suggested"] > 26 and found[-1] == expected


@needs_optuna
def test_when_a_trial_is_looked_at_changes_no_result(tmp_path: Path, tiny, monkeypatch):
    monkeypatch.setattr("pcpg_lab.sweeps.tune.LOOK", 0.05)
    entries = entries_of(tiny)
    assert tune(entries, tmp_path / "slow", Paper()) == tune(entries, tmp_path / "fast", FastPaper())


def study_of(tmp_path: Path, tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal of a search of two trials."""
    monkeypatch.setattr("pcpg_lab.sweeps.tune.LOOK", 0.05)
    tune(entries_of(tiny, trials=2, prune=False), tmp_path / "out", Paper())
    return tmp_path / "out" / "study.jsonl"


def forged(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Change the events of a journal as somebody would who knows how lines are sealed."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    change(events)
    seal, lines = "", []
    for event in events:
        del event["seal"]
        line, seal = study_module._line(event, seal)
        lines.append(line)
    path.write_bytes(b"".join(lines))


FORGED = {
    "a point that is not the next one": (
        lambda events: events[1]["settings"].update({RATE: 1e-3}),
        "line 2 has other settings than this search gives",
    ),
    "a module": (
        lambda events: events[1]["settings"].update(env="gymnasium:payload:Harmful-v0"),
        "line 2 has other settings than this search gives",
    ),
    "settings that are none": (lambda events: events[1].update(settings=[]), "line 2 has other settings"),
    "another search": (lambda events: events[0].update(search="0"), "is the journal of another search"),
    "a trial nobody asked for": (lambda events: events[2].update(trial=9), "not what a run stores there"),
    "a report that is no number": (lambda events: events[2].update(value="x"), "reports 1: 'x'"),
    "a report twice": (lambda events: events.insert(3, dict(events[2])), "reports 1: "),
    "an end that is none": (lambda events: events[-1].update(state="x"), "ends a trial with 'x'"),
    "an end twice": (lambda events: events.append(dict(events[-1])), "trial 1 ended before line"),
    "an end without a value": (lambda events: events[-1].update(value=None), "ends a trial with 'done' and None"),
    "an event that is none": (lambda events: events.append({"seal": ""}), "not what a run stores there"),
}


@needs_optuna
@pytest.mark.parametrize("way", FORGED)
def test_a_study_chooses_no_setting_and_says_nothing_impossible(tmp_path: Path, tiny, monkeypatch, way: str):
    path = study_of(tmp_path, tiny, monkeypatch)
    (tmp_path / "payload.py").write_text("import pathlib; pathlib.Path(__file__).with_name('mark').touch()")
    monkeypatch.syspath_prepend(tmp_path)
    change, said = FORGED[way]
    forged(path, change)
    with pytest.raises(RunError, match=re.escape(said)):
        tune(entries_of(tiny, prune=False), tmp_path / "out", Paper())
    assert not (tmp_path / "mark").exists()


@needs_optuna
def test_a_search_goes_on_with_more_trials_alone(tmp_path: Path, tiny, monkeypatch):
    study_of(tmp_path, tiny, monkeypatch)
    with pytest.raises(RunError, match="is the journal of another search"):
        tune(entries_of(tiny, trials=2, prune=False, seed=1), tmp_path / "out", Paper())
    assert len(tune(entries_of(tiny, trials=3, prune=False), tmp_path / "out", Paper()).trials) == 3


@needs_optuna
def test_an_altered_line_or_a_file_that_is_no_journal_is_named(tmp_path: Path, tiny, monkeypatch):
    path = study_of(tmp_path, tiny, monkeypatch)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    altered = (whole.replace(b'"value": ', b'"value": 1', 1), b"".join(lines[:2] + lines[3:]), b"".join(lines[1:]))
    for data in (b"[1]\n", b"{}\n", b"\xff\n", b"[" * 9999 + b"\n", *altered):
        path.write_bytes(data)
        with pytest.raises(RunError, match=r"study\.jsonl: line \d+ (is damaged|was altered)"):
            tune(entries_of(tiny, prune=False), tmp_path / "out", Paper())
    path.write_bytes(whole + b'{"tri')  # of a process that was killed
    assert len(tune(entries_of(tiny, trials=2, prune=False), tmp_path / "out", Paper()).trials) == 2
    assert path.read_bytes() == whole
    path.write_bytes(b"notes of my own")
    with pytest.raises(RunError, match=r"study\.jsonl: not the journal of a search"):
        tune(entries_of(tiny, prune=False), tmp_path / "out", Paper())
    assert path.read_bytes() == b"notes of my own"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(RunError, match="is a pipe"):
        tune(entries_of(tiny, prune=False), tmp_path / "out", Paper())
