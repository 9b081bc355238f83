"""PSRL, posterior sampling (Strens 2000; Osband, Russo and Van Roy 2013), for episodes of a stationary model.

Before each episode an MDP is drawn from the posterior and its optimal policy is played.

    P(. | s, a) ~ Dirichlet(1/w + N(s, a, .) / scale^2)           w states in the next layer
    r(s, a)     ~ Beta(1 + R / scale^2, 1 + (N - R) / scale^2)    R the sum of rewards, N the visits

scale = 1 is the posterior (of Bernoulli rewards); scale multiplies its standard deviations, about.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Index, Layout, Streams
from pcpg.theory.mdp import Array

TINY = 1e-300  # a Gamma number of a small shape can round to zero in a whole row


def dirichlet(streams: Streams, weights: Array) -> Array:
    """Return Dirichlet draws over the last axis; entries of weight zero stay zero."""
    drawn = np.where(weights > 0.0, np.maximum(streams.gamma(weights), TINY), 0.0)
    return drawn / np.maximum(drawn.sum(-1, keepdims=True), TINY)


def prior(layout: Layout, model_state: Index) -> Array:
    """Return 1/w on the w states of the next layer and 0 beyond them, [M, 1, W]."""
    widths = np.diff(layout.first)[1:][layout.layer]
    wide = np.zeros(int(model_state.max()) + 1)
    wide[model_state] = widths
    return ((np.arange(layout.width) < wide[:, None]) / wide[:, None])[:, None]


class PSRL:
    """Optimal play in an MDP drawn from the posterior, a new one for each episode."""

    batch = 1

    def __init__(self, layout: Layout, streams: Streams, scale: float = 1.0) -> None:
        tables.check(scale=scale)
        self.layout, self.streams, self.scale = layout, streams, scale
        self.counts = tables.Counts(layout, streams.n, share=True)
        self.prior = prior(layout, self.counts.model_state)
        self._draw()

    def policy(self) -> Array:
        """Return the optimal policies of the MDPs drawn last."""
        return tables.greedy(self.Q)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and draw again."""
        self.counts.add(episodes)
        self._draw()

    def _draw(self) -> None:
        counts, over = self.counts, 1.0 / self.scale**2
        P = dirichlet(self.streams, self.prior + counts.successors * over)
        wins = self.streams.gamma(1.0 + counts.rewards * over)
        losses = self.streams.gamma(1.0 + (counts.visits - counts.rewards) * over)
        r, which = wins / (wins + losses), counts.model_state
        self.Q = tables.induct(self.layout, r[:, which], P[:, which], tables.plain, tables.best)
