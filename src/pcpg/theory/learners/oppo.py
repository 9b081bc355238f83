"""OPPO, optimistic proximal policy optimisation (Cai, Yang, Jin and Wang 2019), on tabular models.

A tabular model is a linear kernel MDP with psi(s, a, y) = e_(s, a, y), so its regression of values falls apart into
one for each pair. With v^j the optimistic values of the next layer in episode j, at the visits of (s, a):

    Lambda = I + sum_j v^j v^j',   w = Lambda^-1 sum_j v^j v^j(y^j)            sums over the episodes before k
    Q_h    = clip(r^ + v^k' w + Gamma, 0, L - h),   Gamma = scale C sqrt(v^k' Lambda^-1 v^k)
    C      = sqrt(d L^2 ln(d T / delta)),   d = W^2 A

d is the dimension of a step's model (W states in a layer), T the samples so far. C of the paper has an absolute
constant in front, above one, which it leaves open; it is taken as one. Rewards are revealed in the paper; here their
mean is used. Policies are evaluated and changed as in `optimistic_policy`, alpha_k times `step`; play follows pi_k.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.learners.optimistic_policy import step_size
from pcpg.theory.learners.sampled_q import softmax
from pcpg.theory.mdp import Array


def bonus_factor(layout: Layout, steps: int, delta: float) -> float:
    """Return C = sqrt(d L^2 ln(d T / delta)) with d = W^2 A."""
    d = layout.width**2 * layout.num_actions
    return float(np.sqrt(d * layout.horizon**2 * np.log(d * steps / delta)))


def rank_one(inverse: Array, v: Array) -> Array:
    """Return (Lambda + v v')^-1 from Lambda^-1 [..., w, w] and v [..., w], by Sherman and Morrison."""
    turned = np.einsum("...vw,...w->...v", inverse, v)
    over = 1.0 + (turned * v).sum(-1)
    return inverse - turned[..., :, None] * turned[..., None, :] / over[..., None, None]


class OPPO:
    """Mirror descent on optimistic evaluations by value-targeted regression."""

    batch = 1

    def __init__(
        self, layout: Layout, streams: Streams, scale: float = 1.0, delta: float = 0.1, step: float = 1.0
    ) -> None:
        tables.check(scale=scale, delta=delta, step=step)
        self.layout, self.scale, self.delta = layout, scale, delta
        self.step, self.episode, self.steps = step, 0, 0
        shape, W = (streams.n, layout.num_states, layout.num_actions), layout.width
        self.visits, self.rewards, self.theta = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.inverse = np.broadcast_to(np.eye(W), (*shape, W, W)).copy()
        self.moments = np.zeros((*shape, W))
        self._lane = np.arange(streams.n)[:, None]

    def policy(self) -> Array:
        """Return the policies of the last mirror step."""
        return softmax(self.theta)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Evaluate the policy of an episode by the data before it, take a mirror step, add the episode's data."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        self.episode, self.steps = self.episode + 1, self.steps + a.shape[1]
        Q, ahead = self._evaluate(self.policy())
        self.theta += self.step * step_size(self.layout, self.episode) * Q
        at, v = (self._lane, s[:, :-1], a), ahead[:, : a.shape[1]]
        slot = s[:, 1:] - np.array(self.layout.first[1:-1])
        seen = np.take_along_axis(v, slot[..., None], axis=-1)  # v(y), [n, L, 1]
        self.visits[at] += 1.0
        self.rewards[at] += r
        self.inverse[at] = rank_one(self.inverse[at], v)
        self.moments[at] += v * seen

    def _evaluate(self, pi: Array) -> tuple[Array, Array]:
        """Return the optimistic Q [n, S, A] and, for each step, the values of the next layer [n, L, W]."""
        layout, factor = self.layout, self.scale * bonus_factor(self.layout, self.steps, self.delta)
        r = self.rewards / np.maximum(self.visits, 1.0)
        top = layout.remaining[: layout.num_states, None]
        Q, ahead = np.empty_like(r), np.zeros((len(r), layout.horizon, layout.width))
        V = np.zeros((len(r), layout.width))
        for h, (here, _) in zip(range(layout.horizon - 1, -1, -1), layout.backward(), strict=True):
            ahead[:, h] = V
            turned = np.einsum("nsavw,nw->nsav", self.inverse[:, here], V)
            mean = (turned * self.moments[:, here]).sum(-1)
            gamma = factor * np.sqrt(np.maximum(np.einsum("nsav,nv->nsa", turned, V), 0.0))
            found = np.clip(r[:, here] + mean + gamma, 0.0, top[here])
            Q[:, here] = np.where(self.visits[:, here] > 0.0, found, top[here])
            V = np.zeros_like(V)
            V[:, : here.stop - here.start] = (pi[:, here] * Q[:, here]).sum(-1)
        return Q, ahead
