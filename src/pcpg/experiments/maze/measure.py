"""What a finished run on mazes reached, as one JSON record."""

from pcpg.api import load
from pcpg.experiments.common import Record, histories
from pcpg.experiments.maze.sweep import ALGOS
from pcpg.reports.visits import read_visits
from pcpg.runs.folder import RunFolder


def measure_run(folder: RunFolder) -> Record:
    """Coverage and its history for every seed, and where the policies of the first seed's cover went."""
    run = load(folder.path)
    history = histories(folder)
    open_cells = [run.env.reachable_cells(run.env.instance(seed)) for seed in run.config.seed_list]
    record: Record = {
        "algo": run.config.algo,
        "size": run.config.env_options["size"],
        "seeds": run.config.seed_list,
        "config": folder.config["agent"],
        "features": [folder.config["features"], folder.config["feature_options"]],
        "open_cells": [int(is_open.sum()) for is_open in open_cells],
        "coverage": [history[str(seed)][-1][2] for seed in run.config.seed_list],
        "env_steps": run.summary["env_steps"],
        "policies": run.summary["policies"],
        "history": history,
    }
    if run.config.algo == ALGOS[0]:
        visits = read_visits(folder, run.config.seed)
        record["cover"] = {
            "counts": visits.counts[:, 0].tolist(),
            "weights": visits.weights.tolist(),
            "reachable": open_cells[0].reshape(visits.grid.shape[1:]).tolist(),
            "origin": "upper",
        }
    return record
