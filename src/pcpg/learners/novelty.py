"""The elliptical bonus of all kept data, in random Fourier features of the observation that an action leads to.

    x      the observation, whitened; of a long one, or an image, its first principal components
    phi    sqrt(2 / d) cos(W' x + c)                          features/fourier.py
    sigma  sum of phi phi' over all kept transitions
    b      phi' (I + sigma)^-1 phi, or its root, by the caller divided by its mean

It is paid when a transition is sampled, from sigma as it is then: stored bonuses would promise what is long known.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pcpg.cover.bonus import whitening
from pcpg.features.fourier import draw_fourier

LONG, COMPONENTS = 16, 16
"""Entries from which on an observation is projected, and to how many principal components."""
EXAMPLES = 2_000
"""Observations that the whitening is fitted to."""
PER_DIMENSION = 8.0
"""Width of the kernel: that of x by this, in effective dimensions; 0.5 in 4 of them, 2 in 16."""
NARROWEST = 0.3
BLOCK = 4_096


class Novelty(NamedTuple):
    """The features, and the sum of their outer products over the data."""

    mean: np.ndarray  # [size]
    projection: np.ndarray  # [size, k]
    weights: np.ndarray  # [k, d]
    offsets: np.ndarray  # [d]
    sigma: np.ndarray  # [d, d] float64

    def features(self, observations: np.ndarray) -> np.ndarray:
        """phi [n, d], float32."""
        x = (flat(observations) - self.mean) @ self.projection
        angle = x @ self.weights
        angle += self.offsets
        return np.float32(math.sqrt(2 / len(self.offsets))) * np.cos(angle, out=angle)

    def with_data(self, observations: np.ndarray) -> "Novelty":
        """The sum with the features of more observations."""
        sigma = self.sigma.copy()
        for block in blocks(observations):
            phi = self.features(block)
            sigma += phi.T @ phi
        return self._replace(sigma=sigma)

    def inverse_root(self) -> np.ndarray:
        """W with W W' = (I + sigma)^-1."""
        return whitening(self.sigma, 1.0).astype(np.float32)

    def bonus(self, observations: np.ndarray, root: np.ndarray, power: float) -> np.ndarray:
        """b to the given power (0.5: the root) of each observation."""
        forms = [np.sum((self.features(block) @ root) ** 2, axis=1) for block in blocks(observations)]
        return np.concatenate(forms) ** np.float32(power)


def no_novelty(size: int, num_features: int) -> Novelty:
    """Before any data."""
    k, d = min(size, COMPONENTS), num_features
    zeros = np.zeros((size, k), np.float32), np.zeros((k, d), np.float32), np.zeros(d, np.float32)
    return Novelty(np.zeros(size, np.float32), *zeros, np.zeros((d, d)))


def fitted(rng: np.random.Generator, observations: np.ndarray, num_features: int, bandwidth: float) -> Novelty:
    """Features for these observations, with a sum of nothing; a bandwidth of 0 is by the data."""
    some = observations
    if len(some) > EXAMPLES:
        some = some[np.sort(rng.choice(len(some), EXAMPLES, replace=False))]
    x = flat(some)
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    inverse = np.where(deviation > 1e-5, 1 / np.maximum(deviation, 1e-5), 0.0)
    if some.dtype == np.uint8:  # the scale of a picture's entries is the same for all
        inverse = np.ones_like(inverse)
    projection = np.diag(inverse) if len(mean) <= LONG else components((x - mean) * inverse) * inverse[:, None]
    seen = (x - mean) @ projection
    spread = np.clip(np.linalg.eigvalsh(np.cov(seen, rowvar=False).reshape(seen.shape[1], -1)), 0.0, None)
    dimensions = spread.sum() ** 2 / max(float(np.sum(spread**2)), 1e-12)
    width = bandwidth or max(dimensions / PER_DIMENSION, NARROWEST)
    weights, offsets = draw_fourier(rng, projection.shape[1], num_features, width)
    sigma = np.zeros((num_features, num_features))
    return Novelty(mean.astype(np.float32), projection.astype(np.float32), weights, offsets, sigma)


def components(x: np.ndarray) -> np.ndarray:
    """The first principal directions [size, k], scaled such that the first has deviation 1."""
    values, vectors = np.linalg.eigh(x @ x.T / len(x))
    k = min(COMPONENTS, x.shape[1])
    values, vectors = np.maximum(values[::-1][:k], 1e-12), vectors[:, ::-1][:, :k]
    directions = x.T @ (vectors / np.sqrt(values * len(x)))
    return directions / np.sqrt(values[0])


def flat(observations: np.ndarray) -> np.ndarray:
    """Observations as rows of float32; pictures in [0, 1]."""
    size = math.prod(observations.shape[1:])
    x = observations.reshape(len(observations), size).astype(np.float32)
    return x / np.float32(255.0) if observations.dtype == np.uint8 else x


def blocks(observations: np.ndarray) -> Iterator[np.ndarray]:
    """Some observations at a time, so features of all are never in memory."""
    for start in range(0, len(observations), BLOCK):
        yield observations[start : start + BLOCK]
