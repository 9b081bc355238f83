"""LSVI-UCB, which stands beside the table: optimistic value iteration by ridge regression on features, for episodes.

Its stationary, discounted form on MDPs whose states do not hold their time is `examples.lsvi_ucb`.
Reward-free LSVI-UCB, in features or a kernel, explores by the standard deviation of a regression.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcpg_theory.critic import ridge_regression
from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout
from pcpg_theory.mdp import Array


def bonus_factor(dim: int, horizon: int, steps: int, p: float) -> float:
    """The factor beta = d L sqrt(ln(2 d T / p)), the paper's for c = 1."""
    return dim * horizon * float(np.sqrt(np.log(2.0 * dim * steps / p)))


@dataclass(eq=False)
class LSVIUCB(tables.ModelLearner):
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
        self.Q = tables.highest(layout, self.n)
        self.pi = tables.greedy(self.Q)

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and regress again, from the last step to the first."""
        self.count(episodes)
        beta = self.scales * bonus_factor(self.dim, self.layout.horizon, self.steps, self.delta)

        def q(here: slice, _: slice, V: Array) -> Array:
            mean, deviation = self.regressed(here, V, self.counts.rewards)
            return np.minimum(mean + beta * deviation, self.top[here])

        self.Q = tables.backward(self.layout, self.Q.shape, q)
        self.pi = tables.greedy(self.Q)

    def regressed(self, here: slice, V: Array, rewards: Array | None) -> tuple[Array, Array]:
        """w' phi of a layer's pairs, for sums of these rewards and of V at what followed, and sqrt(phi' Lambda^-1 phi).

        A pair that was not tried has an infinite mean with one-hot features.
        """
        visits, ridge = self.counts.visits[:, here], self.scales**2
        sums = tables.expected(self.counts.successors, here, V) + (0.0 if rewards is None else rewards[:, here])
        if self.features is None:
            return np.where(visits > 0.0, sums, np.inf) / (visits + ridge), np.sqrt(1.0 / (visits + ridge))
        phi, each = self.features[here], zip(visits, ridge[:, 0, 0], strict=True)
        found = [ridge_regression(phi, count, float(one)) for count, one in each]
        mean = np.stack([one.mean(total) for one, total in zip(found, sums, strict=True)])
        return mean, np.sqrt(np.stack([one.form for one in found]))


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
