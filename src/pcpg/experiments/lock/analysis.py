"""From the records of the cells to the table of the paper: numbers, intervals, and the table as Markdown."""

from typing import Any

import numpy as np

from pcpg.experiments.lock.sweep import ALGOS, PAPER, RELEASED_STEPS, SUCCESS, paper_budget
from pcpg.reports.statistics import fit_power_law, wilson

Record = dict[str, Any]


def summarise(records: list[Record]) -> dict[str, Any]:
    """The summary of the experiment: a row a cell and budget, and how steps to solve grow with H."""
    pcpg_steps = {record["horizon"]: max(record["env_steps"]) for record in records if record["algo"] == "pcpg"}
    cells = []
    records = sorted(records, key=lambda record: (ALGOS.index(record["algo"]), record["horizon"]))
    for record in records:
        if record["algo"] == "pcpg":
            cells.append(_row(record, "own", record["final_return"], record["env_steps"]))
            continue
        budget = "paper" if record["config"]["budget"] >= paper_budget(record["horizon"]) else "equal"
        cells.append(_row(record, budget, record["final_return"], record["env_steps"]))
        if budget == "paper" and record["horizon"] in pcpg_steps:
            returns, steps = at_budget(record, pcpg_steps[record["horizon"]])
            cells.append(_row(record, "equal", returns, steps))
    summary: dict[str, Any] = {"success": f"mean return of the final policy above {SUCCESS}", "cells": cells}
    solved = steps_to_solve(records)
    if len({h for h, _ in solved}) > 1:
        horizons, steps = np.array(solved, float).T
        summary["growth"] = fit_power_law(horizons, steps)._asdict()
    return summary


def _row(record: Record, budget: str, returns: list[float], steps: list[int]) -> Record:
    successes = sum(value > SUCCESS for value in returns)
    share = wilson(successes, len(returns))
    row = {
        "algo": record["algo"],
        "horizon": record["horizon"],
        "budget": budget,
        "seeds": len(returns),
        "successes": successes,
        "interval": [share.low, share.high],
        "paper": PAPER.get(record["algo"], {}).get(record["horizon"]),
        "env_steps_per_seed": max(steps),
        "mean_env_steps": float(np.mean(steps)),
        "mean_return": [round(value, 3) for value in returns],
    }
    if returns is record["final_return"]:  # a run of its own, not a part of a longer one
        row |= {
            "best_successes": record["best_successes"],
            "command": record["command"],
            "seconds": record["seconds"],
            "device": record["device"],
            "commit": record["commit"],
            "time": record["time"],
        }
    return row


def at_budget(record: Record, budget: int) -> tuple[list[float], list[int]]:
    """Mean return and steps of each seed in the first round that reached the budget.

    A run with that budget would have ended there, bit for bit: nothing but the stop depends on it.
    """
    returns, steps = [], []
    for rows in record["history"].values():
        index = next((i for i, row in enumerate(rows) if row[0] >= budget), len(rows) - 1)
        returns.append(rows[index][1])
        steps.append(int(rows[index][0]))
    return returns, steps


def steps_to_solve(records: list[Record]) -> list[tuple[int, int]]:
    """For every solved seed of PC-PG: its horizon, and its steps after which it stayed solved."""
    points = []
    for record in records:
        if record["algo"] != "pcpg":
            continue
        for (_, rows), final in zip(record["history"].items(), record["final_return"], strict=True):
            failed = [i for i, row in enumerate(rows) if row[1] <= SUCCESS]
            first = failed[-1] + 1 if failed else 0
            if final > SUCCESS and first < len(rows):
                points.append((record["horizon"], int(rows[first][0])))
    return points


def table(summary: dict[str, Any]) -> str:
    """The table as Markdown: successes with their intervals, the paper's share, steps, time."""
    cells = {(cell["algo"], cell["horizon"], cell["budget"]): cell for cell in summary["cells"]}
    horizons = sorted({horizon for _, horizon, _ in cells})
    lines = ["| algorithm | budget | " + " | ".join(f"H = {h}" for h in horizons) + " |"]
    lines.append("|---|---|" + "---|" * len(horizons))
    names = {"own": "its own", "equal": "PC-PG's steps", "paper": "the paper's"}
    titles = {"pcpg": "PC-PG", "ppo-rnd": "PPO+RND", "ppo": "PPO"}
    for algo in ALGOS:
        for budget in ("own", "equal", "paper"):
            row = [cells.get((algo, h, budget)) for h in horizons]
            if any(row):
                lines.append(f"| {titles[algo]} | {names[budget]} | " + " | ".join(map(_entry, row)) + " |")
    for algo in ALGOS:
        shares = [PAPER[algo].get(h) for h in horizons]
        row = " | ".join("-" if share is None else f"{share:.2f}" for share in shares)
        lines.append(f"| {titles[algo]}, as in the paper | | {row} |")
    row = " | ".join(f"{RELEASED_STEPS[h] / 1e6:.0f}M" if h in RELEASED_STEPS else "-" for h in horizons)
    lines.append(f"| PC-PG's steps in the released code | | {row} |")
    return "\n".join(lines) + "\n"


def _entry(cell: Record | None) -> str:
    if cell is None:
        return "-"
    low, high = cell["interval"]
    steps = cell["env_steps_per_seed"] / 1e6
    return f"**{cell['successes']}/{cell['seeds']}** [{low:.2f}, {high:.2f}], {steps:.1f}M"
