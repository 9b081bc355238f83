"""Values of a metric against environment steps: one curve for each run, with an interval over its seeds."""

from typing import NamedTuple

import numpy as np

from pcpg.reports.reading import RunData
from pcpg.reports.statistics import Band, bootstrap, wilson

POINTS = 160
"""Places of a curve at which the seeds are compared."""


class Curve(NamedTuple):
    """A metric of a run over its seeds, at common numbers of steps."""

    run: RunData
    steps: np.ndarray  # [points]
    band: Band
    num_seeds: int
    marks: np.ndarray  # steps at which reports were made, of the first seed: where markers go


def value_at(rows: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The newest value of a history [points, 2] at each number of steps; the first one before it."""
    index = np.searchsorted(rows[:, 0], grid, side="right") - 1
    return rows[np.maximum(index, 0), 1]


def common_grid(histories: list[np.ndarray]) -> np.ndarray:
    """Steps from where every seed has a value to where the last one ends; a seed that is done keeps its last value."""
    first, last = max(rows[0, 0] for rows in histories), max(rows[-1, 0] for rows in histories)
    return np.linspace(first, last, POINTS) if last > first else np.array([last])


def iqm_curve(run: RunData, name: str) -> Curve | None:
    """Interquartile mean over the seeds with its bootstrap interval; None where no seed has the metric."""
    histories = run.history(name)
    if not histories:
        return None
    grid = common_grid(histories)
    values = np.stack([value_at(rows, grid) for rows in histories])
    return Curve(run, grid, bootstrap([values]), len(histories), histories[0][:, 0])


def success_curve(run: RunData, threshold: float) -> Curve | None:
    """Share of the seeds whose newest policy is above the threshold, with its Wilson interval."""
    histories = run.history("return")
    if not histories:
        return None
    grid = common_grid(histories)
    solved = np.sum([value_at(rows, grid) > threshold for rows in histories], axis=0)
    intervals = [wilson(int(count), len(histories)) for count in solved]
    band = Band(*(np.array(part) for part in zip(*intervals, strict=True)))
    return Curve(run, grid, band, len(histories), histories[0][:, 0])


def end_of_exploration(run: RunData) -> float | None:
    """Steps at which the median seed had its cover; None where exploring is not a phase of its own or not over."""
    ends = []
    for records in run.records.values():
        explored = [record["env_steps"] for record in records if record["phase"] == "explore"]
        if explored and len(explored) < len(records):
            ends.append(explored[-1])
    return float(np.median(ends)) if ends else None
