"""Runs of a learner on an episodic problem: the counter of samples, the grid of exact returns, samples to epsilon."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pcpg_theory.learners.layout import Episodes, Maker, Mixture, Streams
from pcpg_theory.learners.problem import Episodic
from pcpg_theory.mdp import Array, Index, Mask

ENVIRONMENT, LEARNER = 0, 1  # salts: the environment's random numbers do not depend on how many a learner draws
BELOW_ONE = 1.0 - 2.0**-31  # keeps u below the sum of a row of probabilities, which rounding may leave below one


class Uniform:
    """The uniform numbers of streams, drawn ahead: the same ones in the same order as if drawn when needed."""

    AHEAD = 4096

    def __init__(self, streams: Streams) -> None:
        self._streams, self._drawn, self._used = streams, np.empty((streams.n, 0)), 0

    def take(self, *shape: int) -> Array:
        """The next numbers [n, *shape]."""
        count = math.prod(shape)
        if self._used + count > self._drawn.shape[1]:
            more = self._streams.uniform(max(count, self.AHEAD))
            self._drawn = np.concatenate([self._drawn[:, self._used :], more], axis=1)
            self._used = 0
        found = self._drawn[:, self._used : self._used + count]
        self._used += count
        return found.reshape(-1, *shape)


class EpisodeSource:
    """The only way to a problem's samples: episodes from s0, each step counted."""

    def __init__(self, problem: Episodic, streams: Streams) -> None:
        if streams.n != problem.n:
            raise ValueError(f"there must be one seed for each of {problem.n} instances, got {streams.n}")
        self._problem, self._numbers, self._steps = problem, Uniform(streams), 0
        self._cdf = np.cumsum(problem.P, axis=-1).reshape(-1, problem.P.shape[-1])
        self._columns = np.ascontiguousarray(self._cdf.T[:-1])
        self._layer = np.repeat(np.arange(problem.horizon), np.diff(problem.first)[:-1])
        self._after = np.array(problem.first[1:])[self._layer]
        self._seen = problem.observed[: problem.first[-2]]
        self._lane = np.arange(problem.n)[:, None]

    @property
    def steps(self) -> int:
        """The number of environment steps that each seed has taken so far."""
        return self._steps

    def roll_out(self, pi: Array | Mixture, batch: int = 1) -> Episodes:
        """The next `batch` episodes of each seed, by policies [n, S, A] over the learner's states or by a mixture."""
        u = self._numbers.take(3 if self._problem.noisy else 2, self._problem.horizon, batch) * BELOW_ONE
        self._steps += self._problem.horizon * batch
        if isinstance(pi, Mixture):
            x, a = self._step_by_step(pi, u)
        elif batch == 1:
            x, a = self._along(pi, u[..., 0])
        else:
            alone = np.zeros((len(pi), 1, self._problem.horizon), np.int64)
            x, a = self._step_by_step(Mixture(pi[:, None], alone), u)
        r = self._problem.r[self._lane[..., None], x[..., :-1], a]
        if self._problem.noisy:
            r = (np.swapaxes(u[:, 2], 1, 2) < r).astype(np.float64)
        return Episodes(self._problem.observed[x], a, r)

    def _along(self, pi: Array, u: Array) -> tuple[Index, Index]:
        """The states and actions of one episode of each seed: every state draws what would follow, then it is followed.

        That is one draw for all states instead of one after the other, with the numbers u [n, 2 or 3, L] of their step.
        """
        problem, states = self._problem, len(self._seen)
        act, after = np.zeros((2, problem.n, states), np.int64)
        passed, drawn = np.zeros(pi.shape[:2]), u[:, :, self._layer]
        for k in range(pi.shape[-1] - 1):  # an outcome is the number of partial sums that u has passed
            passed = passed + pi[..., k]
            act += passed[:, self._seen] <= drawn[:, 0]
        pair = (self._lane * states + np.arange(states)) * pi.shape[-1] + act
        for chances in self._columns:
            after += chances.take(pair) <= drawn[:, 1]
        after += self._after + self._lane * states  # where the next state is in the flat array
        x, here = np.empty((problem.horizon + 1, problem.n), np.int64), self._lane[:, 0] * states
        for h in range(problem.horizon):
            x[h] = here
            here = after.take(here, mode="clip")
        x[-1] = here
        x -= self._lane[:, 0] * states
        x = x.T[:, None]
        return x, np.take_along_axis(act, x[:, 0, :-1], axis=1)[:, None]

    def _step_by_step(self, pi: Mixture, u: Array) -> tuple[Index, Index]:
        """The states and actions of a batch of episodes: at each step all of them draw."""
        problem, L, n, batch = self._problem, self._problem.horizon, self._problem.n, u.shape[-1]
        states, actions = problem.r.shape[1:]
        u = u[..., None]
        cdf, each = np.cumsum(pi.policies, axis=-1).reshape(-1, actions), pi.policies.shape[2]
        # where the policy of each step begins in cdf
        rows = (self._lane[..., None] * pi.policies.shape[1] + pi.which) * each
        x, a = np.zeros((n, batch, L + 1), np.int64), np.empty((n, batch, L), np.int64)
        for h in range(L):  # an outcome is the first whose partial sum exceeds u
            here = x[..., h]
            act = (cdf.take(rows[..., h] + problem.observed.take(here), axis=0) > u[:, 0, h]).argmax(-1)
            place = (self._lane * states + here) * actions + act
            a[..., h] = act
            x[..., h + 1] = problem.first[h + 1] + (self._cdf.take(place, axis=0) > u[:, 1, h]).argmax(-1)
        return x, a


