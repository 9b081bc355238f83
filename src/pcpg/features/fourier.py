"""Random Fourier features of the RBF kernel (Rahimi and Recht 2007).

| symbol | meaning                                                                                   |
|--------|-------------------------------------------------------------------------------------------|
| x      | the pair (s, a) as a vector, scaled to mean 0 and deviation 1                             |
| h      | bandwidth: k(x, y) = exp(-|x - y|^2 / (2 h^2)); scikit-learn's gamma is 1 / (2 h^2)       |
| W, b   | columns of W from N(0, I / h^2), b uniform in [0, 2 pi]                                    |
| phi    | sqrt(2 / D) cos(W' x + b), so that E phi(x)' phi(y) = k(x, y)                             |
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import Environment
from pcpg.features.base import Action, FeatureMap, Inputs, Observation
from pcpg.features.examples import Pairs, examples, fit_inputs
from pcpg.shapes import Array, Float


class RandomFourier(FeatureMap):
    """phi(s, a) = sqrt(2 / D) cos(W' x(s, a) + b)."""

    inputs: Inputs
    weights: Float[Array, "size D"]  # W
    offsets: Float[Array, " D"]  # b

    @property
    def dim(self) -> int:
        return self.offsets.shape[-1]

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " {self.dim}"]:
        x = self.inputs(observation, action)
        angle = jnp.matmul(x, self.weights, precision=jax.lax.Precision.HIGHEST) + self.offsets
        return math.sqrt(2 / self.dim) * jnp.cos(angle)


def fourier(
    env: Environment,
    rng: np.random.Generator,
    *,
    num_features: int = 32,
    bandwidth: float | None = None,
    with_actions: bool = True,
    pairs: Pairs | None = None,
    num_examples: int = 1000,
) -> RandomFourier:
    """Random Fourier features of the RBF kernel.

    Args:
        env: Any environment.
        rng: From which weights and, if there are none given, pairs are drawn.
        num_features: Number of features, D.
        bandwidth: The width of the kernel, h; by default the median distance of the pairs.
        with_actions: Whether the features see the action besides the observation.
        pairs: Observations [n, ...] and actions [n, ...] by which x is scaled; by default drawn.
        num_examples: How many pairs to draw, and to take distances of.

    Returns:
        The map.
    """
    require_int("num_features", num_features, minimum=1)
    pairs = examples(env, rng, num_examples) if pairs is None else pairs
    inputs, vectors = fit_inputs(env, pairs, with_actions=with_actions)
    h = median_distance(vectors[:num_examples]) if bandwidth is None else bandwidth
    weights, offsets = draw_fourier(rng, vectors.shape[1], num_features, h)
    return RandomFourier(inputs, weights, offsets)


def draw_fourier(
    rng: np.random.Generator, size: int, num_features: int, bandwidth: float
) -> tuple[Float[np.ndarray, "{size} {num_features}"], Float[np.ndarray, " {num_features}"]]:
    """Random W and b for a bandwidth."""
    if not (math.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"the bandwidth must be positive, got {bandwidth}")
    weights = rng.standard_normal((size, num_features)) / bandwidth
    offsets = rng.uniform(0, 2 * math.pi, num_features)
    return weights.astype(np.float32), offsets.astype(np.float32)


def median_distance(x: Float[np.ndarray, "n size"]) -> float:
    """The median Euclidean distance between two different rows of x."""
    squares = (x**2).sum(axis=1)
    square = squares[:, None] + squares[None, :] - 2 * x @ x.T
    distances = np.sqrt(np.maximum(square[np.triu_indices(len(x), k=1)], 0))
    distances = distances[distances > 1e-6]  # equal rows say nothing about the scale
    if distances.size == 0:
        raise ValueError("the median heuristic needs at least two different pairs")
    return float(np.median(distances))
