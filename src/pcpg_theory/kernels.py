"""Kernels k(x, y) = <phi(x), phi(y)> for features that need not be finite: linear, RBF, indicator, and products.

A kernel is a frozen dataclass that maps points x [n, p] and y [m, p] to the matrix of k(x_i, y_j), in float64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcpg_theory.mdp import Array


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
