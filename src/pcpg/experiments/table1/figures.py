"""The figures of the table: samples against size and regret in small panels, loss against error, values on the tree."""

from pathlib import Path
from typing import Any

from pcpg.experiments.harness import Record
from pcpg.experiments.table1.measures import METHODS
from pcpg.experiments.table1.problems import TREE_KINDS
from pcpg.experiments.table1.settings import FAMILIES, SIZE_NAMES
from pcpg.experiments.table1.table import name_of
from pcpg.reports.figures import new_figure, save

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


def _styles(algos: Record) -> dict[str, dict[str, Any]]:
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


def _panels(summary: Record, width: float) -> tuple[Any, Any, dict[str, list[str]]]:
    """A panel for each problem and family of algorithms that has one, and which algorithms each column has."""
    algos = {algo: found for algo, found in summary["algos"].items() if found["exploration"]}
    columns = {name: [a for a, f in algos.items() if f["row"] in rows] for name, rows in GROUPS.items()}
    columns = {name: members for name, members in columns.items() if members}
    size = {"width": width, "height": 2.1 * len(FAMILIES) + 0.6}
    figure, axes = new_figure(len(FAMILIES), max(len(columns), 1), sharey="row", sharex="row", **size)
    return figure, axes, columns


LINES = ("#1b6ca8", "#d1495b", "#2a7f62", "#e09f3e", "#6a4c93", "#3c3c3c")


def samples_against_size(summary: Record) -> Any:
    """Median samples to epsilon against the size, by problem and family of algorithms; dotted: the budget."""
    if not any(found["exploration"] for found in summary["algos"].values()):
        return None
    figure, axes, columns = _panels(summary, 12.5)
    for row, family in enumerate(FAMILIES):
        for column, (group, members) in enumerate(columns.items()):
            axis = axes[row][column]
            for algo, colour, marker in zip(members, LINES * 3, MARKERS * 3, strict=False):
                found = summary["algos"][algo]
                points = found["exploration"].get(family, {"points": []})["points"]
                sizes = [point["size"] for point in points]
                style = {"color": colour, "marker": marker, "ms": 3.5, "lw": 1.3, "label": name_of(algo, found)}
                axis.plot(sizes, [point["median"] or float("nan") for point in points], **style)
                low, high = (
                    [(point[key] or point["budget"]) if point["median"] else float("nan") for point in points]
                    for key in ("low", "high")
                )
                axis.fill_between(sizes, low, high, color=colour, alpha=0.1, lw=0)
            _finish(axis, summary, family, row, column, group)
            axis.axhline(summary["protocol"]["budget"], color="black", lw=0.6, ls=":")
        axes[row][0].set_ylabel(f"{family}: samples")
    return figure


def _finish(axis: Any, summary: Record, family: Any, row: int, column: int, group: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = summary["protocol"]["sizes"][family]
    axis.set_xticks(ticks, [str(size) for size in ticks])
    axis.minorticks_off()
    axis.set_xlabel(SIZE_NAMES[family], fontsize=7)
    if row == 0:
        axis.set_title(group, fontsize=9)
        axis.legend(frameon=False, fontsize=6)


def regret_against_samples(summary: Record) -> Any:
    """Regret at the largest size reached, in episodes of uniform play's loss, against samples."""
    if not any(found["exploration"] for found in summary["algos"].values()):
        return None
    figure, axes, columns = _panels(summary, 12.5)
    for row, family in enumerate(FAMILIES):
        for column, (group, members) in enumerate(columns.items()):
            axis = axes[row][column]
            for algo, colour in zip(members, LINES * 3, strict=False):
                found = summary["algos"][algo]
                curve = found["exploration"].get(family, {}).get("regret")
                if curve is not None:
                    label = f"{name_of(algo, found)}, {curve['size']}"
                    axis.plot(curve["samples"], curve["regret"], color=colour, lw=1.3, label=label)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.legend(frameon=False, fontsize=5.5)
            if row == 0:
                axis.set_title(group, fontsize=9)
            if row == len(FAMILIES) - 1:
                axis.set_xlabel("samples", fontsize=7)
        axes[row][0].set_ylabel(f"{family}: regret")
    return figure


def loss_against_error(summary: Record) -> Any:
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
        axis.set_title(title)
        axis.set_xlabel("error of the aggregation, kappa")
    axes[0][0].set_ylabel("final loss (the optimum is 1)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=6.5)
    return figure


def values_on_trees(summary: Record) -> Any:
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
        axis.set_title(f"{kind} features")
        axis.set_xlabel("depth")
    axes[0][0].set_ylabel("value reached; left is worth 1/2")
    axes[0][0].legend(frameon=False, fontsize=7)
    return figure
