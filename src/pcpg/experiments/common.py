"""What the experiments share: a cell is run once and kept as a JSON record that says where it came from."""

import datetime
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from pcpg.run_config import RunConfig
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg.training.loop import Observer, device_kind, start_run, train_run

Record = dict[str, Any]
Scale = Literal["smoke", "laptop", "paper"]
Measure = Callable[[RunFolder], Record]
Watch = Callable[[Mapping[str, Any]], AbstractContextManager[Observer | None]]
"""From the configuration of a run to somebody who watches it."""

STOPPED = 130


class Cell(NamedTuple):
    """One curve of an experiment: what is run, under which name, and the command that makes it."""

    name: str
    config: RunConfig
    command: str


Plan = Callable[[list[Record]], Cell]
"""From the records so far to the next cell: a baseline gets as many steps as PC-PG used."""


def run_once(cell: Cell, out: Path, measure: Measure, watch: Watch = lambda config: nullcontext()) -> Record | None:
    """The record of a cell: read if it is done, else trained from where it stopped; None if it was interrupted."""
    path = out / "cells" / f"{cell.name}.json"
    if path.exists():
        record = json.loads(path.read_text())
        if record["seeds"] != cell.config.seed_list:
            raise ValueError(f"{path} holds seeds {record['seeds']}, not {cell.config.seed_list}: choose another --out")
        check_settings(cell, record["config"], path)
        return record
    run_path = out / "runs" / cell.name
    is_begun = (run_path / "config.json").exists()
    folder = RunFolder.open(run_path) if is_begun else start_run(cell.config.resolved(), run_path)
    check_settings(cell, folder.config["agent"], run_path)
    started = time.perf_counter()
    with watch(folder.config) as observer:
        trained = train_run(folder, observer=observer)
    if not trained.finished:
        return None
    record = measure(folder) | {
        "device": device_kind(),
        "commit": commit(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": cell.command,
        "seconds": sum(row["seconds"] for row in read_metrics(folder.timings)),
        "seconds_of_last_process": time.perf_counter() - started,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, allow_nan=False))
    return record


def reproduce(
    plans: Iterable[Plan],
    measure: Measure,
    write: Callable[[Path], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
    out: Path,
    console: Console,
    *,
    as_json: bool,
    headline: Callable[[Record], str] = lambda record: "",
) -> int:
    """Run all cells of an experiment that are not done, write its results and show them; the exit code."""
    from pcpg.cli.display import Display

    records: list[Record] = []
    for plan in plans:
        cell = plan(records)
        record = run_once(cell, out, measure, lambda config, name=cell.name: Display(console, name))
        if record is None:
            console.print("stopped; the same command goes on where it stopped", highlight=False)
            return STOPPED
        if records:  # alone, a baseline may have any budget
            _check_budget(cell, record, out)
        steps = f"{max(record['env_steps']):,} steps a seed, {record['seconds']:.0f} s"
        console.print(f"{cell.name}: {headline(record)}{steps}", highlight=False)
        records.append(record)
    summary = write(out)
    console.print(Markdown(table(summary)))
    console.print(f"written to {out}", highlight=False)
    if as_json:
        print(json.dumps(summary, allow_nan=False))
    return 0


def check_settings(cell: Cell, kept: Mapping[str, Any], where: Path) -> None:
    """Refuse what was made with other settings than those asked for; the budget of a baseline is its own matter."""
    asked = _flat(_as_read(cell.config.resolved().to_json()["agent"]))
    # Entries that came later have their defaults in what is kept.
    other = [name for name, value in _flat(kept).items() if name != "budget" and asked.get(name) != value]
    if other:
        raise ValueError(f"{where} was made with other settings ({', '.join(other)}): choose another --out")


def _check_budget(cell: Cell, record: Record, out: Path) -> None:
    """Refuse a kept baseline that had other steps than PC-PG has used now."""
    kept, asked = record["config"].get("budget"), getattr(cell.config.agent, "budget", None)
    if kept != asked:
        raise ValueError(
            f"{cell.name} in {out} was run for {kept:,} steps, not for {asked:,}, as many as PC-PG used: "
            "choose another --out"
        )


def _as_read(settings: Record) -> Record:
    return json.loads(json.dumps(settings))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Record:
    """Nested settings as one mapping, with names such as ppo.hidden."""
    parts = [
        _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
        for name, value in tree.items()
    ]
    return {name: value for part in parts for name, value in part.items()}


def write_summary(out: Path, summary: dict[str, Any], table: Callable[[dict[str, Any]], str]) -> None:
    """Write summary.json and table.md."""
    (out / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    (out / "table.md").write_text(table(summary))


def steps_used(records: Iterable[Record], **entries: Any) -> int:
    """The most steps that a seed of PC-PG used, in the records with these entries; 0 where there is none."""
    ours = [record for record in records if record["algo"].startswith("pcpg")]
    same = [record for record in ours if all(record[name] == value for name, value in entries.items())]
    return max((max(record["env_steps"]) for record in same), default=0)


def check_flags(algos: Iterable[str], valid: Iterable[str], seeds: int) -> None:
    """Refuse an algorithm that the experiment does not have and a number of seeds below zero."""
    unknown = set(algos) - set(valid)
    if unknown:
        raise ValueError(f"unknown algorithm {sorted(unknown)[0]!r}; valid: {', '.join(valid)}")
    if seeds < 0:
        raise ValueError(f"seeds must be 0 (those of the scale) or more, got {seeds}")


def read_records(out: Path, order: tuple[str, ...]) -> list[Record]:
    """The records of all cells that are done in a folder, by algorithm."""
    records = [json.loads(path.read_text()) for path in sorted((out / "cells").glob("*.json"))]
    return sorted(records, key=lambda record: order.index(record["algo"]))


def histories(folder: RunFolder) -> dict[str, list[list[float]]]:
    """By seed, a row a round: steps so far, mean return, share of the cells visited so far."""
    rows: dict[str, list[list[float]]] = {}
    for record in read_metrics(folder.metrics):
        row = [record["env_steps"], record["return"], record["coverage"]]
        rows.setdefault(str(record["seed"]), []).append(row)
    return rows


def value_at(rows: list[list[float]], grid: np.ndarray, column: int) -> np.ndarray:
    """The newest value of a column of a history at each number of steps; NaN before the first row."""
    steps, values = np.array([row[0] for row in rows]), np.array([row[column] for row in rows])
    index = np.searchsorted(steps, grid, side="right") - 1
    return np.where(index < 0, np.nan, values[np.maximum(index, 0)])


def commit() -> str | None:
    """The commit of the source tree, "-dirty" where tracked files differ; PCPG_COMMIT names it where git cannot."""
    if named := os.environ.get("PCPG_COMMIT"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
