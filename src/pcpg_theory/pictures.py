"""Pictures of the theory's examples; matplotlib is imported when one is drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pcpg.config import Json
from pcpg.reports.figures import write_figure
from pcpg_theory.mdp import Array
from pcpg_theory.tabular import TheoryRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"PC-PG": "#1b6ca8", "FQI": "#d1495b", "LSVI-UCB": "#edae49", "one-hot": "#8d99ae", "truth": "#2b2d42"}


def _figure(columns: int, width: float = 4.6, height: float = 3.6) -> tuple["Figure", np.ndarray]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height), layout="constrained")
    FigureCanvasAgg(figure)  # no display, no global state
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_run(rounds: Sequence[Json], optimal: float, path: Path) -> None:
    """Draw value, escape probability and information gain over the rounds of a run, and save the picture."""
    figure, axes = _figure(3)
    n = [one["n"] + 1 for one in rounds]
    lines = (
        ("value", "value of policy n (exact)"),
        ("escape", "probability of an unknown pair"),
        ("information_gain", "information gain of the cover (nats)"),
    )
    for axis, (key, title) in zip(axes, lines, strict=True):
        axis.plot(n, [one[key] for one in rounds], color=COLOURS["PC-PG"], marker="o", markersize=3)
        axis.set(title=title, xlabel="round n", ylim=(0, None))
    axes[0].axhline(optimal, color=COLOURS["truth"], linestyle="--", linewidth=1)
    axes[0].annotate("optimal", (n[0], optimal), xytext=(0, -11), textcoords="offset points", color=COLOURS["truth"])
    write_figure(figure, path, dpi=150)


def draw_tree(rows: Sequence[Json], path: Path) -> None:
    """Draw, for each set of features, what each method believes R is worth, and what its policy is worth."""
    figure, (left, right) = _figure(2, width=5.6, height=4.0)
    kinds = list(dict.fromkeys(row["features"] for row in rows))
    methods = ("FQI", "LSVI-UCB", "PC-PG")
    for i, method in enumerate(methods):
        for k, kind in enumerate(kinds):
            chosen = [row for row in rows if row["features"] == kind]
            spots = k + 0.25 * (i - 1) + np.linspace(-0.06, 0.06, len(chosen))
            label = method if k == 0 else None
            style = {"color": COLOURS[method], "s": 28, "label": label, "alpha": 0.85}
            left.scatter(spots, [max(row["believed"][method], 2e-3) for row in chosen], **style)
            right.scatter(spots, [row["value"][method] for row in chosen], **style)
    left.set_yscale("log")
    left.set(title="value of R at $s_0$ as each method believes", ylabel="believed Q(s0, R), log scale")
    right.set(title="true value of the returned policy", ylim=(0, 0.56))
    for axis in (left, right):
        axis.axhline(0.5, color=COLOURS["truth"], linewidth=1, linestyle="--")
        axis.set_xticks(range(len(kinds)), kinds)
    left.annotate("value of L: 1/2", (-0.4, 0.5), xytext=(0, 4), textcoords="offset points", fontsize=9)
    right.legend(frameon=False, loc="lower left")
    write_figure(figure, path, dpi=150)


def draw_aggregation(off: Sequence[Json], on: Sequence[Json], path: Path) -> None:
    """Draw the loss against the comparator as the misspecification grows, off its path and on it."""
    figure, axes = _figure(2, width=5.4, height=4.0)
    titles = ("misspecification off the comparator's path", "misspecification on it")
    for axis, rows, title in zip(axes, (off, on), titles, strict=True):
        x = [row["eps_max"] for row in rows]
        for method, marker, size in (("FQI", "s", 9), ("LSVI-UCB", "^", 7), ("PC-PG", "o", 4)):
            axis.plot(
                x,
                [row["gap"][method] for row in rows],
                marker=marker,
                markersize=size,
                color=COLOURS[method],
                label=method,
            )
        axis.set(
            title=title, xlabel="largest misspecification of an abstract state", ylabel="loss against the comparator"
        )
    axes[0].legend(frameon=False)
    axes[0].annotate(
        "theorem: PC-PG loses at most eps + 0", (0.0, 0.0), xytext=(4, 8), textcoords="offset points", fontsize=9
    )
    write_figure(figure, path, dpi=150)


def draw_kernel(
    x: Array, runs: dict[str, TheoryRun], values: dict[str, list[float]], optimal: float, path: Path
) -> None:
    """Plot the visits of each policy of the cover, and value, unknown pairs and information gain over rounds."""
    figure, axes = _figure(4, width=4.0)
    visits = runs["kernel"].cover.visits.sum(-1)
    image = axes[0].imshow(
        np.log10(np.maximum(visits, 1e-4)),
        aspect="auto",
        origin="lower",
        cmap="Blues",
        extent=(x[0], x[-1], -0.5, len(visits) - 0.5),
    )
    axes[0].set(title="visits of policy n (kernel)", xlabel="position x", ylabel="n")
    figure.colorbar(image, ax=axes[0], label="log10 occupancy")
    pairs = runs["kernel"].pi.size
    for name, run in runs.items():
        colour = COLOURS["PC-PG"] if name == "kernel" else COLOURS["one-hot"]
        n = np.arange(1, len(run.rounds) + 1)
        axes[1].plot(n, values[name], marker="o", markersize=3, color=colour, label=name)
        axes[2].plot(n, pairs - np.array(run.known), marker="o", markersize=3, color=colour, label=name)
        axes[3].plot(n, run.gains, marker="o", markersize=3, color=colour, label=name)
    axes[1].axhline(optimal, color=COLOURS["truth"], linestyle="--", linewidth=1)
    axes[1].set(title="value of policy n (exact)", xlabel="n", ylim=(0, None))
    axes[2].set(title="unknown pairs", xlabel="n", ylim=(0, None))
    axes[3].set(title="information gain (nats)", xlabel="n", ylim=(0, None))
    axes[2].legend(frameon=False)
    write_figure(figure, path, dpi=150)
