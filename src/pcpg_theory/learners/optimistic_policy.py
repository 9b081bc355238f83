"""Optimistic policy optimisation in the empirical model, and its two algorithms: OPPO and POMD.

    Q_h = clip(r^ + P^ V_{h+1} + b, 0, L - h),   V_h = sum_a pi_k Q_h       evaluation of pi_k, optimistic
    pi_{k+1} ~ pi_k exp(step alpha_k Q_h)                                    mirror step

alpha_k = sqrt(2 ln A / (L^2 k)) in episode k, where the papers know the number of episodes K and use it for k. OPPO
fits P^ V in its own way. Both papers' bonuses put a pair that was not tried at the upper cut; it stays there whatever
the scale. Play follows pi_k, which starts uniform.
"""

from dataclasses import dataclass

import numpy as np

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout
from pcpg_theory.mdp import Array


@dataclass(eq=False)
class MirrorLearner(tables.TabularLearner):
    """The constructor and the mirror step that both have in common."""

    delta: float = 0.1
    step: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.theta, self.episode = tables.zeros(self.layout, self.n), 0

    def _mirror_step(self, Q: Array) -> None:
        alpha = float(np.sqrt(2.0 * np.log(self.layout.num_actions) / self.episode) / self.layout.horizon)
        self.theta += self.step * alpha * Q
        self.pi = tables.softmax(self.theta)


def bonus_factor(layout: Layout, steps: int, delta: float) -> float:
    """OPPO's factor C = sqrt(d L^2 ln(d T / delta)) with d = W^2 A."""
    d = layout.width**2 * layout.num_actions
    return float(np.sqrt(d * layout.horizon**2 * np.log(d * steps / delta)))


def rank_one(inverse: Array, v: Array) -> Array:
    """(Lambda + v v')^-1 from Lambda^-1 [..., w, w] and v [..., w], by Sherman and Morrison."""
    turned = np.einsum("...vw,...w->...v", inverse, v)
    over = 1.0 + (turned * v).sum(-1)
    return inverse - turned[..., :, None] * turned[..., None, :] / over[..., None, None]


@dataclass(eq=False)
class OPPO(MirrorLearner):
    """OPPO, optimistic proximal policy optimisation (Cai, Yang, Jin and Wang 2019), on tabular models.

    A tabular model is a linear kernel MDP with psi(s, a, y) = e_(s, a, y), so its regression of values falls apart into
    one for each pair. With v^j the optimistic values of the next layer in episode j, at the visits of (s, a):

        Lambda = I + sum_j v^j v^j',   w = Lambda^-1 sum_j v^j v^j(y^j)            sums over the episodes before k
        Q_h    = clip(r^ + v^k' w + Gamma, 0, L - h),   Gamma = scale C sqrt(v^k' Lambda^-1 v^k)
        C      = sqrt(d L^2 ln(d T / delta)),   d = W^2 A

    d is the dimension of a step's model (W states in a layer), T the samples so far. C of the paper has an absolute
    constant in front, above one, which it leaves open; it is taken as one. Rewards are revealed in the paper; here
    their mean is used.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        shape, W = self.theta.shape, self.layout.width
        self.visits, self.rewards, self.moments = np.zeros(shape), np.zeros(shape), np.zeros((*shape, W))
        self.inverse = np.broadcast_to(np.eye(W), (*shape, W, W)).copy()

    def learn(self, episodes: Episodes) -> None:
        """Evaluate the policy of an episode by the data before it, take a mirror step, add the episode's data."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        self.episode, self.steps = self.episode + 1, self.steps + a.shape[1]
        Q, ahead = self._evaluate(self.pi)
        self._mirror_step(Q)
        at, v = (self._lane, s[:, :-1], a), ahead[:, : a.shape[1]]
        slot = s[:, 1:] - np.array(self.layout.first[1:-1])
        seen = np.take_along_axis(v, slot[..., None], axis=-1)  # v(y), [n, L, 1]
        self.visits[at] += 1.0
        self.rewards[at] += r
        self.inverse[at] = rank_one(self.inverse[at], v)
        self.moments[at] += v * seen

    def _evaluate(self, pi: Array) -> tuple[Array, Array]:
        """The optimistic Q [n, S, A] and, for each step, the values of the next layer [n, L, W]."""
        layout, factor = self.layout, self.scales * bonus_factor(self.layout, self.steps, self.delta)
        r = self.rewards / np.maximum(self.visits, 1.0)
        ahead = np.zeros((len(r), layout.horizon, layout.width))

        def q(here: slice, _: slice, V: Array) -> Array:
            next_values = ahead[:, layout.layer[here.start]]
            next_values[:, : V.shape[1]] = V
            turned = np.einsum("nsavw,nw->nsav", self.inverse[:, here], next_values)
            mean = (turned * self.moments[:, here]).sum(-1)
            gamma = factor * np.sqrt(np.maximum(np.einsum("nsav,nv->nsa", turned, next_values), 0.0))
            found = np.clip(r[:, here] + mean + gamma, 0.0, self.top[here])
            return np.where(self.visits[:, here] > 0.0, found, self.top[here])

        return tables.backward(layout, r.shape, q, lambda here, Q: (pi[:, here] * Q).sum(-1)), ahead


def bandit_bonus(N: Array, layout: Layout, steps: int, delta: float) -> Array:
    """POMD's bonus of rewards plus that of transitions."""
    L, W, n = layout.horizon, layout.width, np.maximum(N, 1.0)
    inside = W * layout.num_actions * L * steps / (delta / 3.0)
    return np.sqrt(2.0 * np.log(2.0 * inside) / n) + L * np.sqrt(4.0 * W * np.log(3.0 * inside) / n)


@dataclass(eq=False)
class POMD(MirrorLearner):
    """POMD, policy optimisation by mirror descent with bandit feedback (Efroni, Shani, Rosenberg and Mannor 2020).

        b = scale (sqrt(2 ln(2 W A L T / delta') / n) + L sqrt(4 W ln(3 W A L T / delta') / n)),   n = max(N, 1)

    for rewards and transitions, with delta' = delta / 3, W states in a layer and T the samples so far (the paper: all).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts = tables.Counts(self.layout, self.n, share=False)

    def learn(self, episodes: Episodes) -> None:
        """Count an episode, evaluate its policy optimistically, take a mirror step."""
        counts = self.counts
        counts.add(episodes)
        self.episode, self.steps = self.episode + 1, self.steps + episodes.a[0].size
        bonus = self.scales * bandit_bonus(counts.visits, self.layout, self.steps, self.delta)
        r = np.where(counts.visits > 0.0, counts.mean_reward() + bonus, np.inf)

        def finish(here: slice, Q: Array) -> Array:
            return np.clip(Q, 0.0, self.top[here])

        def value(here: slice, Q: Array) -> Array:
            return (self.pi[:, here] * Q).sum(-1)

        self._mirror_step(tables.induct(self.layout, r, counts.transitions(), finish, value))
