"""Quantities of the analysis, computed exactly: errors, coverage, and the right-hand sides of the theorems.

| symbol | function | meaning |
|---|---|---|
| eps_bias | `transfer_error` | error under d* of a best fit under rho_mix |
| eps_misspec(z) | `misspecification` | largest disagreement within an abstract state |
| E_{d*} max_a eps | `average_misspecification` | its average along the comparator |
| norm(d*/nu)_inf | `concentrability` | largest density ratio |
| kappa | `relative_condition_number` | sup_w (w' Sigma_d* w) / (w' Sigma_nu w) |
| Pr_d(unknown) | `escape_probability` | mass of unknown pairs under an occupancy |
| d* | `comparator_distribution` | d^{pi*}(s) x Uniform(A) |

A best fit under rho_mix is seldom unique (rho_mix misses pairs), and the paper's claims of zero transfer error are
about ONE of them. `transfer_error` gives the least and the least-norm one, and says whether the bound W binds.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from pcpg.theory import critic, exact
from pcpg.theory.mdp import Array, TabularMDP


def comparator_distribution(mdp: TabularMDP, comparator: Array) -> Array:
    """Return d*(s, a) = d^{pi*}(s) x Uniform(A)."""
    return exact.uniform_start_pairs(mdp, exact.occupancy(mdp, comparator).sum(1))


class TransferError(NamedTuple):
    """eps_bias for the best member of the argmin, and for the member of least norm."""

    least: float
    least_norm: float
    norm: float  # norm of the theta that reaches `least`
    binds: bool  # the bound W cuts the unconstrained minimisers: `least` is then that of the least-norm one
    theta: Array  # the fit that reaches `least`


def transfer_error(phi: Array, rho: Array, d_star: Array, target: Array, W: float = np.inf) -> TransferError:
    """Return the error under d* of a best fit of `target` under rho, minimised within the argmin where W allows it."""
    flat, y = phi.reshape(-1, phi.shape[-1]), target.reshape(-1)
    theta = critic.least_squares(critic.factorise(phi, rho), target, W)
    base = critic.loss(phi, d_star, target, theta)
    # All minimisers are theta + null directions of the root-weighted features; fit d* within them.
    root = np.sqrt(rho.reshape(-1, 1)) * flat
    null = scipy.linalg.null_space(root, rcond=critic.RANK_CUTOFF) if root.any() else np.eye(flat.shape[1])
    norm, binds = float(np.linalg.norm(theta)), False
    if np.isfinite(W) and norm >= W * (1.0 - 1e-9):
        return TransferError(base, base, norm, True, theta)
    if null.shape[1] == 0:
        return TransferError(base, base, norm, binds, theta)
    weight = np.sqrt(d_star.reshape(-1))
    residual = weight * (y - flat @ theta)
    step = np.linalg.lstsq(weight[:, None] * (flat @ null), residual, rcond=None)[0]
    moved = theta + null @ step
    if np.linalg.norm(moved) > W:
        # theta is orthogonal to the null directions, so the room left for them is known exactly.
        room = np.sqrt(W**2 - norm**2)
        factor = critic.factorise(flat @ null, d_star)
        moved, binds = theta + null @ critic.least_squares(factor, y - flat @ theta, room), True
    least = min(critic.loss(phi, d_star, target, moved), base)
    return TransferError(least, base, float(np.linalg.norm(moved)), binds, moved)


def misspecification(mdp: TabularMDP, labels: NDArray[np.integer]) -> Array:
    """Return eps_misspec(z): the largest l1 distance of transitions or difference of rewards within each label."""
    flat, P, r = labels.reshape(-1), mdp.P.reshape(-1, mdp.num_states), mdp.r.reshape(-1)
    found = np.zeros(int(flat.max()) + 1)
    for z in np.unique(flat):
        members = np.flatnonzero((flat == z) & mdp.available.reshape(-1))
        if members.size < 2:
            continue
        rows = P[members]
        distances = max(float(np.abs(rows - row).sum(1).max()) for row in rows)
        found[z] = max(distances, float(np.ptp(r[members])))
    return found


def average_misspecification(mdp: TabularMDP, labels: NDArray[np.integer], comparator: Array) -> float:
    """Return E_{s ~ d^{pi*}} max_a eps_misspec(phi(s, a))."""
    worst = misspecification(mdp, labels)[labels]
    worst = np.where(mdp.available, worst, 0.0).max(1)
    return float(exact.occupancy(mdp, comparator).sum(1) @ worst)


def concentrability(d_star: Array, nu: Array) -> float:
    """Return the largest ratio d*(x) / nu(x); infinite where nu misses what d* visits."""
    seen = d_star > 0.0
    with np.errstate(divide="ignore"):
        return float((d_star[seen] / nu[seen]).max())


def relative_condition_number(phi: Array, d_star: Array, nu: Array) -> float:
    """Return kappa = sup_w (w' Sigma_d* w) / (w' Sigma_nu w); infinite where nu misses a direction of d*."""
    sigma_star, sigma_nu = exact.covariance(phi, d_star), exact.covariance(phi, nu)
    eigenvalues, vectors = np.linalg.eigh(sigma_nu)
    seen = eigenvalues > critic.RANK_CUTOFF * eigenvalues[-1]
    null = vectors[:, ~seen]
    if null.size and np.trace(null.T @ sigma_star @ null) > 1e-10 * np.trace(sigma_star):
        return np.inf
    white = vectors[:, seen] / np.sqrt(eigenvalues[seen])
    return float(np.linalg.eigvalsh(white.T @ sigma_star @ white)[-1])


def escape_probability(d: Array, b: Array) -> float:
    """Return Pr_d((s, a) has a positive bonus)."""
    return float(d[b > 0.0].sum())


class Bounds(NamedTuple):
    """The parts of the final bound on V* - max_n V^n, each already divided by its powers of (1-gamma)."""

    npg: float
    ridge: float
    statistics: float
    potential: float
    bias: float

    @property
    def total(self) -> float:
        return sum(self)


def agnostic_bound(
    mdp: TabularMDP,
    T: int,
    N: int,
    W: float,
    beta: float,
    lam: float,
    gain: float,
    eps_stat: float,
    eps_bias: float,
) -> Bounds:
    """Return the true form of the regret bound (exact covariances), term by term, with eta = sqrt(log A / T) / W."""
    g, A = 1.0 - mdp.gamma, mdp.num_actions
    c = (1.0 / lam) / np.log1p(1.0 / lam)  # of the trace argument; the paper's 2 for lambda >= 1
    return Bounds(
        npg=2.0 * W * np.sqrt(np.log(A) / T) / g,
        ridge=4.0 * np.sqrt(beta * lam) * W / g,
        statistics=2.0 * np.sqrt(beta * N * eps_stat) / g,
        potential=c * gain / (N * beta * g**2),
        bias=2.0 * np.sqrt(A * eps_bias) / g,
    )


def aggregation_bias(mdp: TabularMDP, labels: NDArray[np.integer], comparator: Array) -> float:
    """Return the state-aggregation theorem's last term: 2 E_{d*} max_a eps_misspec / (1-gamma)^3."""
    return 2.0 * average_misspecification(mdp, labels, comparator) / (1.0 - mdp.gamma) ** 3
