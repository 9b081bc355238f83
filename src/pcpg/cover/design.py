"""D-optimal weights over a policy cover: argmax over the simplex of log det(sum_i w_i sigma_i + ridge I).

    sigma_i    covariance of the features under policy i, [d, d], positive semi-definite
    M(w)       sum_i w_i sigma_i + ridge I
    g_i        tr(M^-1 sigma_i), the gradient of log det M(w)
    H_ij       tr(M^-1 sigma_i M^-1 sigma_j), minus its Hessian

Log det is concave, so max_i g_i - sum_i w_i g_i bounds what any other weights could gain, in nats (Kiefer and
Wolfowitz 1960). It is self-concordant, so Newton steps that solve the quadratic model on the simplex exactly
converge from any start (Tran-Dinh, Kyrillidis and Cevher 2015), and quadratically in the end. While the gap is
large, multiplicative updates (Titterington 1976) come first: they never lower log det and need no Hessian.

Cost, r being the rank: 4 n d^2 r flops to whiten, 2 k r^3 + 2 k^2 r^2 for each Newton step, k policies having
weight or gaining from it. Three to six such steps are usual, whatever n and r, after up to five updates.
Memory: 8 n r^2 bytes for a whitened copy, up to twice that for products. Threads may call in parallel.
"""

import math
from typing import NamedTuple

import numpy as np

from pcpg.cover.simplex import simplex_maximiser

# Gap, in units of the rank, above which the quadratic model is poor and updates get on faster (measured).
_FAR = 0.15
# Multiplications in a product that was seen to start no BLAS threads. A call that did start them took 7 to 100 ms
# on busy cores instead of 0.1 to 2, so small problems are solved by products of this size, and by einsum.
_SMALL = 64**3
# Share of the gain promised by the slope that a full Newton step must deliver.
_ARMIJO = 0.01

_UNRESOLVED = "sigmas must have scales that float64 can resolve together, got a mean that cannot be inverted"


class Design(NamedTuple):
    """Weights over the policies of a cover, and how good they provably are."""

    weights: np.ndarray
    """[n] float64 on the simplex, exactly zero for a policy that is left out."""
    log_det: float
    """Log det of M(weights): on the range of the summed covariance if ridge is 0, else on all dimensions."""
    gap: float
    """max_i g_i - sum_i w_i g_i >= 0: no weights have a log det above log_det + gap."""
    rank: int
    """Dimension of the range of the summed covariance."""
    iterations: int
    """Steps taken from the uniform weights."""


class _Problem(NamedTuple):
    """The problem on the range, in coordinates where M(uniform) = I."""

    sigmas: np.ndarray  # [n, r, r]
    ridge: np.ndarray  # [r, r]: what ridge I has become
    log_det: float  # log det M(uniform) before the change of coordinates
    scratch: np.ndarray  # [2, n r^2], for _hessian: fresh memory costs more than the products written to it


class _Point(NamedTuple):
    """Weights and what is known there; `log_det` is relative to the uniform weights."""

    weights: np.ndarray
    inverse: np.ndarray | None  # M^-1 [r, r]; None at the uniform weights, where M = I
    log_det: float
    gradient: np.ndarray
    gap: float


