"""KWIK linear regression inside R-max: a model that predicts only if it knows that it knows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout
from pcpg_theory.mdp import Array, Mask


def known_by_regression(phi: Array, gram: Array, alpha: float) -> Mask:
    """Where a KWIK regression predicts, for features [k, d] and X'X [d, d] of what it was unsure of before.

    In the eigenvectors of X'X with eigenvalues of one and more (Strehl and Littman 2007): norm(q) <= alpha, where
    q = X U Lambda^-1 U' x has the squared norm x' U Lambda^-1 U' x, and no more than alpha, or half, of x lies in the
    others.
    """
    values, vectors = np.linalg.eigh(gram)
    turned, large = phi @ vectors, values >= 1.0 - 1e-9
    inside = (turned[:, large] ** 2 / values[large]).sum(-1)
    outside = (turned[:, ~large] ** 2).sum(-1)
    return (inside <= alpha**2 * (1.0 + 1e-9)) & (outside <= min(alpha, 0.5) ** 2)


def visits_needed(layout: Layout, epsilon: float, delta: float) -> float:
    """Visits W (L^2 / eps)^2 ln(2 S A / delta) for which a row of transitions errs by eps / L^2 at most."""
    pairs = layout.num_states * layout.num_actions
    return layout.width * (layout.horizon**2 / epsilon) ** 2 * float(np.log(2.0 * pairs / delta))


@dataclass(eq=False)
class KWIK(tables.ModelLearner):
    """KWIK R-max with linear regression (Li, Littman and Walsh 2008; Li 2009), a regression for each step.

    The reward and the chances of each next state are linear in phi(s, a). A pair on which the regression does not know
    is worth what remains, and only such pairs are added to its data; elsewhere least squares predicts. The policy is
    optimal in that model. Known is what has norm(q) <= alpha with alpha^2 = 1/m,

        m = ceil(scale W (L^2 / eps)^2 ln(2 S A / delta)),

    a constant by our derivation. One-hot features, the default, make it R-max with this m; phi [S, A, d] over observed
    states of all layers makes it share what pairs have in common.
    """

    epsilon: float = 0.1
    delta: float = 0.1
    phi: ArrayLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.m = np.ceil(self.scales * visits_needed(self.layout, self.epsilon, self.delta))
        self.features = None if self.phi is None else tables.features(self.layout, self.phi)
        self.sure = np.zeros((self.n, self.layout.num_states, self.layout.num_actions), bool)

    def learn(self, episodes: Episodes) -> None:
        """Add the pairs that are not known; plan again where one of them was met."""
        fresh = ~self.sure[self._lane[..., None], episodes.s[..., :-1], episodes.a]
        if not fresh.any():
            return
        self.counts.add(episodes, keep=fresh)
        r, P, sure = self._model()
        if (sure != self.sure).any():
            self.sure = sure

            def finish(here: slice, Q: Array) -> Array:
                return np.where(sure[:, here], np.minimum(Q, self.top[here]), self.top[here])

            self.pi = tables.greedy(tables.induct(self.layout, r, P, finish))

    def _model(self) -> tuple[Array, Array, Mask]:
        """Rewards [n, S, A], transitions [n, S, A, W], and where they are known."""
        counts = self.counts
        if self.features is None:
            return counts.mean_reward(), counts.transitions(), counts.visits >= self.m
        r, P, sure = np.zeros_like(counts.rewards), np.zeros_like(counts.successors), np.zeros_like(self.sure)
        for here, _ in self.layout.backward():
            flat = self.features[here].reshape(-1, self.features.shape[-1])
            shape = counts.visits[0, here].shape
            for i in range(self.n):
                N = counts.visits[i, here].reshape(-1)
                gram = (flat.T * N) @ flat
                inverse = np.linalg.pinv(gram, hermitian=True)
                weights = inverse @ flat.T
                r[i, here] = (flat @ (weights @ counts.rewards[i, here].reshape(-1))).reshape(shape)
                sums = counts.successors[i, here].reshape(len(flat), -1)
                P[i, here] = np.maximum(flat @ (weights @ sums), 0.0).reshape(*shape, -1)
                sure[i, here] = known_by_regression(flat, gram, float(self.m[i, 0, 0]) ** -0.5).reshape(shape)
        return r, P, sure
