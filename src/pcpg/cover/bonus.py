"""The elliptical bonus: large where the summed covariance of the cover is small.

    sigma_mix = sum_i sigma_i + lambda I          the paper's line 5, `ridge` is lambda
    form(phi) = phi' sigma_mix^-1 phi = |phi W|^2   with W W' = sigma_mix^-1

W is found once per cover policy, on the host in float64; the form is a sum of squares, so never negative.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.covariance import EXACT

BonusForm = Literal["indicator", "quadratic", "root"]


def whitening(sigma_sum: np.ndarray, ridge: float) -> np.ndarray:
    """W with W W' = (sigma_sum + ridge I)^-1, float64 [d, d]."""
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, got {ridge}")
    if not np.all(np.isfinite(sigma_sum)):
        raise ValueError("the covariance of the cover holds a value that is not finite")
    dim = sigma_sum.shape[-1]
    sigma_sum = np.asarray(sigma_sum, np.float64)
    try:
        lower = np.linalg.cholesky(sigma_sum + ridge * np.eye(dim))
    except np.linalg.LinAlgError:
        # Covariances come in float32: their least eigenvalues may lie below zero by more than a small ridge.
        values, vectors = np.linalg.eigh(sigma_sum)
        return vectors / np.sqrt(np.maximum(values, 0.0) + ridge)
    return np.linalg.solve(lower, np.eye(dim)).T


def quadratic_form(phi: jax.Array, whiten: jax.Array) -> jax.Array:
    """phi' sigma_mix^-1 phi for each row of phi [..., d]."""
    return jnp.sum(jnp.matmul(phi, whiten, precision=EXACT) ** 2, axis=-1)


def bonus_of_form(form: jax.Array, kind: BonusForm, *, beta: jax.Array | float = 0.0, gamma: float = 0.0) -> jax.Array:
    """The bonus for a value of the quadratic form.

    indicator: 1{form >= beta} / (1 - gamma), the theory's; quadratic: the form itself, the paper's experiments;
    root: its square root, the released code's. The last two are scaled by the caller.
    """
    if kind == "indicator":
        return jnp.where(form >= beta, 1.0 / (1.0 - gamma), 0.0)
    if kind == "quadratic":
        return form
    if kind == "root":
        return jnp.sqrt(form)
    raise ValueError(f"unknown form of the bonus {kind!r}; valid: {', '.join(get_args(BonusForm))}")