def d_optimal(
    sigmas: np.ndarray,
    *,
    ridge: float = 0.0,
    tol: float = 1e-6,
    max_iterations: int = 100,
    rounding: float | None = None,
) -> Design:
    """The weights of the policies with the largest log det, and a bound on what they miss.

    Args:
        sigmas: Covariances of the policies, [n, d, d], each symmetric and positive semi-definite.
        ridge: What is added to the diagonal of the mixture.
        tol: Nats by which log det may fall short of the largest.
        max_iterations: After how many steps to stop even so.
        rounding: Relative error of the entries of `sigmas`, by default that of their dtype: a direction that it could
            have made is not in the range. Covariances computed in float32 need float32's, however stored.

    Returns:
        The weights, their log det and their gap.

    >>> design = d_optimal(np.array([np.diag([1.0, 0.0]), np.diag([0.0, 1.0]), np.diag([0.1, 0.1])]))
    >>> design.weights.round(3).tolist(), design.gap <= 1e-6
    ([0.5, 0.5, 0.0], True)
    """
    if not tol >= 0.0:
        raise ValueError(f"tol must be a number of nats >= 0, got {tol}")
    if max_iterations < 0:
        raise ValueError(f"max_iterations must be >= 0, got {max_iterations}")
    if not 0.0 <= ridge < math.inf:
        raise ValueError(f"ridge must be finite and >= 0, got {ridge}")
    sigmas = _checked(sigmas)
    rounding = float(np.finfo(sigmas.dtype).eps) if rounding is None else rounding
    if not 0.0 < rounding < 1.0:
        raise ValueError(f"rounding must lie in (0, 1), got {rounding}")
    problem = _whiten(sigmas, float(ridge), rounding)
    rank = len(problem.ridge)
    floor = 1e-15 * rank  # the rounding of g, whose mean is the rank
    point, iterations, far = _start(problem), 0, True
    while point.gap > max(tol, floor) and iterations < max_iterations:
        far = far and point.gap > _FAR * rank
        following = _updated(problem, point) if far else None
        following = _step(problem, point) if following is None else following
        if following is None:
            break
        point = following
        iterations += 1
    return Design(point.weights, problem.log_det + point.log_det, max(point.gap, 0.0), rank, iterations)


def uniform(sigmas: np.ndarray, *, ridge: float = 0.0, rounding: float | None = None) -> Design:
    """The uniform weights, with the same certificate as the optimal ones."""
    return d_optimal(sigmas, ridge=ridge, max_iterations=0, rounding=rounding)


def _checked(sigmas: np.ndarray) -> np.ndarray:
    """The covariances as a float array, or an error that names the value at fault."""
    sigmas = np.asarray(sigmas)
    if sigmas.ndim != 3 or sigmas.shape[1] != sigmas.shape[2] or sigmas.size == 0:
        raise ValueError(f"sigmas must have shape [n, d, d] with n, d >= 1, got {list(sigmas.shape)}")
    if sigmas.dtype.kind not in "iuf":
        raise ValueError(f"sigmas must hold real numbers, got dtype {sigmas.dtype}")
    if sigmas.dtype not in (np.float32, np.float64):
        sigmas = sigmas.astype(np.float64)
    slack = math.sqrt(np.finfo(sigmas.dtype).eps)
    for i, sigma in enumerate(sigmas):
        largest = np.abs(sigma).max()
        if not math.isfinite(largest):
            row, column = np.argwhere(~np.isfinite(sigma))[0]
            raise ValueError(f"sigmas must be finite, got {sigma[row, column]} at [{i}, {row}, {column}]")
        asymmetry = (sigma - sigma.T).max()
        if asymmetry > slack * largest:
            raise ValueError(f"sigmas must be symmetric, got |sigma - sigma.T| = {asymmetry:.3g} in sigmas[{i}]")
        # A positive semi-definite matrix has its largest entry on the diagonal.
        diagonal = sigma.diagonal()
        if diagonal.min() < 0.0 or diagonal.max() < (1.0 - slack) * largest:
            raise ValueError(
                f"sigmas must be positive semi-definite, got sigmas[{i}] with a diagonal from "
                f"{diagonal.min():.3g} to {diagonal.max():.3g} and an entry of size {largest:.3g}"
            )
    if not sigmas.any():
        raise ValueError("sigmas must not all be zero: no policy has a feature that is ever active")
    return sigmas


