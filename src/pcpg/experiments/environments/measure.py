"""What a finished run on somebody's environment reached, as one JSON record."""

import numpy as np

from pcpg.api import load
from pcpg.experiments.common import Record
from pcpg.experiments.environments.sweep import EVALUATION, TASKS
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics


def measure_run(folder: RunFolder) -> Record:
    """Returns of the final policies over fresh episodes of the environment's own length, and each seed's history."""
    run = load(folder.path)
    name = folder.path.name.removesuffix(f"-{run.config.algo}")
    task, played = TASKS[name], run.evaluate(EVALUATION)
    solved = [float(share) for share in np.mean(played.returns > 0, axis=1)]
    reached = played.mean_return if task.measure == "return" else solved
    history: dict[str, list[list[float]]] = {}
    for record in read_metrics(folder.metrics):
        history.setdefault(str(record["seed"]), []).append([record["env_steps"], record["return"]])
    return {
        "task": name,
        "algo": run.config.algo,
        "env": run.config.env,
        "env_options": dict(run.config.env_options),
        "features": run.config.features,
        "seeds": run.config.seed_list,
        "config": folder.config["agent"],
        "final_return": played.mean_return,
        "solved_episodes": solved,
        "successes": sum(value >= task.success for value in reached),
        "env_steps": run.summary["env_steps"],
        "policies": run.summary["policies"],
        "history": history,
    }
