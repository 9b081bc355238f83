"""What is run for the table, at each scale: constants alone, the same for every algorithm.

| experiment | question                                                                  |
|------------|---------------------------------------------------------------------------|
| tuning     | which factor of its own constants suits an algorithm, on seeds of 1000 on |
| A          | samples to an epsilon-optimal policy against the size of three problems   |
| B          | final loss against the aggregation error, off the optimal path and on it  |
| C          | the binary tree, whose features are wrong off the optimal path            |
"""

from dataclasses import dataclass
from typing import Literal

from pcpg.experiments.common import Scale
from pcpg.theory.learners.registry import COMPARATORS

Experiment = Literal["A", "B", "C"]
Family = Literal["lock", "chain", "deep sea"]

FAMILIES: tuple[Family, ...] = ("lock", "chain", "deep sea")
SIZE_NAMES: dict[Family, str] = {"lock": "horizon H", "chain": "length", "deep sea": "size"}
CHAIN_DECISIONS = 20
"""Decisions of an episode on the chain, whatever its length."""
EPSILON = 0.1
"""Accuracy of A and of the tuning, as a share of the gap between the optimal return and that of uniform play."""
SETTLE = 3.0
"""A run may end when every seed has stayed epsilon-optimal while its samples grew this many times."""
TUNING_SEED = 1000
"""The first seed of the tuning; the measured seeds start at 0."""

FACTORS = tuple(10.0**k for k in range(1, -7, -1))
"""The grid of factors that every algorithm is tuned on; then half a decade to either side of the best of them."""
REFINE = (10.0**0.5, 10.0**-0.5)
LOSS = 0.02
"""Loss in B from which on an algorithm may try other factors than its tuned one."""
OTHER_FACTORS = (0.1, 10.0)


@dataclass(frozen=True)
class Settings:
    """Sizes, budgets and seeds of a scale."""

    seeds: int
    sizes: dict[Family, tuple[int, ...]]
    budget: int
    """Samples of a seed in A."""
    theory_budget: int
    """Samples of a seed with the papers' own constants, at the smallest sizes."""
    theory_seeds: int
    tuning_sizes: dict[Family, int]
    tuning_budget: int
    tuning_seeds: int
    errors: tuple[float, ...]
    """Aggregation errors of B; the first is zero."""
    error_budget: int
    """Samples of a seed in B."""
    depths: tuple[int, ...]
    """Depths of the trees of C."""
    tree_seeds: int
    tree_policies: int
    """Policies of PC-PG's cover in C."""
    tree_pairs: int
    """Pairs that a critic of PC-PG is fitted to in C."""
    bootstrap: int
    """Resamples of an interval."""


SETTINGS: dict[Scale, Settings] = {
    "smoke": Settings(
        seeds=2,
        sizes={"lock": (1, 2), "chain": (2, 3), "deep sea": (2, 3)},
        budget=2_000,
        theory_budget=400,
        theory_seeds=2,
        tuning_sizes={"lock": 1, "chain": 2, "deep sea": 2},
        tuning_budget=300,
        tuning_seeds=2,
        errors=(0.0, 0.4),
        error_budget=600,
        depths=(2,),
        tree_seeds=1,
        tree_policies=2,
        tree_pairs=20,
        bootstrap=20,
    ),
    "laptop": Settings(
        seeds=20,
        sizes={"lock": (2, 3, 4, 5, 6, 8), "chain": (3, 4, 5, 6, 7), "deep sea": (4, 6, 8, 10, 12, 14)},
        budget=1_000_000,
        theory_budget=100_000,
        theory_seeds=5,
        tuning_sizes={"lock": 3, "chain": 5, "deep sea": 7},
        tuning_budget=100_000,
        tuning_seeds=4,
        errors=(0.0, 0.2, 0.4),
        error_budget=100_000,
        depths=(2, 4, 6, 8),
        tree_seeds=3,
        tree_policies=10,
        tree_pairs=500,
        bootstrap=500,
    ),
    "paper": Settings(
        seeds=20,
        sizes={"lock": (2, 3, 4, 5, 6, 8, 10), "chain": (3, 4, 5, 6, 7, 8), "deep sea": (4, 6, 8, 10, 12, 14, 18)},
        budget=10_000_000,
        theory_budget=1_000_000,
        theory_seeds=5,
        tuning_sizes={"lock": 4, "chain": 6, "deep sea": 8},
        tuning_budget=1_000_000,
        tuning_seeds=8,
        errors=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
        error_budget=300_000,
        depths=(2, 4, 6, 8, 9),
        tree_seeds=20,
        tree_policies=10,
        tree_pairs=500,
        bootstrap=2_000,
    ),
}


def check_algos(algos: tuple[str, ...]) -> tuple[str, ...]:
    """Return the algorithms in the order of the table, all if none is named, or raise a ValueError."""
    unknown = sorted(set(algos) - set(COMPARATORS))
    if unknown:
        raise ValueError(f"unknown algorithm {unknown[0]!r}; valid: {', '.join(COMPARATORS)}")
    return tuple(name for name in COMPARATORS if not algos or name in algos)