class History(NamedTuple):
    """Exact raw returns of the current policies on a fixed grid of samples."""

    samples: Index  # [G]
    returns: Array  # [n, G]
    optimal: Array  # [n]
    uniform: Array  # [n]
    steps: int  # samples that each seed took: at most the budget


class Settle(NamedTuple):
    """When a seed may end before its budget: it stayed epsilon-optimal while its samples grew `factor` times.

    Seeds end independently, and their returns then stay fixed. A run ends with its last seed.
    """

    epsilon: Array | float
    factor: float = 3.0
    hope: int | None = None  # samples after which a seed ends too if it was never better than uniform by epsilon


def log_grid(budget: int, first: int = 20, per_decade: int = 12) -> Index:
    """Numbers of samples from `first` to the budget, evenly spaced in their logarithm, the budget included."""
    if not 0 < first <= budget:
        raise ValueError(f"first must be above 0 and at most the budget {budget}, got {first}")
    steps = np.floor(per_decade * np.log10(budget / first) + 1e-9)
    grid = np.round(first * 10.0 ** (np.arange(steps + 1.0) / per_decade)).astype(np.int64)
    return np.unique(np.append(grid, budget))


def run(
    problem: Episodic,
    make: Maker,
    seeds: Sequence[int],
    budget: int,
    points: int = 50,
    grid: Index | None = None,
    settle: Settle | None = None,
) -> History:
    """The history of a learner that may take `budget` samples with each seed.

    At a grid point the policy in force is scored: inside a batch that is the one from before it. A batch that would
    exceed the budget is not begun. The grid is even unless given; with `settle` the run and its grid may end early.
    """
    if budget < problem.horizon:
        raise ValueError(f"budget must be {problem.horizon}, the steps of an episode, or more, got {budget}")
    if points < 1:
        raise ValueError(f"points must be 1 or more, got {points}")
    if grid is None:
        grid = np.unique(np.linspace(0, budget, points + 1).astype(np.int64))
    if grid[-1] != budget:
        raise ValueError(f"the grid must end at the budget, {budget}, got {grid[-1]}")
    env = EpisodeSource(problem, Streams(seeds, ENVIRONMENT))
    learner = make(problem.layout, Streams(seeds, LEARNER))
    optimal, uniform, scores = problem.optimal(), problem.uniform(), []
    ended = np.zeros(problem.n, bool)

    def score(due: int) -> None:
        now = problem.returns(learner.policy())
        scores.extend([np.where(ended, scores[-1], now) if scores else now] * due)

    def history() -> History:
        return History(grid[: len(scores)], np.stack(scores, axis=1), optimal, uniform, env.steps)

    while env.steps + (cost := problem.horizon * (batch := learner.batch)) <= budget:
        if grid[len(scores)] < env.steps + cost:
            for _ in range(int((grid < env.steps + cost).sum()) - len(scores)):
                score(1)
                ended |= settled(history(), settle)
            if ended.all():
                return history()
        learner.learn(env.roll_out(learner.behaviour(), batch))
    score(len(grid) - len(scores))
    return history()


def settled(history: History, settle: Settle | None) -> Mask:
    """Which seeds may end at the last point of this history."""
    if settle is None:
        return np.zeros(len(history.returns), bool)
    last = history.samples[-1]
    done = samples_to(history, settle.epsilon) * settle.factor <= last
    if settle.hope is None or last < settle.hope:
        return done
    better = history.returns >= (history.uniform + settle.epsilon)[:, None]
    return done | ~better.any(1)


def samples_to(history: History, epsilon: Array | float) -> Array:
    """For each seed the first grid point from which on it stays epsilon-optimal; inf where it never does."""
    good = history.returns >= (history.optimal - epsilon)[:, None] - 1e-9
    stays = np.logical_and.accumulate(good[:, ::-1], axis=1)[:, ::-1]
    return np.where(stays.any(1), history.samples[stays.argmax(1)], np.inf)
