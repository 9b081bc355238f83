"""How figures look, and how they are written: PNG for the screen, SVG for print."""

from pathlib import Path
from typing import Any


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
