"""What is run for the table: sizes, budgets and seeds of each scale, and each algorithm with a factor of a common grid.

| experiment | question                                                                  |
|------------|---------------------------------------------------------------------------|
| tuning     | which factor of its own constants suits an algorithm, on seeds of 1000 on |
| A          | samples to an epsilon-optimal policy against the size of four problems    |
| own        | the same at the smallest and the largest size, with a factor for each     |
| eps        | samples against epsilon, on one problem                                   |
| gap        | samples against epsilon, on trees whose good leaf is better by less       |
| bare       | which seeds get there with next to no bonus                               |
| B          | final loss against the aggregation error, off the optimal path and on it  |
| C          | the binary tree, whose features are wrong off the optimal path            |
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from pcpg_lab.claims.records import Scale
from pcpg_theory.learners import pcpg
from pcpg_theory.learners.layout import Maker
from pcpg_theory.learners.registry import COMPARATORS, chosen
from pcpg_theory.mdp import Array

Experiment = Literal["A", "B", "C"]
Family = Literal["lock", "chain", "tree", "noisy sea"]

FAMILIES: tuple[Family, ...] = ("lock", "chain", "tree", "noisy sea")
NOISY: tuple[Family, ...] = ("chain", "tree", "noisy sea")
"""Those with noise, in which trying every pair once is not enough: there the bonus binds."""
ONE_PATH: tuple[Family, ...] = ("lock", "noisy sea")
"""Those in which one path of right actions pays: a lower bound of A^L is about these."""
SIZE_NAMES: dict[Family, str] = {"lock": "horizon H", "chain": "length", "tree": "depth", "noisy sea": "size"}
CHAIN_DECISIONS = 20
"""Decisions of an episode on the chain, whatever its length."""
EPSILON = 0.1
"""Accuracy of A and of the tuning, as a share of the gap between the optimal return and that of uniform play."""
SETTLE = 3.0
"""A run may end when every seed has stayed epsilon-optimal while its samples grew this many times."""
EPSILONS = (0.4, 0.2, 0.1, 0.05)
"""Accuracies of the runs against epsilon; they end when the smallest is settled."""
ONE_PROBLEM: tuple[Family, ...] = ("chain", "noisy sea")
"""Families of the runs against epsilon on one problem: it has gaps of its own, below which epsilon costs nothing."""
GAPS = (0.4, 0.2, 0.1)
"""Gaps of the trees on which epsilon is in proportion to the gap, so no learner can take fewer than 1/eps^2."""
GAP_FACTORS = (0.1, 1.0, 10.0, 100.0)
"""Multiples of the one factor that are tried for these trees, all gaps together."""
BARE = 1e-9
"""The factor that leaves next to no bonus."""
OWN = (0.1, 1.0, 10.0)
"""Multiples of the one factor that are tried at the ends of a family."""
TUNING_SEED = 1000
"""The first seed of the tuning; the measured seeds start at 0."""

FACTORS = tuple(10.0**k for k in range(1, -7, -1))
"""The grid of factors that every algorithm is tuned on; then half a decade to either side of the best of them."""
REFINE = (10.0**0.5, 10.0**-0.5)
LOSS = 0.02
"""Loss in B from which on an algorithm may try other factors than its tuned one."""
OTHER_FACTORS = (0.1, 10.0)


@dataclass(frozen=True)
class Table1Settings:
    """Sizes, budgets and seeds of a scale."""

    seeds: int
    sizes: dict[Family, tuple[int, ...]]
    budget: int
    """Samples of a seed in A."""
    long_budget: int
    """The same for PC-PG, which keeps no data, and for the controls, whose failure has to be seen at every budget."""
    theory_budget: int
    """Samples of a seed with the papers' own constants, at the smallest sizes."""
    theory_seeds: int
    bare_budget: int
    """Samples of a seed with next to no bonus."""
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
    gap_budget: int
    """Samples of a seed on the trees with gaps."""
    bootstrap: int
    """Resamples of an interval."""
    chances: int
    """Tables drawn for the chance of a verdict."""


