"""Experiment A: samples to an epsilon-optimal policy against the size of the lock, the chain and Deep Sea.

Samples to epsilon are the first point of a fixed grid from which on the current policy stays epsilon-optimal, by its
exact return; a seed that never gets there is censored at the budget. Sizes are run from the smallest on; after a size
at which no seed got there the larger ones are not run, and count as beyond the budget.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcpg.experiments.common import Record
from pcpg.experiments.table1.fits import Growth, fit_growth
from pcpg.experiments.table1.learners import maker
from pcpg.experiments.table1.problems import accuracy, make
from pcpg.experiments.table1.settings import SETTLE, Family, Settings
from pcpg.theory.learners import runner
from pcpg.theory.learners.registry import COMPARATORS


def arguments(settings: Settings, family: Family, size: int, factor: float) -> dict[str, Any]:
    """Return what a run with a tuned factor depends on."""
    return {
        "family": family,
        "size": size,
        "factor": factor,
        "budget": settings.budget,
        "seeds": list(range(settings.seeds)),
    }


def theory_arguments(settings: Settings, family: Family) -> dict[str, Any]:
    """Return what a run with the constants of the algorithm's own theorem depends on, at the smallest size."""
    return {
        "family": family,
        "size": settings.sizes[family][0],
        "factor": None,
        "budget": settings.theory_budget,
        "seeds": list(range(settings.theory_seeds)),
    }


def measure(algo: str, family: Family, size: int, factor: float | None, budget: int, seeds: Sequence[int]) -> Record:
    """Return samples to epsilon of each seed, None where censored; factor None: the theorem's own constants."""
    make_learner = COMPARATORS[algo].theory if factor is None else maker(algo, factor)
    if make_learner is None:
        raise ValueError(f"{algo} states no constants")
    made = make(family, size, seeds)
    settle = runner.Settle(accuracy(made), SETTLE)
    history = runner.run(made, make_learner, seeds, budget, grid=runner.log_grid(budget), settle=settle)
    found = runner.samples_to(history, settle.epsilon)
    return {
        "samples": [float(value) if np.isfinite(value) else None for value in found],
        "final_return": history.returns[:, -1].tolist(),
        "optimal": history.optimal.tolist(),
        "uniform": history.uniform.tolist(),
        "steps": history.steps,
    }


def reached(record: Record) -> int:
    """Return how many seeds of a record got there."""
    return sum(value is not None for value in record["samples"])


def samples_of(records: list[Record]) -> dict[int, np.ndarray]:
    """Return samples by size, inf where censored, of records of one algorithm and family."""
    found = {
        record["arguments"]["size"]: np.array([np.inf if v is None else v for v in record["samples"]], float)
        for record in records
    }
    return dict(sorted(found.items()))


def growth(records: list[Record], resamples: int) -> Growth | None:
    """Return how samples grow over the records of one algorithm and family."""
    return fit_growth(samples_of(records), records[0]["arguments"]["budget"], resamples)