def _whiten(sigmas: np.ndarray, ridge: float, rounding: float) -> _Problem:
    """The problem on the range of the summed covariance, in coordinates where M(uniform) = I."""
    # There M has its eigenvalues in [1/r, n] at the optimum, whatever the scales: M <= n M(uniform), and no
    # g_i is above their mean by w, so tr(M^-1 M(uniform)) <= tr(M^-1 M) = r. All that follows is well conditioned.
    n, dim = sigmas.shape[:2]
    mean = np.einsum("i,ijk->jk", np.full(n, 1.0 / n), sigmas)
    mean = (mean + mean.T) / 2.0
    basis, (root, log_det) = _range(sigmas, mean, ridge, rounding)
    transform = root if basis is None else basis @ root
    rank = len(root)
    whitened = np.empty((n, rank, rank))
    for i in range(n):  # one at a time: temporaries stay small
        np.matmul(transform.T @ sigmas[i], transform, out=whitened[i])
    outside = (dim - rank) * math.log(ridge) if ridge > 0.0 else 0.0
    return _Problem(whitened, ridge * (root.T @ root), log_det + outside, np.empty((2, whitened.size)))


def _range(
    sigmas: np.ndarray, mean: np.ndarray, ridge: float, rounding: float
) -> tuple[np.ndarray | None, tuple[np.ndarray, float]]:
    """Orthonormal basis [d, r] of the range (None: everything) and there the whitener of M(uniform)."""
    dim = len(mean)
    try:
        root, log_det = _whitener(mean)
        # C is the mean scaled to a diagonal of ones: tr(C^-1) >= 1 / (its least eigenvalue), and its largest is
        # at most d. Mostly this spares the eigenvectors, which take ten times as long.
        if np.einsum("ij,ij,i->", root, root, mean.diagonal()) * rounding * dim * dim < 1.0:
            return None, (_whitener(mean + ridge * np.eye(dim)) if ridge > 0.0 else (root, log_det))
    except np.linalg.LinAlgError:
        pass
    # Policies count alike, so the directions of a weak one are not taken for the rounding of a strong one.
    # Where the scales are so far apart that they cannot be told from it, the plain mean leaves them out.
    cut = dim * rounding
    traces = np.trace(sigmas, axis1=1, axis2=2, dtype=np.float64)
    shares = np.divide(1.0, traces, out=np.zeros(len(sigmas)), where=traces > 0.0)
    for total, least in ((np.einsum("i,ijk->jk", shares, sigmas), cut), (mean, max(cut, 1e-12 * dim))):
        # Rounding is relative to each entry: with a diagonal of ones a rare feature does not look like it.
        scale = np.sqrt(np.where(total.diagonal() > 0.0, total.diagonal(), 1.0))
        values, vectors = np.linalg.eigh(total / np.outer(scale, scale))
        if values[0] < -1e-4 * values[-1]:
            raise ValueError(
                "sigmas must be positive semi-definite, got a sum whose eigenvalues, at a diagonal of ones, go from "
                f"{values[0]:.3g} to {values[-1]:.3g}"
            )
        basis = np.linalg.qr(scale[:, None] * vectors[:, values > least * values[-1]])[0]
        try:
            return basis, _whitener(basis.T @ mean @ basis + ridge * np.eye(basis.shape[1]))
        except np.linalg.LinAlgError:
            continue
    raise ValueError(_UNRESOLVED)


