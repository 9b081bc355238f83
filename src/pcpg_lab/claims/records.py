"""Records of finished work: their provenance, storage and tables.

Pictures that more than one experiment draws: curves over seeds, and visits of the policies of a cover.
"""

import datetime
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pcpg.algorithms import ALGORITHMS, Row
from pcpg.config import Json
from pcpg.reports.figures import new_figure, write_figure
from pcpg.reports.statistics import value_at, wilson
from pcpg.runs.disk import make_folder, write_file
from pcpg.runs.documents import read_object
from pcpg.runs.errors import DamagedFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Record = Json
Summary = Json
Figures = Iterable[tuple[str, "Figure"]]
"""What a claim draws, each under the stem of its files."""
Scale = Literal["smoke", "laptop", "paper"]
PROVENANCE = ("command", "seconds", "device", "commit", "time")


PARTS = ("cells", "cases", "runs", "sweep", "summary.json", "table.md")
"""Names in the folder of a claim that the library reads or writes, but for its figures."""

Columns = Mapping[str, Callable[[Record], str]]
"""From the head of a column to its text for a row of the summary."""


def origin(device: str, command: str) -> Record:
    """The origin of a record."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"device": device, "commit": commit(), "time": now, "command": command}


def commit() -> str | None:
    """The commit of the source tree, "-dirty" where tracked files differ; PCPG_COMMIT names it where git cannot."""
    if named := os.environ.get("PCPG_COMMIT"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return None
    return done.stdout.strip() or None


def read_record(path: Path) -> Record | None:
    """A kept record; None for one that a full disk or a kill cut short: it is measured again from its run."""
    try:
        record = read_object(path)
        return record if "seeds" in record and isinstance(record.get("config"), dict) else None
    except DamagedFile:
        return None


def write_record(path: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    make_folder(path.parent)
    write_file(path, json.dumps(record, allow_nan=False).encode())


def write_json(path: Path, content: object) -> None:
    """Write JSON for people and programs, whole or not at all."""
    write_file(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_results(out: Path, summary: Summary, table: str) -> None:
    """Write summary.json and table.md."""
    write_json(out / "summary.json", summary)
    write_file(out / "table.md", table.encode())


def refuse_unknown(what: str, asked: Iterable[str], valid: Iterable[str]) -> None:
    """Raise a ValueError for a name that there is not."""
    valid = list(valid)
    unknown = sorted(set(asked) - set(valid))
    if unknown:
        raise ValueError(f"unknown {what} {unknown[0]!r}; valid: {', '.join(valid)}")


def provenance(record: Record) -> Record:
    """Where a record came from."""
    return {name: record[name] for name in PROVENANCE}


SEED = "-seed-"
"""In the name of a cell that is one of several of its world and arm."""
LISTS = ("seeds", "greedy_return", "drawn_return", "final_return", "env_steps")


def joined(records: list[Record], by: Callable[[Record], object]) -> list[Record]:
    """Records of single seeds put together where this is the same."""
    groups: dict[object, list[Record]] = {}
    for record in records:
        groups.setdefault(by(record), []).append(record)
    return [parts[0] if len(parts) == 1 else _as_one(parts) for parts in groups.values()]


def _as_one(parts: list[Record]) -> Record:
    known = [name for name in LISTS if any(name in part for part in parts)]
    lists = {name: [value for part in parts for value in part.get(name, [])] for name in known}
    history = {seed: rows for part in parts for seed, rows in part["history"].items()}
    command = parts[0]["command"].partition(" --seeds")[0]
    command += f" --seeds {len(lists['seeds'])} --seed {min(lists['seeds'])}"
    return parts[0] | lists | {"history": history, "seconds": sum(p["seconds"] for p in parts), "command": command}


def names_of(cell: str, worlds: Iterable[str]) -> tuple[str, str]:
    """The world and the arm after which a cell is named."""
    name = cell.partition(SEED)[0]
    world = max((known for known in worlds if name.startswith(f"{known}-")), key=len)
    return world, name.removeprefix(f"{world}-")


def share_solved(successes: int, seeds: int) -> Record:
    """How many seeds are solved, with the Wilson interval of their share."""
    share = wilson(successes, seeds)
    return {"seeds": seeds, "successes": successes, "interval": [share.low, share.high]}


def share_text(count: int, total: int, interval: Sequence[float]) -> str:
    """A count with the interval of its share, as in a table."""
    low, high = interval
    return f"**{count}/{total}** [{low:.2f}, {high:.2f}]"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    first, *others = ["|" + "".join(f" {text} |" if text else " |" for text in line) for line in (head, *rows)]
    return "\n".join([first, "|" + "---|" * len(head), *others]) + "\n"


def table_of(columns: Columns, summary: Summary) -> str:
    """A summary as a table, a line for each of its rows."""
    return markdown(list(columns), [[text(row) for text in columns.values()] for row in summary["cells"]])


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as STEM.png and STEM.svg; the files."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    write_figure(figure, paths[0], dpi=160)
    write_figure(figure, paths[1], metadata={"Date": None})
    return paths


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


def panels(
    names: Sequence[str], most: int, *, width: float, height: float, more: float = 0.0
) -> tuple["Figure", dict[str, "Axes"]]:
    """A figure with a panel for each name, at most so many in a row."""
    columns = min(most, len(names))
    rows = -(-len(names) // columns)
    figure, axes = new_figure(rows, columns, width=width * columns, height=height * rows + more)
    for axis in np.ravel(axes)[len(names) :]:
        axis.set_visible(False)
    return figure, dict(zip(names, np.ravel(axes), strict=False))


def cover_pictures(record: Record, title: str, *, most: int = 7, columns: int = 4) -> "Figure":
    """Visits of the heaviest policies of a cover and of the weighted cover; NaN where there is nothing to visit."""
    counts, weights = np.array(record["cover"]["counts"], float), np.array(record["cover"]["weights"])
    closed = ~np.array(record["cover"]["reachable"], bool)
    shares = counts / np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1)
    heavy = sorted(np.argsort(-weights, kind="stable")[:most].tolist())
    pictures = [(f"policy {i}, weight {weights[i]:.2f}", shares[i]) for i in heavy]
    pictures.append(("weighted cover", np.tensordot(weights, shares, 1)))
    figure, axes = panels([name for name, _ in pictures], columns, width=1.7, height=1.8, more=0.3)
    for axis, (name, share) in zip(axes.values(), pictures, strict=True):
        axis.set_axis_off()
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
