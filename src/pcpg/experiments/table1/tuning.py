"""One factor for each algorithm, chosen on other seeds from the same grid with the same budget for all.

A factor is scored on all three families at one size each: the mean of ln(samples to epsilon), where a seed that did
not get there counts as SETTLE times the budget. Of factors within TIE of the best score (the noise of a few seeds) the
one nearest to the papers' own constants is taken; where no factor gets there, the mean share of the optimal return over
the grid of samples decides. A run is given up after HOPE of its budget if no seed is better than uniform play by
epsilon.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcpg.experiments.common import Record
from pcpg.experiments.table1.learners import allowed, maker
from pcpg.experiments.table1.problems import accuracy, make
from pcpg.experiments.table1.settings import (
    FACTORS,
    FAMILIES,
    REFINE,
    SETTLE,
    TUNING_SEED,
    Family,
    Settings,
)
from pcpg.theory.learners import runner
from pcpg.theory.learners.problem import Episodic

TIE = float(np.log(1.25))
HOPE = 1.0 / 3.0


def arguments(settings: Settings) -> dict[str, Any]:
    """Return what the tuning of any algorithm depends on."""
    return {
        "sizes": dict(settings.tuning_sizes),
        "budget": settings.tuning_budget,
        "seeds": [TUNING_SEED + i for i in range(settings.tuning_seeds)],
    }


def measure(algo: str, sizes: dict[Family, int], budget: int, seeds: Sequence[int]) -> Record:
    """Return the scores of all factors and the best of them."""
    problems: dict[Family, Episodic] = {family: make(family, sizes[family], seeds) for family in FAMILIES}
    trials = [_trial(algo, factor, problems, budget, seeds) for factor in allowed(algo, FACTORS)]
    best = choose(trials)
    near = allowed(algo, tuple(best * step for step in REFINE))
    trials += [_trial(algo, factor, problems, budget, seeds) for factor in near]
    return {"trials": trials, "factor": choose(trials)}


def choose(trials: list[Record]) -> float:
    """Return the factor of the best trial."""
    least = min(trial["log_samples"] for trial in trials)
    good = [trial for trial in trials if trial["log_samples"] <= least + TIE]
    if all(value is None for trial in good for found in trial["samples"].values() for value in found):
        return max(good, key=lambda trial: round(trial["share"], 9))["factor"]
    return min(good, key=lambda trial: abs(np.log(trial["factor"])))["factor"]


def _trial(algo: str, factor: float, problems: dict[Family, Episodic], budget: int, seeds: Sequence[int]) -> Record:
    grid = runner.log_grid(budget)
    logs, shares, samples = [], [], {}
    for family, made in problems.items():
        settle = runner.Settle(accuracy(made), SETTLE, int(HOPE * budget))
        history = runner.run(made, maker(algo, factor), seeds, budget, grid=grid, settle=settle)
        found = runner.samples_to(history, settle.epsilon)
        logs += np.log(np.where(np.isfinite(found), found, SETTLE * budget)).tolist()
        gap = (history.optimal - history.uniform)[:, None]
        share = (history.returns - history.uniform[:, None]) / gap
        missing = len(grid) - share.shape[1]  # a run that ended early is taken to have stayed where it was
        shares.append(np.concatenate([share, np.repeat(share[:, -1:], missing, axis=1)], axis=1).mean())
        samples[family] = [float(value) if np.isfinite(value) else None for value in found]
    return {"factor": factor, "log_samples": float(np.mean(logs)), "share": float(np.mean(shares)), "samples": samples}
