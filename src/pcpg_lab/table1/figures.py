"""The figures of the table: samples against size and regret in small panels, loss against error, values on the tree."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pcpg.reports.figures import new_figure
from pcpg_lab.claims.records import Record, save
from pcpg_lab.table1.measures import METHODS
from pcpg_lab.table1.problems import TREE_KINDS
from pcpg_lab.table1.settings import FAMILIES, SIZE_NAMES, Family
from pcpg_lab.table1.table import name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "model-based": "#2a7f62",
    "Thompson sampling": "#6a4c93",
    "epsilon-greedy": "#8d99ae",
    "optimistic Q-learning": "#e09f3e",
    "policy optimisation": "#d1495b",
    "optimistic policy optimisation": "#b5651d",
    "PC-PG": "#1b6ca8",
    "linear": "#3c3c3c",
    "policy search with restarts": "#d88c9a",
    "own": "#000000",
}
MARKERS = "osD^v<"


def draw_all(summary: Record, out: Path) -> list[Path]:
    """Draw every figure for which there are numbers; the files written."""
    paths = []
    drawn = (samples_against_size, regret_against_samples, loss_against_error, values_on_trees)
    for draw, name in zip(drawn, ("samples", "regret", "loss", "tree"), strict=True):
        figure = draw(summary)
        if figure is not None:
            paths += save(figure, out / name)
    return paths


def _styles(algos: Record) -> dict[str, dict[str, object]]:
    """Colour by row of the table and marker by place in the row."""
    counts: dict[str, int] = {}
    styles = {}
    for algo, found in algos.items():
        place = counts[found["row"]] = counts.get(found["row"], -1) + 1
        styles[algo] = {
            "color": COLOURS[found["row"]],
            "marker": MARKERS[place % len(MARKERS)],
            "lw": 2.2 if found["row"] == "PC-PG" else 0.9,
            "ms": 3.5,
            "label": name_of(algo, found),
        }
    return styles


GROUPS: dict[str, tuple[str, ...]] = {
    "model-based": ("model-based",),
    "Thompson sampling": ("Thompson sampling",),
    "optimistic Q-learning": ("optimistic Q-learning",),
    "optimistic policies": ("optimistic policy optimisation", "PC-PG", "linear"),
    "do not explore": ("epsilon-greedy", "policy optimisation", "policy search with restarts"),
    "own": ("own",),
}
"""Families of algorithms, a column of panels each."""


LINES = ("#1b6ca8", "#d1495b", "#2a7f62", "#e09f3e", "#6a4c93", "#3c3c3c")
Draw = Callable[["Axes", Family, list[tuple[str, Record, str, str]]], None]
"""Draws into an axis, of a problem, the name, the numbers, the colour and the marker of each algorithm."""


def _panels(summary: Record, what: str, draw: Draw) -> "Figure | None":
    """A panel for each problem and family of algorithms that has one; None where nothing was measured."""
    algos = {algo: found for algo, found in summary["algos"].items() if found["exploration"]}
    if not algos:
        return None
    columns = {name: [a for a, found in algos.items() if found["row"] in rows] for name, rows in GROUPS.items()}
    columns = {name: members for name, members in columns.items() if members}
    size = {"width": 12.5, "height": 2.1 * len(FAMILIES) + 0.6}
    figure, axes = new_figure(len(FAMILIES), len(columns), sharey="row", sharex="row", **size)
    for row, family in enumerate(FAMILIES):
        for axis, (group, members) in zip(axes[row], columns.items(), strict=True):
            found = [(name_of(algo, algos[algo]), algos[algo]["exploration"].get(family, {})) for algo in members]
            draw(
                axis,
                family,
                [(*one, *style) for one, style in zip(found, zip(LINES * 3, MARKERS * 3, strict=True), strict=False)],
            )
            if row == 0:
                axis.set_title(group, fontsize=9)
        axes[row][0].set_ylabel(f"{family}: {what}")
    return figure


def samples_against_size(summary: Record) -> "Figure | None":
    """Median samples to epsilon against the size, by problem and family of algorithms; dotted: their budgets."""

    def draw(axis: "Axes", family: Family, members: list[tuple[str, Record, str, str]]) -> None:
        for label, found, colour, marker in members:
            points = found.get("points", [])
            sizes = [point["size"] for point in points]
            medians = [point["median"] or float("nan") for point in points]
            axis.plot(sizes, medians, color=colour, marker=marker, ms=3.5, lw=1.3, label=label)
            low, high = (
                [(point[key] or point["budget"]) if point["median"] else float("nan") for point in points]
                for key in ("low", "high")
            )
            axis.fill_between(sizes, low, high, color=colour, alpha=0.1, lw=0)
        axis.set(xscale="log", yscale="log")
        ticks = summary["protocol"]["sizes"][family]
        axis.set_xticks(ticks, [str(size) for size in ticks])
        axis.minorticks_off()
        axis.set_xlabel(SIZE_NAMES[family], fontsize=7)
        if family == FAMILIES[0]:
            axis.legend(frameon=False, fontsize=6)
        for budget in {point["budget"] for _, found, _, _ in members for point in found.get("points", [])}:
            axis.axhline(budget, color="black", lw=0.6, ls=":")

    return _panels(summary, "samples", draw)


def regret_against_samples(summary: Record) -> "Figure | None":
    """Regret at the largest size reached, in episodes of uniform play's loss, against samples."""

    def draw(axis: "Axes", family: Family, members: list[tuple[str, Record, str, str]]) -> None:
        for label, found, colour, _ in members:
            if (curve := found.get("regret")) is not None:
                axis.plot(curve["samples"], curve["regret"], color=colour, lw=1.3, label=f"{label}, {curve['size']}")
        axis.set(xscale="log", yscale="log")
        axis.legend(frameon=False, fontsize=5.5)
        if family == FAMILIES[-1]:
            axis.set_xlabel("samples", fontsize=7)

    return _panels(summary, "regret", draw)


