"""The results of a sweep: a table of all seeds as CSV, a table of groups as JSON, and a page with figures.

Nothing in the tables depends on where or when a cell ran: two engines give the same bytes.
"""

import csv
import dataclasses
import io
import itertools
from collections.abc import Iterable
from typing import Any

from pcpg.reports.page import final_return, render, solved_share
from pcpg.reports.read import RunData, read_run
from pcpg.reports.statistics import Interval
from pcpg.runs.disk import write_file
from pcpg.runs.folder import RunFolder
from pcpg_lab.sweeps.plan import Cell, Plan, leaves
from pcpg_lab.sweeps.status import SweepFolder

COLUMNS = ("env_steps", "policies", "final_return", "best_return")


def write_tables(folder: SweepFolder, plan: Plan) -> dict[str, Any]:
    """Write table.csv and table.json from all finished cells; the content of the second."""
    done = [cell for cell in plan.cells if folder.is_done(cell.id)]
    varied = varied_settings(plan.cells)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["cell", "env", "algo", *varied, "seed", *COLUMNS, "failed"])
    for cell in done:
        settings = dict(leaves(cell.config))
        summary = RunFolder.open(folder.cell(cell.id)).read_summary()
        for place, seed in enumerate(summary["seeds"]):
            named = [cell.id, cell.config["env"], cell.config["algo"], *(settings.get(name, "") for name in varied)]
            reached = ["" if (value := summary[name][place]) is None else value for name in COLUMNS]
            writer.writerow([*named, seed, *reached, summary.get("failed", {}).get(str(seed), "")])
    write_file(folder.path / "table.csv", text.getvalue().encode())
    failed = folder.failures()
    table = {
        "cells": len(plan.cells),
        "done": len(done),
        "groups": [group_row(cells, runs, varied) for cells, runs in groups(folder, done)],
        "failed": [
            {"cell": cell.id, "label": cell.label, "cause": failed[cell.id]} for cell in plan.cells if cell.id in failed
        ],
    }
    folder.write("table.json", table)
    return table


def write_page(folder: SweepFolder, plan: Plan) -> Any:
    """Write report.html: one section for each group of cells that differ in their seeds alone; its path."""
    done = [cell for cell in plan.cells if folder.is_done(cell.id)]
    runs = [joined for _, runs in groups(folder, done) for joined in joined_runs(runs)]
    path = folder.path / "report.html"
    if not runs:
        return None
    write_file(path, render(runs).encode("utf-8", "replace"))
    return path


def varied_settings(cells: Iterable[Cell]) -> list[str]:
    """The settings, seeds aside, in which cells of one algorithm on one environment differ."""
    values: dict[str, dict[tuple[str, str], set[str]]] = {}
    for cell in cells:
        for name, value in leaves(cell.config):
            if name not in ("seed", "seeds"):
                alike = values.setdefault(name, {}).setdefault((cell.config["env"], cell.config["algo"]), set())
                alike.add(repr(value))
    return [name for name, found in values.items() if any(len(alike) > 1 for alike in found.values())]


def groups(folder: SweepFolder, cells: Iterable[Cell]) -> list[tuple[list[Cell], list[RunData]]]:
    """Cells that differ only in their seeds, with the results of their runs."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.group, []).append(cell)
    each = [sorted(group, key=lambda cell: cell.config["seed"]) for group in found.values()]
    return [(group, [read_run(folder.cell(cell.id)) for cell in group]) for group in each]


def group_row(cells: list[Cell], runs: list[RunData], varied: list[str]) -> dict[str, object]:
    """A group in the table: the interquartile mean of the final return, and the share of seeds that are solved."""
    settings, whole = dict(leaves(cells[0].config)), joined(runs)
    returns = whole.final_returns
    return {
        "env": cells[0].config["env"],
        "algo": cells[0].config["algo"],
        "settings": {name: settings[name] for name in varied if name in settings},
        "seeds": sum(len(run.seeds) for run in runs),
        "failed_seeds": sum(len(run.failed) for run in runs),
        "final_return": _interval(final_return(whole)),
        "solved": None if not returns else _interval(solved_share(whole)),
        "most_env_steps": max((run.last(seed, "env_steps") or 0 for run in runs for seed in run.seeds), default=0),
        "cells": [cell.id for cell in cells],
    }


def _interval(found: Interval | None) -> list[float | None] | None:
    return None if found is None else [value if value == value else None for value in found]


def joined_runs(runs: list[RunData]) -> list[RunData]:
    """Runs whose seeds follow each other as one; others as they are."""
    follow = all(a.seeds[-1] + 1 == b.seeds[0] for a, b in itertools.pairwise(runs))
    return [joined(runs)] if follow else runs


def joined(runs: list[RunData]) -> RunData:
    """Runs of the same settings as one with all their seeds."""
    first, summaries = runs[0], [run.summary or {} for run in runs]
    summary = {
        name: [value for one in summaries for value in one.get(name, [])] for name in ("seeds", "env_steps", *COLUMNS)
    }
    return dataclasses.replace(
        first,
        config=first.config | {"seeds": sum(len(run.seeds) for run in runs)},
        summary=summary | {"rounds": max(one.get("rounds", 0) for one in summaries)},
        records={seed: records for run in runs for seed, records in run.records.items()},
        timings=[timing for run in runs for timing in run.timings],
        covers={seed: cover for run in runs for seed, cover in run.covers.items()},
        notes=tuple(note for run in runs for note in run.notes),
        failed={seed: cause for run in runs for seed, cause in run.failed.items()},
    )
