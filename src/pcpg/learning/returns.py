"""Generalised advantage estimation (Schulman et al. 2016) with termination and truncation apart."""

import jax
import jax.numpy as jnp


def gae(
    rewards: jax.Array,  # [T, ...]
    values: jax.Array,  # [T, ...] of the observations acted on
    next_values: jax.Array,  # [T, ...] of the observations that followed, the true last one included
    terminated: jax.Array,  # [T, ...] the task ended: nothing follows
    truncated: jax.Array,  # [T, ...] a time limit: the value of what would have followed is kept
    *,
    gamma: float | jax.Array,
    lam: float | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Advantages and value targets, both [T, ...]."""
    delta = rewards + gamma * next_values * ~terminated - values
    keep = gamma * lam * ~(terminated | truncated)

    def backward(advantage: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta_t, keep_t = inputs
        advantage = delta_t + keep_t * advantage
        return advantage, advantage

    _, advantages = jax.lax.scan(backward, jnp.zeros_like(delta[0]), (delta, keep), reverse=True)
    return advantages, advantages + values


def normalise(advantages: jax.Array, mask: jax.Array, floor: float | jax.Array) -> jax.Array:
    """Advantages with mean 0 and, over the masked entries, standard deviation 1 where it is above the floor.

    Without the floor a policy that is already deterministic turns rounding noise into unit advantages.
    """
    count = jnp.maximum(jnp.sum(mask), 1)
    mean = jnp.sum(jnp.where(mask, advantages, 0.0)) / count
    centred = jnp.where(mask, advantages - mean, 0.0)
    std = jnp.sqrt(jnp.sum(centred**2) / count)
    return centred / (jnp.maximum(std, floor) + 1e-8)
