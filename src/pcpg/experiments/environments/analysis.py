"""From the records of other people's environments to their summary and table."""

from typing import Any

from pcpg.experiments.common import Record
from pcpg.experiments.common_figures import NAMES
from pcpg.experiments.environments.sweep import EVALUATION, TASKS
from pcpg.reports.statistics import wilson


def summarise(records: list[Record]) -> dict[str, Any]:
    """The summary of the experiment: a row for each task and algorithm, in the order of the tasks."""
    order = list(TASKS)
    rows = [_row(record) for record in records]
    return {
        "success": f"by {EVALUATION} fresh episodes of the final policy",
        "cells": sorted(rows, key=lambda row: (order.index(row["task"]), not row["algo"].startswith("pcpg"))),
    }


def _row(record: Record) -> Record:
    share = wilson(record["successes"], len(record["seeds"]))
    return {
        "task": record["task"],
        "algo": record["algo"],
        "seeds": len(record["seeds"]),
        "successes": record["successes"],
        "interval": [share.low, share.high],
        "rule": rule(record["task"]),
        "final_return": [round(value, 3) for value in record["final_return"]],
        "solved_episodes": [round(value, 3) for value in record["solved_episodes"]],
        "env_steps_per_seed": max(record["env_steps"]),
        "seconds_per_seed": record["seconds"] / len(record["seeds"]),
    } | {name: record[name] for name in ("command", "seconds", "device", "commit", "time")}


def rule(name: str) -> str:
    """When a task counts as solved, in words."""
    task = TASKS[name]
    what = "mean return" if task.measure == "return" else "share of episodes that reach the goal"
    return f"{what} at least {task.success:g}"


def table(summary: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = [
        "| environment | solved if | algorithm | solved | final return, each seed | steps a seed | seconds a seed |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for cell in summary["cells"]:
        low, high = cell["interval"]
        returns = ", ".join(f"{value:.2f}" for value in cell["final_return"])
        lines.append(
            f"| {TASKS[cell['task']].about} | {cell['rule']} | {NAMES[cell['algo']]} "
            f"| **{cell['successes']}/{cell['seeds']}** [{low:.2f}, {high:.2f}] | {returns} "
            f"| {cell['env_steps_per_seed'] / 1e3:,.0f}k | {cell['seconds_per_seed']:.0f} |"
        )
    return "\n".join(lines) + "\n"
