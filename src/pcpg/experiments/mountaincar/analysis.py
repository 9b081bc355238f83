"""From the records of MountainCar to its summary and table."""

from typing import Any

import numpy as np

from pcpg.experiments.common import Record
from pcpg.experiments.common_figures import NAMES
from pcpg.experiments.mountaincar.sweep import SUCCESS
from pcpg.reports.statistics import wilson


def summarise(records: list[Record]) -> dict[str, Any]:
    """The summary of the experiment: a row an algorithm."""
    rule = f"mean return of the final policy over 999-step episodes above {SUCCESS:g}"
    return {"success": rule, "cells": [_row(record) for record in records]}


def _row(record: Record) -> Record:
    returns = record["final_return"]
    share = wilson(record["successes"], len(returns))
    return {
        "algo": record["algo"],
        "seeds": len(returns),
        "successes": record["successes"],
        "interval": [share.low, share.high],
        "mean_return": float(np.mean(returns)),
        "final_return": [round(value, 2) for value in returns],
        "best_return": [round(value, 2) for value in record["best_return"]],
        "env_steps_per_seed": max(record["env_steps"]),
    } | {name: record[name] for name in ("command", "seconds", "device", "commit", "time")}


def table(summary: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = ["| algorithm | solved | final return, each seed | steps a seed | training, all seeds |"]
    lines.append("|---|---|---|---|---|")
    for cell in summary["cells"]:
        low, high = cell["interval"]
        returns = ", ".join(f"{value:.1f}" for value in cell["final_return"])
        lines.append(
            f"| {NAMES[cell['algo']]} | **{cell['successes']}/{cell['seeds']}** [{low:.2f}, {high:.2f}] | {returns} "
            f"| {cell['env_steps_per_seed'] / 1e6:.2f}M | {cell['seconds']:.0f} s |"
        )
    return "\n".join(lines) + "\n"
