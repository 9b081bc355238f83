"""Linear MDPs with known parameters (Jin et al. 2019): r = <theta, phi>, P(s'|.) = <mu(s'), phi>.

phi(s, a) lies in the simplex of dimension d, so any d distributions mu_1..mu_d over states and any
theta in [0, 1]^d give a proper MDP, and norm(phi) <= 1.

| symbol | name    | meaning                                                        |
|--------|---------|----------------------------------------------------------------|
| omega  | `omega` | norm of theta                                                  |
| xi     | `xi`    | max over norm_inf(v) <= 1 of norm(sum_s v(s) mu(s))            |
| W      | `W`     | omega + xi / (1-gamma)^2, which bounds the norm of Q - b       |
"""

from typing import NamedTuple

import numpy as np

from pcpg.theory.mdp import Array, TabularMDP


class LinearMDP(NamedTuple):
    """A tabular MDP with the features and the parameters that make it linear."""

    mdp: TabularMDP
    phi: Array  # [S, A, d]
    mu: Array  # [d, S]
    theta: Array  # [d]

    @property
    def omega(self) -> float:
        return float(np.linalg.norm(self.theta))

    @property
    def xi(self) -> float:
        # Each row of mu is a distribution, so |<mu_j, v>| <= 1, with equality for v = 1: the norm is sqrt(d).
        return float(np.sqrt(self.mu.shape[0]))

    @property
    def W(self) -> float:
        return self.omega + self.xi / (1.0 - self.mdp.gamma) ** 2


def from_parameters(phi: Array, mu: Array, theta: Array, gamma: float, s0: int = 0) -> LinearMDP:
    """Return the linear MDP with these parameters; phi and the rows of mu must lie in simplices."""
    for name, array in (("phi", phi), ("mu", mu)):
        if array.min() < 0.0 or np.abs(array.sum(-1) - 1.0).max() > 1e-9:
            raise ValueError(f"every {name} vector must lie in the simplex (entries >= 0, sum one)")
    P = phi @ mu
    P /= P.sum(-1, keepdims=True)  # a correction of rounding only
    mdp = TabularMDP(P, np.clip(phi @ theta, 0.0, 1.0), gamma, s0, factors=(phi, mu))
    return LinearMDP(mdp, phi, mu, theta)


def random_linear_mdp(
    seed: int, num_states: int = 200, num_actions: int = 5, dim: int = 10, gamma: float = 0.9
) -> LinearMDP:
    """Return a random linear MDP: sparse Dirichlet features and next-state distributions, uniform theta."""
    if min(num_states, num_actions, dim) < 1:
        raise ValueError("num_states, num_actions and dim must be at least one")
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(dim, 0.2), size=(num_states, num_actions))
    mu = rng.dirichlet(np.full(num_states, 0.1), size=dim)
    return from_parameters(phi, mu, rng.uniform(size=dim), gamma)


def linear_lock(
    seed: int,
    horizon: int = 6,
    width: int = 10,
    num_actions: int = 5,
    mix: float = 0.05,
    gamma: float | None = None,
) -> LinearMDP:
    """Return a combination lock that is a linear MDP of dimension 2 H + 1, which uniform play does not open.

    Level h = 1..H has `width` states. In each, one action of its own has phi = (1-mix) e_right,h + mix e_wrong,h and
    the others the reverse, so the critic must learn at every level which direction leads on. mu of right,h is uniform
    over the states of level h+1; mu of wrong,h and of the end is the end, an absorbing state. right,H pays 1; a
    first-level wrong turn pays 0.05, the bait of a greedy learner. s0 is a state of level 1.
    """
    if min(horizon, width) < 1 or num_actions < 2 or not 0.0 <= mix < 0.5:
        raise ValueError("linear_lock needs horizon >= 1, width >= 1, num_actions >= 2 and 0 <= mix < 0.5")
    gamma = horizon / (horizon + 1) if gamma is None else gamma
    rng = np.random.default_rng(seed)
    S, dim, end = horizon * width + 1, 2 * horizon + 1, horizon * width
    phi, mu, theta = np.zeros((S, num_actions, dim)), np.zeros((dim, S)), np.zeros(dim)
    for h in range(horizon):
        right, wrong = 2 * h, 2 * h + 1
        states = np.arange(h * width, (h + 1) * width)
        phi[states, :, wrong], phi[states, :, right] = 1.0 - mix, mix
        keys = rng.integers(num_actions, size=width)
        phi[states, keys, right], phi[states, keys, wrong] = 1.0 - mix, mix
        mu[wrong, end] = 1.0
        mu[right, states + width if h + 1 < horizon else [end] * width] = 1.0 if h + 1 == horizon else 1.0 / width
    phi[end, :, dim - 1] = mu[dim - 1, end] = 1.0
    theta[2 * (horizon - 1)], theta[1] = 1.0, 0.05 if horizon > 1 else 0.0
    return from_parameters(phi, mu, theta, gamma)
