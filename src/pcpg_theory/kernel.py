"""Algorithm 1 in the dual, for features that are known by their kernel only, and an MDP to run it on.

Stored points x_1..x_m with weights w_i (a policy of the cover contributes its K pairs with weight 1/K each, so the
sum of w phi phi' is the sum of the covariances). With A = diag(sqrt w) K diag(sqrt w) and k_x = sqrt(w) k(X, x):

    phi' (sum_i w_i phi_i phi_i' + lambda I)^-1 phi = (k(x, x) - k_x' (A + lambda I)^-1 k_x) / lambda   (bonus form)
    log det(I + (1/lambda) sum_i w_i phi_i phi_i')  = log det(A + lambda I) - m log(lambda)             (information)
    theta . phi(x) = k_x' c,  c = (A + rho I)^-1 (sqrt(w) y),  norm(theta)^2 = c' A c <= W^2 by rho      (critic)

The Cholesky factor of A + lambda I grows by a block for each batch of points: m^2 k flops for k new points among m,
against m^3/3 for a new factorisation.

The swimmer is an MDP that is linear in an infinite-dimensional RKHS: at x in [0, 1] (a fine grid) against a current.
Next states are mixtures of J bumps nu_j over the grid,
    P(.|x, a) = sum_j w_j(x, a) nu_j,    w_j normalised Gaussian weights around x + drift(a),
so P and r are functions of (x, a) in the RKHS of RBF(x) times 1{a = a'}. On the grid they are interpolated exactly,
and their norms are known: omega = norm(r)_H, and xi <= sqrt(J e), e the largest eigenvalue of the Gram matrix of
w_1..w_J in H.

Kernels k(x, y) = <phi(x), phi(y)> for features that need not be finite: linear, RBF, indicator, and products.

A kernel is a frozen dataclass that maps points x [n, p] and y [m, p] to the matrix of k(x_i, y_j), in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from pcpg_theory import tabular
from pcpg_theory.critic import multiplier
from pcpg_theory.mdp import Array, TabularMDP, one_hot_pairs
from pcpg_theory.settings import Settings
from pcpg_theory.tabular import Bonus, Features, Mode, Oracle, TabularCover, TheoryRun


def points(x: ArrayLike, name: str) -> Array:
    """Points [n, p] as an array, or a ValueError."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"{name} must be a finite array of points [n, p], got shape {x.shape}")
    return x


def squared_distances(x: Array, y: Array) -> Array:
    """The squares of norm(x_i - y_j), never negative."""
    # Centred first: the expansion loses digits when points lie far from the origin.
    centre = y.mean(0) if len(y) else 0.0
    x, y = x - centre, y - centre
    square = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :] - 2.0 * (x @ y.T)
    return np.maximum(square, 0.0)


