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
from pcpg_lab.sweeps import tune as tune_module
from pcpg_lab.sweeps.tune import search_of, tune

needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("optuna") is None, reason="Optuna is not installed: pip install 'pcpg[tune]'"
)
RATE = "agent.ppo.learning_rate"


def entries_of(tiny: Callable[..., Any], **tuned: Any) -> dict[str, Any]:
    search = {RATE: {"low": 1e-4, "high": 1e-1, "log": True}, "agent.ppo.num_epochs": {"low": 1, "high": 3}}
    return {"base": tiny("ppo", seeds=2), "tune": {"trials": 6, "search": search, "warmup": 0} | tuned}


class Paper:
    """An engine whose one worker writes metrics without training: the higher the rate, the better, round by round."""

    def __init__(self) -> None:
        self.ran: list[dict[str, Any]] = []

    def slots(self) -> int:
        return 1

    def hire(self, slot: int, is_over: Callable[[], bool]) -> Any:
        return Clerk(self)

    def close(self) -> None:
        pass


class Clerk:
    where, shared = "here", True

    def __init__(self, engine: Paper) -> None:
        self.engine, self.stopped = engine, threading.Event()

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        self.engine.ran.append(job["config"])
        self.stopped.clear()
        rate, path = job["config"]["agent"]["ppo"]["learning_rate"], Path(job["path"])
        path.mkdir(parents=True, exist_ok=True)
        with (path / "metrics.jsonl").open("w") as file:
            for step in range(1, 4):
                for seed in (0, 1):
                    print(json.dumps({"step": step, "seed": seed, "return": rate * step + seed}), file=file, flush=True)
                if self.stopped.wait(0.3):
                    return {"cell": job["cell"], "state": "stopped"}
        return {"cell": job["cell"], "state": "done"}

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        pass


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


class FastClerk(Clerk):
    """A clerk who writes all rounds at once, unless the command is killed after some."""

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        engine = self.engine
        engine.ran.append(job["config"])
        rate, path = job["config"]["agent"]["ppo"]["learning_rate"], Path(job["path"])
        is_killed = isinstance(engine, FastPaper) and len(engine.ran) == engine.kill_at
        path.mkdir(parents=True, exist_ok=True)
        rows = [{"step": step, "seed": seed, "return": rate * step + seed} for step in (1, 2, 3) for seed in (0, 1)]
        (path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[: 3 if is_killed else 6]))
        if is_killed:
            time.sleep(0.2)  # the command looks
            raise Killed
        return {"cell": job["cell"], "state": "done"}


class FastPaper(Paper):
    def __init__(self, kill_at: int = 0) -> None:
        super().__init__()
        self.kill_at = kill_at

    def hire(self, slot: int, is_over: Callable[[], bool]) -> Any:
        return FastClerk(self)


@needs_optuna
def test_a_search_that_was_killed_ends_in_the_same_trials(tmp_path: Path, tiny, monkeypatch):
    monkeypatch.setattr("pcpg_lab.sweeps.tune.LOOK", 0.02)
    entries = entries_of(tiny, trials=13)
    expected = tune(entries, tmp_path / "whole", FastPaper())
    assert {row["state"] for row in expected.trials} == {"done", "stopped early"}
    suggested, calls = tune_module.suggested, Counter[str]()

    def killed(*arguments: Any) -> Any:
        calls["suggested"] += 1
        if calls["suggested"] in (4, 26):  # the second setting of a trial
            raise Killed
        return suggested(*arguments)

    monkeypatch.setattr(tune_module, "suggested", killed)
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
    return tmp_path / "out" / "study.log"


def forged(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change an attribute of all trials in a journal."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if name in line.get("user_attr", {}):
            line["user_attr"][name] = change(line["user_attr"][name])
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@needs_optuna
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("settings", {"env": "gymnasium:payload:Harmful-v0"}, "has agent.ppo.learning_rate 'not set'"),
        ("settings", {RATE: 1e-3, "agent.ppo.num_epochs": 1, "env": "gymnasium:payload:X-v0"}, "has env 'gymnasium:pa"),
        ("settings", {RATE: 1.0, "agent.ppo.num_epochs": 1}, "has agent.ppo.learning_rate 1.0"),
        ("settings", {RATE: 1e-3, "agent.ppo.num_epochs": 1}, "ran with other settings"),
        ("settings", [], "not what a run stores there"),
        ("cell", "../../x", "ran with other settings"),
    ],
)
def test_a_study_chooses_no_setting_that_the_file_does_not_offer(
    tmp_path: Path, tiny, monkeypatch, name: str, value: Any, said: str
):
    path = study_of(tmp_path, tiny, monkeypatch)
    (tmp_path / "payload.py").write_text("import pathlib; pathlib.Path(__file__).with_name('mark').touch()")
    monkeypatch.syspath_prepend(tmp_path)
    forged(path, name, lambda old: json.dumps(value) if name == "settings" else value)
    with pytest.raises(RunError, match=re.escape(said)):
        tune(entries_of(tiny, prune=False), tmp_path / "out", Paper())
    assert not (tmp_path / "mark").exists()


@needs_optuna
def test_a_journal_that_is_none_is_named(tmp_path: Path, tiny, monkeypatch):
    path = study_of(tmp_path, tiny, monkeypatch)
    whole = path.read_bytes()
    for data in (b"[1]\n", b"{}\n", b"\xff\n", whole.replace(b'"op_code":5', b'"op_code":99'), b"[" * 9999 + b"\n"):
        path.write_bytes(data)
        with pytest.raises(RunError, match=r"study\.log: "):
            tune(entries_of(tiny), tmp_path / "out", Paper())
    path.write_bytes(whole + b'{"op_co')  # of a process that was killed
    assert len(tune(entries_of(tiny, trials=2), tmp_path / "out", Paper()).trials) == 2
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(RunError, match="is a pipe"):
        tune(entries_of(tiny), tmp_path / "out", Paper())
