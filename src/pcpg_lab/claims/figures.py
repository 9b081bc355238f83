"""Pictures that more than one experiment draws: curves over seeds, and visits of the policies of a cover."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pcpg.algorithms import ALGORITHMS, Row
from pcpg.reports.figures import new_figure
from pcpg.reports.statistics import value_at
from pcpg_lab.claims.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curves(records: list[Record], column: int, label: str) -> "Figure":
    """A column of the histories against environment steps: mean over seeds, and one standard deviation."""
    figure, axes = new_figure(1, 1, width=4.2, height=2.8)
    axis = axes[0][0]
    for record in records:
        seeds = list(record["history"].values())
        first = max(rows[0][0] for rows in seeds)
        grid = np.linspace(first, max(record["env_steps"]), 200)
        values = np.stack([value_at(rows, grid, column) for rows in seeds])
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        look = look_of(record["algo"])
        axis.plot(
            grid, mean, color=look.colour, ls=look.line, label=f"{short_label(record['algo'])} ({len(seeds)} seeds)"
        )
        axis.fill_between(grid, mean - deviation, mean + deviation, color=look.colour, alpha=0.15, lw=0)
    axis.set(xlabel="environment steps per seed, roll-ins counted", ylabel=label)
    label_steps(axis)
    axis.legend(frameon=False, fontsize=7)
    return figure


def cover_pictures(record: Record, title: str, *, most: int = 7, columns: int = 4) -> "Figure":
    """Visits of the heaviest policies of a cover and of the weighted cover; NaN where there is nothing to visit."""
    counts, weights = np.array(record["cover"]["counts"], float), np.array(record["cover"]["weights"])
    closed = ~np.array(record["cover"]["reachable"], bool)
    shares = counts / np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1)
    heavy = sorted(np.argsort(-weights, kind="stable")[:most].tolist())
    pictures = [(f"policy {i}, weight {weights[i]:.2f}", shares[i]) for i in heavy]
    pictures.append(("weighted cover", np.tensordot(weights, shares, 1)))
    rows = -(-len(pictures) // columns)
    figure, axes = new_figure(rows, columns, width=1.7 * columns, height=1.8 * rows + 0.3)
    for axis in np.ravel(axes):
        axis.set_axis_off()
    for axis, (name, share) in zip(np.ravel(axes), pictures, strict=False):
        shown = np.where(closed, np.nan, np.sqrt(share))
        axis.imshow(shown, cmap=_colours(), vmin=0, origin=record["cover"]["origin"], aspect="equal")
        axis.set_title(name, fontsize=6)
    figure.suptitle(f"{title} (colour: square root of the share of visits)", fontsize=7)
    return figure


def _colours() -> Any:
    import matplotlib

    return matplotlib.colormaps["viridis"].with_extremes(bad="#333333")


def label_steps(axis: Any) -> None:
    """Label the x axis of a plot in steps: 500k, 2M."""
    from matplotlib.ticker import EngFormatter

    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def short_label(algo: str) -> str:
    """The name in tables that compare algorithms: PC-PG for all of its versions."""
    return ALGORITHMS[algo].label.partition(" (")[0]


def look_of(algo: str) -> Row:
    """The colour and the line of an algorithm's curves."""
    return ALGORITHMS[algo]
