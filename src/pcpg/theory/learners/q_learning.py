"""Epsilon-greedy Q-learning (Watkins 1989): the table's example of a learner that does not explore on purpose.

    Q(s, a) <- (1 - alpha_t) Q(s, a) + alpha_t (r + gamma max_a' Q(s', a')),   alpha_t = t^-0.6, Q starts at 0

With probability epsilon an action is uniform, else it is greedy, ties at random. The greedy policy is what is scored.
`scale` is epsilon itself, the only thing there is to scale. gamma = 1 - 1/L by default. A rate t^-omega converges for
omega in (1/2, 1] (Even-Dar and Mansour 2003); omega = 1 is exponentially slow in 1/(1-gamma).
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.mdp import Array


class EpsilonGreedyQ:
    """Q-learning with a constant share of uniform actions."""

    batch = 1

    def __init__(
        self, layout: Layout, streams: Streams, scale: float = 0.1, gamma: float | None = None, omega: float = 0.6
    ) -> None:
        tables.check(scale=scale, omega=omega)
        if scale > 1.0:
            raise ValueError(f"scale is {scale}; epsilon is a probability")
        self.epsilon, self.omega, self.gamma = scale, omega, tables.discount(layout.horizon, gamma)
        self.Q, self.visits = tables.zeros(layout, streams.n), tables.zeros(layout, streams.n)
        self.V = np.zeros((streams.n, layout.first[-1]))
        self.pi, self._lane = tables.greedy(self.Q), np.arange(streams.n)[:, None]

    def policy(self) -> Array:
        """Return the greedy policies."""
        return self.pi

    def behaviour(self) -> Array:
        """Return the greedy policies mixed with uniform play."""
        return (1.0 - self.epsilon) * self.pi + self.epsilon / self.pi.shape[-1]

    def learn(self, episodes: Episodes) -> None:
        """Update the pairs of an episode; each uses values from before it."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        at, rows = (self._lane, s[:, :-1], a), (self._lane, s[:, :-1])
        self.visits[at] += 1.0
        alpha = self.visits[at] ** -self.omega
        self.Q[at] += alpha * (r + self.gamma * self.V[self._lane, s[:, 1:]] - self.Q[at])
        self.V[rows] = self.Q[rows].max(-1)
        self.pi[rows] = tables.greedy(self.Q[rows])
