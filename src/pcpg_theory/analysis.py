"""Quantities of the analysis, computed exactly: errors, coverage, bounds, the augmented MDP, and information gain.

| symbol           | function                    | meaning                                                             |
|------------------|-----------------------------|---------------------------------------------------------------------|
| eps_bias         | `transfer_error`            | error under d* of a best fit under rho_mix                          |
| eps_misspec(z)   | `misspecification`          | largest disagreement within an abstract state                       |
| E_{d*} max_a eps | `average_misspecification`  | its average along the comparator                                    |
| norm(d*/nu)_inf  | `concentrability`           | largest density ratio                                               |
| kappa            | `relative_condition_number` | sup_w (w' Sigma_d* w) / (w' Sigma_nu w)                             |
| d*               | `comparator_distribution`   | d^{pi*}(s) x Uniform(A)                                             |
| M^n              | `augmented_mdp`             | reward r + b^n; a_dagger (index A) in unknown states: stays, pays 1 |
| pi_tilde^n       | `augmented_comparator`      | the comparator in known states, a_dagger elsewhere                  |
| I_N(lambda)      | `max_information_gain`      | max over N policies of log det(I + (1/lambda) sum_i Sigma^{pi_i})   |
|                  | `information_gain`          | the same log det for given covariances                              |
| d_hat            | `intrinsic_dimension`       | tr(Sigma) / norm(Sigma)                                             |

A best fit under rho_mix is seldom unique (rho_mix misses pairs), and the paper's claims of zero transfer error are
about ONE of them. `transfer_error` gives the least and the least-norm one, and says whether the bound W binds.

No algorithm runs on the augmented MDP. It exists so that the lemmas about it can be checked on numbers.

Occupancies of policies form a polytope (convex), so the best N policies can all be replaced by their mean:
I_N(lambda) = max over occupancies rho of log det(I + (N/lambda) Sigma_rho). That is concave in rho, and Frank-Wolfe
maximises it: the linear problem over occupancies is an MDP whose reward is the gradient, solved exactly, and its
value minus the current one bounds what is still to gain.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from pcpg_theory import critic, exact
from pcpg_theory.mdp import Array, Index, TabularMDP, check_features, check_policy, uniform_policy
from pcpg_theory.npg import known_states


def comparator_distribution(mdp: TabularMDP, comparator: Array) -> Array:
    """d*(s, a) = d^{pi*}(s) x Uniform(A)."""
    return exact.uniform_start_pairs(mdp, exact.occupancy(mdp, comparator).sum(1))


class TransferError(NamedTuple):
    """eps_bias for the best member of the argmin, and for the member of least norm."""

    least: float
    least_norm: float
    norm: float  # norm of the theta that reaches `least`
    binds: bool  # the bound W cuts the unconstrained minimisers: `least` is then that of the least-norm one
    theta: Array  # the fit that reaches `least`


def transfer_error(phi: Array, rho: Array, d_star: Array, target: Array, W: float = np.inf) -> TransferError:
    """The error under d* of a best fit of `target` under rho, minimised within the argmin where W allows it."""
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


def misspecification(mdp: TabularMDP, labels: Index) -> Array:
    """eps_misspec(z): the largest l1 distance of transitions or difference of rewards within each label."""
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


def average_misspecification(mdp: TabularMDP, labels: Index, comparator: Array) -> float:
    """E_{s ~ d^{pi*}} max_a eps_misspec(phi(s, a))."""
    worst = misspecification(mdp, labels)[labels]
    worst = np.where(mdp.available, worst, 0.0).max(1)
    return float(exact.occupancy(mdp, comparator).sum(1) @ worst)


def concentrability(d_star: Array, nu: Array) -> float:
    """The largest ratio d*(x) / nu(x); infinite if nu misses pairs that d* visits."""
    seen = d_star > 0.0
    with np.errstate(divide="ignore"):
        return float((d_star[seen] / nu[seen]).max())


def relative_condition_number(phi: Array, d_star: Array, nu: Array) -> float:
    """kappa = sup_w (w' Sigma_d* w) / (w' Sigma_nu w); infinite where nu misses a direction of d*."""
    sigma_star, sigma_nu = exact.covariance(phi, d_star), exact.covariance(phi, nu)
    eigenvalues, vectors = np.linalg.eigh(sigma_nu)
    seen = eigenvalues > critic.RANK_CUTOFF * eigenvalues[-1]
    null = vectors[:, ~seen]
    if null.size and np.trace(null.T @ sigma_star @ null) > 1e-10 * np.trace(sigma_star):
        return np.inf
    white = vectors[:, seen] / np.sqrt(eigenvalues[seen])
    return float(np.linalg.eigvalsh(white.T @ sigma_star @ white)[-1])


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
    *,
    T: int,
    N: int,
    W: float,
    beta: float,
    ridge: float,
    gain: float,
    eps_stat: float = 0.0,
    eps_bias: float = 0.0,
) -> Bounds:
    """The true form of the regret bound (exact covariances), term by term, with eta = sqrt(log A / T) / W."""
    g, A = 1.0 - mdp.gamma, mdp.num_actions
    c = (1.0 / ridge) / np.log1p(1.0 / ridge)  # of the trace argument; the paper's 2 for lambda >= 1
    return Bounds(
        npg=2.0 * W * np.sqrt(np.log(A) / T) / g,
        ridge=4.0 * np.sqrt(beta * ridge) * W / g,
        statistics=2.0 * np.sqrt(beta * N * eps_stat) / g,
        potential=c * gain / (N * beta * g**2),
        bias=2.0 * np.sqrt(A * eps_bias) / g,
    )


def aggregation_bias(mdp: TabularMDP, labels: Index, comparator: Array) -> float:
    """The state-aggregation theorem's last term: 2 E_{d*} max_a eps_misspec / (1-gamma)^3."""
    return 2.0 * average_misspecification(mdp, labels, comparator) / (1.0 - mdp.gamma) ** 3


