"""The bonus over pairs (s, a) from kept data: one covariance for each action, in the features of the state.

    b(s, a) = phi(s)' (I + sum over kept pairs with action a of phi phi')^-1 phi(s) + rest(s)

lies in (0, 1]: 1 / (1 + n) where observations are told apart and the pair was met n times, 1 far from all data. It is
the posterior variance of the kernel, and the ridge leverage of the pair.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.design import Design
from pcpg.cover.landmarks import HIGHEST, rest_of
from pcpg.shapes import Array, Float


def pair_covariances(phi: Float[Array, "n M"], weights: Float[Array, "A n"]) -> Float[jax.Array, "A M M"]:
    """For each action the weighted sum of phi phi' over observations."""
    return _for_each(lambda w: jnp.matmul((phi * w[:, None]).T, phi, precision=HIGHEST), weights)


def pair_roots(sigmas: Float[Array, "A M M"]) -> Float[jax.Array, "A M M"]:
    """L for each action, with L L' = I + sigma: the form phi' (I + sigma)^-1 phi is |L^-1 phi|^2."""
    eye = jnp.eye(sigmas.shape[-1], dtype=sigmas.dtype)
    return _for_each(lambda sigma: jnp.linalg.cholesky(sigma + eye), sigmas)


def pair_bonuses(phi: Float[Array, "n M"], roots: Float[Array, "A M M"]) -> Float[jax.Array, "n A"]:
    """b(s, a) of each observation for all actions; a sum of squares, so it cannot be negative."""
    columns = jnp.asarray(phi).T

    def form(root: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(jax.scipy.linalg.solve_triangular(root, columns, lower=True)), axis=0)

    return _for_each(form, roots).T + rest_of(phi)[:, None]


def _for_each(function: Callable[[jax.Array], jax.Array], values: Array) -> jax.Array:
    """Over actions: one after the other on a CPU, together on an accelerator."""
    values = jnp.asarray(values)
    return jax.lax.map(function, values) if jax.default_backend() == "cpu" else jax.vmap(function)(values)


def diagonal_design(
    visits: Float[np.ndarray, "n M"], ridge: float, kind: Literal["d-optimal", "uniform"], iterations: int = 100
) -> Design:
    """Weights of members by what share of their visits fell on each landmark: covariances that are diagonal.

    Maximises sum_j log(sum_i weights_i visits_ij + ridge) over the simplex by multiplicative updates, which never lower
    it (they are those of expectation-maximisation); the gap bounds what is missing, as in `d_optimal`.
    """
    number = len(visits)
    if number == 0:
        return Design(np.zeros(0), 0.0, 0.0, 0, 0)
    used = np.asarray(visits, np.float64)[:, np.any(visits > 0, axis=0)]
    weights, count = np.full(number, 1.0 / number), 0
    while True:
        mixed = weights @ used + ridge
        gradient = (used / mixed).sum(axis=1)
        mean = float(weights @ gradient)
        gap = float(gradient.max() - mean)
        if kind == "uniform" or count == iterations or gap < 1e-3:
            return Design(weights, float(np.log(mixed).sum()), max(gap, 0.0), used.shape[1], count)
        weights, count = weights * gradient / mean, count + 1
