"""Optimistic Q-learning with aggregated states, AQ-UCB (Dong, Van Roy and Zhou 2019).

One value for each cell of a partition of the pairs (h, s, a), with V cut at L - h:

    Q(cell) <- (1 - alpha_t) Q(cell) + alpha_t (r + V_{h+1}(s') + b_t),   alpha_t = (L + 1) / (L + t)
    b_t = scale 2 sqrt(L^3 ln(L k / delta) / t) + error

t the visits of the cell, k the episodes so far, where the paper knows their number K; `error` is the aggregation error
that it is told of, the largest difference of optimal values within a cell. The constant by our derivation: the weights
of t updates have squares that sum to 2 L / t or less, so Azuma's inequality with values in [0, L] gives
2 sqrt(L^3 ln(.) / t); the logarithm is a union over steps and episodes. Without `labels` each observed pair is a cell:
states that a problem aggregates already look the same.
"""

import numpy as np
from numpy.typing import ArrayLike

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Index, Layout, Streams
from pcpg.theory.learners.ucb_q import hoeffding_bonus, rate
from pcpg.theory.mdp import Array


def cells_of(layout: Layout, labels: ArrayLike | None) -> Index:
    """Return the number of the cell of each pair, [S, A]: pairs of one layer and one label share a cell."""
    shape = (layout.num_states, layout.num_actions)
    if labels is None:
        return np.arange(shape[0] * shape[1]).reshape(shape)
    labels = np.asarray(labels)
    if labels.shape != shape:
        raise ValueError(f"labels have shape {labels.shape}; expected {shape}, one for each pair")
    both = np.stack([np.broadcast_to(layout.layer[:, None], shape).reshape(-1), labels.reshape(-1)])
    return np.unique(both, axis=1, return_inverse=True)[1].reshape(shape).astype(np.int64)


class AggregatedQ:
    """Optimistic Q-learning on the cells of a partition of pairs."""

    batch = 1

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        delta: float = 0.1,
        labels: ArrayLike | None = None,
        error: float = 0.0,
    ) -> None:
        tables.check(scale=scale, delta=delta)
        if not error >= 0.0:
            raise ValueError(f"error is {error}; expected an aggregation error of zero or more")
        self.layout, self.scale, self.delta, self.error = layout, scale, delta, error
        self.cells, self.top = cells_of(layout, labels), layout.remaining
        cells = int(self.cells.max()) + 1
        self.Q, self.visits = np.zeros((streams.n, cells)), np.zeros((streams.n, cells))
        self.Q[:, self.cells] = self.top[: layout.num_states, None]
        self.episodes, self._lane = 0, np.arange(streams.n)[:, None]

    def policy(self) -> Array:
        """Return the greedy policies of the optimistic Q."""
        return tables.greedy(self.Q[:, self.cells])

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Update the cells of an episode; each uses values from before it."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        horizon, self.episodes = self.layout.horizon, self.episodes + 1
        iota = float(np.log(horizon * self.episodes / self.delta))
        at = (self._lane, self.cells[s[:, :-1], a])
        self.visits[at] += 1.0
        alpha = rate(self.visits[at], horizon)
        b = 2.0 * self.scale * hoeffding_bonus(self.visits[at], horizon, iota) + self.error
        after = np.zeros_like(r)  # zero at the end of the episode
        nexts = self.cells[s[:, 1:-1]]
        after[:, :-1] = np.minimum(self.top[s[:, 1:-1]], self.Q[self._lane[..., None], nexts].max(-1))
        self.Q[at] = (1.0 - alpha) * self.Q[at] + alpha * (r + after + b)