def _whitener(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """T with T' matrix T = I, and log det matrix; LinAlgError if that cannot be had in float64."""
    if not matrix.diagonal().min() > 0.0:
        raise np.linalg.LinAlgError("a diagonal entry is not positive")
    scale = np.sqrt(matrix.diagonal())
    factor = np.linalg.cholesky(matrix / np.outer(scale, scale))
    log_det = 2.0 * float(np.log(factor.diagonal() * scale).sum())
    root = np.linalg.inv(factor).T / scale[:, None]
    if not np.abs(root.T @ matrix @ root - np.eye(len(root))).max() < 0.01:
        raise np.linalg.LinAlgError("rounding hides the smallest eigenvalues")
    return root, log_det


def _start(problem: _Problem) -> _Point:
    """What is known at the uniform weights."""
    weights = np.full(len(problem.sigmas), 1.0 / len(problem.sigmas))
    mixture = np.einsum("i,ijk->jk", weights, problem.sigmas) + problem.ridge
    # Scales far apart make whitening inexact; where M is not quite I it must not be taken for it.
    if np.abs(mixture - np.eye(len(mixture))).max() > 1e-11:
        point = _evaluate(problem, weights)
        if point is None:
            raise ValueError(_UNRESOLVED)
        return point
    gradient = np.trace(problem.sigmas, axis1=1, axis2=2)
    return _Point(weights, None, 0.0, gradient, float(gradient.max() - gradient.mean()))


def _evaluate(problem: _Problem, weights: np.ndarray) -> _Point | None:
    """What is known at the weights; None where M is not positive definite."""
    mixture = np.einsum("i,ijk->jk", weights, problem.sigmas) + problem.ridge
    mixture = (mixture + mixture.T) / 2.0
    try:
        diagonal = np.linalg.cholesky(mixture).diagonal()
        inverse = np.linalg.inv(mixture)
    except np.linalg.LinAlgError:
        return None
    gradient = np.einsum("ijk,jk->i", problem.sigmas, inverse)
    gap = float(gradient.max() - weights @ gradient)
    return _Point(weights, inverse, 2.0 * float(np.log(diagonal).sum()), gradient, gap)


def _updated(problem: _Problem, point: _Point) -> _Point | None:
    """The point after w_i <- w_i g_i / sum_j w_j g_j, with a larger log det; None where rounding forbids it."""
    # Log det is convex in log w, so its tangent there bounds it from below; these weights maximise the tangent.
    weights = point.weights * np.maximum(point.gradient, 0.0)
    return _evaluate(problem, weights / weights.sum())


def _step(problem: _Problem, point: _Point) -> _Point | None:
    """The point after a Newton step, with a larger log det up to rounding; None if there is no such step."""
    # A policy without weight that gains less than the mean would not enter: this saves its share of H.
    active = np.flatnonzero((point.weights > 0.0) | (point.gradient > point.weights @ point.gradient))
    weights, gradient = point.weights[active], point.gradient[active]
    hessian = _hessian(problem, active, point.inverse)
    # The steepest policy alone is the way out should rounding spoil the Newton step.
    vertex = (np.arange(len(active)) == np.argmax(gradient)).astype(np.float64)
    slack = 1e-13 * len(problem.ridge)

    def at(values: np.ndarray) -> _Point | None:
        everywhere = np.zeros(len(point.weights))
        everywhere[active] = values / values.sum()
        return _evaluate(problem, everywhere)

    for target in (simplex_maximiser(hessian, gradient, weights), vertex):
        direction = target - weights
        slope = float(gradient @ direction)
        if not slope > 0.0:
            continue
        full = at(target)
        if full is not None and full.log_det >= point.log_det + _ARMIJO * slope - slack:
            return full
        # Self-concordance promises that this fraction is feasible and raises log det.
        curvature = max(float(direction @ hessian @ direction), 0.0)
        fraction = slope / max(curvature + slope * math.sqrt(curvature), slope)
        damped = at(weights + fraction * direction)
        if damped is not None and damped.log_det >= point.log_det - slack:
            return damped
    return None


def _hessian(problem: _Problem, active: np.ndarray, inverse: np.ndarray | None) -> np.ndarray:
    """H over the active policies, [k, k]."""
    sigmas, k, rank = problem.sigmas, len(active), len(problem.ridge)
    products, columns = problem.scratch[:, : k * rank * rank].reshape(2, k, rank, rank)
    if inverse is None:  # at the uniform weights, so every policy is active
        products = sigmas
    else:
        for i, policy in enumerate(active):
            products[i] = sigmas[policy] @ inverse
    if rank**3 > _SMALL:
        columns[...] = products.transpose(0, 2, 1)
        return products.reshape(k, -1) @ columns.reshape(k, -1).T
    columns = columns.reshape(rank, k, rank)
    columns[...] = products.transpose(2, 0, 1)
    rows, width = products.transpose(1, 0, 2), max(1, _SMALL // (k * rank))
    blocks = [rows @ columns[:, j : j + width].transpose(0, 2, 1) for j in range(0, k, width)]
    return np.concatenate([block.sum(axis=0) for block in blocks], axis=1)
