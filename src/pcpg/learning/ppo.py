"""The PPO objective (Schulman et al. 2017) as a function of arrays."""

import jax
import jax.numpy as jnp

Metrics = dict[str, jax.Array]


def ppo_loss(
    log_prob: jax.Array,  # [n] of the actions under the policy in training
    entropy: jax.Array,  # [n]
    value: jax.Array,  # [n]
    *,
    behaviour_log_prob: jax.Array,  # [n] of the actions under what chose them
    advantage: jax.Array,  # [n]
    target: jax.Array,  # [n] for the value
    mask: jax.Array,  # [n] which samples count
    clip_eps: float | jax.Array,
    entropy_coef: float | jax.Array,
    value_coef: float | jax.Array,
) -> tuple[jax.Array, Metrics]:
    """Clipped surrogate + value_coef * half squared error - entropy_coef * entropy, averaged over the mask."""
    weight = mask.astype(jnp.float32) / jnp.maximum(jnp.sum(mask), 1)
    # Of a sample that does not count the ratio may be anything: exp would overflow, and 0 * inf is NaN in the gradient.
    log_ratio = jnp.where(mask, log_prob - behaviour_log_prob, 0.0)
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
    policy_loss = -jnp.sum(weight * jnp.minimum(ratio * advantage, clipped * advantage))
    value_loss = 0.5 * jnp.sum(weight * (value - target) ** 2)
    mean_entropy = jnp.sum(weight * entropy)
    loss = policy_loss + value_coef * value_loss - entropy_coef * mean_entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": mean_entropy,
        "approx_kl": jnp.sum(weight * (ratio - 1 - log_ratio)),
        "clip_fraction": jnp.sum(weight * (jnp.abs(ratio - 1) > clip_eps)),
    }
    return loss, metrics
