"""Figures: the charts of the page as SVG, in the colours of the page, light or dark, and its letters.

Each chart of the page comes with a text that says what can be seen.
"""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pcpg.reports.read import RunData
from pcpg.reports.statistics import Certificate, Curve, end_of_exploration
from pcpg.reports.text import number, run_labels, seeds_text, steps_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Placeholders for the colours of the page's style sheet; no chart really uses them.
INK, FAINT = "#010203", "#040506"
WIDTH = 3.9
"""Inches, of every chart: narrow, so that its letters can be read on a phone."""

PLAIN: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "pcpg",  # the same picture, the same file
    "svg.fonttype": "none",
}
"""The style of every figure."""

PAGE: dict[Any, Any] = PLAIN | {
    "font.size": 8.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.5,
    "grid.color": FAINT,
    "text.parse_math": False,  # a dollar in the name of a folder is a dollar
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}
"""The style of the charts of a page."""


class Style(NamedTuple):
    """The style of one of several curves, distinguished by dashes and markers as well as colour."""

    color: str
    ls: Any
    marker: str


STYLES = (
    Style("#1b6ca8", "-", "o"),
    Style("#d1495b", "--", "s"),
    Style("#5f6b6d", ":", "^"),
    Style("#9a6700", "-.", "D"),
    Style("#2e7d4f", (0, (5, 1, 1, 1, 1, 1)), "v"),
    Style("#7b4fb5", (0, (1, 1)), "P"),
)
_THEMED = {INK: "currentColor", FAINT: "var(--faint)"}
_THEMED |= {style.color: f"var(--series-{index})" for index, style in enumerate(STYLES)}


class Figure(NamedTuple):
    """A picture of the page: its markup, which holds a text for those who cannot see it, and its caption."""

    markup: str
    caption: str


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw charts of the page in here."""
    import matplotlib

    with matplotlib.rc_context(PAGE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the letters are those of the reader's browser
        yield


def new_chart(height: float = 2.45, **options: Any) -> tuple[Any, Any]:
    """A figure of the page, drawn without a screen, and its axis or axes."""
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(**options)


def to_svg(figure: Any, name: str, alt: str) -> str:
    """The figure as an SVG element with `alt` for its text; ids begin with `name`, one for each figure of a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px", text)
    for colour, themed in _THEMED.items():
        text = text.replace(colour, themed)
    view = re.search(r'viewBox="[^"]+"', text)
    head = f'<svg {view[0] if view else ""} role="img" aria-label="{escape(alt)}" class="chart">'
    return head + text[text.index(">") + 1 :].rstrip()


Range = tuple[float, float] | None
"""Of an axis; None: what the numbers need."""


