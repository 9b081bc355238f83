"""Experiment B: final loss on aggregated problems against the error of the aggregation, off the optimal path and on it.

Every learner sees the same labels. The loss is the optimal return less the exact one of the current policy, the mean
over the last quarter decade of the grid of samples. A learner that loses LOSS more than the best policy over
labels with its tuned factor may try others, and the least of its mean losses counts: what it cannot avoid with any.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcpg.experiments.common import Record
from pcpg.experiments.table1.learners import allowed, maker
from pcpg.experiments.table1.problems import Misspecified, errors, misspecified, unavoidable
from pcpg.experiments.table1.settings import LOSS, OTHER_FACTORS, Settings
from pcpg.theory.learners import runner


def arguments(settings: Settings, problem: Misspecified, factor: float) -> dict[str, Any]:
    """Return what the losses of an algorithm on a problem depend on."""
    return {
        "problem": problem,
        "kappas": list(settings.errors),
        "factor": factor,
        "budget": settings.error_budget,
        "seeds": list(range(settings.seeds)),
    }


def measure(
    algo: str, problem: Misspecified, kappas: Sequence[float], factor: float, budget: int, seeds: Sequence[int]
) -> Record:
    """Return a row for each error: the errors of the problem, and losses of the seeds with each factor tried."""
    rows = []
    for kappa in kappas:
        made = misspecified(problem, kappa)
        tried = {factor: _losses(algo, factor, problem, kappa, budget, seeds)}
        if np.mean(tried[factor]) > LOSS + unavoidable(problem, kappa):
            for other in allowed(algo, tuple(factor * step for step in OTHER_FACTORS)):
                tried[other] = _losses(algo, other, problem, kappa, budget, seeds)
        best = min(tried, key=lambda each: np.mean(tried[each]))
        rows.append(
            {
                "kappa": kappa,
                **errors(made)._asdict(),
                "factor": best,
                "loss": tried[best],
                "mean_loss_by_factor": {f"{each:g}": float(np.mean(found)) for each, found in tried.items()},
            }
        )
    return {"rows": rows}


def _losses(
    algo: str, factor: float, problem: Misspecified, kappa: float, budget: int, seeds: Sequence[int]
) -> list[float]:
    made = misspecified(problem, kappa).episodic(len(seeds))
    history = runner.run(made, maker(algo, factor), seeds, budget, grid=runner.log_grid(budget))
    late = history.samples >= budget / 10.0**0.25
    return (history.optimal - history.returns[:, late].mean(1)).tolist()