def absorbing_mdp(mdp: TabularMDP, b: Array) -> TabularMDP:
    """The alternative to a bonus (footnote of the aggregation theorem): an unknown pair leads to a last state.

    There every action pays r_max, as the pair itself does: optimism without a reward above r_max, so no value exceeds
    r_max / (1-gamma), where those of r + b reach 1 / (1-gamma)^2.
    """
    S, A = mdp.shape
    P, r = np.zeros((S + 1, A, S + 1)), np.full((S + 1, A), mdp.r_max)
    unknown = (b > 0.0) & mdp.available
    P[:S, :, :S], r[:S] = np.where(unknown[..., None], 0.0, mdp.P), np.where(unknown, mdp.r_max, mdp.r)
    P[:S, :, S] += unknown
    P[S, :, S] = 1.0
    available = np.concatenate([mdp.available, np.ones((1, A), bool)])
    return TabularMDP(P, r, mdp.gamma, mdp.s0, mdp.r_max, available)


def absorbing_bias(mdp: TabularMDP, labels: Index, comparator: Array) -> float:
    """The aggregation theorem's last term with `absorbing_mdp` in place of the bonus: one 1/(1-gamma) less."""
    return (1.0 - mdp.gamma) * aggregation_bias(mdp, labels, comparator)


def augmented_mdp(mdp: TabularMDP, b: Array) -> TabularMDP:
    """M^n: rewards r + b, and action A available only in states outside K^n, where it stays and pays 1."""
    S, A = mdp.shape
    unknown = ~known_states(b, mdp.available)
    P, r = np.zeros((S, A + 1, S)), np.zeros((S, A + 1))
    P[:, :A], r[:, :A] = mdp.P, mdp.r + b
    P[np.arange(S), A, np.arange(S)], r[:, A] = 1.0, 1.0
    available = np.concatenate([mdp.available, unknown[:, None]], axis=1)
    r_max = max(1.0, (2.0 - mdp.gamma) / (1.0 - mdp.gamma) * mdp.r_max)
    return TabularMDP(P, np.where(available, r, 0.0), mdp.gamma, mdp.s0, r_max, available)


def augmented_comparator(mdp: TabularMDP, b: Array, comparator: Array) -> Array:
    """pi_tilde^n[s, A + 1]: the comparator where all actions are known, a_dagger elsewhere."""
    known = known_states(b, mdp.available)
    plain = check_policy(mdp, comparator) * known[:, None]
    return np.concatenate([plain, (~known)[:, None].astype(np.float64)], axis=1)