class Kernel:
    """The interface of a kernel; norm(phi) = 1 unless it has a `diagonal` of its own."""

    def __call__(self, x: Array, y: Array) -> Array:
        """The matrix of k(x_i, y_j)."""
        raise NotImplementedError

    def diagonal(self, x: Array) -> Array:
        """The values k(x_i, x_i), without the matrix."""
        return np.ones(len(points(x, "x")))


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = scale^2 x . y: the features are the points themselves."""

    scale: float = 1.0

    def __call__(self, x: Array, y: Array) -> Array:
        return self.scale**2 * (points(x, "x") @ points(y, "y").T)

    def diagonal(self, x: Array) -> Array:
        return self.scale**2 * (points(x, "x") ** 2).sum(1)


@dataclass(frozen=True)
class RBF(Kernel):
    """k(x, y) = exp(-norm(x - y)^2 / (2 lengthscale^2))."""

    lengthscale: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lengthscale) and self.lengthscale > 0.0):
            raise ValueError(f"lengthscale must be a positive number, got {self.lengthscale}")

    def __call__(self, x: Array, y: Array) -> Array:
        square = squared_distances(points(x, "x"), points(y, "y"))
        square *= -0.5 / self.lengthscale**2
        return np.exp(square, out=square)


@dataclass(frozen=True)
class Indicator(Kernel):
    """k(x, y) = 1{x = y}: one-hot features of whatever the points encode (actions, tabular pairs)."""

    def __call__(self, x: Array, y: Array) -> Array:
        x, y = points(x, "x"), points(y, "y")
        return (x[:, None, :] == y[None, :, :]).all(-1).astype(np.float64)


@dataclass(frozen=True)
class Product(Kernel):
    """k((s, a), (s', a')) = left(s, s') right(a, a'), the first `split` coordinates of a point being s."""

    left: Kernel
    right: Kernel
    split: int

    def __post_init__(self) -> None:
        if self.split < 1:
            raise ValueError(f"split must be 1 or more, a coordinate for the left kernel, got {self.split}")

    def __call__(self, x: Array, y: Array) -> Array:
        x, y = points(x, "x"), points(y, "y")
        return self.left(x[:, : self.split], y[:, : self.split]) * self.right(x[:, self.split :], y[:, self.split :])

    def diagonal(self, x: Array) -> Array:
        x = points(x, "x")
        return self.left.diagonal(x[:, : self.split]) * self.right.diagonal(x[:, self.split :])


class DualCover:
    """Stored pairs with weights, and the Cholesky factor that gives bonus forms; `extend` adds points in place."""

    def __init__(self, kernel: Kernel, ridge: float = 1.0) -> None:
        if not ridge > 0.0:
            raise ValueError(f"ridge must be positive, got {ridge}")
        self.kernel, self.ridge = kernel, ridge
        self.points: Array | None = None
        self.root_weights = np.zeros(0)
        # Room for more rows than are used, doubled when full: adding a block does not copy the whole factor each time.
        self._factor, self.size = np.zeros((0, 0)), 0

    def extend(self, points: Array, weights: Array) -> "DualCover":
        """Add points with weights and return the cover itself."""
        points, weights = np.atleast_2d(np.asarray(points, np.float64)), np.asarray(weights, np.float64)
        if weights.shape != (len(points),) or (weights < 0.0).any() or not np.isfinite(weights).all():
            raise ValueError(f"weights must be {len(points)}, finite and not negative, got {weights}")
        m, k, root = self.size, len(points), np.sqrt(weights)
        self._reserve(m + k)
        block = root[:, None] * self.kernel(points, points) * root
        if m:
            assert self.points is not None
            cross = self.root_weights[:, None] * self.kernel(self.points, points) * root
            below = scipy.linalg.solve_triangular(self._used, cross, lower=True, check_finite=False).T
            self._factor[m : m + k, :m] = below
            block -= below @ below.T
        block[np.diag_indices(k)] += self.ridge
        self._factor[m : m + k, m : m + k] = scipy.linalg.cholesky(block, lower=True, check_finite=False)
        self.points = points.copy() if self.points is None else np.concatenate([self.points, points])
        self.root_weights = np.concatenate([self.root_weights, root])
        self.size = m + k
        return self

    @property
    def _used(self) -> Array:
        return self._factor[: self.size, : self.size]

    def _reserve(self, size: int) -> None:
        if size > len(self._factor):
            # Column order: LAPACK's triangular solves then work on the view without a copy.
            larger = np.zeros((max(size, 2 * len(self._factor)),) * 2, order="F")
            larger[: self.size, : self.size] = self._used
            self._factor = larger

    def form(self, queries: Array, block: int = 2048) -> Array:
        """phi' Sigma_mix^-1 phi for each query point, in blocks of queries (memory: points x block)."""
        queries = np.atleast_2d(np.asarray(queries, np.float64))
        found = self.kernel.diagonal(queries) / self.ridge
        if self.size == 0:
            return found
        assert self.points is not None
        for start in range(0, len(queries), block):
            part = slice(start, start + block)
            cross = self.root_weights[:, None] * self.kernel(self.points, queries[part])
            white = scipy.linalg.solve_triangular(self._used, cross, lower=True, check_finite=False, overwrite_b=True)
            found[part] -= np.einsum("ij,ij->j", white, white) / self.ridge
        # The difference is at least k/(trace + lambda) > 0; rounding may take it below.
        return np.maximum(found, 0.0)

    def information_gain(self) -> float:
        """log det(I + (1/lambda) sum of the covariances)."""
        return float(2.0 * np.log(np.diag(self._used)).sum() - self.size * np.log(self.ridge))


class DualCritic(NamedTuple):
    """A critic theta = sum_i c_i phi(x_i): predictions by the kernel, and the norm of theta."""

    kernel: Kernel
    points: Array
    coefficients: Array
    norm: float
    ridge: float  # the multiplier of the norm constraint, 0 where W does not bind

    def __call__(self, queries: Array) -> Array:
        """theta . phi for each query point."""
        return self.kernel(np.atleast_2d(queries), self.points) @ self.coefficients


class DualRegression:
    """Weighted points factorised once, for critics of many targets."""

    def __init__(self, kernel: Kernel, points: Array, weights: Array, cutoff: float = 1e-10) -> None:
        self.kernel, self.points, self.root = kernel, np.atleast_2d(points), np.sqrt(weights)
        eigenvalues, vectors = scipy.linalg.eigh(self.root[:, None] * kernel(self.points, self.points) * self.root)
        keep = eigenvalues > cutoff * max(float(eigenvalues[-1]), 1e-300)  # below it: rounding, not data
        self.eigenvalues, self.vectors = eigenvalues[keep], vectors[:, keep]

    def fit(self, targets: Array, W: float = np.inf) -> DualCritic:
        """The critic of min over norm(theta) <= W of sum_i w_i (theta . phi_i - y_i)^2, of least norm."""
        e, moment = self.eigenvalues, self.vectors.T @ (self.root * targets)
        theta: Array = np.sqrt(e) * moment  # over e + ridge, in these coordinates
        ridge = multiplier(theta, e, W)
        coefficients = self.root * (self.vectors @ (moment / (e + ridge)))
        return DualCritic(self.kernel, self.points, coefficients, float(np.linalg.norm(theta / (e + ridge))), ridge)


