"""Intervals and fits for small numbers of seeds."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """An estimate with a 95% interval."""

    value: float
    low: float
    high: float


def wilson(successes: int, trials: int, z: float = 1.959964) -> Interval:
    """Share of successes with the Wilson score interval, which is honest at 0 and at all of them."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"need 0 <= successes <= trials and a trial, got {successes} of {trials}")
    share = successes / trials
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Interval(share, low, high)


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean along an axis: the mean of what is left without the lowest and the highest quarter.

    With fewer than four values nothing can be left out, and it is the mean.
    """
    ordered = np.sort(np.moveaxis(np.asarray(values, float), axis, 0), axis=0)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean(axis=0)


class Band(NamedTuple):
    """A statistic at each of many points, with a 95% interval."""

    value: np.ndarray  # [points]
    low: np.ndarray
    high: np.ndarray


def bootstrap(
    strata: Sequence[np.ndarray],
    statistic: Callable[[np.ndarray], np.ndarray] = iqm,
    *,
    samples: int = 2000,
    seed: int = 0,
) -> Band:
    """A statistic over all rows of all strata [seeds, points], with its stratified percentile bootstrap interval.

    Seeds are drawn anew inside each stratum (an environment), never across: every resample has as many seeds of
    each as the data. `statistic` reduces the first axis. Few seeds make the interval too narrow, as every bootstrap.
    """
    if not strata or min(len(part) for part in strata) < 1:
        raise ValueError("the bootstrap needs a seed in every stratum")
    rows = [np.asarray(part, float).reshape(len(part), -1) for part in strata]
    rng = np.random.default_rng(seed)
    drawn = np.empty((samples, rows[0].shape[1]))
    # In pieces, so that memory stays small however many points a curve has.
    for piece in np.array_split(np.arange(samples), max(1, samples // 100)):
        picks = [part[rng.integers(0, len(part), (len(part), len(piece)))] for part in rows]
        drawn[piece] = statistic(np.concatenate(picks))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Band(statistic(np.concatenate(rows)), low, high)


class PowerLaw(NamedTuple):
    """y = factor * x ** exponent, with a 95% interval of the exponent by the bootstrap over points."""

    factor: float
    exponent: float
    low: float
    high: float


def fit_power_law(x: np.ndarray, y: np.ndarray, *, samples: int = 2000, seed: int = 0) -> PowerLaw:
    """Least squares in the logarithms of positive points."""
    log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    if len(np.unique(log_x)) < 2:
        raise ValueError("a power law needs points at two places at least")
    exponent, intercept = np.polyfit(log_x, log_y, 1)
    rng = np.random.default_rng(seed)
    exponents = []
    while len(exponents) < samples:
        pick = rng.integers(0, len(log_x), len(log_x))
        if len(np.unique(log_x[pick])) > 1:
            exponents.append(np.polyfit(log_x[pick], log_y[pick], 1)[0])
    low, high = np.quantile(exponents, [0.025, 0.975])
    return PowerLaw(float(np.exp(intercept)), float(exponent), float(low), float(high))
