"""Settings found by Optuna: trials are cells, those that fall behind are stopped, and a search goes on."""

import importlib.util
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg.config import ConfigError
from pcpg.sweeps.tune import search_of, tune

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
    monkeypatch.setattr("pcpg.sweeps.tune.LOOK", 0.05)
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
        ({"direction": "up"}, "'up'"),
        ({"trials": 0}, "at least 1"),
        ({"trial": 3}, "'trial'"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_any_work(tiny, changes: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        search_of(entries_of(tiny, **changes))


def test_a_file_without_a_table_to_tune_is_refused(cli, tmp_path: Path, tiny):
    (tmp_path / "a.py").write_text(f"SWEEP = {{'base': {tiny('ppo')!r}}}")
    found = cli("tune", tmp_path / "a.py")
    assert found.code == 2 and "needs a table [tune]" in found.err
