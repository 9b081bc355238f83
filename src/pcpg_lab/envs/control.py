"""Sparse continuous control for `pcpg reproduce control`: tasks of dm_control, and mazes with fixed far corners.

gymnasium:pcpg_lab.envs.control:cartpole-swingup_sparse-v0         dm_control's, 1,000 steps an episode
gymnasium:pcpg_lab.envs.control:cartpole-swingup_sparse-cost-v0    the same, minus 0.1 a squared action
gymnasium:pcpg_lab.envs.control:PointMaze_Medium-far-v0            Gymnasium-Robotics', from corner to corner

dm_control and Gymnasium-Robotics are imported when an environment is made.
"""

import importlib
from typing import Any

import gymnasium
import numpy as np

from pcpg.envs.adapters.from_dm_env import DmEnv

EPISODE = 1_000
TASKS = ("cartpole-swingup_sparse", "pendulum-swingup", "acrobot-swingup_sparse", "ball_in_cup-catch")
COST = 0.1
MAZES = {"UMaze": ((1, 1), (3, 1), 300), "Medium": ((1, 1), (6, 6), 600), "Large": ((1, 1), (7, 10), 800)}
"""By the name of a maze, the cells of start and goal, and the steps of an episode."""


class Costly(gymnasium.Wrapper):
    """Every step costs the squared action."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one decision."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        return seen, float(reward) - COST * float(np.sum(np.square(action))), terminated, truncated, info


class FromTo(gymnasium.Wrapper):
    """A maze whose episodes all have the same start and goal."""

    def __init__(self, env: gymnasium.Env, start: tuple[int, int], goal: tuple[int, int]) -> None:
        super().__init__(env)
        self.options = {"reset_cell": np.array(start), "goal_cell": np.array(goal)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        del options
        return self.env.reset(seed=seed, options=dict(self.options))


def of_suite(task: str, cost: bool = False) -> gymnasium.Env:
    """A task of dm_control's suite."""
    suite = importlib.import_module("dm_control.suite")
    domain, _, name = task.partition("-")
    env = DmEnv(suite.load(domain, name), reseed=_reseed)
    return Costly(env) if cost else env


def _reseed(env: Any, seed: int) -> None:
    env.task._random = np.random.RandomState(seed)


def far_maze(size: str) -> gymnasium.Env:
    """A maze that pays 1 at the far corner, where the episode ends."""
    gymnasium.register_envs(importlib.import_module("gymnasium_robotics"))
    start, goal, _ = MAZES[size]
    made = gymnasium.make(f"PointMaze_{size}-v3", continuing_task=False, disable_env_checker=True)
    return FromTo(made.unwrapped, start, goal)


def _register(name: str, maker: Any, steps: int, **options: object) -> None:
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=maker, max_episode_steps=steps, kwargs=options)


for _task in TASKS:
    _register(f"{_task}-v0", of_suite, EPISODE, task=_task)
_register("cartpole-swingup_sparse-cost-v0", of_suite, EPISODE, task="cartpole-swingup_sparse", cost=True)
for _size, (_, _, _steps) in MAZES.items():
    _register(f"PointMaze_{_size}-far-v0", far_maze, _steps, size=_size)
