"""Measured growth compared with a theorem's: the factor by which samples grow over sizes or accuracies, and its bound.

    measured   the ratio of median samples, at the largest point that half of the seeds reached and at the first
    theorem    the same ratio of the theorem's own polynomial at these two points

A seed that did not get there counts as infinitely many. Nothing is fitted: a law in the size alone cannot tell a
polynomial of high degree in (S, A, L, 1/eps) from an exponential, and need not.

| verdict   | of an upper bound                                                    | of a lower bound              |
|-----------|----------------------------------------------------------------------|-------------------------------|
| within    | at all points the measured factor is at most the theorem's           | at least the theorem's        |
| exceeds   | at some point it is larger, by its 95% interval and the grid's step  | smaller                       |
| stuck     | at some point fewer than half got there, but at a later, harder one  | the same                      |
|           | they did: not growth, but a factor that does not suit the point      |                               |
| open      | neither can be said: too few points were reached within the budget,  | the same                      |
|           | or the measured factor is on the other side, by no more than chance  |                               |
| no power  | it would be within, but ends at sizes at which algorithms without    |                               |
|           | exploration get there too (see `power`)                              |                               |
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from pcpg_lab.claims.records import Record
from pcpg_theory.mdp import Array
from pcpg_theory.theorems import Size, Theorem

GRID_STEP = 10.0 ** (1.0 / 12.0)
"""Samples are read off a grid: each is known up to this factor, and a ratio up to its square."""
Verdict = Literal["within", "exceeds", "stuck", "open", "no power", "no claim"]


class Growth(NamedTuple):
    """Measured and proved growth from the first point to the last that was reached."""

    verdict: Verdict
    first: float
    last: float
    measured: float | None
    low: float | None
    high: float | None
    theorem: float | None
    shares: list[float]  # of seeds that got there, at every point
    budget_over_first: float | None  # what the growth to the first point beyond the budget is at least

    def as_record(self) -> Record:
        """A value for JSON: None if infinite."""
        found = self._asdict()
        return {key: None if value in (np.inf, -np.inf) else value for key, value in found.items()}


def finite(value: float) -> float | None:
    """A number for JSON: None if infinite."""
    return float(value) if np.isfinite(value) else None


def median(samples: Array) -> float:
    """The median, infinite if fewer than half succeeded."""
    return float(np.quantile(samples, 0.5, method="lower"))


def bootstrap_ratio(first: Array, last: Array, resamples: int, seed: int = 0) -> tuple[float, float]:
    """The 95% interval of the ratio of medians, resampling seeds at both points."""
    rng = np.random.default_rng(seed)

    def medians(found: Array) -> Array:
        return np.quantile(found[rng.integers(0, len(found), (resamples, len(found)))], 0.5, axis=1, method="lower")

    below, above = medians(first), medians(last)
    ratios = np.where(np.isfinite(above), above, np.inf) / np.where(np.isfinite(below), below, np.nan)
    ratios = ratios[~np.isnan(ratios)]
    low, high = np.quantile(ratios, [0.025, 0.975], method="lower")
    return float(low), float(high)


def compare(
    samples: Mapping[float, Array],
    sizes: Mapping[float, Size],
    theorem: Theorem,
    budget: float,
    resamples: int = 500,
    claims: bool = True,
) -> Growth:
    """The growth of samples [seeds] by point, points in order, beside the theorem's growth of the sizes there.

    Without `claims` the theorem says nothing of this problem.
    """
    points = list(samples)
    shares = [float(np.isfinite(samples[p]).mean()) for p in points]
    reached = [p for p in points if np.isfinite(median(samples[p]))]
    first, claims = points[0], claims and theorem.samples is not None
    if first not in reached:
        said: Verdict = "stuck" if reached else "open"
        return Growth(said if claims else "no claim", first, first, None, None, None, None, shares, None)
    count = next((i for i, p in enumerate(points) if p not in reached), len(points))
    last, base = points[count - 1], median(samples[first])
    beyond = budget / base if count < len(points) else None
    measured = median(samples[last]) / base
    low, high = bootstrap_ratio(samples[first], samples[last], resamples)
    proved = theorem.growth(sizes[first], sizes[last])
    verdict = _verdict(samples, sizes, theorem, points[:count], points[count:], beyond, resamples)
    verdict = "stuck" if len(reached) > count else verdict
    verdict = verdict if claims else "no claim"
    return Growth(verdict, first, last, measured, low, high, proved, shares, beyond)


def _verdict(
    samples: Mapping[float, Array],
    sizes: Mapping[float, Size],
    theorem: Theorem,
    reached: list[float],
    missed: list[float],
    beyond: float | None,
    resamples: int,
) -> Verdict:
    if theorem.samples is None:
        return "no claim"
    first, slack = reached[0], GRID_STEP**2
    after = {p: bootstrap_ratio(samples[first], samples[p], resamples) for p in reached[1:]}
    proved = {p: theorem.growth(sizes[first], sizes[p]) or np.inf for p in [*reached[1:], *missed[:1]] if p in sizes}
    ratio = {p: median(samples[p]) / median(samples[first]) for p in reached[1:]}
    if theorem.lower:
        if any(high * slack < proved[p] for p, (_, high) in after.items()):
            return "exceeds"
        if any(ratio[p] * slack < proved[p] for p in ratio):
            return "open"
        if beyond is not None and (not missed or missed[0] not in proved or beyond * slack >= proved[missed[0]]):
            return "within"
        return "within" if after and beyond is None else "open"
    if any(low > proved[p] * slack for p, (low, _) in after.items()):
        return "exceeds"
    if beyond is not None and missed[0] in proved and beyond > proved[missed[0]] * slack:
        return "exceeds"
    if any(ratio[p] > proved[p] * slack for p in ratio):
        return "open"
    return "within" if len(after) > 0 and not missed else "open"
