"""Runs of a learner on an episodic problem: the counter of samples, the grid of exact returns, samples to epsilon."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pcpg.theory.comparators.layout import Episodes, Index, Maker, Streams
from pcpg.theory.comparators.problem import Episodic
from pcpg.theory.mdp import Array

ENVIRONMENT, LEARNER = 0, 1  # salts: the environment's random numbers do not depend on how many a learner draws
BELOW_ONE = 1.0 - 2.0**-31  # keeps u below the sum of a row of probabilities, which rounding may leave below one


class Environment:
    """The only way to a problem's samples: episodes from s0, each step counted."""

    def __init__(self, problem: Episodic, streams: Streams) -> None:
        if streams.n != problem.n:
            raise ValueError(f"{streams.n} seeds for {problem.n} instances; expected one for each")
        self._problem, self._streams, self._steps = problem, streams, 0
        self._cdf = np.cumsum(problem.P, axis=-1).reshape(-1, problem.P.shape[-1])

    @property
    def steps(self) -> int:
        """The number of environment steps that each seed has taken so far."""
        return self._steps

    def roll_out(self, pi: Array, batch: int = 1) -> Episodes:
        """Return `batch` episodes of each seed with the policies [n, S, A] over the learner's states."""
        problem, L, n = self._problem, self._problem.horizon, self._problem.n
        states, actions = problem.r.shape[1:]
        u = (self._streams.uniform(2, L, batch) * BELOW_ONE)[..., None]
        cdf = np.cumsum(pi, axis=-1).reshape(-1, actions)
        lane = np.arange(n)[:, None]
        x, a = np.zeros((n, batch, L + 1), np.int64), np.empty((n, batch, L), np.int64)
        for h in range(L):  # an outcome is the number of partial sums that u has passed
            here = x[..., h]
            act = (cdf.take(lane * pi.shape[1] + problem.observed.take(here), axis=0) <= u[:, 0, h]).sum(-1)
            place = (lane * states + here) * actions + act
            a[..., h] = act
            x[..., h + 1] = problem.first[h + 1] + (self._cdf.take(place, axis=0) <= u[:, 1, h]).sum(-1)
        self._steps += L * batch
        return Episodes(problem.observed[x], a, problem.r[lane[..., None], x[..., :-1], a])


class History(NamedTuple):
    """Exact raw returns of the current policies on a fixed grid of samples."""

    samples: Index  # [G]
    returns: Array  # [n, G]
    optimal: Array  # [n]
    uniform: Array  # [n]
    steps: int  # samples that each seed took: at most the budget


def run(problem: Episodic, make: Maker, seeds: Sequence[int], budget: int, points: int = 50) -> History:
    """Return the history of a learner that may take `budget` samples with each seed.

    At a grid point the policy in force is scored: inside a batch that is the one from before it. A batch that would
    exceed the budget is not begun.
    """
    if budget < problem.horizon or points < 1:
        raise ValueError(f"budget is {budget}, points {points}; expected at least one episode and one point")
    env = Environment(problem, Streams(seeds, ENVIRONMENT))
    learner = make(problem.layout, Streams(seeds, LEARNER))
    grid = np.unique(np.linspace(0, budget, points + 1).astype(np.int64))
    scores, cost = [], problem.horizon * learner.batch
    while env.steps + cost <= budget:
        if grid[len(scores)] < env.steps + cost:
            due = int((grid < env.steps + cost).sum()) - len(scores)
            scores += [problem.returns(learner.policy())] * due
        learner.learn(env.roll_out(learner.behaviour(), learner.batch))
    scores += [problem.returns(learner.policy())] * (len(grid) - len(scores))
    return History(grid, np.stack(scores, axis=1), problem.optimal(), problem.uniform(), env.steps)


def samples_to(history: History, epsilon: Array | float) -> Array:
    """Return for each seed the first grid point from which on it stays epsilon-optimal; inf where it never does."""
    good = history.returns >= (history.optimal - epsilon)[:, None] - 1e-9
    stays = np.logical_and.accumulate(good[:, ::-1], axis=1)[:, ::-1]
    return np.where(stays.any(1), history.samples[stays.argmax(1)], np.inf)
