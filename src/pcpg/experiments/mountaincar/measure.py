"""What a finished run on MountainCar reached, as one JSON record."""

from pcpg.api import load
from pcpg.experiments.common import Record, histories
from pcpg.experiments.mountaincar.sweep import ALGOS, EVALUATION, SUCCESS
from pcpg.reports.visits import read_visits
from pcpg.runs.folder import RunFolder


def measure_run(folder: RunFolder) -> Record:
    """Returns over the environment's 999 steps, the history of every seed, and where the first seed's cover went."""
    run = load(folder.path)
    final, best = run.evaluate(EVALUATION), run.evaluate(EVALUATION, best=True)
    record: Record = {
        "algo": run.config.algo,
        "seeds": run.config.seed_list,
        "config": folder.config["agent"],
        "final_return": final.mean_return,
        "best_return": best.mean_return,
        "successes": sum(value > SUCCESS for value in final.mean_return),
        "env_steps": run.summary["env_steps"],
        "policies": run.summary["policies"],
        "history": histories(folder),
    }
    if run.config.algo == ALGOS[0]:
        visits = read_visits(folder, run.config.seed)
        reachable = run.env.reachable_cells(run.env.instance(run.config.seed)).reshape(visits.grid.shape[1:])
        record["cover"] = {
            "counts": visits.counts[:, 0].tolist(),
            "weights": visits.weights.tolist(),
            "reachable": reachable.tolist(),
            "origin": "lower",  # the largest velocity at the top
        }
    return record
