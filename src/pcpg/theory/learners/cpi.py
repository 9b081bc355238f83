"""Conservative policy iteration, CPI (Kakade and Langford 2002), for episodes from s0.

The paper assumes restarts from a distribution mu that covers the states; here mu is s0, as for everybody, and with it
goes the guarantee: what is found is a policy that cannot be improved much where it goes itself.

In each round, with pi the policy and values normalised to V = (1-gamma) E sum gamma^t r, in [0, R], R = 1:

    pi'     greedy in estimates of Q^pi: an episode follows pi to step h, Pr(h) ~ gamma^h, acts uniformly, then by pi
    A^      estimate of the policy advantage A = E_{s ~ d^pi} sum_a pi'(a | s) A^pi(s, a), from the round's other half
    pi <- (1 - alpha) pi + alpha pi',   alpha = scale (1-gamma) (A^ - eps/3) / (4 R),   if A^ >= 2 eps/3

The paper stops at the first A^ below 2 eps/3; here such a round leaves pi as it is. States that were not met keep pi.
scale = 1 is the paper's step, which its theorem shows to improve pi; alpha is cut at one. gamma = 1 - 1/L. The number
of episodes of a round is an argument, where the paper asks for an order, R^2 / eps^2 ln(R^2 / (delta eps^2)).
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Mixture, Streams
from pcpg.theory.learners.sampled_q import returns_to_go
from pcpg.theory.mdp import Array


class CPI:
    """Small steps towards greedy policies, each of a size that is sure to improve."""

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        gamma: float | None = None,
        batch: int = 500,
        epsilon: float = 0.01,
    ) -> None:
        tables.check(scale=scale, epsilon=epsilon)
        if batch < 2:
            raise ValueError(f"batch is {batch}; expected two episodes or more, one to choose and one to estimate")
        self.layout, self.streams, self.batch, self.epsilon = layout, streams, batch, epsilon
        self.scale, self.gamma = scale, tables.discount(layout.horizon, gamma, below_one=True)
        self.pi, self._lane = tables.uniform(layout, streams.n), np.arange(streams.n)[:, None]
        self.even = self.pi.copy()
        self.h = tables.geometric_steps(streams.uniform(batch), self.gamma, layout.horizon)

    def policy(self) -> Array:
        """Return the mixed policies."""
        return self.pi

    def behaviour(self) -> Mixture:
        """Return the policies with a uniform action at one step of each episode."""
        which = np.arange(self.layout.horizon) == self.h[..., None]
        return Mixture(np.stack([self.pi, self.even], axis=1), which.astype(np.int64))

    def learn(self, episodes: Episodes) -> None:
        """Take one conservative step; the first half of the episodes chooses pi', the other estimates its advantage."""
        at, half = self.h[..., None], self.batch // 2
        s, a = (np.take_along_axis(part, at, -1)[..., 0] for part in (episodes.s, episodes.a))
        q = (1.0 - self.gamma) * np.take_along_axis(returns_to_go(episodes.r, self.gamma), at, -1)[..., 0]
        found = tables.pair_means(self.pi.shape, s[:, :half], a[:, :half], q[:, :half])
        greedy = tables.greedy_where_met(found, self.pi)
        change = (greedy - self.pi)[self._lane, s, a][:, half:]
        # An action is uniform, so A times (pi' - pi)(a) q is unbiased; d^pi has mass 1 - gamma^L before the end.
        mass = 1.0 - self.gamma**self.layout.horizon
        advantage = mass * self.layout.num_actions * (change * q[:, half:]).mean(1)
        alpha = np.minimum(self.scale * (1.0 - self.gamma) * (advantage - self.epsilon / 3.0) / 4.0, 1.0)
        alpha = np.where(advantage >= 2.0 * self.epsilon / 3.0, alpha, 0.0)[:, None, None]
        self.pi = (1.0 - alpha) * self.pi + alpha * greedy
        self.h = tables.geometric_steps(self.streams.uniform(self.batch), self.gamma, self.layout.horizon)
