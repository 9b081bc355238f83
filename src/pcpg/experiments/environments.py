"""Other people's environments with default settings: what PC-PG solves, and PPO with as many steps.

PC-PG has the default settings of `pcpg train` on the environment; PPO has its own and as many environment steps as the
seed of PC-PG that used most, roll-ins counted. A task counts as solved by the mean over EVALUATION fresh episodes.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from pcpg.algorithms import preset
from pcpg.api import Run
from pcpg.experiments import harness
from pcpg.experiments.figures import short_label
from pcpg.experiments.harness import Cell, Experiment, Record, Scale, Summary
from pcpg.run_config import RunConfig

SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 5, "paper": 5}
EVALUATION = 200
BASELINE = "ppo"
ALGOS = ("pcpg", "pcpg-bonus", BASELINE)
SMOKE: dict[str, Any] = {"ppo": {"num_updates": 1, "num_episodes": 16}}
"""Enough to go through every line, not to learn."""
SMOKE_COVER: dict[str, Any] = {"explore": {"max_policies": 2}, "exploit": {"num_rounds": 1}}


class Task(NamedTuple):
    """An environment, the algorithm shown on it, and when it counts as solved."""

    env: str
    options: dict[str, Any]
    algo: str
    measure: Literal["return", "solved"]  # mean return, or share of the episodes that earned anything
    success: float  # the least measure with which a seed counts
    about: str
    first_seed: int = 0  # another where the preset was made after a look at the seeds from 0 on


TASKS: dict[str, Task] = {
    "deepsea-10": Task("bsuite:deep_sea", {"size": 10}, "pcpg", "return", 0.9, "DeepSea, size 10 (bsuite)", 10),
    "deepsea-20": Task("bsuite:deep_sea", {"size": 20}, "pcpg", "return", 0.9, "DeepSea, size 20 (bsuite)", 10),
    # The best policy reaches the goal in 91% of the episodes of 200 steps (by dynamic programming).
    "frozenlake": Task("gymnasium:FrozenLake8x8-v1", {}, "pcpg", "return", 0.7, "FrozenLake 8x8, slippery"),
    "mountaincar": Task(
        "gymnasium:MountainCarContinuous-v0", {}, "pcpg-bonus", "return", 90.0, "MountainCarContinuous"
    ),
    "doorkey": Task("gymnasium:MiniGrid-DoorKey-6x6-v0", {}, "pcpg", "solved", 0.9, "MiniGrid DoorKey 6x6"),
}


@dataclasses.dataclass(frozen=True)
class Flags(harness.Flags):
    """Other people's environments (Gymnasium, MiniGrid, bsuite) with default settings: PC-PG, PPO at equal steps."""

    scale: Scale = "laptop"
    """smoke: 1 seed, seconds, learns nothing; laptop and paper: 5 seeds, minutes for each environment."""
    algos: tuple[str, ...] = ALGOS
    """Which algorithms; of the first two, an environment has one."""
    seed: int = -1
    """The first seed; -1: 0, but 10 on DeepSea, whose preset was made after a look at 0 to 4."""
    out: str = "results/environments"
    """Folder of the results; cells that are done there are not run again."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Which environments."""
    baseline: bool = True
    """Run PPO as well."""

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = set(self.tasks) - set(TASKS)
        if unknown:
            raise ValueError(f"unknown task {sorted(unknown)[0]!r}; valid: {', '.join(TASKS)}")


def cells(flags: Flags, records: list[Record]) -> Iterator[Cell]:
    """Task by task the run of PC-PG, then that of PPO."""
    for name in (known for known in TASKS if known in flags.tasks):
        for algo in flags.chosen((TASKS[name].algo, BASELINE)):
            if flags.baseline or algo != BASELINE:
                yield make_cell(flags, name, algo, harness.steps_used(records, task=name))


def make_cell(flags: Flags, name: str, algo: str, budget: int = 0) -> Cell:
    """The run of one algorithm on one task; `budget` is that of the baseline, 0 for its own."""
    task = TASKS[name]
    seeds, first = flags.seeds or SEEDS[flags.scale], task.first_seed if flags.seed == -1 else flags.seed
    changes = {} if flags.scale != "smoke" else SMOKE if algo == BASELINE else SMOKE | SMOKE_COVER
    agent = harness.changed(preset(task.env, algo), changes, budget)
    config = RunConfig(task.env, algo, agent, env_options=task.options, seed=first, seeds=seeds)
    command = f"pcpg reproduce environments --scale {flags.scale} --tasks {name} --seeds {seeds} --seed {first}"
    return Cell(f"{name}-{algo}", config, command)


def measure(run: Run) -> Record:
    """Returns of the final policies over fresh episodes of the environment's own length, and each seed's history."""
    name = run.path.name.removesuffix(f"-{run.config.algo}")
    task, played = TASKS[name], run.evaluate(EVALUATION)
    solved = [float(share) for share in np.mean(played.returns > 0, axis=1)]
    reached = played.mean_return if task.measure == "return" else solved
    return harness.facts_of(
        run,
        task=name,
        env=run.config.env,
        env_options=dict(run.config.env_options),
        features=run.config.features,
        final_return=played.mean_return,
        solved_episodes=solved,
        successes=sum(value >= task.success for value in reached),
        policies=run.summary["policies"],
        history=harness.histories(run, lambda metrics: []),
    )


def summarise(records: list[Record]) -> Summary:
    """A row for each task and algorithm."""
    return {"success": f"by {EVALUATION} fresh episodes of the final policy", "cells": [_row(r) for r in records]}


def _row(record: Record) -> Record:
    return {
        "task": record["task"],
        "algo": record["algo"],
        **harness.share_solved(record["successes"], len(record["seeds"])),
        "rule": _rule(TASKS[record["task"]]),
        "final_return": [round(value, 3) for value in record["final_return"]],
        "solved_episodes": [round(value, 3) for value in record["solved_episodes"]],
        "env_steps_per_seed": max(record["env_steps"]),
        "seconds_per_seed": record["seconds"] / len(record["seeds"]),
        **harness.provenance(record),
    }


def _rule(task: Task) -> str:
    """When a task counts as solved, in words."""
    what = "mean return" if task.measure == "return" else "share of episodes that reach the goal"
    return f"{what} at least {task.success:g}"


table = harness.table_of(
    {
        "environment": lambda row: TASKS[row["task"]].about,
        "solved if": lambda row: row["rule"],
        "algorithm": lambda row: short_label(row["algo"]),
        "solved": lambda row: harness.share_text(row["successes"], row["seeds"], row["interval"]),
        "final return, each seed": lambda row: ", ".join(f"{value:.2f}" for value in row["final_return"]),
        "steps per seed": lambda row: f"{row['env_steps_per_seed'] / 1e3:,.0f}k",
        "seconds per seed": lambda row: f"{row['seconds_per_seed']:.0f}",
    }
)


def _order(record: Record) -> tuple[int, bool]:
    return list(TASKS).index(record["task"]), record["algo"] == BASELINE


EXPERIMENT = Experiment(Flags, cells, measure, _order, summarise, table)
