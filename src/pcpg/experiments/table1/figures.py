"""The figures of the table: samples against size, loss against error, values on the tree."""

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
}
MARKERS = "osD^v<"


def draw_all(summary: Record, out: Path) -> list[Path]:
    """Draw every figure for which there are numbers; the files written."""
    paths = []
    for draw, name in ((samples_against_size, "samples"), (loss_against_error, "loss"), (values_on_trees, "tree")):
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


def samples_against_size(summary: Record) -> Any:
    """Median samples to epsilon with the central 80% of seeds, log-log; a point on the dotted line is the budget."""
    algos = {algo: found for algo, found in summary["algos"].items() if found["exploration"]}
    if not algos:
        return None
    figure, axes = new_figure(1, len(FAMILIES), width=10.5, height=4.4, sharey=True)
    styles, budget = _styles(algos), summary["protocol"]["budget"]
    for axis, family in zip(axes[0], FAMILIES, strict=True):
        for algo, found in algos.items():
            points = found["exploration"].get(family, {"points": []})["points"]
            sizes = [point["size"] for point in points]
            median, low, high = ([point[key] or budget for point in points] for key in ("median", "low", "high"))
            axis.plot(sizes, median, **styles[algo])
            axis.fill_between(sizes, low, high, color=styles[algo]["color"], alpha=0.05, lw=0)
        axis.axhline(budget, color="black", lw=0.6, ls=":")
        axis.set_xscale("log")
        axis.set_yscale("log")
        ticks = summary["protocol"]["sizes"][family]
        axis.set_xticks(ticks, [str(size) for size in ticks])
        axis.minorticks_off()
        axis.set_title(family)
        axis.set_xlabel(SIZE_NAMES[family])
    axes[0][0].set_ylabel("samples until the policy stays eps-optimal")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=6.5)
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
