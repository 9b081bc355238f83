"""Charts as SVG inside a page: they take the colours of the page, light or dark, and its letters."""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

# Placeholders for the colours of the page's style sheet; no chart really uses them.
INK, FAINT = "#010203", "#040506"
_THEMED = {INK: "currentColor", FAINT: "var(--faint)"}


WIDTH = 3.9
"""Inches, of every chart: narrow, so that its letters can be read on a phone."""


class Style(NamedTuple):
    """How one of several curves looks: told apart by dashes and markers as well as by colour."""

    colour: str
    dashes: Any
    marker: str


STYLES = (
    Style("#1b6ca8", "-", "o"),
    Style("#d1495b", "--", "s"),
    Style("#5f6b6d", ":", "^"),
    Style("#9a6700", "-.", "D"),
    Style("#2e7d4f", (0, (5, 1, 1, 1, 1, 1)), "v"),
    Style("#7b4fb5", (0, (1, 1)), "P"),
)
_THEMED |= {style.colour: f"var(--series-{index})" for index, style in enumerate(STYLES)}


class Figure(NamedTuple):
    """A picture of the page: its markup, which holds a text for those who cannot see it, and its caption."""

    markup: str
    caption: str


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """The style of all charts: that of the figures of the experiments, in the colours of the page."""
    import matplotlib

    style: dict[Any, Any] = {
        "font.size": 8.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.linewidth": 0.5,
        "grid.color": FAINT,
        "svg.hashsalt": "pcpg",  # the same run, the same page
        "svg.fonttype": "none",
        "text.parse_math": False,  # a dollar in the name of a folder is a dollar
        "legend.frameon": False,
        "legend.fontsize": 7.5,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the letters are those of the reader's browser
        yield


def new_chart(width: float = WIDTH, height: float = 2.45) -> tuple[Any, Any]:
    """A figure of one chart, drawn without a screen, and its axes."""
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


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