def new_figure(rows: int, columns: int, *, width: float, height: float, **options: Any) -> tuple["Canvas", np.ndarray]:
    """A figure and its axes [rows][columns], drawn without a screen."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    matplotlib.rcParams.update(PLAIN)
    figure = Canvas(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


# the page


def curve_chart(
    name: str,
    curves: list[Curve],
    styles: list[int],
    label: str,
    caption: str,
    *,
    limits: Range = None,
    met: Sequence[float | None] = (),
) -> Figure:
    """Curves of several runs with their intervals, told apart by colour, dashes and markers.

    `met` has for each the steps after which its reward was first met.
    """
    figure, axis = new_chart()
    ends: list[str] = []
    labels = run_labels([curve.run for curve in curves])
    for curve, index, title in zip(curves, styles, labels, strict=True):
        style, band, seeds = STYLES[index % len(STYLES)], curve.band, seeds_text(curve.num_seeds)
        every = max(1, len(curve.steps) // 8)
        marks = {"ms": 3.2, "markevery": (index * every // 4, every)}
        axis.plot(curve.steps, band.value, lw=1.4, label=f"{title}, {seeds}", **marks, **style._asdict())
        axis.fill_between(curve.steps, band.low, band.high, color=style.color, alpha=0.18, lw=0)
        ends.append(
            f"{title} ({seeds}) goes from {number(band.value[0])} to {number(band.value[-1])} "
            f"[{number(band.low[-1])}, {number(band.high[-1])}] at {steps_text(curve.steps[-1])} steps"
        )
        over = end_of_exploration(curve.run)
        if over is not None:
            axis.axvline(over, color=style.color, lw=0.8, ls=(0, (2, 2)), alpha=0.8)
            place = axis.get_xaxis_transform()
            side = "right" if over > curve.steps[-1] / 2 else "left"
            said = {"fontsize": 6.5, "color": style.color, "va": "bottom", "ha": side}
            axis.text(over, 1.0, " exploration ends ", transform=place, **said)
    for steps, index in zip(met, styles, strict=False):
        if steps is not None:
            color = STYLES[index % len(STYLES)].color
            axis.axvline(steps, color=color, lw=0.8, ls=(0, (1, 2)), alpha=0.8)
            place = axis.get_xaxis_transform()
            axis.text(
                steps, 0.97, "reward first met ", transform=place, fontsize=6.5, color=color, va="top", rotation=90
            )
            ends.append(f"the reward was first met after {steps_text(steps)} steps")
    axis.set(xlabel="environment steps per seed, including roll-ins", ylabel=label, ylim=limits)
    axis.locator_params(axis="x", nbins=6)
    axis.xaxis.set_major_formatter(lambda value, _: steps_text(value))
    axis.legend(loc="best")
    alt = f"Line chart of {label} against environment steps. {'; '.join(ends)}."
    return Figure(to_svg(figure, name, alt), caption)


def weights_chart(name: str, certificate: Certificate) -> Figure:
    """The weight of each policy of a cover, and below it the gain of more weight on it."""
    weights, gains = certificate.weights, certificate.gains
    places, has = np.arange(len(weights)), weights > 0
    figure, (top, bottom) = new_chart(3.0, nrows=2, sharex=True, height_ratios=[3, 2])
    top.bar(places, weights, color=STYLES[0].color, width=0.75)
    top.set_ylabel("weight")
    bottom.axhline(certificate.level, color=INK, lw=0.8, ls="--", label="weighted mean")
    for some, style, fill, label in ((has, STYLES[0], None, "with weight"), (~has, STYLES[2], "none", "without")):
        bottom.plot(places[some], gains[some], "o", ms=4, mfc=fill, color=style.color, label=label)
    bottom.set_ylim(0, max(certificate.level, gains.max()) * 1.3)
    bottom.set_ylabel("gain g")
    top.grid(axis="x", visible=False)
    _count(bottom, "policy of the cover, in order of addition")
    bottom.legend(loc="lower center", ncols=3, columnspacing=1.2, handlelength=1.4)
    heavy = np.argsort(-weights, kind="stable")[:3]
    listed = ", ".join(f"policy {i} has {weights[i]:.2f}" for i in heavy)
    alt = (
        f"Bar chart of the weights of {len(weights)} policies: {listed}. Below it, the gain of each policy: the "
        f"largest is {number(gains.max())}, their weighted mean {number(certificate.level)}."
    )
    return Figure(
        to_svg(figure, name, alt),
        "Top: mixture weights of the cover. Bottom: the gain g, the rate at which the log-determinant grows with a "
        "policy's weight. At the optimum no policy lies above the weighted mean, and policies with weight lie on it.",
    )


def growth_chart(name: str, run: RunData) -> Figure | None:
    """Log-determinant of the cover by its number of policies, one line per seed."""
    figure, axis = new_chart(2.1)
    last: list[str] = []
    for index, (seed, records) in enumerate(run.records.items()):
        points = [(r["policies"], r["log_det"]) for r in records if r.get("log_det") is not None]
        if not points:
            continue
        sizes, values = np.array(points, float).T
        axis.plot(sizes, values, ms=3, lw=1.1, label=f"seed {seed}", **STYLES[index % len(STYLES)]._asdict())
        last.append(f"seed {seed} from {number(values[0])} to {number(values[-1])} with {int(sizes[-1])} policies")
    if not last:
        return None
    axis.set_ylabel("log det of the mixture")
    _count(axis, "policies in the cover", grid=True)
    if len(last) <= 8:
        axis.legend(ncols=2)
    alt = f"Line chart of the log-determinant of the cover's best mixture: {'; '.join(last[:4])}."
    caption = "How much of the feature space the cover spans, in nats. Exploration ends when it stops growing."
    return Figure(to_svg(figure, name, alt), caption)


def _count(axis: Any, label: str, *, grid: bool = False) -> None:
    """Let the x axis count things."""
    axis.set_xlabel(label)
    axis.grid(axis="x", visible=grid)
    axis.xaxis.get_major_locator().set_params(integer=True)