SCALES: dict[str, tuple[Any, Any, Any]] = {
    "seeds": (2, 10, 20),
    "sizes": (
        {"lock": (1, 2), "chain": (2, 3), "tree": (1, 2), "noisy sea": (2, 3)},
        {
            "lock": (2, 3, 4, 5, 6),
            "chain": (3, 4, 5, 6, 8, 10),
            "tree": (2, 3, 4),
            "noisy sea": (3, 5, 7, 10, 13, 17),
        },
        {
            "lock": (2, 3, 4, 5, 6, 8, 10),
            "chain": (3, 4, 5, 6, 8, 10, 12),
            "tree": (2, 3, 4, 5),
            "noisy sea": (3, 5, 7, 10, 13, 17, 20),
        },
    ),
    "budget": (2_000, 200_000, 2_000_000),
    "long_budget": (4_000, 4_000_000, 20_000_000),
    "theory_budget": (400, 20_000, 1_000_000),
    "theory_seeds": (2, 5, 5),
    "bare_budget": (300, 20_000, 1_000_000),
    "tuning_sizes": (
        {"lock": 1, "chain": 2, "tree": 1, "noisy sea": 2},
        {"lock": 3, "chain": 5, "tree": 3, "noisy sea": 5},
        {"lock": 4, "chain": 6, "tree": 4, "noisy sea": 6},
    ),
    "tuning_budget": (300, 40_000, 1_000_000),
    "tuning_seeds": (2, 4, 8),
    "errors": ((0.0, 0.4), (0.0, 0.2, 0.4), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
    "error_budget": (600, 40_000, 300_000),
    "depths": ((2,), (2, 4, 6, 8), (2, 4, 6, 8, 9)),
    "tree_seeds": (1, 10, 20),
    "tree_policies": (2, 10, 10),
    "tree_pairs": (20, 200, 500),
    "gap_budget": (1_000, 100_000, 1_000_000),
    "bootstrap": (20, 500, 2_000),
    "chances": (4, 200, 1_000),
}
"""Each setting at the scales smoke, laptop and paper."""
SETTINGS: dict[Scale, Table1Settings] = {
    scale: Table1Settings(**{name: values[place] for name, values in SCALES.items()})
    for place, scale in enumerate(get_args(Scale))
}


def check_algos(algos: tuple[str, ...]) -> tuple[str, ...]:
    """The algorithms in the order of the table, all if none is named; a ValueError for one that there is not."""
    asked = chosen(algos)
    return tuple(name for name in COMPARATORS if not algos or name in asked or COMPARATORS[name].row == "own")


# The learners
#
# A factor f multiplies the width of a confidence interval, or its counterpart (the noise of RLSVI, the step
# of a policy gradient, the known mass of PC-PG). Algorithms that wait for m visits have m of order 1/width^k in their
# papers: their scale, which multiplies m, is f^k.
POWER: dict[str, int] = {"e3": 4, "r-max": 3, "delayed-q": 2, "kwik": 2, "psdp": 2}
# Settings that the scale cannot replace, the same on all problems, found by hand on seeds of 1000 and more: the steps
# of OPPO and POMD, whose theorems' steps need more episodes than any run here has; the batch and the depth of MD-MPI's
# evaluation; the draws of optimistic posterior sampling, and from which visit on it draws; the steps of PC-PG's NPG and
# the pairs of its critics.
OPTIONS: dict[str, dict[str, object]] = {
    "oppo": {"step": 10.0},
    "pomd": {"step": 10.0},
    "md-mpi": {"batch": 50, "m": 10},
    "optimistic-psrl": {"psi": 3, "eta": 1.0},
    "pcpg": {"settings": pcpg.patient},
}
# Factors beyond this one have no meaning: epsilon is a probability.
LARGEST: dict[str, float] = {"epsilon-greedy-q": 1.0}


# Learners that need hundreds of episodes between updates and keep none of them get more samples where the others
# have few, so something can be said of them: in the tuning and in B. The tables print it.
PATIENT: dict[str, int] = {"pcpg": 50, "cpi": 10}


# Algorithms for which nothing polynomial is claimed from s0: where they get there too, growth says nothing.
CONTROLS = tuple(name for name, entry in COMPARATORS.items() if entry.row in ("epsilon-greedy", "policy optimisation"))


def budget_of(settings: Table1Settings, algo: str) -> int:
    """Samples of a seed of the algorithm in A."""
    return settings.long_budget if algo == "pcpg" or algo in CONTROLS else settings.budget


def has_bonus(algo: str) -> bool:
    """Whether the factor multiplies a bonus or its like, which can be taken away."""
    return COMPARATORS[algo].explores and algo not in POWER and algo not in ("pcpg", "psrl", "optimistic-psrl")


def takes_factors(algo: str) -> bool:
    """Whether seeds of one run may have different factors: not where it decides how many episodes are asked for."""
    return algo not in ("pcpg", "psdp") and COMPARATORS[algo].row != "own"


def scale_of(algo: str, factor: float | Array) -> float | Array:
    """The algorithm's `scale` for a factor of the common grid, or for one of each seed."""
    return factor ** POWER.get(algo, 1)


def allowed(algo: str, factors: tuple[float, ...]) -> list[float]:
    """The factors that have a meaning for the algorithm."""
    return [factor for factor in factors if factor <= LARGEST.get(algo, float("inf"))]


def maker(algo: str, factor: float | Array) -> Maker:
    """What makes the algorithm's learner with this factor, or one for each seed."""
    return partial(COMPARATORS[algo].make, **OPTIONS.get(algo, {}), scale=scale_of(algo, factor))
