"""Delayed Q-learning (Strehl, Li, Wiewiora, Langford and Littman 2006).

A pair collects m targets r + gamma max Q(s') and then attempts an update: if their mean lies 2 eps_1 below Q(s, a),
Q(s, a) becomes the mean plus eps_1. A pair whose attempt failed, with no Q changed since its attempt before, stops
learning until some Q changes. Greedy play; Q starts at the most that can remain, sum_{k < L-h} gamma^k.

    eps_1 = eps (1 - gamma) / 9
    m     = ceil(scale ln(3 S A (1 + S A / (eps_1 (1 - gamma))) / delta) / (2 eps_1^2 (1 - gamma)^2))

gamma = 1 - 1/L by default. `epsilon` is the accuracy of the discounted value.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.learners.r_max import heaven
from pcpg.theory.mdp import Array


def attempt_after(pairs: int, gamma: float, eps_1: float, delta: float) -> float:
    """Return the paper's number m of targets of an attempt, for pairs = S A."""
    kappa = 1.0 + pairs / (eps_1 * (1.0 - gamma))
    return float(np.log(3.0 * pairs * kappa / delta) / (2.0 * (eps_1 * (1.0 - gamma)) ** 2))


class DelayedQ:
    """Q-learning from above, in steps of at least eps_1, each backed by m targets."""

    batch = 1

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        gamma: float | None = None,
        epsilon: float = 1.0,
        delta: float = 0.1,
    ) -> None:
        tables.check(scale=scale, epsilon=epsilon, delta=delta)
        self.gamma = tables.discount(layout.horizon, gamma, below_one=True)
        self.eps_1 = epsilon * (1.0 - self.gamma) / 9.0
        pairs = layout.num_states * layout.num_actions
        self.m = float(np.ceil(scale * attempt_after(pairs, self.gamma, self.eps_1, delta)))
        n, top = streams.n, heaven(layout, self.gamma)
        self.Q, self.V = tables.zeros(layout, n) + top[:, None], np.zeros((n, layout.first[-1]))
        self.V[:, : layout.num_states] = top
        self.sums, self.collected, self.attempted = (tables.zeros(layout, n) for _ in range(3))
        self.learning = np.ones_like(self.Q, bool)
        self.changed, self.steps = np.zeros(n), 0  # the time of the last change of any Q; `attempted` has attempts
        self.pi, self._lane = tables.greedy(self.Q), np.arange(n)[:, None]

    def policy(self) -> Array:
        """Return the greedy policies."""
        return self.pi

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Take in the steps of an episode; whether a mean is low enough depends on values from before it only."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        at, rows = (self._lane, s[:, :-1], a), (self._lane, s[:, :-1])
        time = self.steps + 1.0 + np.arange(a.shape[1])
        self.steps += a.shape[1]
        active = self.learning[at]
        self.sums[at] += active * (r + self.gamma * self.V[self._lane, s[:, 1:]])
        self.collected[at] += active
        attempt = active & (self.collected[at] >= self.m)
        mean = self.sums[at] / self.m
        success = attempt & (self.Q[at] - mean >= 2.0 * self.eps_1)
        # changed[h]: the last change of any Q before step h, those of this episode included.
        latest = np.maximum.accumulate(np.where(success, time, 0.0), axis=1)
        changed = np.maximum(self.changed[:, None], np.concatenate([np.zeros_like(latest[:, :1]), latest[:, :-1]], 1))
        stop = attempt & ~success & (self.attempted[at] >= changed)
        wake = ~active & (self.attempted[at] < changed)
        self.learning[at] = (active & ~stop) | wake
        self.Q[at] = np.where(success, mean + self.eps_1, self.Q[at])
        self.attempted[at] = np.where(attempt, time, self.attempted[at])
        self.sums[at] = np.where(attempt, 0.0, self.sums[at])
        self.collected[at] = np.where(attempt, 0.0, self.collected[at])
        self.changed = np.maximum(self.changed, latest[:, -1])
        self.V[rows] = self.Q[rows].max(-1)
        self.pi[rows] = tables.greedy(self.Q[rows])
