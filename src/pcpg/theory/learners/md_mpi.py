"""Mirror descent modified policy iteration, MD-MPI (Geist, Scherrer and Pietquin 2019), sampled from s0.

    pi_{k+1} = argmax_pi <q_k, pi> - KL(pi, pi_k) / scale,   that is pi_{k+1} ~ pi_k exp(scale q_k)
    q_{k+1}  = (T_{pi_{k+1}})^m q_k

The second line on samples: for each pair met in a batch of episodes of pi_{k+1}, the mean of its m-step targets
sum_{i<m} gamma^i r_{h+i} + gamma^m sum_a pi_{k+1}(a | s_{h+m}) q_k(s_{h+m}, a); pairs that were not met keep q_k.
q starts at 0, the policy uniform. gamma = 1 - 1/L.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.learners.sampled_q import pair_sums, softmax
from pcpg.theory.mdp import Array


def partial_returns(r: Array, V: Array, m: int, gamma: float) -> Array:
    """Return the m-step targets [..., L] from rewards [..., L] and values [..., L + 1] of the states met.

    Beyond the end of an episode there are no rewards and values are zero, so targets are cut there.
    """
    L = r.shape[-1]
    G = np.zeros_like(r)
    for i in range(min(m, L)):
        G[..., : L - i] += gamma**i * r[..., i:]
    if m < L:
        G[..., : L - m] += gamma**m * V[..., m:L]
    return G


class MDMPI:
    """A mirror step on q, then m steps of evaluation on samples."""

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        gamma: float | None = None,
        batch: int = 20,
        m: int = 5,
    ) -> None:
        tables.check(scale=scale, batch=batch, m=m)
        self.scale, self.batch, self.m, self.gamma = scale, batch, m, tables.discount(layout.horizon, gamma)
        self.q, self.theta = tables.zeros(layout, streams.n), tables.zeros(layout, streams.n)
        self.after = layout.first[-1] - layout.num_states
        self._lane = np.arange(streams.n)[:, None, None]

    def policy(self) -> Array:
        """Return the policies of the last mirror step."""
        return softmax(self.theta)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Evaluate the policy that made the episodes, then take a mirror step."""
        V = np.pad((softmax(self.theta) * self.q).sum(-1), ((0, 0), (0, self.after)))
        targets = partial_returns(episodes.r, V[self._lane, episodes.s], self.m, self.gamma)
        sums, visits = pair_sums(episodes, targets, self.q.shape)
        self.q = np.where(visits > 0.0, sums / np.maximum(visits, 1.0), self.q)
        self.theta += self.scale * self.q
