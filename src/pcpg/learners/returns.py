"""Proximal policy optimisation as functions of arrays: advantages (Schulman et al. 2016), objective (2017)."""

from typing import Any

import jax
import jax.numpy as jnp

from pcpg.engine.rollout import Rollout
from pcpg.shapes import Array, Bool, Float, Scalar

Metrics = dict[str, jax.Array]


def gae(
    rewards: Float[Array, "T *batch"],
    values: Float[Array, "T *batch"],
    next_values: Float[Array, "T *batch"],
    terminated: Bool[Array, "T *batch"],
    truncated: Bool[Array, "T *batch"],
    *,
    gamma: Scalar,
    gae_lambda: Scalar,
) -> tuple[Float[jax.Array, "T *batch"], Float[jax.Array, "T *batch"]]:
    """Generalised advantage estimates with termination and truncation apart, and the targets of the values.

    Args:
        rewards: What each step paid; time is the first axis.
        values: Of the observations acted on.
        next_values: Of the observations that followed, the true last one included.
        terminated: Where the task ended: nothing follows.
        truncated: Where a time limit cut the episode: the value of what would have followed is kept.
        gamma: The discount.
        gae_lambda: 0 trusts the values, 1 the rewards.

    Returns:
        Advantages, and advantages plus values.

    >>> zeros, never = jnp.zeros(3), jnp.zeros(3, bool)
    >>> end = jnp.array([False, False, True])
    >>> gae(jnp.ones(3), zeros, zeros, end, never, gamma=0.5, gae_lambda=1.0)[0].tolist()
    [1.75, 1.5, 1.0]
    """
    delta = rewards + gamma * next_values * ~terminated - values
    keep = gamma * gae_lambda * ~(terminated | truncated)

    def backward(advantage: jax.Array, inputs: Any) -> tuple[jax.Array, jax.Array]:
        delta_t, keep_t = inputs
        advantage = delta_t + keep_t * advantage
        return advantage, advantage

    _, advantages = jax.lax.scan(backward, jnp.zeros_like(delta[0]), (delta, keep), reverse=True)
    return advantages, advantages + values


def normalise(
    advantages: Float[Array, "*batch"], mask: Bool[Array, "*batch"], floor: Scalar
) -> Float[jax.Array, "*batch"]:
    """Advantages with mean 0 and, over the masked entries, standard deviation 1 where it is above the floor.

    Without the floor a policy that is already deterministic turns rounding noise into unit advantages.
    """
    count = jnp.maximum(jnp.sum(mask), 1)
    mean = jnp.sum(jnp.where(mask, advantages, 0.0)) / count
    centred = jnp.where(mask, advantages - mean, 0.0)
    std = jnp.sqrt(jnp.sum(centred**2) / count)
    return centred / (jnp.maximum(std, floor) + 1e-8)


def ppo_loss(
    log_prob: Float[Array, " n"],
    entropy: Float[Array, " n"],
    value: Float[Array, " n"],
    *,
    behaviour_log_prob: Float[Array, " n"],
    advantage: Float[Array, " n"],
    target: Float[Array, " n"],
    mask: Bool[Array, " n"],
    clip_eps: Scalar,
    entropy_coef: Scalar,
    value_coef: Scalar,
) -> tuple[Float[jax.Array, ""], Metrics]:
    """Clipped surrogate + value_coef * half squared error - entropy_coef * entropy, averaged over the mask.

    Args:
        log_prob: Of the actions, under the policy in training.
        entropy: Of the policy in training.
        value: Its estimates.
        behaviour_log_prob: Of the actions, under what chose them.
        advantage: Of the actions.
        target: What the value should be.
        mask: Which samples count.
        clip_eps: How far the ratio of the two probabilities may go from 1 and still be rewarded.
        entropy_coef: Weight of the entropy.
        value_coef: Weight of the error of the value.

    Returns:
        The loss and its parts, by name.

    >>> one, yes = jnp.ones(1), jnp.array([True])
    >>> loss, metrics = ppo_loss(
    ...     jnp.log(2 * one), one, one, behaviour_log_prob=0 * one, advantage=one, target=3 * one, mask=yes,
    ...     clip_eps=0.25, entropy_coef=0.5, value_coef=1.0
    ... )
    >>> {name: round(float(value), 3) for name, value in metrics.items() if name != "approx_kl"}
    {'policy_loss': -1.25, 'value_loss': 2.0, 'entropy': 1.0, 'clip_fraction': 1.0}
    >>> float(loss)
    0.25
    """
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


def mean_return(data: Rollout) -> jax.Array:
    """Mean over the episodes that the policy played from their start and, with autoreset, to their end."""
    if data.ends is None:
        whole = jnp.all(data.own | ~data.alive, axis=0)
        return masked_mean(jnp.sum(data.rewards, axis=0), whole)
    finished = jax.lax.cummax(data.ends.astype(jnp.int32), axis=0, reverse=True) > 0  # an end is still to come
    return jnp.sum(jnp.where(finished, data.rewards, 0.0)) / jnp.sum(data.ends)


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean over the mask; NaN where the mask is empty."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.sum(mask)