DRIFTS = (-0.10, -0.04, 0.06)  # left, rest (the current), right


class KernelMDP(NamedTuple):
    """The MDP on its grid, the points (x, a) of its pairs, and its norms in the RKHS."""

    mdp: TabularMDP
    points: Array  # [S A, 2]
    kernel: Kernel
    omega: float
    xi: float


def swimmer(num_states: int = 60, gamma: float = 0.95, lengthscale: float = 0.06, bumps: int = 13) -> KernelMDP:
    """The swimmer: a bait of 0.02 at the left bank, reward 1 at the right one, start near the left."""
    if num_states < 10 or bumps < 2:
        raise ValueError(f"num_states must be 10 or more and bumps 2 or more, got {num_states} and {bumps}")
    x = np.linspace(0.0, 1.0, num_states)
    centres = np.linspace(0.0, 1.0, bumps)
    width = 1.0 / (bumps - 1)

    def bump(at: Array, of: Array) -> Array:
        raw = np.exp(-0.5 * ((at[..., None] - of) / width) ** 2)
        return raw / raw.sum(-1, keepdims=True)

    nu = bump(centres, x)  # [J, S]
    weights = bump(np.clip(x[:, None] + np.array(DRIFTS), 0.0, 1.0), centres)  # [S, A, J]
    P = weights @ nu
    r = np.exp(-0.5 * ((x - 1.0) / 0.05) ** 2) + 0.02 * np.exp(-0.5 * (x / 0.05) ** 2)
    mdp = TabularMDP(P / P.sum(-1, keepdims=True), np.repeat(np.minimum(r, 1.0)[:, None], 3, axis=1), gamma, 2)
    points = np.stack([np.repeat(x, 3), np.tile(np.arange(3.0), num_states)], axis=1)
    kernel = Product(RBF(lengthscale), Indicator(), split=1)
    gram = kernel(points, points) + 1e-10 * np.eye(len(points))
    factor = scipy.linalg.cho_factor(gram, lower=True)
    flat = weights.reshape(-1, bumps)
    top = float(np.linalg.eigvalsh(flat.T @ scipy.linalg.cho_solve(factor, flat))[-1])
    omega = float(np.sqrt(mdp.r.reshape(-1) @ scipy.linalg.cho_solve(factor, mdp.r.reshape(-1))))
    return KernelMDP(mdp, points, kernel, omega, float(np.sqrt(bumps * top)))


def dual_features(made: KernelMDP, settings: Settings) -> Features:
    """Bonus and critic through the kernel, the counterpart of `tabular.primal_features` for explicit features."""
    mdp, kernel, points = made.mdp, made.kernel, made.points
    settings.check(one_hot_pairs(mdp), mdp.gamma)
    stored, members = DualCover(kernel, settings.ridge), 0

    def bonus(cover: TabularCover) -> Bonus:
        nonlocal members
        for visits in cover.visits[members:]:  # the factor grows by the members that it does not have yet
            seen = np.flatnonzero(visits)
            stored.extend(points[seen], visits.reshape(-1)[seen])
        members = len(cover.visits)
        form = stored.form(points).reshape(mdp.shape)
        return Bonus((form >= settings.beta) / (1.0 - mdp.gamma), form, stored.information_gain())

    def regress(weights: Array) -> Callable[[Array], Array]:
        flat = weights.reshape(-1)
        seen = np.flatnonzero(flat)
        regression = DualRegression(kernel, points[seen], flat[seen])

        def fit(target: Array) -> Array:
            coefficients = np.zeros(len(flat))
            coefficients[seen] = regression.fit(target.reshape(-1)[seen], settings.W).coefficients
            return coefficients

        return fit

    # A critic is a combination of kernel functions at the pairs: phi is the kernel matrix, theta its coefficients.
    return Features(kernel(points, points).reshape(*mdp.shape, -1), bonus, regress)


def run_kernel(made: KernelMDP, settings: Settings, mode: Mode, seed: int = 0, dual: bool = True) -> TheoryRun:
    """A run of Algorithm 1 with the kernel's features (dual) or one-hot pairs (primal)."""
    if not dual:
        return tabular.run(made.mdp, one_hot_pairs(made.mdp), settings, mode, seed)
    settings = replace(settings, critic="least_squares")  # the only solver that the dual has
    return tabular.run_oracle(Oracle(made.mdp, dual_features(made, settings), settings, mode, seed))
