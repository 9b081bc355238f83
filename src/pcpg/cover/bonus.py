"""Covariance of features, and the elliptical bonus: large where the summed covariance of the cover is small.

    sigma     = E phi phi'                          what a policy has seen
    sigma_mix = sum_i sigma_i + lambda I            the paper's line 5, `ridge` is lambda
    form(phi) = phi' sigma_mix^-1 phi = |phi W|^2   with W W' = sigma_mix^-1

W is found once per cover policy, on the host in float64; the form is a sum of squares, so never negative.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.shapes import Array, Bool, Float, Scalar

# On a GPU, float32 products default to TF32: the quadratic form then carries noise larger than the bonus.
EXACT = jax.lax.Precision.HIGHEST

BonusForm = Literal["indicator", "quadratic", "root"]
RidgeScale = Literal["raw", "features"]


def covariance(phi: Float[Array, "n d"], mask: Bool[Array, " n"]) -> Float[jax.Array, "d d"]:
    """The mean of phi phi' over the pairs that count.

    Args:
        phi: Features of n pairs, one row each.
        mask: Which pairs count.

    Returns:
        The covariance; zeros if no pair counts.

    >>> covariance(jnp.array([[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]), jnp.array([True, True, False])).tolist()
    [[0.5, 0.0], [0.0, 2.0]]
    """
    kept = jnp.where(mask[:, None], phi, 0.0)
    total = jnp.matmul(kept.T, kept, precision=EXACT)
    return total / jnp.maximum(jnp.sum(mask), 1)


def weighted_covariance(phi: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[jax.Array, "d d"]:
    """The mean of phi phi' under weights that need not sum to one."""
    scaled = phi * jnp.sqrt(weights / jnp.maximum(jnp.sum(weights), 1e-30))[:, None]
    return jnp.matmul(scaled.T, scaled, precision=EXACT)


def ridge_of(sigmas: Float[np.ndarray, "policies d d"], scale: RidgeScale, ridge: float) -> float:
    """lambda for these covariances: as given, or times the mean squared norm of the features under the first policy.

    With the latter a quadratic form does not change when all features are multiplied by a number, and that of a pair in
    an unseen direction is at most 1 / ridge of the mean squared norm.

    >>> ridge_of(np.diag([3.0, 1.0])[None], "features", 1e-2), ridge_of(np.diag([3.0, 1.0])[None], "raw", 1e-2)
    (0.04, 0.01)
    """
    return ridge if scale == "raw" else ridge * max(float(np.trace(sigmas[0])), 1e-30)


def whitening(sigma_sum: Float[np.ndarray, "d d"], ridge: float) -> Float[np.ndarray, "d d"]:
    """The W by which a quadratic form becomes a sum of squares: W W' = (sigma_sum + ridge I)^-1.

    Args:
        sigma_sum: Sum of the covariances of a cover.
        ridge: What is added to its diagonal, above 0.

    Returns:
        W in float64.

    >>> whitening(np.diag([3.0, 0.0]), ridge=1.0).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, got {ridge}")
    if not np.all(np.isfinite(sigma_sum)):
        raise ValueError("the covariance of the cover contains a non-finite value")
    dim = sigma_sum.shape[-1]
    sigma_sum = np.asarray(sigma_sum, np.float64)
    try:
        lower = np.linalg.cholesky(sigma_sum + ridge * np.eye(dim))
    except np.linalg.LinAlgError:
        # Covariances come in float32: their least eigenvalues may lie below zero by more than a small ridge.
        values, vectors = np.linalg.eigh(sigma_sum)
        return vectors / np.sqrt(np.maximum(values, 0.0) + ridge)
    return np.linalg.solve(lower, np.eye(dim)).T


def quadratic_form(phi: Float[Array, "*batch d"], whiten: Float[Array, "d k"]) -> Float[jax.Array, "*batch"]:
    """phi' sigma_mix^-1 phi: large if the cover has rarely seen a pair.

    Args:
        phi: Features, of one pair or of many.
        whiten: The result of `whitening` for the cover.

    Returns:
        A number for each pair, never negative.

    >>> quadratic_form(jnp.array([[1.0, 0.0], [0.0, 1.0]]), whitening(np.diag([3.0, 0.0]), ridge=1.0)).tolist()
    [0.25, 1.0]
    """
    return jnp.sum(jnp.matmul(phi, whiten, precision=EXACT) ** 2, axis=-1)


def bonus_of_form(
    form: Float[jax.Array, "*batch"], kind: BonusForm, *, beta: Scalar = 0.0, gamma: float = 0.0
) -> Float[jax.Array, "*batch"]:
    """The bonus for values of the quadratic form.

    Args:
        form: The result of `quadratic_form`.
        kind: "indicator", the theory's: 1{form >= beta} / (1 - gamma); "quadratic", of the paper's experiments: the
            form itself; "root", of the released code: its square root. The last two are scaled by the caller.
        beta: The value from which a pair counts as new, for the indicator.
        gamma: The discount, for the indicator.

    Returns:
        A bonus for each value.

    >>> form = jnp.array([0.25, 1.0])
    >>> bonus_of_form(form, "root").tolist()
    [0.5, 1.0]
    >>> bonus_of_form(form, "indicator", beta=0.5, gamma=0.75).tolist()
    [0.0, 4.0]
    """
    if kind == "indicator":
        return jnp.where(form >= beta, 1.0 / (1.0 - gamma), 0.0)
    if kind == "quadratic":
        return form
    if kind == "root":
        return jnp.sqrt(form)
    raise ValueError(f"unknown form of the bonus {kind!r}; valid: {', '.join(get_args(BonusForm))}")
