"""Natural policy gradient without exploration (Kakade 2001; Agarwal, Kakade, Lee and Mahajan 2019), sampled.

    theta(s, a) += scale (Q^(s, a) - V^(s)) / (1 - gamma)

the natural gradient of a tabular softmax policy, on pairs met in a batch of episodes from s0: Q^ is the mean return
of the pair's visits, V^ that of its state's. Pairs that were not met keep their logit: there is no cover to roll in
from. gamma = 1 - 1/L; `scale` is the paper's eta. The policy starts uniform.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.learners.sampled_q import pair_sums, returns_to_go, softmax
from pcpg.theory.mdp import Array


class NPG:
    """Multiplicative weights on sampled advantages."""

    def __init__(
        self, layout: Layout, streams: Streams, scale: float = 0.1, gamma: float | None = None, batch: int = 20
    ) -> None:
        tables.check(scale=scale, batch=batch)
        self.scale, self.batch = scale, batch
        self.gamma = tables.discount(layout.horizon, gamma, below_one=True)
        self.theta = tables.zeros(layout, streams.n)

    def policy(self) -> Array:
        """Return the softmax policies."""
        return softmax(self.theta)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Take one natural gradient step."""
        sums, visits = pair_sums(episodes, returns_to_go(episodes.r, self.gamma), self.theta.shape)
        Q = sums / np.maximum(visits, 1.0)
        V = sums.sum(-1, keepdims=True) / np.maximum(visits.sum(-1, keepdims=True), 1.0)
        self.theta += self.scale / (1.0 - self.gamma) * np.where(visits > 0.0, Q - V, 0.0)
