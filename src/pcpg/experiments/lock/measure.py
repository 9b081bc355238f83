"""One cell of the lock's table: run it (or go on with it), and measure what came out, as one JSON record."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np

from pcpg.api import load
from pcpg.envs.lock import CombinationLock
from pcpg.experiments import common
from pcpg.experiments.common import Record, Watch
from pcpg.experiments.lock.sweep import EVALUATION, SUCCESS, Cell, Scale
from pcpg.reports.visits import read_visits
from pcpg.run_config import RunConfig
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics


def run_cell(cell: Cell, scale: Scale, out: Path, watch: Watch = lambda config: nullcontext()) -> Record | None:
    """The record of a cell: read if it is done, else trained from where it stopped; None if it was interrupted."""
    return common.run_once(run_of(cell, scale), out, measure_run, watch)


def run_of(cell: Cell, scale: Scale) -> common.Cell:
    """The run of a cell."""
    options = {"horizon": cell.horizon}
    config = RunConfig("CombinationLock-v0", cell.algo, cell.config, options, seed=cell.first_seed, seeds=cell.seeds)
    return common.Cell(cell.name, config, cell.command(scale))


def measure_run(folder: RunFolder) -> Record:
    """What a finished run reached: returns by fresh episodes, steps, and the history of every seed."""
    run = load(folder.path)
    algo, horizon = run.config.algo, run.config.env_options["horizon"]
    final, best = run.evaluate(EVALUATION), run.evaluate(EVALUATION, best=True)
    record: Record = {
        "algo": algo,
        "horizon": horizon,
        "seeds": run.config.seed_list,
        "config": folder.config["agent"],
        "final_return": final.mean_return,
        "best_return": best.mean_return,
        "successes": sum(value > SUCCESS for value in final.mean_return),
        "best_successes": sum(value > SUCCESS for value in best.mean_return),
        "env_steps": run.summary["env_steps"],
        "policies": run.summary["policies"],
        "history": histories(folder, horizon),
    }
    if algo == "pcpg":
        visits = read_visits(folder, run.config.seed)
        record["cover"] = {"counts": visits.counts.tolist(), "weights": visits.weights.tolist()}
    if algo == "ppo-rnd":
        record["traces"] = traces(folder, horizon, record["final_return"])
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
