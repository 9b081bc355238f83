"""Kernels k(x, y) = <phi(x), phi(y)> for features that need not be finite: linear, RBF, Matern, and products.

A kernel is a frozen dataclass that maps points x and y, one a row, to the matrix of k(x_i, y_j), in float64.
`diagonal` gives k(x_i, x_i), the squared norms of the features, without the matrix. RBF and Matern kernels have
k(x, x) = 1, so norm(phi) = 1; products of such kernels too.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from pcpg.shapes import Float


@runtime_checkable
class Kernel(Protocol):
    """What a kernel can do."""

    def __call__(self, x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "n m"]:
        """The matrix of k(x_i, y_j)."""
        ...

    def diagonal(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        """The values k(x_i, x_i)."""
        ...


def _points(x: np.ndarray, name: str) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"{name} must be a finite array of points [n, p], got shape {x.shape}")
    return x


def _check_scale(lengthscale: float) -> None:
    if not (np.isfinite(lengthscale) and lengthscale > 0.0):
        raise ValueError(f"lengthscale is {lengthscale}; expected a positive number")


def squared_distances(x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "n m"]:
    """The squares of norm(x_i - y_j), never negative."""
    # Centred first: the expansion loses digits when points lie far from the origin.
    centre = y.mean(0) if len(y) else 0.0
    x, y = x - centre, y - centre
    square = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :] - 2.0 * (x @ y.T)
    return np.maximum(square, 0.0)


@dataclass(frozen=True)
class Linear:
    """k(x, y) = scale^2 x . y: the features are the points themselves."""

    scale: float = 1.0

    def __call__(self, x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "n m"]:
        return self.scale**2 * (_points(x, "x") @ _points(y, "y").T)

    def diagonal(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        x = _points(x, "x")
        return self.scale**2 * (x * x).sum(1)


@dataclass(frozen=True)
class RBF:
    """k(x, y) = exp(-norm(x - y)^2 / (2 lengthscale^2))."""

    lengthscale: float = 1.0

    def __post_init__(self) -> None:
        _check_scale(self.lengthscale)

    def __call__(self, x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "n m"]:
        square = squared_distances(_points(x, "x"), _points(y, "y"))
        square *= -0.5 / self.lengthscale**2
        return np.exp(square, out=square)

    def diagonal(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        return np.ones(len(_points(x, "x")))


@dataclass(frozen=True)
class Matern:
    """The Matern kernel of smoothness nu = 1/2, 3/2 or 5/2."""

    lengthscale: float = 1.0
    nu: float = 1.5

    def __post_init__(self) -> None:
        _check_scale(self.lengthscale)
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu is {self.nu}; expected 0.5, 1.5 or 2.5")

    def __call__(self, x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "n m"]:
        t = np.sqrt(2.0 * self.nu * squared_distances(_points(x, "x"), _points(y, "y"))) / self.lengthscale
        factor = {0.5: 1.0, 1.5: 1.0 + t, 2.5: 1.0 + t + t * t / 3.0}[self.nu]
        return factor * np.exp(-t)

    def diagonal(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        return np.ones(len(_points(x, "x")))


@dataclass(frozen=True)
class Indicator:
    """k(x, y) = 1{x = y}: one-hot features of whatever the points encode (actions, tabular pairs)."""

    def __call__(self, x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "n m"]:
        x, y = _points(x, "x"), _points(y, "y")
        return (x[:, None, :] == y[None, :, :]).all(-1).astype(np.float64)

    def diagonal(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        return np.ones(len(_points(x, "x")))


@dataclass(frozen=True)
class Product:
    """k((s, a), (s', a')) = left(s, s') right(a, a'), the first `split` coordinates of a point being s."""

    left: Kernel
    right: Kernel
    split: int

    def __post_init__(self) -> None:
        if self.split < 1:
            raise ValueError(f"split is {self.split}; the left kernel needs at least one coordinate")

    def __call__(self, x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "m p"]) -> Float[np.ndarray, "n m"]:
        x, y = _points(x, "x"), _points(y, "y")
        return self.left(x[:, : self.split], y[:, : self.split]) * self.right(x[:, self.split :], y[:, self.split :])

    def diagonal(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        x = _points(x, "x")
        return self.left.diagonal(x[:, : self.split]) * self.right.diagonal(x[:, self.split :])
