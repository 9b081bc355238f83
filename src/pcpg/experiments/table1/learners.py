"""The learners of the table: the registered comparators with a scale of the common grid.

Some have settings beside their scale that the scale cannot replace. They are the same on all problems, and were found
by hand on seeds of 1000 and more: the steps of OPPO and POMD, whose theorems' steps need more episodes than any run
here has; the batch and the depth of MD-MPI's evaluation; the draws of optimistic posterior sampling, and from which
visit on it draws; the sizes of PC-PG's own samples.
"""

from functools import partial
from typing import Any

from pcpg.theory.learners.layout import Layout, Learner, Maker, Streams
from pcpg.theory.learners.pcpg import PCPG, practical
from pcpg.theory.learners.registry import COMPARATORS
from pcpg.theory.settings import Settings, beta_from_mass

# A factor f multiplies the width of a confidence interval, or what stands in its place (the noise of RLSVI, the step
# of a policy gradient, the known mass of PC-PG). Algorithms that wait for m visits have m of order 1/width^k in their
# papers: their scale, which multiplies m, is f^k.
POWER: dict[str, int] = {"e3": 4, "r-max": 3, "delayed-q": 2, "psdp": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "oppo": {"step": 10.0},
    "pomd": {"step": 10.0},
    "md-mpi": {"batch": 50, "m": 10},
    "optimistic-psrl": {"psi": 3, "eta": 1.0},
}
# Factors beyond this one have no meaning: epsilon is a probability.
LARGEST: dict[str, float] = {"epsilon-greedy-q": 1.0}


def scale_of(algo: str, factor: float) -> float:
    """Return the algorithm's `scale` for a factor of the common grid."""
    return factor ** POWER.get(algo, 1)


def allowed(algo: str, factors: tuple[float, ...]) -> list[float]:
    """Return the factors that have a meaning for the algorithm."""
    return [factor for factor in factors if factor <= LARGEST.get(algo, float("inf"))]


def maker(algo: str, factor: float) -> Maker:
    """Return what makes the algorithm's learner with this factor."""
    make = _pcpg if algo == "pc-pg" else partial(COMPARATORS[algo].make, **OPTIONS.get(algo, {}))
    return partial(make, scale=scale_of(algo, factor))


def _pcpg(layout: Layout, streams: Streams, scale: float) -> Learner:
    """Three pairs a critic for each pair of the problem, and twice the episodes that choose a policy."""
    dim = layout.num_states * layout.num_actions
    return PCPG(layout, streams, scale=scale, settings=pcpg_settings(layout, dim))


def pcpg_settings(layout: Layout, dim: int) -> Settings:
    """Return settings of PC-PG that serve all three families: `practical`'s known mass, and less noisy critics."""
    mass = 1.0 / practical(layout, dim).beta - practical(layout, dim).ridge
    return Settings(T=10, eta=10.0, beta=beta_from_mass(mass), M=max(100, 3 * dim), K=1000)
