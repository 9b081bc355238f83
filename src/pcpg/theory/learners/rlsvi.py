"""Tabular RLSVI, randomised least-squares value iteration (Osband, Van Roy and Wen 2014; Russo 2019).

    Q_h(s, a) = R / (N + 1) + sum_y N(y) / (N + 1) V_{h+1}(y) + w,   w ~ Normal(0, scale^2 beta_k / (N + 1))
    beta_k = W L^3 ln(2 L W A k) / 2

in episode k, as in Russo's Algorithm 1 (the model may depend on time, and values are not cut); W states in a layer.
R is the sum of rewards of (h, s, a), N its visits. Greedy play.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.mdp import Array


def noise_variance(N: Array, layout: Layout, episode: int) -> Array:
    """Return beta_k / (N + 1)."""
    L, W, A = layout.horizon, layout.width, layout.num_actions
    return 0.5 * W * L**3 * np.log(2.0 * L * W * A * episode) / (N + 1.0)


class RLSVI:
    """Greedy play on value iteration with Gaussian noise, drawn anew for each episode."""

    batch = 1

    def __init__(self, layout: Layout, streams: Streams, scale: float = 1.0) -> None:
        tables.check(scale=scale)
        self.layout, self.streams, self.scale = layout, streams, scale
        self.counts, self.episode = tables.Counts(layout, streams.n, share=False), 1
        self._draw()

    def policy(self) -> Array:
        """Return the greedy policies of the values drawn last."""
        return tables.greedy(self.Q)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and draw again."""
        self.counts.add(episodes)
        self.episode += 1
        self._draw()

    def _draw(self) -> None:
        sd = self.scale * np.sqrt(noise_variance(self.counts.visits, self.layout, self.episode))
        r = self.counts.mean_reward(ridge=1.0) + sd * self.streams.normal(*sd.shape[1:])
        self.Q = tables.induct(self.layout, r, self.counts.transitions(ridge=1.0), tables.plain, tables.best)
