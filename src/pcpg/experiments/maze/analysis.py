"""From the records of the mazes to their summary and table."""

from typing import Any

import numpy as np

from pcpg.experiments.common import Record, value_at
from pcpg.experiments.common_figures import NAMES
from pcpg.experiments.maze.sweep import TENTHS


def summarise(records: list[Record]) -> dict[str, Any]:
    """The summary of the experiment: a row an algorithm and size, with its mean coverage by tenths of the budget."""
    rule = "share of the open cells that the newest policies visited in the counted episodes after each round"
    return {"coverage": rule, "cells": [_row(record) for record in records]}


def _row(record: Record) -> Record:
    coverage = record["coverage"]
    return {
        "algo": record["algo"],
        "size": record["size"],
        "seeds": len(coverage),
        "coverage": [round(value, 4) for value in coverage],
        "mean_coverage": float(np.mean(coverage)),
        "std_coverage": float(np.std(coverage)),
        "seeds_fully_covered": sum(value == 1.0 for value in coverage),
        "mean_by_tenth": by_tenth(record),
        "open_cells": record["open_cells"],
        "env_steps_per_seed": max(record["env_steps"]),
    } | {name: record[name] for name in ("command", "seconds", "device", "commit", "time")}


def by_tenth(record: Record) -> list[float | None]:
    """Mean coverage after each tenth of the most steps a seed used; None before some seed's first round ends."""
    grid = np.linspace(0, max(record["env_steps"]), TENTHS + 1)[1:]
    means = np.mean([value_at(rows, grid, 2) for rows in record["history"].values()], axis=0)
    return [None if np.isnan(mean) else round(float(mean), 4) for mean in means]


def table(summary: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = ["| algorithm | size | coverage, mean and deviation | fully covered | steps a seed | training, all seeds |"]
    lines.append("|---|---|---|---|---|---|")
    for cell in summary["cells"]:
        lines.append(
            f"| {NAMES[cell['algo']]} | {cell['size']} | **{cell['mean_coverage']:.1%}** ± {cell['std_coverage']:.1%} "
            f"| {cell['seeds_fully_covered']}/{cell['seeds']} | {cell['env_steps_per_seed'] / 1e6:.2f}M "
            f"| {cell['seconds']:.0f} s |"
        )
    return "\n".join(lines) + "\n"
