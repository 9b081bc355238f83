"""One cell of the lock's table: run it (or go on with it), and measure what came out, as one JSON record."""

import datetime
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.agents.run_config import RunConfig
from pcpg.agents.training import Observer, device_kind, start_run, train_run
from pcpg.api import load
from pcpg.envs.lock import CombinationLock
from pcpg.experiments.lock.sweep import EVALUATION, SUCCESS, Cell, Scale
from pcpg.reports.visits import read_visits
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics

Record = dict[str, Any]


Watch = Callable[[Mapping[str, Any]], AbstractContextManager[Observer | None]]
"""From the configuration of a run to somebody who watches it."""


def run_cell(cell: Cell, scale: Scale, out: Path, watch: Watch = lambda config: nullcontext()) -> Record | None:
    """The record of a cell: read if it is done, else trained from where it stopped; None if it was interrupted."""
    path = out / "cells" / f"{cell.name}.json"
    if path.exists():
        record = json.loads(path.read_text())
        _check_same(record, cell, path)
        return record
    config = RunConfig(
        "CombinationLock-v0", cell.algo, cell.config, {"horizon": cell.horizon}, seed=cell.first_seed, seeds=cell.seeds
    ).resolved()
    run_path = out / "runs" / cell.name
    folder = RunFolder.open(run_path) if (run_path / "config.json").exists() else start_run(config, run_path)
    started = time.perf_counter()
    with watch(folder.config) as observer:
        trained = train_run(folder, observer=observer)
    if not trained.finished:
        return None
    record = measure_run(folder, cell) | {
        "command": cell.command(scale),
        "seconds": _total_seconds(folder),
        "seconds_of_last_process": time.perf_counter() - started,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, allow_nan=False))
    return record


def measure_run(folder: RunFolder, cell: Cell) -> Record:
    """What a finished run reached: returns by fresh episodes, steps, and the history of every seed."""
    run = load(folder.path)
    final, best = run.evaluate(EVALUATION), run.evaluate(EVALUATION, best=True)
    record: Record = {
        "algo": cell.algo,
        "horizon": cell.horizon,
        "seeds": run.config.seed_list,
        "config": folder.config["agent"],
        "final_return": final.mean_return,
        "best_return": best.mean_return,
        "successes": sum(value > SUCCESS for value in final.mean_return),
        "best_successes": sum(value > SUCCESS for value in best.mean_return),
        "env_steps": run.summary["env_steps"],
        "policies": run.summary["policies"],
        "history": histories(folder, cell.horizon),
        "device": device_kind(),
        "commit": _commit(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    if cell.algo == "pcpg":
        visits = read_visits(folder, run.config.seed)
        record["cover"] = {"counts": visits.counts.tolist(), "weights": visits.weights.tolist()}
    if cell.algo == "ppo-rnd":
        record["traces"] = traces(folder, cell.horizon, record["final_return"])
    return record


def traces(folder: RunFolder, horizon: int, returns: list[float], count: int = 8) -> Record:
    """Visits of one seed's policy at some epochs of training; of a seed that failed, if one did."""
    seeds = folder.config["seed"] + np.arange(folder.config["seeds"])
    seed = int(seeds[int(np.argmin(returns))])
    rows = [record for record in read_metrics(folder.metrics) if record["seed"] == seed]
    epochs = sorted({round(x) for x in np.geomspace(1, len(rows), count)})
    shape = (2, 3, horizon)
    return {
        "seed": seed,
        "epochs": epochs,
        "counts": [np.reshape(rows[epoch - 1]["cells"], shape).tolist() for epoch in epochs],
    }


def histories(folder: RunFolder, horizon: int) -> dict[str, list[list[float]]]:
    """By seed, a row a round: steps so far, mean return, deepest good level reached so far in either lock."""
    env = CombinationLock(horizon)
    rows: dict[str, list[list[float]]] = {}
    deepest: dict[str, np.ndarray] = {}
    for record in read_metrics(folder.metrics):
        seed = str(record["seed"])
        counts = _cells_of(folder, record)
        if counts is not None and env.cells is not None:
            good = counts.reshape(env.cells.shape)[:, :2].sum(axis=1) > 0
            reached = np.max(good * np.arange(1, horizon + 1), axis=1)
            deepest[seed] = np.maximum(deepest.get(seed, 0), reached)
        front = deepest.get(seed, np.zeros(2))
        rows.setdefault(seed, []).append([record["env_steps"], record["return"], int(front[0]), int(front[1])])
    return rows


def _cells_of(folder: RunFolder, record: Record) -> np.ndarray | None:
    if "cells" in record:
        return np.asarray(record["cells"])
    if "policies" in record:
        return folder.read_member(record["policies"] - 1)[f"{record['seed']}/.cells"]
    return None


def _check_same(record: Record, cell: Cell, path: Path) -> None:
    seeds = list(range(cell.first_seed, cell.first_seed + cell.seeds))
    if record["seeds"] != seeds:
        raise ValueError(f"{path} holds seeds {record['seeds']}, not {seeds}: choose another --out")


def _total_seconds(folder: RunFolder) -> float:
    return sum(record["seconds"] for record in read_metrics(folder.timings))


def _commit() -> str | None:
    """The commit of the source tree this package lies in; PCPG_COMMIT names it where git cannot."""
    if named := os.environ.get("PCPG_COMMIT"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
