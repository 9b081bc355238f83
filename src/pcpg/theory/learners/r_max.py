"""R-max (Brafman and Tennenholtz 2002): pairs tried fewer than m times are taken to lead to heaven.

A pair is known from its m-th visit on, with the model estimated from those m visits. Unknown pairs are worth the
most that can remain, sum_{k < L-h} gamma^k. The policy is optimal in that model; it changes only when a pair becomes
known.

    m = ceil(scale (max((4 S T / eps)^3, -6 ln^3(delta / (6 S A^2))) + 1))

T is the eps-return mixing time, here the horizon L; S counts states with their time in them. gamma = 1 - 1/L.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.mdp import Array


def known_after(states: int, actions: int, horizon: int, epsilon: float, delta: float) -> float:
    """Return the paper's number of visits K_1 after which a pair is known, for rewards of at most one."""
    accuracy = (4.0 * states * horizon / epsilon) ** 3
    confidence = -6.0 * np.log(delta / (6.0 * states * actions**2)) ** 3
    return float(max(np.ceil(accuracy), np.ceil(confidence)) + 1.0)


def heaven(layout: Layout, gamma: float) -> Array:
    """Return sum_{k < L-h} gamma^k for each decision state."""
    powers: Array = np.cumsum(gamma ** np.arange(layout.horizon), dtype=np.float64)
    return powers[layout.remaining[: layout.num_states].astype(np.int64) - 1]


class RMax:
    """Optimal play in the model in which unknown pairs are the best there could be."""

    batch = 1

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        gamma: float | None = None,
        epsilon: float = 0.1,
        delta: float = 0.1,
    ) -> None:
        tables.check(scale=scale, epsilon=epsilon, delta=delta)
        theory = known_after(layout.num_states, layout.num_actions, layout.horizon, epsilon, delta)
        self.layout, self.m = layout, float(np.ceil(scale * theory))
        self.gamma = tables.discount(layout.horizon, gamma)
        self.counts = tables.Counts(layout, streams.n, share=False)
        self.top, self._lane = heaven(layout, self.gamma)[:, None], np.arange(streams.n)[:, None, None]
        self.pi = tables.greedy(tables.zeros(layout, streams.n) + self.top)

    def policy(self) -> Array:
        """Return the optimal policies of the model."""
        return self.pi

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Count the visits of unknown pairs; plan again where one became known."""
        counts, at = self.counts, (self._lane, episodes.s[..., :-1], episodes.a)
        fresh = counts.visits[at] < self.m
        if not fresh.any():
            return
        counts.add(episodes, keep=fresh)
        if (fresh & (counts.visits[at] >= self.m)).any():
            self.pi = tables.greedy(self._plan())

    def _plan(self) -> Array:
        known = self.counts.visits >= self.m
        P = self.gamma * self.counts.transitions()

        def finish(here: slice, Q: Array) -> Array:
            return np.where(known[:, here], Q, self.top[here])

        return tables.induct(self.layout, self.counts.mean_reward(), P, finish, tables.best)
