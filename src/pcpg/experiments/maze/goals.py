"""Explore once, solve any reward: what is run, and what is measured of it.

From each maze's cover, made without reward, a policy is trained for each of 20 goal cells: one from each twentieth of
the open cells by their distance from the start. PPO from scratch gets as many environment steps for each goal as
PC-PG used at most for one, but no more than twice its rounds: a policy that reaches a goal next to the start takes so
few steps that it would train for ever. The steps of the cover are shared by all goals of its maze, and reported beside.

A goal counts as solved if the final policy, stochastic as it was trained, reaches it in at least 95 of 100 episodes.
All pairs of maze and goal are seeds of one run: seed s is goal s % 20 of maze s // 20.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from pcpg.api import load
from pcpg.config import BaselineConfig, PCPGConfig, from_plain
from pcpg.experiments.common import Cell, Record, Scale
from pcpg.experiments.maze.sweep import ENV, agent_config
from pcpg.practice.program import default_lanes
from pcpg.run_config import RunConfig
from pcpg.runs.errors import NotARun
from pcpg.runs.folder import RunFolder
from pcpg.training.exploit import exploit_config, exploit_defaults

ALGOS = ("pcpg", "ppo")
GOALS: dict[Scale, int] = {"smoke": 2, "laptop": 20, "paper": 20}
EPISODES = 100
REACHED = 95
"""Of EPISODES, from which on a goal counts as solved."""
SHARE = 0.9
"""Of the goals of each maze, which PC-PG is to solve."""
WIDTH = 50
"""Lanes on an accelerator: two calls for the 100 pairs of the whole experiment."""
SETTINGS: dict[Scale, dict[str, Any]] = {
    "smoke": {
        "ppo": {"num_updates": 1, "num_episodes": 8, "num_epochs": 1},
        "explore": {"num_groups": 8, "visit_episodes": 8},
        "exploit": {"num_rounds": 2},
    },
    "laptop": {},
    "paper": {},
}
"""Changes to the settings of `pcpg exploit` on a maze, for PC-PG and PPO alike: 150 updates of 64 episodes."""


def find_cover(out: Path, scale: Scale, size: int) -> RunFolder:
    """The finished exploration of PC-PG under `out`, or an error that says how to make it."""
    name = f"{ALGOS[0]}-size{size}"
    path, is_kept = out / "runs" / name, (out / "cells" / f"{name}.json").exists()
    command = f"pcpg reproduce maze --part explore --scale {scale} --algos {ALGOS[0]} --size {size}"
    if not path.is_dir() and is_kept:
        raise NotARun(
            f"{out} keeps the numbers of its covers, not the covers; make both anew with `{command} --out NEW`"
        )
    command = f"{command} --out {out}"
    if not path.is_dir():
        raise NotARun(f"{path}: there is no cover to exploit; make it with `{command}`")
    folder = RunFolder.open(path)
    if not folder.is_finished:
        raise NotARun(f"{path} is not finished; `{command}` goes on with it")
    return folder


def make_cell(scale: Scale, algo: str, cover: RunFolder, goals: int, budget: int) -> Cell:
    """The run of one algorithm on all pairs of maze and goal; `budget` is that of PPO, in steps a pair."""
    defaults = exploit_defaults(cover)
    agent = from_plain(PCPGConfig, SETTINGS[scale], "config", defaults.agent)
    lanes = 0 if default_lanes() == 1 else WIDTH
    config = exploit_config(defaults, agent=agent, env_options={"goals": goals}, lanes=lanes)
    ours: Any = config.agent
    if algo != ALGOS[0]:
        base = agent_config(scale, algo, budget)
        ppo: Any = dataclasses.replace(
            base, ppo=ours.ppo, visit_episodes=ours.explore.visit_episodes, num_rounds=2 * ours.exploit.num_rounds
        )
        config = RunConfig(ENV, algo, ppo, config.env_options, seed=config.seed, seeds=config.seeds, lanes=lanes)
    size = config.env_options["size"]
    command = f"pcpg reproduce maze --part goals --scale {scale} --size {size} --goals {goals}"
    return Cell(f"{algo}-size{size}", config, command)


def measure_run(folder: RunFolder) -> Record:
    """For every pair of maze and goal: where it lies and in how many episodes the final policy reached it."""
    run = load(folder.path)
    env: Any = run.env
    final, greedy = run.evaluate(EPISODES), run.evaluate(EPISODES, greedy=True)
    pairs = []
    for index, seed in enumerate(run.config.seed_list):
        params = env.instance(seed)
        pairs.append(
            {
                "maze": env.dynamics_seed(seed),
                "goal": [int(x) for x in divmod(int(params.goal), env.size)],
                "distance": int(env.distances(params)[params.goal]),
                "reached": int(np.count_nonzero(final.returns[index] > 0)),
                "reached_greedy": int(np.count_nonzero(greedy.returns[index] > 0)),
                "env_steps": run.summary["env_steps"][index],
            }
        )
    source = run.config.source
    record = {
        "algo": run.config.algo,
        "size": env.size,
        "goals": env.goals,
        "seeds": run.config.seed_list,
        "config": folder.config["agent"],
        "env_steps": run.summary["env_steps"],
        "pairs": pairs,
    }
    if not isinstance(run.config.agent, BaselineConfig):
        covers = {maze: cover["env_steps"] for maze, cover in source["covers"].items()}
        record["cover"] = {"sha256": source["sha256"], "env_steps": covers}
    return record
