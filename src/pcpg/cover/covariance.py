"""Covariance of features: what a policy has seen."""

import jax
import jax.numpy as jnp

# On a GPU, float32 products default to TF32: the quadratic form then carries noise larger than the bonus.
EXACT = jax.lax.Precision.HIGHEST


def covariance(phi: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of phi phi' over the masked pairs, [d, d]; phi is [n, d]."""
    kept = jnp.where(mask[:, None], phi, 0.0)
    total = jnp.matmul(kept.T, kept, precision=EXACT)
    return total / jnp.maximum(jnp.sum(mask), 1)


def weighted_covariance(phi: jax.Array, weights: jax.Array) -> jax.Array:
    """Mean of phi phi' under weights [n] that need not sum to one, [d, d]."""
    scaled = phi * jnp.sqrt(weights / jnp.maximum(jnp.sum(weights), 1e-30))[:, None]
    return jnp.matmul(scaled.T, scaled, precision=EXACT)
