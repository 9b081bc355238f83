"""Records of finished work: their provenance, storage and tables."""

import datetime
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pcpg.reports.statistics import wilson
from pcpg.runs.disk import make_folder, write_file
from pcpg.runs.documents import read_object
from pcpg.runs.errors import DamagedFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
Summary = dict[str, Any]
Figures = Iterable[tuple[str, "Figure"]]
"""What a claim draws, each under the stem of its files."""
Scale = Literal["smoke", "laptop", "paper"]
STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""
PROVENANCE = ("command", "seconds", "device", "commit", "time")


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
        return record if {"seeds", "config"} <= record.keys() else None
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


def joined(records: list[Record], by: Sequence[str]) -> list[Record]:
    """Records of single seeds put together where these entries are the same."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in by), []).append(record)
    return [_as_one(parts) for parts in groups.values()]


def _as_one(parts: list[Record]) -> Record:
    lists = {
        name: [value for part in parts for value in part[name]] for name in ("seeds", "greedy_return", "env_steps")
    }
    history = {seed: rows for part in parts for seed, rows in part["history"].items()}
    command = parts[0]["command"].partition(" --seeds")[0]
    command += f" --seeds {len(lists['seeds'])} --seed {min(lists['seeds'])}"
    return parts[0] | lists | {"history": history, "seconds": sum(p["seconds"] for p in parts), "command": command}


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
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    figure.savefig(paths[0], dpi=160)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
