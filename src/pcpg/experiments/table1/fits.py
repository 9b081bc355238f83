"""How samples grow with size: power law or exponential, fitted by maximum likelihood with censored runs.

    polynomial   ln T = a + b ln H + sigma noise       the exponent is b
    exponential  ln T = a + c H + sigma noise          the base is e^c

with normal noise. A run that did not get there within its budget says only that T is larger: it enters by
Pr(T > budget), as in Tobin's regression. Both laws have three parameters, so their AIC differ by twice the difference
of their log-likelihoods.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from pcpg.theory.mdp import Array, Mask

GRID_NOISE = 0.05  # standard deviation of ln T that the grid of samples alone makes: the noise is never less
DECIDED = 4.0  # difference of AIC from which on one law is preferred


class Line(NamedTuple):
    """ln T = intercept + slope x of largest likelihood, one for each row of weights."""

    intercept: Array  # [R]
    slope: Array
    noise: Array
    log_likelihood: Array


class Growth(NamedTuple):
    """Both laws of growth, with 95% intervals by the bootstrap over seeds, and which one fits better."""

    exponent: float
    exponent_low: float
    exponent_high: float
    base: float
    base_low: float
    base_high: float
    aic_difference: float  # AIC(polynomial) - AIC(exponential): positive where the exponential fits better
    law: str  # polynomial, exponential or undecided
    runs: int
    censored: int


def fit_line(x: Array, log_t: Array, censored: Mask, weights: Array) -> Line:
    """The lines of largest likelihood for weights [R, points]; where `censored`, log_t is a lower bound.

    In theta = 1/sigma and delta = (intercept, slope)/sigma the log-likelihood is concave (Olsen 1978), so Newton's
    method with halved steps finds its only top, for all rows of weights at once.
    """
    if len(np.unique(x[~censored])) < 2:
        raise ValueError("a line needs runs that got there at two sizes at least")
    centre, spread, level = x.mean(), np.ptp(x), log_t.mean()
    y = log_t - level
    Z = np.stack([-np.ones_like(x), -(x - centre) / spread, y], axis=1)  # z = Z (delta, theta)
    seen = weights * ~censored
    total = seen.sum(1)

    def value(p: Array) -> Array:
        z = p @ Z.T
        theta = np.maximum(p[:, 2], 1e-12)
        gain = total * (np.log(theta) - 0.5 * (GRID_NOISE * theta) ** 2 - 0.5 * np.log(2.0 * np.pi))
        return gain - 0.5 * (seen * z**2).sum(1) + (weights * censored * log_ndtr(-z)).sum(1)

    p = np.tile([0.0, 0.0, 1.0], (len(weights), 1))
    now = value(p)
    for _ in range(100):
        z, theta = p @ Z.T, p[:, 2]
        hazard = np.exp(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(-z))  # of the normal distribution
        pull = -seen * z - weights * censored * hazard
        curve = -seen - weights * censored * hazard * (hazard - z)
        gradient, hessian = pull @ Z, np.einsum("rn,ni,nj->rij", curve, Z, Z)
        gradient[:, 2] += total * (1.0 / theta - GRID_NOISE**2 * theta)
        hessian[:, 2, 2] -= total * (1.0 / theta**2 + GRID_NOISE**2)
        step = -np.linalg.solve(hessian - 1e-9 * np.eye(3), gradient[..., None])[..., 0]
        p, found = _climb(value, p, now, step)
        gain, now = found - now, found
        if gain.max() < 1e-9:
            break
    noise = 1.0 / p[:, 2]
    slope = p[:, 1] * noise / spread
    return Line(level + p[:, 0] * noise - slope * centre, slope, noise, now)


def _climb(value: Callable[[Array], Array], p: Array, now: Array, step: Array) -> tuple[Array, Array]:
    """The point p + size step and its value, with the largest size of 1, 1/2, 1/4, .. that does not lower the value.

    A row for which none of thirty sizes does stays where it is.
    """
    size, best, high = np.ones(len(p)), p, now
    todo = np.ones(len(p), bool)
    for _ in range(30):
        trial = p + size[:, None] * step
        found = np.where(trial[:, 2] > 0.0, value(trial), -np.inf)
        better = todo & (found >= now)
        best, high = np.where(better[:, None], trial, best), np.where(better, found, high)
        todo &= ~better
        if not todo.any():
            break
        size = 0.5 * size
    return best, high


def fit_growth(samples: dict[int, Array], budget: float, resamples: int = 500, seed: int = 0) -> Growth | None:
    """The growth of samples [seeds], inf where censored at the budget, with sizes; None if it cannot be told.

    It cannot where fewer than two sizes have a seed that got there; a law is preferred from three on.
    """
    reached = [size for size, found in samples.items() if np.isfinite(found).any()]
    if len(reached) < 2:
        return None
    H = np.concatenate([np.full(len(found), float(size)) for size, found in samples.items()])
    T = np.concatenate([np.asarray(found, float) for found in samples.values()])
    censored = ~np.isfinite(T)
    log_t = np.log(np.where(censored, budget, T))
    weights = _resampled(H, censored, resamples, seed)  # the first row is the data
    polynomial, exponential = (fit_line(x, log_t, censored, weights) for x in (np.log(H), H))
    low, high = np.quantile(polynomial.slope[1:], [0.025, 0.975])
    base_low, base_high = np.exp(np.quantile(exponential.slope[1:], [0.025, 0.975]))
    difference = 2.0 * float(exponential.log_likelihood[0] - polynomial.log_likelihood[0])
    law = "undecided"
    if abs(difference) >= DECIDED and len(reached) > 2:
        law = "exponential" if difference > 0.0 else "polynomial"
    return Growth(
        exponent=float(polynomial.slope[0]),
        exponent_low=float(low),
        exponent_high=float(high),
        base=float(np.exp(exponential.slope[0])),
        base_low=float(base_low),
        base_high=float(base_high),
        aic_difference=difference,
        law=law,
        runs=len(T),
        censored=int(censored.sum()),
    )


def _resampled(H: Array, censored: Mask, resamples: int, seed: int) -> Array:
    """How often each run is drawn, [1 + resamples, runs]: seeds are drawn anew within each size.

    The first row is ones. Draws in which fewer than two sizes keep a run that got there are drawn again.
    """
    rng, rows = np.random.default_rng(seed), [np.ones(len(H))]
    places = [np.flatnonzero(size == H) for size in np.unique(H)]
    while len(rows) <= resamples:
        drawn = np.concatenate([place[rng.integers(0, len(place), len(place))] for place in places])
        if len(np.unique(H[drawn][~censored[drawn]])) > 1:
            rows.append(np.bincount(drawn, minlength=len(H)).astype(np.float64))
    return np.stack(rows)
