"""Roll-in through the cover, as in the paper's implemented NPG: a policy by the weights, a length by chance."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pcpg.shapes import Array, Float, Int, Key, Scalar


class RollIn(NamedTuple):
    """Who acts before the policy in training takes over, and for how long; episodes come in equal groups."""

    policies: object  # a policy with a leading axis [groups]
    length: Int[Array, " episodes"]  # steps of the roll-in; 0: the episode starts at the environment's start


def draw_roll_in(
    key: Key[jax.Array, ""],
    members: object,  # stacked [capacity, ...], or more than those
    weights: Float[Array, " capacity"],  # on the simplex
    *,
    first: Int[Array, ""] | None = None,  # the member that weights[0] belongs to; None: the first
    num_episodes: int,
    num_groups: int,
    horizon: int,
    start_share: Scalar,
) -> RollIn:
    """A policy for each group and a length, uniform over 0 .. horizon-1, for each episode.

    The paper draws both per episode: `num_groups == num_episodes`. Fewer groups share a policy (its weights are
    gathered once a group), never a length. `start_share` of the episodes, in expectation, have no roll-in.
    """
    key_policy, key_length, key_start = jax.random.split(key, 3)
    cumulative = jnp.cumsum(weights)
    point = jax.random.uniform(key_policy, (num_groups, 1), jnp.float32) * cumulative[-1]
    # Long sums are rounded in blocks, so a place without weight may seem to have some; it is never drawn all the same.
    drawn = (point < cumulative) & (weights > 0)
    index = jnp.where(jnp.any(drawn, axis=-1), jnp.argmax(drawn, axis=-1), jnp.argmax(weights))
    index = index if first is None else first + index
    policies = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], members)
    length = jax.random.randint(key_length, (num_episodes,), 0, horizon, dtype=jnp.int32)
    at_start = jax.random.uniform(key_start, (num_episodes,), jnp.float32) < start_share
    return RollIn(policies, jnp.where(at_start, 0, length))


def mixed_log_prob(
    log_prob: Float[Array, "*batch"], random_log_prob: Float[Array, "*batch"], epsilon: Scalar
) -> Float[jax.Array, "*batch"]:
    """Log-density of acting by the policy with probability 1 - epsilon and uniformly otherwise."""
    return jnp.logaddexp(jnp.log1p(-epsilon) + log_prob, jnp.log(epsilon) + random_log_prob)
