"""Intervals and fits for small numbers of seeds."""

import math
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
