"""Mazes as episodic problems, and a kernel between their pairs that is large where cells are near.

Instances are those of `pcpg train Maze-v0 --env.goals 10`: seed s is maze s // 10 with its goal s % 10, near or far,
which pays 1 and ends the episode. An episode has half as many decisions again as the way to the farthest cell takes.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from pcpg_theory.kernel import RBF, Indicator, Product
from pcpg_theory.learners import problem
from pcpg_theory.learners.problem import Episodic
from pcpg_theory.mdp import Array, Index

GOALS = 10
SPARE = 1.5


@cache
def _cells(size: int, maze: int) -> tuple[Index, int, int]:
    """The open cells of a maze, the number of the start among them, and the decisions of an episode."""
    from pcpg.envs.maze import Maze  # here: environments import JAX, arrays do not

    env = Maze(size)
    params = env.instance(maze)
    distances, cells = env.distances(params), np.flatnonzero(env.open_cells(params))
    return cells, int(np.searchsorted(cells, int(params.start))), int(SPARE * distances.max())


def maze(size: int, seeds: Sequence[int]) -> Episodic:
    """A maze of this size, border included, an instance for each seed: seeds of one maze, such as 0 to 9."""
    from pcpg.envs.maze import Maze

    if len({seed // GOALS for seed in seeds}) != 1:
        raise ValueError(f"seeds must be of one maze, {GOALS} that begin at a multiple of {GOALS}, got {list(seeds)}")
    env = Maze(size, goals=GOALS)
    cells, start, decisions = _cells(size, seeds[0] // GOALS)
    models = [env.tabular(env.instance(seed)) for seed in seeds]
    P = np.stack([model.transitions[np.ix_(cells, np.arange(5), cells)] for model in models])
    raw = np.stack([model.rewards[cells] for model in models])
    layers = [np.array([start]), *[np.arange(len(cells))] * decisions]
    return problem.build(f"maze of {size}", layers, P, raw, 0.0, 1.0)


def kernel(size: int, seed: int, lengthscale: float) -> Array:
    """k((s, a), (s', a')) = exp(-norm(x - x')^2 / (2 lengthscale^2)) 1{a = a'} for cells x, x' [S A, S A]."""
    cells, start, decisions = _cells(size, seed // GOALS)
    cells = np.concatenate([cells[[start]], *[cells] * (decisions - 1)])
    pairs = [(*divmod(int(cell), size), a) for cell in cells for a in range(5)]
    return Product(RBF(lengthscale), Indicator(), 2)(np.array(pairs, float), np.array(pairs, float))
