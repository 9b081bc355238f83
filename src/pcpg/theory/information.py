"""Information gain: of a set of policies, at most of an MDP (a concave program with its duality gap), and bounds.

| symbol        | function                | meaning                                                              |
|---------------|-------------------------|----------------------------------------------------------------------|
| I_N(lambda)   | `max_information_gain`  | max over N policies of log det(I + (1/lambda) sum_i Sigma^{pi_i})    |
|               | `information_gain`      | the same log det for given covariances                               |
| d_hat         | `intrinsic_dimension`   | tr(Sigma) / norm(Sigma)                                              |

Occupancies of policies form a polytope (convex), so the best N policies can all be replaced by their mean:
I_N(lambda) = max over occupancies rho of log det(I + (N/lambda) Sigma_rho). That is concave in rho, and Frank-Wolfe
maximises it: the linear problem over occupancies is an MDP whose reward is the gradient, solved exactly, and its
value minus the current one bounds what is still to gain.
"""

from typing import NamedTuple

import numpy as np

from pcpg.theory import exact
from pcpg.theory.mdp import Array, TabularMDP, check_features, uniform_policy


def information_gain(sigmas: Array, lam: float = 1.0) -> float:
    """Return log det(I + (1/lambda) sum_i Sigma_i) for covariances [n, d, d]."""
    total = np.asarray(sigmas).sum(0)
    return float(np.log1p(np.maximum(np.linalg.eigvalsh(total), 0.0) / lam).sum())


def intrinsic_dimension(sigma: Array) -> float:
    """Return tr(Sigma) / norm(Sigma), at least one and at most the rank."""
    top = float(np.linalg.eigvalsh(sigma)[-1])
    if top <= 0.0:
        raise ValueError("the intrinsic dimension of a zero covariance is not defined")
    return float(np.trace(sigma)) / top


class MaxGain(NamedTuple):
    """I_N(lambda) within `gap`: the truth lies in [value, value + gap]."""

    value: float
    gap: float
    occupancy: Array  # the rho that reaches it
    iterations: int


def max_information_gain(
    mdp: TabularMDP, phi: Array, N: int, lam: float = 1.0, tol: float = 1e-3, max_iterations: int = 2000
) -> MaxGain:
    """Return I_N(lambda) of the MDP by Frank-Wolfe with away steps over occupancies, with its duality gap."""
    phi = check_features(mdp, phi)
    if N < 1 or lam <= 0.0:
        raise ValueError(f"N is {N} and lambda is {lam}; expected N >= 1 and lambda > 0")
    scale, dim = N / lam, phi.shape[-1]
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
    """Return the t in [0, limit] that maximises log det(M + t scale Cov(direction)), by bisection on its slope."""
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


def finite_dimensional_bound(N: float, dim: int, lam: float = 1.0) -> float:
    """Return d log(1 + N/lambda): the information gain of d features of norm at most one cannot be larger."""
    return dim * float(np.log1p(N / lam))


def rbf_bound(N: float, dim: int, constant: float = 1.0) -> float:
    """Return constant * log(N + 1)^(d+1), the RBF rate of Srinivas et al.; they give no constant: it is asked for."""
    return constant * float(np.log1p(N)) ** (dim + 1)
