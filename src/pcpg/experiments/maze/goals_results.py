"""From the records of the goals to their summary, table and figure."""

from pathlib import Path
from typing import Any

import numpy as np

from pcpg.experiments.common import Record, read_records, write_summary
from pcpg.experiments.common_figures import NAMES, STYLES
from pcpg.experiments.maze.goals import ALGOS, EPISODES, REACHED, SHARE
from pcpg.reports.figures import new_figure, save
from pcpg.reports.statistics import wilson

BANDS = 5
"""Parts of equal size, by distance from the start, into which the goals are put for the figure."""


MARKS = {"pcpg": "o", "ppo": "x"}
"""Of the algorithms' points, which lie on each other where both solve a goal."""


def write_results(out: Path) -> dict[str, Any]:
    """Write summary.json, table.md and the figure from all cells that are done in a folder; the summary."""
    records = read_records(out, ALGOS)
    summary = summarise(records)
    write_summary(out, summary, table)
    for size in sorted({record["size"] for record in records}):
        save(draw([record for record in records if record["size"] == size]), out / f"goals-size{size}")
    return summary


def summarise(records: list[Record]) -> dict[str, Any]:
    """The summary of the experiment: a row an algorithm and size."""
    rule = f"the final policy, stochastic, reaches the goal in at least {REACHED} of {EPISODES} episodes"
    return {"solved": rule, "target": f"{SHARE:.0%} of the goals of each maze", "cells": [_row(r) for r in records]}


def is_solved(record: Record, kind: str = "reached") -> np.ndarray:
    """Which pairs are solved, bool [pairs]; `reached_greedy` is of the likeliest actions."""
    return np.array([pair[kind] >= REACHED for pair in record["pairs"]])


def _row(record: Record) -> Record:
    solved, mazes = is_solved(record), np.array([pair["maze"] for pair in record["pairs"]])
    share = wilson(int(solved.sum()), len(solved))
    budget = record["config"].get("budget", 0)
    by_maze = {str(maze): int(solved[mazes == maze].sum()) for maze in np.unique(mazes)}
    row = {
        "algo": record["algo"],
        "size": record["size"],
        "goals": record["goals"],
        "solved_by_maze": by_maze,
        "mazes_on_target": sum(count >= SHARE * record["goals"] for count in by_maze.values()),
        "solved": int(solved.sum()),
        "pairs": len(solved),
        "interval": [share.low, share.high],
        # Where the rounds ended before the budget of steps was used: only goals near the start, once they are solved.
        "unsolved_below_budget": int(np.sum(~solved & (np.array(record["env_steps"]) < budget))),
        "solved_greedy": int(is_solved(record, "reached_greedy").sum()),
        "by_distance": by_distance(record),
        "env_steps_per_goal": max(record["env_steps"]),
        "mean_env_steps": float(np.mean(record["env_steps"])),
    }
    if "cover" in record:
        row |= {"cover_env_steps": record["cover"]["env_steps"], "cover_sha256": record["cover"]["sha256"]}
    return row | {name: record[name] for name in ("command", "seconds", "device", "commit", "time")}


def by_distance(record: Record) -> list[Record]:
    """Share of the goals solved in each of BANDS equal parts of them, nearest first."""
    distances = np.array([pair["distance"] for pair in record["pairs"]])
    solved = is_solved(record)
    parts = np.array_split(np.argsort(distances, kind="stable"), min(BANDS, len(distances)))
    return [
        {
            "from": int(distances[part].min()),
            "to": int(distances[part].max()),
            "goals": len(part),
            "solved": int(solved[part].sum()),
        }
        for part in parts
    ]


def table(summary: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = ["| algorithm | size | goals solved | each maze | greedy | by distance | steps a goal | the cover's own |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for cell in summary["cells"]:
        low, high = cell["interval"]
        mazes = ", ".join(str(count) for count in cell["solved_by_maze"].values())
        bands = ", ".join(f"{b['from']}-{b['to']}: {b['solved']}/{b['goals']}" for b in cell["by_distance"])
        covers = cell.get("cover_env_steps")
        shared = f"{max(covers.values()) / 1e6:.2f}M a maze" if covers else "-"
        lines.append(
            f"| {NAMES[cell['algo']]} | {cell['size']} | **{cell['solved']}/{cell['pairs']}** [{low:.2f}, {high:.2f}] "
            f"| {mazes} of {cell['goals']} | {cell['solved_greedy']}/{cell['pairs']} | {bands} "
            f"| {cell['env_steps_per_goal'] / 1e6:.2f}M | {shared} |"
        )
    return "\n".join(lines) + "\n"


def draw(records: list[Record]) -> Any:
    """Episodes that reach the goal against its distance, a point a goal, and the share solved by bands of distance."""
    figure, axes = new_figure(1, 2, width=7.0, height=2.8)
    left, right = axes[0]
    for record in records:
        colour, style = STYLES[record["algo"]]
        name = NAMES[record["algo"]]
        distances = [pair["distance"] for pair in record["pairs"]]
        reached, mark = [pair["reached"] for pair in record["pairs"]], MARKS[record["algo"]]
        left.scatter(distances, reached, s=14, color=colour, marker=mark, lw=0.8, alpha=0.7, label=name, clip_on=False)
        bands = by_distance(record)
        middles = [(band["from"] + band["to"]) / 2 for band in bands]
        shares = [wilson(band["solved"], band["goals"]) for band in bands]
        solved = np.array([band["solved"] / band["goals"] for band in bands])
        errors = [solved - [share.low for share in shares], [share.high for share in shares] - solved]
        right.errorbar(middles, solved, np.maximum(errors, 0), color=colour, ls=style, marker="o", ms=3, label=name)
    left.axhline(REACHED, color="#999999", lw=0.6)
    left.set_ylim(-3, 103)
    left.set_ylabel(f"of {EPISODES} episodes, reached the goal")
    right.set_ylabel("share of the goals solved")
    right.set_ylim(-0.03, 1.03)
    for axis in (left, right):
        axis.set_xlabel("moves from the start to the goal")
        axis.legend(frameon=False, fontsize=7)
    return figure
