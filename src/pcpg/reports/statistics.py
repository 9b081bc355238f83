"""The numbers behind the figures: intervals over few seeds, curves, fits, and the certificate of a cover."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pcpg.algorithms import Shown
from pcpg.reports.read import RunData


class Interval(NamedTuple):
    """An estimate with a 95% interval."""

    value: float
    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval:
    """Share of successes with its Wilson score interval, which is valid even if no trial or every trial succeeds."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"successes must lie between 0 and the trials, of at least 1, got {successes} of {trials}")
    share, z = successes / trials, 1.959963984540054  # the normal quantile of 97.5%
    width = 2 * (trials + z**2)
    center = (2 * trials * share + z**2) / width
    half = z / width * math.sqrt(4 * trials * share * (1 - share) + z**2)
    return Interval(share, center - half if successes else 0.0, center + half if successes < trials else 1.0)


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean along an axis: the mean without the lowest and the highest quarter.

    With fewer than four values it is the plain mean.
    """
    from scipy import stats  # here, since it takes a second to import

    return stats.trim_mean(values, 0.25, axis=axis)


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

    Seeds are resampled inside each stratum (an environment), never across: every resample has as many seeds of
    each as the data. `statistic` reduces the first axis. Few seeds make the interval too narrow, as in every bootstrap.
    """
    if not strata or min(len(part) for part in strata) < 1:
        raise ValueError("the bootstrap needs at least one seed in every stratum, got none")
    rows = [np.asarray(part, float).reshape(len(part), -1) for part in strata]
    rng = np.random.default_rng(seed)
    drawn = np.empty((samples, rows[0].shape[1]))
    # In pieces, so memory stays small however many points a curve has.
    for piece in np.array_split(np.arange(samples), max(1, samples // 100)):
        picks = [part[rng.integers(0, len(part), (len(part), len(piece)))] for part in rows]
        drawn[piece] = statistic(np.concatenate(picks))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Band(statistic(np.concatenate(rows)), low, high)


def interval_of(strata: Sequence[np.ndarray]) -> Interval:
    """Interquartile mean over all seeds of all strata [seeds], with its bootstrap interval."""
    return Interval(*(float(part[0]) for part in bootstrap([np.asarray(part)[:, None] for part in strata])))


def solved_share(run: RunData) -> Interval | None:
    """Share of solved seeds, or None if the environment has no solved return."""
    if run.solved_return is None or not run.final_returns:
        return None
    return wilson(run.solved, len(run.final_returns))


# curves over seeds

POINTS = 160
"""Number of points at which seeds are compared."""


class Curve(NamedTuple):
    """A metric of a run over its seeds, at common numbers of steps."""

    run: RunData
    steps: np.ndarray  # [points]
    band: Band
    num_seeds: int


def value_at(history: Sequence[Sequence[float]] | np.ndarray, grid: np.ndarray, column: int = 1) -> np.ndarray:
    """The newest value of a column of a history at each number of steps (its first column); NaN before the first."""
    rows = np.asarray(history, float)
    index = np.searchsorted(rows[:, 0], grid, side="right") - 1
    return np.where(index < 0, np.nan, rows[np.maximum(index, 0), column])


def common_grid(histories: list[np.ndarray]) -> np.ndarray:
    """Steps from the first at which every seed has a value to the last of any; finished seeds keep their last value."""
    first, last = max(rows[0, 0] for rows in histories), max(rows[-1, 0] for rows in histories)
    return np.linspace(first, last, POINTS) if last > first else np.array([last])


def iqm_curve(run: RunData, name: str) -> Curve | None:
    """Interquartile mean over the seeds with its bootstrap interval; None if no seed has the metric."""
    return _curve(run, name, lambda values: bootstrap([values]))


def success_curve(run: RunData, threshold: float) -> Curve | None:
    """Share of the seeds whose newest policy is above the threshold, with its Wilson interval."""

    def band(values: np.ndarray) -> Band:
        intervals = [wilson(int(count), len(values)) for count in np.sum(values > threshold, axis=0)]
        return Band(*np.array(intervals).T)

    return _curve(run, "return", band)


def _curve(run: RunData, name: str, band: Callable[[np.ndarray], Band]) -> Curve | None:
    histories = run.history(name)
    if not histories:
        return None
    grid = common_grid(histories)
    values = np.stack([value_at(rows, grid) for rows in histories])
    return Curve(run, grid, band(values), len(histories))


def end_of_exploration(run: RunData) -> float | None:
    """Steps after which the median seed had its cover; None if exploration is not a separate phase or not over."""
    ends = []
    for records in run.records.values():
        explored = [record["env_steps"] for record in records if record["phase"] == "explore"]
        if explored and len(explored) < len(records):
            ends.append(max(explored[-1], records[-1].get("met_at", 0)))  # of the round that met the reward
    return float(np.median(ends)) if ends else None


# covers


class Certificate(NamedTuple):
    """Weights of a cover, and a proof of how close to optimal they are."""

    weights: np.ndarray  # [members]
    gains: np.ndarray  # [members]: g
    log_det: float

    @property
    def level(self) -> float:
        """sum_i w_i g_i."""
        return float(self.weights @ self.gains)

    @property
    def gap(self) -> float:
        """Upper bound, in nats, on how much other weights could raise the log-determinant; 0 for optimal weights."""
        return max(0.0, float(self.gains.max()) - self.level)


def certify(cover: Shown, ridge: float) -> Certificate | None:
    """The certificate of a cover's weights; None if its members have no covariances."""
    if cover.sigmas is None:
        return None
    mixture = np.tensordot(cover.weights, cover.sigmas, 1) + ridge * np.eye(cover.sigmas.shape[1])
    values, vectors = np.linalg.eigh(mixture)
    # The diagonal of V' sigma_i V over the eigenvalues: no inverse is formed.
    turned = np.einsum("ak,iab,bk->ik", vectors, cover.sigmas, vectors, optimize=True)
    safe = np.maximum(values, np.finfo(float).tiny)
    return Certificate(cover.weights, (turned / safe).sum(axis=1), float(np.log(safe).sum()))
