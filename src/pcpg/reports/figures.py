"""Figures: the charts of the page as SVG, in its colours, light or dark, and its font.

Each chart has a text alternative.
"""

import base64
import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pcpg.reports.read import RunData
from pcpg.reports.statistics import Certificate, Curve, end_of_exploration
from pcpg.reports.text import number, run_labels, seeds_text, steps_text
from pcpg.runs.disk import make_folder, write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Placeholders, replaced by the colours of the page's style sheet.
INK, FAINT = "#010203", "#040506"
WIDTH = 3.9
"""Width of every chart in inches: narrow enough to read on a phone."""

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
    """A picture of the page: its markup, including the text alternative, and its caption."""

    markup: str
    caption: str


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Inside, charts are drawn in the style of the page."""
    import matplotlib

    with matplotlib.rc_context(PAGE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser chooses the font
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
"""Limits of an axis; None: from the data."""


def new_figure(rows: int, columns: int, *, width: float, height: float, **options: Any) -> tuple["Canvas", np.ndarray]:
    """A figure and its axes [rows][columns], drawn without a screen."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    matplotlib.rcParams.update(PLAIN)
    figure = Canvas(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


# the page


def write_figure(
    figure: "Canvas", path: Path, dpi: int | None = None, metadata: dict[str, str | None] | None = None
) -> None:
    """Write a picture, whole or not at all, and through no link."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], dpi=dpi or "figure", metadata=metadata)
    make_folder(path.parent)
    write_file(path, buffer.getvalue())


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

    `met`: for each run, the steps after which its reward was first met.
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
    rolled = ", including roll-ins" if any(curve.run.covers for curve in curves) else ""
    axis.set(xlabel=f"environment steps per seed{rolled}", ylabel=label, ylim=limits)
    axis.locator_params(axis="x", nbins=6)
    axis.xaxis.set_major_formatter(lambda value, _: steps_text(value))
    figure.legend(loc="outside upper left", ncols=2)
    alt = f"Line chart of {label} against environment steps. {'; '.join(ends)}."
    return Figure(to_svg(figure, name, alt), caption)


def weights_chart(name: str, certificate: Certificate) -> Figure:
    """The weight of each policy of a cover, and below it the gain from more weight on it."""
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
        figure.legend(loc="outside upper left", ncols=4)
    alt = f"Line chart of the log-determinant of the cover's best mixture: {'; '.join(last[:4])}."
    caption = "How much of the feature space the cover spans, in nats. Exploration ends when it stops growing."
    return Figure(to_svg(figure, name, alt), caption)


def _count(axis: Any, label: str, *, grid: bool = False) -> None:
    """Make the x axis show integers."""
    axis.set_xlabel(label)
    axis.grid(axis="x", visible=grid)
    axis.xaxis.get_major_locator().set_params(integer=True)


MOST_FRAMES = 48
"""Most frames of an episode on the page; longer ones are thinned out."""
LARGEST = 320
"""Width and height of a frame."""


class Playing(NamedTuple):
    """An episode of the first seed's policy."""

    observations: np.ndarray  # [steps + 1, ...], as the policy sees them
    rewards: np.ndarray  # [steps]
    is_cut: bool  # whether it went on
    frames: list[np.ndarray]  # uint8 [height, width, 3]; none where the environment draws nothing


def shrunk(frame: np.ndarray) -> np.ndarray:
    """A frame shrunk to fit on a page."""
    from PIL import Image

    image = Image.fromarray(frame)
    image.thumbnail((LARGEST, LARGEST))
    return np.asarray(image)


def playing_figure(name: str, playing: Playing | None, seed: int) -> Figure | None:
    """The picture of an episode, or None if there is nothing to show."""
    if playing is None or not len(playing.rewards):
        return None
    steps = f"{len(playing.rewards):,} step{'s' * (len(playing.rewards) != 1)}"
    end = "cut here" if playing.is_cut else f"return {number(float(playing.rewards.sum()))}"
    what = f"An episode of the policy of seed {seed}: {steps}, {end}."
    if playing.frames:
        return _film(playing.frames, what)
    observations = playing.observations
    return _path(name, observations, playing.rewards, what) if observations.ndim == 2 else None


def _film(frames: list[np.ndarray], what: str) -> Figure:
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    buffer, (width, height) = io.BytesIO(), images[0].size
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=150, loop=0)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    source = f"data:image/gif;base64,{data}"
    return Figure(f'<img class="film" src="{source}" alt="{escape(what)}" width="{width}" height="{height}">', what)


def _path(name: str, observations: np.ndarray, rewards: np.ndarray, what: str) -> Figure | None:
    """The path through the two entries with the most distinct values, or through one over time."""
    seen = observations.astype(np.float64)
    values = np.array([len(np.unique(column)) for column in seen.T])
    first, second, *_ = [*np.argsort(-values, kind="stable"), 0]
    if values[first] < 2:
        return None
    is_plane = bool(first != second and values[second] > 2)
    x, y = (seen[:, first], seen[:, second]) if is_plane else (np.arange(len(seen)), seen[:, first])
    labels = (f"entry {first}", f"entry {second}") if is_plane else ("step", f"entry {first}")
    figure, axis = new_chart()
    axis.plot(x, y, "-", color=STYLES[0].color, lw=1.0, alpha=0.8)
    axis.plot(x[0], y[0], "o", color=STYLES[0].color, ms=5, label="start")
    axis.plot(x[-1], y[-1], "s", color=STYLES[1].color, ms=5, label="end")
    usual = np.median(rewards)
    if 0 < (odd := np.flatnonzero(rewards > usual + 1e-9)).size < len(rewards) / 2:
        axis.plot(x[odd + 1], y[odd + 1], "*", color=STYLES[3].color, ms=8, label="reward")
    axis.set(xlabel=f"{labels[0]}{' of the observation' if is_plane else ''}", ylabel=labels[1])
    figure.legend(loc="outside upper left", ncols=2)
    shown = "entries of the observation that take the most values" if is_plane else "entry that takes the most values"
    alt = f"{what} It goes from ({number(x[0])}, {number(y[0])}) to ({number(x[-1])}, {number(y[-1])})."
    return Figure(to_svg(figure, name, alt), f"{what} Its path in the {'two ' * is_plane}{shown}.")
