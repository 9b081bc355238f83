"""What is run for the mazes: constants alone.

Reward-free, episodes of 200 steps. The score is the share of the maze's open cells that the newest policies have
visited so far, in the counted episodes after each round; what a policy met only while it was trained does not count,
for any algorithm. The baselines get as many environment steps as PC-PG, roll-ins counted.

The scale `paper` has the paper's networks and kernel (32 and 64 convolutions, 512 units and features) and 10M steps,
for a GPU: few updates a policy and many policies, since each adds a stretch of corridor. `laptop` has smaller networks
and 2.8M steps, for two cores. Settings were found on mazes of seeds 1000 and above; 0 to 4 are reported.
"""

import dataclasses

from pcpg.algorithms import preset
from pcpg.config import AgentConfig, BaselineConfig, PCPGConfig, from_plain
from pcpg.experiments.common import Cell, Scale
from pcpg.practice.program import default_lanes
from pcpg.run_config import RunConfig

ENV = "Maze-v0"
ALGOS = ("pcpg", "ppo-rnd", "ppo")
SEEDS: dict[Scale, int] = {"smoke": 2, "laptop": 5, "paper": 5}
SIZES: dict[Scale, int] = {"smoke": 6, "laptop": 20, "paper": 20}
TENTHS = 10
"""Parts of the budget at whose ends the algorithms are compared."""
SMOKE = {"ppo": {"num_updates": 1, "num_episodes": 8}}
"""Enough to go through every line, not to learn."""
PAPER = {"ppo": {"num_updates": 6, "num_episodes": 128, "hidden": (512,)}}
PAPER_BASELINES = {"ppo": PAPER["ppo"] | {"minibatch_size": 512}}
"""They learn from twice as many steps, roll-ins being none: with this, by as many gradient steps as PC-PG."""
PAPER_FEATURES = {"num_features": 512, "num_kernels": [32, 64]}
PAPER_BUDGET = 10_000_000
SMOKE_BUDGET = 10_000
"""Of a baseline where PC-PG was not run before it."""


def make_cell(scale: Scale, algo: str, size: int, seeds: int, first_seed: int, budget: int) -> Cell:
    """The run of one algorithm; `budget` is that of the baselines, 0 where PC-PG was not run."""
    features = PAPER_FEATURES if scale == "paper" and algo == ALGOS[0] else {}
    config = RunConfig(
        ENV,
        algo,
        agent_config(scale, algo, budget),
        {"size": size},
        feature_options=features,
        seed=first_seed,
        seeds=seeds,
        lanes=0 if default_lanes() == 1 else seeds,  # images fill an accelerator: no lane is to run empty
    )
    algos = algo if algo == ALGOS[0] or not budget else f"{ALGOS[0]} {algo}"
    command = f"pcpg reproduce maze --scale {scale} --size {size} --algos {algos} --seeds {seeds} --seed {first_seed}"
    return Cell(f"{algo}-size{size}", config, command)


def agent_config(scale: Scale, algo: str, budget: int) -> AgentConfig:
    """The settings of one algorithm: its preset, cut down for smoke and enlarged for paper."""
    config = preset(ENV, algo)
    change = {"smoke": SMOKE, "paper": PAPER}.get(scale, {})
    if isinstance(config, BaselineConfig):
        budget = budget or {"smoke": SMOKE_BUDGET, "paper": PAPER_BUDGET}.get(scale, config.budget)
        change = PAPER_BASELINES if scale == "paper" else change
        return from_plain(BaselineConfig, change, "config", dataclasses.replace(config, budget=budget))
    explore = {
        "smoke": {"max_policies": 3, "num_groups": 8, "visit_episodes": 16},
        "paper": {"max_policies": 60, "num_groups": 64, "patience": 60},
    }.get(scale, {})
    return from_plain(PCPGConfig, change | {"explore": explore}, "config", config)
