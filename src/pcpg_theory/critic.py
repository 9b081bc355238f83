"""The critic of Algorithm 2: min over norm(theta) <= W of E_w (theta . phi - y)^2.

Two solvers. `least_squares` is exact: one orthogonal factorisation of the root-weighted features for each set of
weights (which span many decades, so normal equations would lose the small ones), then one product for each target,
and a scalar equation where the norm constraint binds. `projected_sgd` is the averaged projected SGD of the paper's
dimension-free lemma, over a batch of independent repetitions at once.

Among minimisers the one of least norm is returned.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcpg_theory import exact
from pcpg_theory.mdp import Array, Index
from pcpg_theory.settings import Settings

Regress = Callable[[Array], Callable[[Array], Array]]  # weights over pairs -> targets -> theta; factorised once

RANK_CUTOFF = 1e-12  # singular values below this share of the largest are rounding, not data


class Factor(NamedTuple):
    """The root-weighted features X = sqrt(w) phi = U diag(singular) V', ready for many targets."""

    root: Array  # [SA] sqrt of the weights
    singular: Array  # [k]
    left: Array | Index  # U [SA, k], or the label of each pair where the features are a partition
    right: Array | None  # V' [k, d], or None: the identity


def partition_labels(phi: Array) -> Index | None:
    """The label of each pair if phi is one-hot (tabular, aggregation), else None."""
    flat = phi.reshape(-1, phi.shape[-1])
    labels = flat.argmax(1)
    one_hot = (np.count_nonzero(flat, axis=1) == 1).all() and (flat[np.arange(len(flat)), labels] == 1.0).all()
    return labels if one_hot else None


def factorise(phi: Array, weights: Array, labels: Index | None = None) -> Factor:
    """The factorisation of sqrt(weights) phi; pass `partition_labels(phi)` for the diagonal case."""
    flat, w = phi.reshape(-1, phi.shape[-1]), weights.reshape(-1)
    root = np.sqrt(w)
    if labels is not None:
        mass = np.bincount(labels, weights=w, minlength=flat.shape[1])
        return Factor(root, np.sqrt(mass), labels, None)
    rows = np.flatnonzero(root)
    if rows.size < len(root):  # samples touch few pairs: factorise those only
        U, singular, right = np.linalg.svd(root[rows, None] * flat[rows], full_matrices=False)
        left = np.zeros((len(root), len(singular)))
        left[rows] = U
    else:
        left, singular, right = np.linalg.svd(root[:, None] * flat, full_matrices=False)
    return Factor(root, singular, left, right)


def least_squares(factor: Factor, target: Array, W: float = np.inf) -> Array:
    """The minimiser theta with norm(theta) <= W; the one of least norm where there are several."""
    root, singular, left, right = factor
    y = target.reshape(-1)
    if right is None:
        # For a partition, singular * (U'y) is the weighted sum of the targets of each label: no division needed yet.
        moment = np.bincount(left, weights=root**2 * y, minlength=len(singular))
        keep = singular > 0.0
    else:
        moment = singular * (left.T @ (root * y))
        keep = singular > RANK_CUTOFF * singular.max(initial=0.0)
    square = np.where(keep, singular**2, 1.0)
    moment = np.where(keep, moment, 0.0)
    solution = moment / (square + multiplier(moment, square, W))
    return solution if right is None else solution @ right


def regression(phi: Array, labels: Index | None, W: float) -> Regress:
    """Least squares with these features: from weights over pairs and targets [S, A] to the best theta."""

    def regress(weights: Array) -> Callable[[Array], Array]:
        factor = factorise(phi, weights, labels)
        return lambda target: least_squares(factor, target, W)

    return regress


def fit_samples(phi: Array, regress: Regress, settings: Settings, s: Index, a: Index, y: Array) -> Array:
    """theta^t from M pairs and their targets, by the solver of the settings."""
    if settings.critic == "sgd":
        return projected_sgd(phi[s, a][None], y[None], settings.W, settings.sgd_step)[0]
    # Least squares on samples is least squares on pairs, weighted by counts, with the mean target of each pair.
    index, size = s * phi.shape[1] + a, phi.shape[0] * phi.shape[1]
    counts = np.bincount(index, minlength=size)
    means = np.bincount(index, weights=y, minlength=size) / np.maximum(counts, 1)
    return regress(counts / len(y))(means)


def multiplier(moment: Array, square: Array, W: float) -> float:
    """The least mu >= 0, to rounding, for which moment / (square + mu) has a norm of at most W."""

    def norm(mu: float) -> float:
        return float(np.linalg.norm(moment / (square + mu)))

    if norm(0.0) <= W:
        return 0.0
    lower, upper = 0.0, float(np.linalg.norm(moment)) / W  # there the norm is at most W, since square >= 0
    while lower < (middle := (lower + upper) / 2.0) < upper:
        lower, upper = (middle, upper) if norm(middle) > W else (lower, middle)
    return upper


class Ridge(NamedTuple):
    """Ridge regression on visited pairs: Lambda = E_visits[phi phi'] + ridge I."""

    phi: Array
    solved: NDArray[np.floating]  # Lambda^-1 phi', [d, SA]
    form: Array  # phi' Lambda^-1 phi of each pair, [S, A]

    def mean(self, sums: Array) -> Array:
        """The prediction w . phi of each pair from sums of targets over its visits, [S, A]."""
        return self.phi @ (self.solved @ sums.reshape(-1))


def ridge_regression(phi: Array, visits: Array, ridge: float) -> Ridge:
    """The regression of LSVI-UCB for these visits of each pair."""
    precision: Array = exact.covariance(phi, visits) + ridge * np.eye(phi.shape[-1])
    solved: Array = np.asarray(np.linalg.solve(precision, phi.reshape(-1, phi.shape[-1]).T), np.float64)
    return Ridge(phi, solved, exact.form(phi, precision))


def loss(phi: Array, weights: Array, target: Array, theta: Array) -> float:
    """L(theta; w, y) = E_w (theta . phi - y)^2 (the paper's critic loss)."""
    return float(np.sum(weights * (phi @ theta - target) ** 2))


def lemma_step(W: float, H: float, N: int) -> float:
    """The step for which the SGD lemma is true: W / ((W + H) sqrt N)."""
    return W / ((W + H) * np.sqrt(N))


def lemma_excess(W: float, H: float, N: int, delta: float) -> float:
    """The excess loss of the SGD lemma, true form: (2 + 4 sqrt(2 ln(1/delta))) W (W + H) / sqrt N."""
    return (2.0 + 4.0 * np.sqrt(2.0 * np.log(1.0 / delta))) * W * (W + H) / np.sqrt(N)


def projected_sgd(x: Array, y: Array, W: float, step: float) -> Array:
    """The averaged iterate of projected SGD on each repetition: x [R, N, d], y [R, N] -> theta [R, d]."""
    repetitions, N, dim = x.shape
    theta, total = np.zeros((repetitions, dim)), np.zeros((repetitions, dim))
    for i in range(N):
        total += theta
        error = np.einsum("rd,rd->r", theta, x[:, i]) - y[:, i]
        theta = theta - step * error[:, None] * x[:, i]
        norm = np.linalg.norm(theta, axis=1, keepdims=True)
        theta *= np.minimum(1.0, W / np.maximum(norm, 1e-300))
    return total / N
