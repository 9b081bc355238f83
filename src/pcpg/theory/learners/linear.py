"""LSVI-UCB, which stands beside the table: optimistic value iteration by ridge regression on features, for episodes.

`pcpg.theory` has another one for experiment C, stationary and discounted, on MDPs whose states do not hold their time.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes
from pcpg.theory.mdp import Array


def bonus_factor(dim: int, horizon: int, steps: int, p: float) -> float:
    """The factor beta = d L sqrt(ln(2 d T / p)), the paper's for c = 1."""
    return dim * horizon * float(np.sqrt(np.log(2.0 * dim * steps / p)))


def regress(phi: Array, visits: Array, sums: Array, ridge: float | Array = 1.0) -> tuple[Array, Array]:
    """The means w' phi and the forms phi' Lambda^-1 phi, from visits and sums of targets, all [n, s, A]."""
    flat = phi.reshape(-1, phi.shape[-1])
    N, y = visits.reshape(len(visits), -1), sums.reshape(len(sums), -1)
    gram = np.einsum("kd,nk,ke->nde", flat, N, flat) + ridge * np.eye(flat.shape[1])
    turned = np.linalg.solve(gram, np.broadcast_to(flat.T, (len(gram), *flat.T.shape)))  # Lambda^-1 phi, [n, d, k]
    mean = np.einsum("ndk,nd->nk", turned, y @ flat)
    form = np.einsum("ndk,kd->nk", turned, flat)
    return mean.reshape(visits.shape), np.maximum(form, 0.0).reshape(visits.shape)


@dataclass(eq=False)
class LSVIUCB(tables.TabularLearner):
    """LSVI-UCB, least-squares value iteration with upper confidence bounds (Jin, Yang, Wang and Jordan 2019).

        Lambda_h = lambda I + sum phi phi',   w_h = Lambda_h^-1 sum phi (r + V_{h+1}(s'))      over all episodes
        Q_h = min(w_h' phi + scale beta sqrt(phi' Lambda_h^-1 phi), L - h),   V_h = max_a Q_h,   greedy play
        beta = c d L sqrt(ln(2 d T / p)),   lambda = scale^2

    The paper's lambda is 1. It shrinks values by up to lambda / (N + lambda), which beta sqrt(1 / (N + lambda)) must
    make up for: with a smaller beta alone optimism turns into pessimism, so lambda shrinks with its square. T are the
    samples so far, where the paper knows the total. Its c is an absolute constant that the theorem leaves open;
    scale = 1 sets it to one. phi(s, a) is given, [S, A, d] over observed states of all layers, or one-hot on the pairs
    of a layer: then d = W A, W states in a layer, Lambda is diagonal, and a pair that was not tried, which the paper's
    beta puts at the upper cut, stays there whatever the scale.
    """

    delta: float = 0.1
    phi: ArrayLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        layout = self.layout
        self.features = None if self.phi is None else tables.features(layout, self.phi)
        self.dim = layout.width * layout.num_actions if self.features is None else self.features.shape[-1]
        self.counts = tables.Counts(layout, self.n, share=False)
        self.Q = tables.highest(layout, self.n)
        self.pi = tables.greedy(self.Q)

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and regress again, from the last step to the first."""
        self.counts.add(episodes)
        self.steps += episodes.a[0].size
        layout, counts = self.layout, self.counts
        beta = self.scales * bonus_factor(self.dim, layout.horizon, self.steps, self.delta)
        ridge = self.scales**2
        top = layout.remaining[: layout.num_states, None]
        V = np.zeros((len(self.Q), layout.first[-1] - layout.num_states))
        for here, after in layout.backward():
            wide, visits = after.stop - after.start, counts.visits[:, here]
            sums = counts.rewards[:, here] + np.einsum("nsaw,nw->nsa", counts.successors[:, here, :, :wide], V)
            if self.features is None:
                mean, form = np.where(visits > 0.0, sums, np.inf) / (visits + ridge), 1.0 / (visits + ridge)
            else:
                mean, form = regress(self.features[here], visits, sums, ridge)
            self.Q[:, here] = np.minimum(mean + beta * np.sqrt(form), top[here])
            V = tables.best(here, self.Q[:, here])
        self.pi = tables.greedy(self.Q)
