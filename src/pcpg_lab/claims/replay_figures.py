"""Figures of PC-PG with kept data on the locks, compared with the paper's PC-PG."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pcpg.reports.figures import new_figure
from pcpg.runs.documents import read_object
from pcpg_lab.claims.records import Figures, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT, FORGOTTEN = "#2a9d5c", "#1b6ca8"
SOLVED = 3.5
LOCK_CELLS = Path("results/lock/cells")
"""Where `pcpg reproduce lock` keeps its records."""


def figures_of(locks: list[Record]) -> Figures:
    """Growth of the steps with the horizon, and the share of seeds solved against steps."""
    if len(locks) < 3:
        return
    others = {int(record["horizon"]): record for record in on_policy()}
    yield "growth", _growth(locks, others)
    both = [record for record in locks if record["options"]["horizon"] in others]
    if both:
        yield "solved", _solved(both, others)


def on_policy() -> list[Record]:
    """The records of PC-PG without kept data on its own budget, where `pcpg reproduce lock` has left them."""
    found = [read_object(path) for path in sorted(LOCK_CELLS.glob("pcpg-H*-own.json"))]
    return [record.get("content", record) for record in found]


def _growth(locks: list[Record], others: dict[int, Record]) -> "Figure":
    figure, axes = new_figure(1, 1, width=4.2, height=2.8)
    axis = axes[0][0]
    horizon = np.array([record["options"]["horizon"] for record in locks for _ in record["env_steps"]], float)
    steps = np.array([value for record in locks for value in record["env_steps"]], float)
    slope, at = np.polyfit(np.log(horizon), np.log(steps), 1)
    low, high = slope_interval(horizon, steps)
    axis.scatter(horizon, steps, s=6, color=KEPT, alpha=0.5, label="PC-PG that keeps its data, one seed")
    line = np.array(sorted(set(horizon)))
    label = f"$H^{{{slope:.2f}}}$ [{low:.2f}, {high:.2f}]"
    axis.plot(line, np.exp(at) * line**slope, color=KEPT, lw=1, label=label)
    known = {level: max(record["env_steps"]) for level, record in sorted(others.items()) if _share(record) > 0}
    if known:
        axis.scatter(*zip(*known.items(), strict=True), s=14, marker="s", color=FORGOTTEN, label="PC-PG, most steps")
    axis.set(xscale="log", yscale="log")
    ticks = sorted({*known, *line.astype(int).tolist()})
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set(xlabel="horizon H of the lock", ylabel="environment steps per seed")
    axis.legend(fontsize=6.5, frameon=False)
    return figure


def _solved(locks: list[Record], others: dict[int, Record]) -> "Figure":
    """Of PC-PG that keeps its data a seed counts at its end, of the other from its first evaluation above SOLVED on."""
    figure, axes = new_figure(1, len(locks), width=1.75 * len(locks), height=2.2)
    for axis, record in zip(axes[0], locks, strict=True):
        horizon = int(record["options"]["horizon"])
        ours = [
            steps if value > SOLVED else np.inf
            for value, steps in zip(record["final_return"], record["env_steps"], strict=True)
        ]
        theirs = [first_success(rows) for rows in others[horizon]["history"].values()]
        for steps, color, label in (
            (ours, KEPT, "PC-PG that keeps its data"),
            (theirs, FORGOTTEN, "PC-PG as in the paper"),
        ):
            steps = np.sort(steps)
            axis.step([1e3, *steps], [0.0, *np.arange(1, len(steps) + 1) / len(steps)], where="post", color=color)
            axis.plot([], [], color=color, label=label)
        axis.set(xscale="log", xlim=(1e3, 1e8), ylim=(0.0, 1.05))
        axis.set_title(f"H = {horizon}", fontsize=8)
        axis.set_xlabel("steps per seed")
    axes[0][0].set_ylabel("share of seeds solved")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=7
    )
    return figure


def first_success(rows: list[list[float]]) -> float:
    """Steps at the first evaluation above SOLVED; infinite where there is none."""
    return next((float(row[0]) for row in rows if row[1] is not None and row[1] > SOLVED), np.inf)


def _share(record: Record) -> float:
    return float(np.mean(np.array(record["final_return"]) > SOLVED))


def slope_interval(horizon: np.ndarray, steps: np.ndarray, draws: int = 2000) -> tuple[float, float]:
    """95% interval of the exponent: seeds drawn again at each horizon, 2,000 times."""
    rng, levels = np.random.default_rng(0), [np.flatnonzero(horizon == value) for value in np.unique(horizon)]
    slopes = []
    for _ in range(draws):
        some = np.concatenate([rng.choice(level, len(level)) for level in levels])
        slopes.append(np.polyfit(np.log(horizon[some]), np.log(steps[some]), 1)[0])
    low, high = np.quantile(slopes, [0.025, 0.975])
    return float(low), float(high)
