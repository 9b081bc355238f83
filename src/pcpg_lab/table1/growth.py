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
|           | exploration get there too                                            |                               |

A control is an algorithm for which nothing polynomial is claimed: epsilon-greedy Q-learning, and policy optimisation
from s0. A family has power from the first size on from which every control fails, which is to say that fewer than half
of its seeds get there within the budget of the algorithm that is judged. Growth that ends below it says nothing: it is
`no power`.

Each verdict comes with two chances, of seeing the same verdict in data drawn as

    polynomial    median samples grow as the theorem's polynomial
    exponential   median samples grow as those of uniform play: one over the best rewards that it meets in an episode

from the measured median at the first size on. Seeds scatter about the median as the measured ones do at all sizes
together, samples are read off the same grid, and what is beyond the budget is not reached. 1 less the exponential's
chance of `within` is the power of the test against it. Where a theorem's polynomial grows faster than uniform play, all
of these are `within`; so there is a third chance, that exponential data grow no more than the measured ones did up to
the last size these reached: below 0.05 they are no exponential ones.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pcpg_lab.claims.records import Record
from pcpg_lab.table1.settings import CONTROLS
from pcpg_theory.learners.problem import Episodic
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


RESAMPLES = 60
"""Of the interval of each table that is drawn."""


class Chances(NamedTuple):
    """How often data of each law have the measured verdict, and how often exponential ones grow as little."""

    polynomial: float
    exponential: float
    as_little: float


def rewards_met(made: Episodic) -> float:
    """How many of the best rewards an episode of uniform play meets on average."""
    mean = []
    for P, r in zip(made.P, made.r, strict=True):
        best, here, total = r >= r.max() - 1e-9, np.ones(1), 0.0
        for h in range(made.horizon):
            states = slice(made.first[h], made.first[h + 1])
            total += float((here[:, None] * best[states]).sum()) / r.shape[1]
            wide = made.first[h + 2] - made.first[h + 1]
            here = np.einsum("x,xaw->w", here, P[states, :, :wide]) / r.shape[1]
        mean.append(total)
    return float(np.mean(mean))


def uniform_growth(problems: Mapping[float, Episodic]) -> dict[float, float]:
    """By which factor the samples of uniform play grow from the first size on."""
    each = {size: made.horizon / rewards_met(made) for size, made in problems.items()}
    first = next(iter(each.values()))
    return {size: value / first for size, value in each.items()}


def fails(reached: Mapping[str, Mapping[int, float]], sizes: Sequence[int]) -> int | None:
    """The first size from which on every control fails, by the share of its seeds that got there; None: no such size.

    Sizes that a control was not run at, after one at which none of its seeds got there, count as not reached.
    """
    works = [size for size in sizes if any(shares.get(size, 0.0) >= 0.5 for shares in reached.values())]
    beyond = [size for size in sizes if not works or size > works[-1]]
    return beyond[0] if reached and beyond else None


def judged(found: Growth, power_from: int | None, has_controls: bool) -> Growth:
    """The growth, whose verdict is `no power` where it ends before the controls fail."""
    if has_controls and found.verdict == "within" and (power_from is None or found.last < power_from):
        return found._replace(verdict="no power")
    return found


def chances(
    samples: Mapping[float, Array],
    sizes: Mapping[float, Size],
    theorem: Theorem,
    budget: float,
    exponential: Mapping[float, float],
    measured: Growth,
    draws: int,
    seed: int = 0,
) -> Chances | None:
    """The chances of a verdict; None where there is no median at the first size to begin from."""
    points = [p for p in samples if p in sizes and p in exponential]
    if theorem.samples is None or not points or not np.isfinite(median(samples[points[0]])):
        return None
    base, rng = median(samples[points[0]]), np.random.default_rng(seed)
    spread = np.concatenate([np.log(s[np.isfinite(s)] / median(s)) for s in samples.values() if np.isfinite(median(s))])
    laws = {p: theorem.growth(sizes[points[0]], sizes[p]) or 1.0 for p in points}, exponential
    same, ratios = [], []
    for law in laws:
        drawn = [{p: _drawn(base * law[p], spread, len(samples[p]), budget, rng) for p in points} for _ in range(draws)]
        said = [compare(each, sizes, theorem, budget, RESAMPLES).verdict for each in drawn]
        same.append(float(np.mean([one == measured.verdict for one in said])))
        ratios = [median(each[measured.last]) / median(each[points[0]]) for each in drawn]  # at last the exponential's
    return Chances(same[0], same[1], float(np.mean(np.array(ratios) <= (measured.measured or np.inf))))


def _drawn(center: float, spread: Array, seeds: int, budget: float, rng: np.random.Generator) -> Array:
    """Samples of seeds about a median, read off a grid."""
    drawn = center * np.exp(rng.choice(spread, seeds))
    read = GRID_STEP ** np.ceil(np.log(drawn) / np.log(GRID_STEP) - 1e-9)
    return np.where(read <= budget, read, np.inf)


def controls_of(records: list[Record], budget: int) -> dict[str, dict[str, dict[int, float]]]:
    """By family and control, the share of seeds that got there within a budget at each size."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for record in records:
        made = record["arguments"]
        if record["kind"] == "A" and made["algo"] in CONTROLS:
            share = float(np.mean([value is not None and value <= budget for value in record["samples"]]))
            found.setdefault(made["family"], {}).setdefault(made["algo"], {})[made["size"]] = share
    return found
