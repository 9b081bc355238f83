"""The d-sampler and the Q-estimator of the paper, for thousands of chains at once, counting every step.

A `Simulator` is all that sampled mode sees of an MDP: resets to s0, moves, rewards. Chains run in parallel in
arrays; each has its own geometric stopping time, Pr(t) = (1-gamma) gamma^t.

| what is drawn             | environment steps it costs                                             |
|---------------------------|------------------------------------------------------------------------|
| a pair from d^pi          | t: the t moves that lead to (s_t, a_t); a_t is chosen, not yet played  |
| a Q-estimate from (s, a)  | t + 1: a is played, then t more actions                                |
| a cut discounted sum      | until gamma^t <= tail                                                  |

Decisions in terminal states cost nothing: the environment's episode has ended, the rest is arithmetic.
Q-estimates are sums of UNdiscounted rewards up to the stopping time: unbiased for the discounted Q, and unbounded. The
length of such a sum is random, which is most of its variance; a discounted sum over a fixed time has a small bias, tail
times the largest value, and a far smaller variance: it is what choosing among policies needs, and cheaper in a critic.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pcpg_theory.mdp import Array, Index, TabularMDP


class Pairs(NamedTuple):
    """State-action pairs, one for each chain."""

    s: Index
    a: Index


def _stacked_cdf(rows: Array) -> Array:
    """The cumulative rows, row i shifted by i, flat and ascending: one binary search draws from any row."""
    cdf = np.cumsum(rows, axis=1)
    cdf /= cdf[:, -1:]
    return (cdf + np.arange(len(rows))[:, None]).reshape(-1)


def _draw(stacked: Array, width: int, row: Index, rng: np.random.Generator) -> Index:
    # side="right" and u < 1: an outcome of probability zero is never drawn. The factor keeps row + u from rounding up
    # to the next row, where a row may be a million; it moves probabilities by less than 1e-9.
    place = np.searchsorted(stacked, row + rng.random(len(row)) * (1.0 - 2.0**-31), side="right")
    return np.minimum(place - row * width, width - 1)


class Policies:
    """A stack of policies [n, S, A] that chains can draw actions from, each chain from its own policy."""

    def __init__(self, stack: Array) -> None:
        stack = np.asarray(stack, dtype=np.float64)
        if stack.ndim == 2:
            stack = stack[None]
        self.count, self.num_states, self.num_actions = stack.shape
        self._cdf = _stacked_cdf(stack.reshape(-1, self.num_actions))

    def act(self, which: Index, s: Index, rng: np.random.Generator) -> Index:
        """An action for each chain, drawn from its policy in its state."""
        return _draw(self._cdf, self.num_actions, which * self.num_states + s, rng)


class Simulator:
    """Moves of an MDP for many chains at once; `steps` is the number of environment steps taken so far."""

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator) -> None:
        self.gamma, self.s0, self.r = mdp.gamma, mdp.s0, mdp.r
        self.num_states, self.num_actions = mdp.shape
        self.rng, self.steps = rng, 0
        self._costs = (~mdp.terminal).astype(np.int64)
        rows = np.where(mdp.available[..., None], mdp.P, 1.0 / mdp.num_states)
        self._cdf = _stacked_cdf(rows.reshape(-1, mdp.num_states))

    def play(self, s: Index) -> None:
        """Count one environment step for each chain that is in a state where the environment still runs."""
        self.steps += int(self._costs[s].sum())

    def move(self, s: Index, a: Index) -> Index:
        """The next state of each chain; counting is the caller's, by `play`."""
        return _draw(self._cdf, self.num_states, s * self.num_actions + a, self.rng)

    def stopping_times(self, count: int) -> Index:
        """Geometric times t = 0, 1, ... with Pr(t) = (1-gamma) gamma^t."""
        return self.rng.geometric(1.0 - self.gamma, size=count) - 1


def reset(sim: Simulator, policies: Policies, which: Index) -> Pairs:
    """(s0, a0) with a0 drawn from each chain's policy."""
    s = np.full(len(which), sim.s0)
    return Pairs(s, policies.act(which, s, sim.rng))


def walk(sim: Simulator, policies: Policies, which: Index, s: Index, a: Index) -> Iterator[Index]:
    """Move chains, in place, to their geometric stopping times and count the moves; yields those that just moved."""
    remaining = sim.stopping_times(len(which))
    alive = np.flatnonzero(remaining > 0)
    while alive.size:
        sim.play(s[alive])
        s[alive] = sim.move(s[alive], a[alive])
        a[alive] = policies.act(which[alive], s[alive], sim.rng)
        yield alive
        remaining[alive] -= 1
        alive = alive[remaining[alive] > 0]


def d_sampler(sim: Simulator, policies: Policies, which: Index, start: Pairs | None = None) -> Pairs:
    """One pair a chain from d^pi_nu: nu by the `start` pairs, or (s0, a0 ~ pi) where none are given."""
    s, a = (part.copy() for part in (reset(sim, policies, which) if start is None else start))
    for _ in walk(sim, policies, which, s, a):
        pass
    return Pairs(s, a)


def q_estimator(sim: Simulator, policies: Policies, which: Index, start: Pairs, r: Array, cap: float = np.inf) -> Array:
    """One unbiased estimate of Q^pi(s, a; r) a chain; `cap` cuts estimates where a bound is needed."""
    s, a = start.s.copy(), start.a.copy()
    total = r[s, a].astype(np.float64)
    for alive in walk(sim, policies, which, s, a):
        total[alive] += r[s[alive], a[alive]]
    sim.play(s)  # the last action of each chain
    return np.minimum(total, cap)


def discounted_sums(sim: Simulator, policies: Policies, which: Index, start: Pairs, r: Array, tail: float) -> Array:
    """The discounted sum of rewards from each chain's pair on, cut where gamma^t <= tail, the same for all chains."""
    s, a = start
    total, discount = np.zeros(len(s)), 1.0
    while True:
        sim.play(s)
        total += discount * r[s, a]
        discount *= sim.gamma
        if discount <= tail:
            return total
        s = sim.move(s, a)
        a = policies.act(which, s, sim.rng)


def start_values(sim: Simulator, stack: Array, episodes: int, r: Array, tail: float = 0.01) -> Array:
    """An estimate of V^pi(s0; r) for each policy of the stack, by `episodes` discounted sums each."""
    policies = Policies(stack)
    which = np.repeat(np.arange(policies.count), episodes)
    total = discounted_sums(sim, policies, which, reset(sim, policies, which), r, tail)
    return total.reshape(policies.count, episodes).mean(1)


def visit_frequencies(sim: Simulator, pi: Array, count: int) -> Array:
    """The empirical d^pi[s, a] of `count` pairs, as line 4 of Algorithm 1 needs it."""
    pairs = d_sampler(sim, Policies(pi), np.zeros(count, dtype=np.int64))
    flat = np.bincount(pairs.s * sim.num_actions + pairs.a, minlength=sim.num_states * sim.num_actions)
    return flat.reshape(sim.num_states, sim.num_actions) / count
