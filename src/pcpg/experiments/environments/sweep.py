"""What is run on other people's environments: constants alone.

PC-PG has the default settings of `pcpg train` on the environment; PPO has its own and as many environment steps as the
seed of PC-PG that used most, roll-ins counted. A task counts as solved by the mean over EVALUATION fresh episodes.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

from pcpg.algorithms import preset
from pcpg.config import BaselineConfig, PCPGConfig, from_plain
from pcpg.experiments.common import Cell, Scale
from pcpg.run_config import RunConfig

SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 5, "paper": 5}
EVALUATION = 200
BASELINE = "ppo"
SMOKE: dict[str, Any] = {"ppo": {"num_updates": 1, "num_episodes": 16}}
"""Enough to go through every line, not to learn."""


class Task(NamedTuple):
    """An environment, the algorithm shown on it, and when it counts as solved."""

    env: str
    options: dict[str, Any]
    algo: str
    measure: Literal["return", "solved"]  # mean return, or share of the episodes that earned anything
    success: float  # the measure from which on a seed counts
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


def make_cell(scale: Scale, name: str, algo: str, seeds: int, first_seed: int, budget: int) -> Cell:
    """The run of one algorithm on one task; `budget` is that of the baseline."""
    task = TASKS[name]
    agent = preset(task.env, algo)
    if isinstance(agent, BaselineConfig):
        agent = dataclasses.replace(agent, budget=budget or agent.budget)
        agent = from_plain(BaselineConfig, SMOKE if scale == "smoke" else {}, "config", agent)
    elif scale == "smoke":
        cut = SMOKE | {"explore": {"max_policies": 2}, "exploit": {"num_rounds": 1}}
        agent = from_plain(PCPGConfig, cut, "config", agent)
    config = RunConfig(task.env, algo, agent, env_options=task.options, seed=first_seed, seeds=seeds)
    command = f"pcpg reproduce environments --scale {scale} --tasks {name} --seeds {seeds} --seed {first_seed}"
    return Cell(f"{name}-{algo}", config, command)
