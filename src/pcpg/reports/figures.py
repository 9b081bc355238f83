"""Figures: those of the page, and how the figures of experiments look and are written.

Each figure of the page comes with a text that says what can be seen.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pcpg.reports.read import RunData
from pcpg.reports.statistics import Certificate, Curve, end_of_exploration
from pcpg.reports.svg import INK, STYLES, WIDTH, Figure, new_chart, to_svg
from pcpg.reports.text import number, run_labels, steps_text


def new_figure(rows: int, columns: int, *, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes [rows][columns], drawn without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style: dict[Any, Any] = {
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "pcpg",  # the same picture, the same file
        "svg.fonttype": "none",
    }
    matplotlib.rcParams.update(style)
    return plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **options)


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as STEM.png and STEM.svg and close it; the files."""
    import matplotlib.pyplot as plt

    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    figure.savefig(paths[0], dpi=160)
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


def label_steps(axis: Any) -> None:
    """Label the x axis of a plot in steps: 500k, 2M."""
    from matplotlib.ticker import EngFormatter

    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


# the page


def curve_chart(
    name: str, curves: list[Curve], styles: list[int], label: str, caption: str, *, limits: Any = None
) -> Figure:
    """Curves of several runs with their intervals, told apart by colour, dashes and markers."""
    figure, axis = new_chart()
    ends: list[str] = []
    labels = run_labels([curve.run for curve in curves])
    for curve, index, title in zip(curves, styles, labels, strict=True):
        style, band = STYLES[index % len(STYLES)], curve.band
        seeds = f"{curve.num_seeds} seed{'s' * (curve.num_seeds > 1)}"
        every = max(1, len(curve.steps) // 8)
        axis.plot(
            curve.steps,
            band.value,
            color=style.colour,
            ls=style.dashes,
            marker=style.marker,
            ms=3.2,
            lw=1.4,
            markevery=(index * every // 4, every),
            label=f"{title}, {seeds}",
        )
        axis.fill_between(curve.steps, band.low, band.high, color=style.colour, alpha=0.18, lw=0)
        ends.append(
            f"{title} ({seeds}) goes from {number(band.value[0])} to {number(band.value[-1])} "
            f"[{number(band.low[-1])}, {number(band.high[-1])}] at {steps_text(curve.steps[-1])} steps"
        )
        over = end_of_exploration(curve.run)
        if over is not None:
            axis.axvline(over, color=style.colour, lw=0.8, ls=(0, (2, 2)), alpha=0.8)
            place = axis.get_xaxis_transform()
            axis.text(over, 1.0, " cover complete", transform=place, fontsize=6.5, color=style.colour, va="bottom")
    axis.set_xlabel("environment steps per seed, roll-ins included")
    axis.set_ylabel(label)
    axis.set_ylim(limits)
    axis.locator_params(axis="x", nbins=6)
    axis.xaxis.set_major_formatter(lambda value, _: steps_text(value))
    axis.legend(loc="best")
    alt = f"Line chart of {label} against environment steps. {'; '.join(ends)}."
    return Figure(to_svg(figure, name, alt), caption)


def weights_chart(name: str, certificate: Certificate) -> Figure:
    """The weight of each policy of a cover, and below it the gain of more weight on it."""
    from matplotlib.figure import Figure as Canvas

    weights, gains = certificate.weights, certificate.gains
    count = len(weights)
    figure = Canvas(figsize=(WIDTH, 3.0), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    places = np.arange(count)
    top.bar(places, weights, color=STYLES[0].colour, width=0.75)
    if count <= 16:
        for place, weight in zip(places, weights, strict=True):
            top.text(
                place, weight, f"{weight:.2f}".lstrip("0") if weight else "0", ha="center", va="bottom", fontsize=6
            )
    top.set_ylabel("weight")
    top.grid(axis="x", visible=False)
    bottom.axhline(certificate.level, color=INK, lw=0.8, ls="--", label="weighted mean")
    has = weights > 0
    style = STYLES[0]
    bottom.plot(places[has], gains[has], ls="", marker="o", ms=4, color=style.colour, label="with weight")
    bottom.plot(places[~has], gains[~has], ls="", marker="o", ms=4, mfc="none", color=STYLES[2].colour, label="without")
    bottom.set_ylim(0, max(certificate.level, gains.max()) * 1.3)
    bottom.set_ylabel("gain g")
    bottom.set_xlabel("policy of the cover, in order of addition")
    bottom.grid(axis="x", visible=False)
    bottom.xaxis.get_major_locator().set_params(integer=True)
    bottom.legend(loc="lower center", ncols=3, columnspacing=1.2, handlelength=1.4)
    heavy = np.argsort(-weights, kind="stable")[:3]
    listed = ", ".join(f"policy {i} has {weights[i]:.2f}" for i in heavy)
    alt = (
        f"Bar chart of the weights of {count} policies: {listed}. Below it, the gain of each policy: the largest "
        f"is {number(gains.max())}, their weighted mean {number(certificate.level)}."
    )
    return Figure(
        to_svg(figure, name, alt),
        "Top: the cover's mixture weights. Bottom: the gain g, how fast the log-determinant would grow with more "
        "weight on a policy. At the optimum no policy lies above the weighted mean, and those with weight lie on it.",
    )


def timing_chart(name: str, run: RunData) -> Figure:
    """Seconds of each round."""
    figure, axis = new_chart(height=1.8)
    steps = np.array([record["step"] for record in run.timings])
    seconds = np.array([record["seconds"] for record in run.timings])
    axis.bar(steps, seconds, width=0.8, color=STYLES[0].colour)
    axis.set_xlabel("round")
    axis.set_ylabel("seconds")
    axis.grid(axis="x", visible=False)
    axis.xaxis.get_major_locator().set_params(integer=True)
    alt = (
        f"Bar chart of the seconds that each of {len(steps)} rounds took: median {number(np.median(seconds))}, "
        f"longest {number(seconds.max())}."
    )
    return Figure(to_svg(figure, name, alt), "Wall-clock time of each round, all seeds together, without compilation.")


def growth_chart(name: str, run: RunData) -> Figure | None:
    """Log-determinant of the cover by its number of policies, one line per seed."""
    figure, axis = new_chart(height=2.1)
    last: list[str] = []
    for index, (seed, records) in enumerate(run.records.items()):
        points = [(r["policies"], r["log_det"]) for r in records if r.get("log_det") is not None]
        if not points:
            continue
        style = STYLES[index % len(STYLES)]
        sizes, values = np.array(points, float).T
        axis.plot(
            sizes, values, color=style.colour, ls=style.dashes, marker=style.marker, ms=3, lw=1.1, label=f"seed {seed}"
        )
        last.append(f"seed {seed} from {number(values[0])} to {number(values[-1])} with {int(sizes[-1])} policies")
    if not last:
        return None
    axis.set_xlabel("policies in the cover")
    axis.set_ylabel("log det of the mixture")
    axis.xaxis.get_major_locator().set_params(integer=True)
    if len(last) <= 8:
        axis.legend(ncols=2)
    alt = f"Line chart of the log-determinant of the cover's best mixture: {'; '.join(last[:4])}."
    caption = "How much of the feature space the cover spans, in nats. Where it stops growing, exploration ends."
    return Figure(to_svg(figure, name, alt), caption)
