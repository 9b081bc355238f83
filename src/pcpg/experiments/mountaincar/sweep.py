"""What is run for MountainCar: constants alone.

Training episodes have 200 steps, the evaluation the environment's own 999. PC-PG is the reward-bonus version with
the preset of `pcpg train MountainCarContinuous-v0 --algo pcpg-bonus`; the baselines get as many environment steps as
the seed of PC-PG that used most, roll-ins counted.
"""

import dataclasses

from pcpg.algorithms import preset
from pcpg.config import AgentConfig, BaselineConfig, PCPGConfig, from_plain
from pcpg.experiments.common import Cell, Scale
from pcpg.run_config import RunConfig

ENV = "MountainCarContinuous-v0"
ALGOS = ("pcpg-bonus", "ppo-rnd", "ppo")
SEEDS: dict[Scale, int] = {"smoke": 2, "laptop": 5, "paper": 5}
SUCCESS = 90.0
"""Mean return of the final policy over EVALUATION episodes from which on a seed counts as solved."""
EVALUATION = 100
DEFAULT_BUDGET = 3_000_000
"""Steps of a baseline's seed where PC-PG was not run beside it."""
SMOKE = {"ppo": {"num_updates": 2, "num_episodes": 16}}
"""Enough to go through every line, not to learn."""
PAPER_POLICIES = 40
"""Policies of the cover at the paper's scale."""


def make_cell(scale: Scale, algo: str, seeds: int, first_seed: int, budget: int) -> Cell:
    """The run of one algorithm; `budget` is that of the baselines, 0 where PC-PG was not run."""
    config = RunConfig(ENV, algo, agent_config(scale, algo, budget), seed=first_seed, seeds=seeds)
    algos = algo if algo == ALGOS[0] or not budget else f"{ALGOS[0]} {algo}"
    command = f"pcpg reproduce mountaincar --scale {scale} --algos {algos} --seeds {seeds} --seed {first_seed}"
    return Cell(algo, config, command)


def agent_config(scale: Scale, algo: str, budget: int) -> AgentConfig:
    """The settings of one algorithm: its preset, cut down for smoke and with a larger cover for paper."""
    config = preset(ENV, algo)
    if isinstance(config, BaselineConfig):
        config = dataclasses.replace(config, budget=budget or DEFAULT_BUDGET)
        return from_plain(BaselineConfig, SMOKE, "config", config) if scale == "smoke" else config
    cut = {"smoke": SMOKE | {"explore": {"max_policies": 2}}, "paper": {"explore": {"max_policies": PAPER_POLICIES}}}
    return from_plain(PCPGConfig, cut.get(scale, {}), "config", config)