def information_gain(sigmas: Array, ridge: float = 1.0) -> float:
    """log det(I + (1/lambda) sum_i Sigma_i) for covariances [n, d, d]."""
    total = np.asarray(sigmas).sum(0)
    return float(np.log1p(np.maximum(np.linalg.eigvalsh(total), 0.0) / ridge).sum())


def intrinsic_dimension(sigma: Array) -> float:
    """tr(Sigma) / norm(Sigma), at least one and at most the rank."""
    top = float(np.linalg.eigvalsh(sigma)[-1])
    if top <= 0.0:
        raise ValueError("sigma must have a positive eigenvalue to have an intrinsic dimension, got none")
    return float(np.trace(sigma)) / top


class MaxGain(NamedTuple):
    """I_N(lambda) within `gap`: the truth lies in [value, value + gap]."""

    value: float
    gap: float
    occupancy: Array  # the rho that reaches it
    iterations: int


def max_information_gain(
    mdp: TabularMDP, phi: Array, N: int, ridge: float = 1.0, tol: float = 1e-3, max_iterations: int = 2000
) -> MaxGain:
    """I_N(lambda) of the MDP by Frank-Wolfe with away steps over occupancies, with its duality gap."""
    phi = check_features(mdp, phi)
    if N < 1 or ridge <= 0.0:
        raise ValueError(f"N must be 1 or more and ridge positive, got {N} and {ridge}")
    scale, dim = N / ridge, phi.shape[-1]
    atoms, weights = [exact.occupancy(mdp, uniform_policy(mdp))], np.ones(1)
    gap, gain, iterations = np.inf, 0.0, 0
    while iterations < max_iterations:
        iterations += 1
        rho = np.einsum("n,nsa->sa", weights, np.stack(atoms))
        M = np.eye(dim) + scale * exact.covariance(phi, rho)
        gain = float(np.linalg.slogdet(M)[1])
        slope = scale * exact.form(phi, M)  # gradient of the gain in rho(s, a)
        best = exact.occupancy(mdp, exact.optimal_policy(mdp, slope).pi)
        scores = np.array([(slope * atom).sum() for atom in atoms])
        here = float(weights @ scores)
        gap = float((slope * best).sum()) - here
        if gap <= tol:
            break
        worst = int(np.argmin(scores))
        if gap < here - scores[worst] and weights[worst] < 1.0:  # more to gain by leaving the worst atom
            direction, limit = rho - atoms[worst], weights[worst] / (1.0 - weights[worst])
            t = _line_search(phi, M, scale, direction, limit)
            weights = weights * (1.0 + t)
            weights[worst] -= t
        else:
            t = _line_search(phi, M, scale, best - rho, 1.0)
            weights = np.append(weights * (1.0 - t), t)
            atoms.append(best)
        kept = weights > 1e-14
        atoms, weights = [atom for atom, keep in zip(atoms, kept, strict=True) if keep], weights[kept]
        weights = weights / weights.sum()
    rho = np.einsum("n,nsa->sa", weights, np.stack(atoms))
    return MaxGain(gain, max(gap, 0.0), rho, iterations)


def _line_search(phi: Array, M: Array, scale: float, direction: Array, limit: float) -> float:
    """The t in [0, limit] that maximises log det(M + t scale Cov(direction)), by bisection on its slope."""
    lower = np.linalg.cholesky(M)
    flat = phi.reshape(-1, phi.shape[-1])
    change = scale * (flat.T * direction.reshape(-1)) @ flat
    white = np.linalg.solve(lower, np.linalg.solve(lower, change).T)
    eigenvalues = np.linalg.eigvalsh((white + white.T) / 2.0)

    def slope(t: float) -> float:
        return float((eigenvalues / np.maximum(1.0 + t * eigenvalues, 1e-300)).sum())

    if slope(limit) >= 0.0:
        return limit
    low, high = 0.0, limit
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return low


def finite_dimensional_bound(N: float, dim: int, ridge: float = 1.0) -> float:
    """d log(1 + N/lambda): the information gain of d features of norm at most one cannot be larger."""
    return dim * float(np.log1p(N / ridge))


def rbf_bound(N: float, dim: int, constant: float = 1.0) -> float:
    """constant * log(N + 1)^(d+1), the RBF rate of Srinivas et al.; they give no constant: it is asked for."""
    return constant * float(np.log1p(N)) ** (dim + 1)
