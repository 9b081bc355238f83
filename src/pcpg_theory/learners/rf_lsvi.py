"""Reward-free LSVI-UCB, in features or a kernel: exploration by the standard deviation of a regression."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout
from pcpg_theory.learners.linear import LSVIUCB, bonus_factor
from pcpg_theory.mdp import Array


def features_of_kernel(layout: Layout, kernel: ArrayLike) -> Array:
    """phi [S, A, d] with k(z, z') = phi(z)' phi(z') between pairs of one layer, from k [S A, S A]."""
    k, A = np.asarray(kernel, np.float64), layout.num_actions
    if k.shape != (layout.num_states * A,) * 2 or np.abs(k - k.T).max() > 1e-9:
        raise ValueError(f"kernel must be symmetric over the {layout.num_states * A} pairs, got shape {k.shape}")
    phi = np.zeros((layout.num_states * A, layout.width * A))
    for here, _ in layout.backward():
        rows = slice(here.start * A, here.stop * A)
        values, vectors = np.linalg.eigh(k[rows, rows])
        if values[0] < -1e-9 * values[-1]:
            raise ValueError(f"kernel must be positive semi-definite, got an eigenvalue of {values[0]:.3g}")
        phi[rows, : len(values)] = vectors * np.sqrt(np.maximum(values, 0.0))
    return phi.reshape(layout.num_states, A, -1)


@dataclass(eq=False)
class RewardFreeLSVI(LSVIUCB):
    """Reward-free LSVI-UCB (Wang, Du, Yang and Salakhutdinov 2020), with a kernel that of Qiu et al. 2021.

        u_h = min(scale beta sqrt(phi' Lambda_h^-1 phi), L - h)      the last: a standard deviation of the regression
        explore   W_h = min(w_h' phi + u_h / L + u_h, L - h), w_h of V = max_a W_{h+1} alone; greedy play
        plan      Q_h = min(w_h' phi + u_h, L - h), w_h of r + V; its greedy policy is returned

    with Lambda, beta and lambda as in LSVI-UCB: no reward enters what is played. `kernel` [S A, S A] between pairs may
    be given instead of phi; by the kernel's matrix the same numbers are k(z, z) - k' (K + lambda N^-1)^-1 k over
    lambda. The theorem, for linear MDPs, is that c d^3 L^6 ln(d L / (delta eps)) / eps^2 episodes explore for every
    reward.
    """

    kernel: ArrayLike | None = None

    def __post_init__(self) -> None:
        if self.kernel is not None:
            if self.phi is not None:
                raise ValueError("there must be features or a kernel, and not both")
            self.phi = features_of_kernel(self.layout, self.kernel)
        super().__post_init__()
        self.W, self.play = self.Q, self.pi

    def behaviour(self) -> Array:
        """The policies that go where the regression is uncertain."""
        return self.play

    def learn(self, episodes: Episodes) -> None:
        """Count an episode, and regress again for exploration and for the reward."""
        self.count(episodes)
        layout, L = self.layout, self.layout.horizon
        beta = self.scales * bonus_factor(self.dim, L, self.steps, self.delta)

        def explored(here: slice, _: slice, V: Array) -> Array:
            mean, deviation = self.regressed(here, V, None)
            u = np.minimum(beta * deviation, self.top[here])
            return np.minimum(mean + u / L + u, self.top[here])

        def planned(here: slice, _: slice, V: Array) -> Array:
            mean, deviation = self.regressed(here, V, self.counts.rewards)
            return np.minimum(mean + np.minimum(beta * deviation, self.top[here]), self.top[here])

        self.W = tables.backward(layout, self.Q.shape, explored)
        self.play = tables.greedy(self.W)
        self.Q = tables.backward(layout, self.Q.shape, planned)
        self.pi = tables.greedy(self.Q)