def loss_against_error(summary: Record) -> "Figure | None":
    """Final loss against the error of the aggregation, off the path in two problems and on it in one."""
    algos = {algo: found for algo, found in summary["algos"].items() if found["misspecification"]}
    if not algos:
        return None
    titles = {"mix": "off the path: mix", "wait": "off the path: wait", "local": "on the path"}
    figure, axes = new_figure(1, len(titles), width=10.5, height=3.8)
    styles = _styles(algos)
    for axis, (problem, title) in zip(axes[0], titles.items(), strict=True):
        for algo, found in algos.items():
            rows = found["misspecification"].get(problem, [])
            kappas, losses = [row["kappa"] for row in rows], [row["loss"] for row in rows]
            axis.errorbar(kappas, losses, yerr=[2.0 * row["error"] for row in rows], capsize=1.5, **styles[algo])
        axis.set(title=title, xlabel="error of the aggregation, kappa")
    axes[0][0].set_ylabel("final loss (the optimum is 1)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=6.5)
    return figure


def values_on_trees(summary: Record) -> "Figure | None":
    """Value reached on trees of growing depth, a panel for each kind of features."""
    if not summary["trees"]:
        return None
    figure, axes = new_figure(1, len(TREE_KINDS), width=7.5, height=2.6, sharey=True)
    for axis, kind in zip(axes[0], TREE_KINDS, strict=True):
        rows = [row for row in summary["trees"] if row["features"] == kind]
        for method, colour, style in zip(METHODS, ("#d1495b", "#3c3c3c", "#1b6ca8"), ("--", ":", "-"), strict=True):
            depths, values = [row["depth"] for row in rows], [row["value"][method] for row in rows]
            axis.plot(depths, values, color=colour, ls=style, marker="o", ms=3, label=method)
            axis.fill_between(depths, [row["least"][method] for row in rows], values, color=colour, alpha=0.12, lw=0)
        axis.axhline(0.5, color="black", lw=0.6)
        axis.set(title=f"{kind} features", xlabel="depth")
    axes[0][0].set_ylabel("value reached; left is worth 1/2")
    axes[0][0].legend(frameon=False, fontsize=7)
    return figure
