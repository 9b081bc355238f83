"""The cover: an ensemble of policies as one module with stacked leaves and a fixed capacity.

Its arrays live on the host. The capacity is fixed so that adding a policy changes no shape, and so compiles
nothing; members beyond `size` are zeros with weight zero.
"""

from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.shapes import Array, Float, Int, Key, Scalar

Policy = TypeVar("Policy")


class Cover(eqx.Module, Generic[Policy]):
    """Policies, their feature covariances and their mixture weights."""

    members: Policy  # every leaf with a leading axis [capacity]
    sigmas: np.ndarray  # [capacity, d, d] float64
    weights: np.ndarray  # [capacity] float64, on the simplex once there is a member
    size: np.ndarray  # int32

    @property
    def capacity(self) -> int:
        return self.sigmas.shape[0]

    @property
    def used(self) -> Float[np.ndarray, "size d d"]:
        """The covariances of the current members."""
        return self.sigmas[: int(self.size)]

    @property
    def sigma_sum(self) -> Float[np.ndarray, "d d"]:
        """The sum of the members' covariances: the paper's sigma_mix without its ridge."""
        return self.used.sum(axis=0)

    def member(self, index: int) -> Policy:
        """One policy of the cover."""
        if not 0 <= index < int(self.size):
            raise IndexError(f"the cover has members 0 to {int(self.size) - 1}, got {index}")
        return jax.tree.map(lambda leaf: leaf[index], self.members)


def empty_cover(policy: Policy, dim: int, capacity: int) -> Cover[Policy]:
    """A cover without members, with room for `capacity` policies shaped like `policy`.

    Args:
        policy: Any policy of the kind to cover, a pytree of arrays.
        dim: Number of features.
        capacity: The maximum number of members.

    Returns:
        The cover, all zeros.

    >>> cover = empty_cover({"weight": np.zeros(3)}, dim=2, capacity=4)
    >>> cover.members["weight"].shape, cover.sigmas.shape, int(cover.size)
    ((4, 3), (4, 2, 2), 0)
    """
    if capacity < 1:
        raise ValueError(f"the capacity of a cover must be at least 1, got {capacity}")
    members = jax.tree.map(lambda leaf: np.zeros((capacity, *np.shape(leaf)), np.asarray(leaf).dtype), policy)
    return Cover(members, np.zeros((capacity, dim, dim)), np.zeros(capacity), np.zeros((), np.int32))


def add_member(cover: Cover[Policy], policy: Policy, sigma: np.ndarray) -> Cover[Policy]:
    """The cover with one more policy; its weight is zero until weights are set.

    Args:
        cover: A cover with room for it; it stays as it is.
        policy: The policy, shaped like the others.
        sigma: The covariance of the features under the policy, [d, d].

    Returns:
        A new cover.

    >>> cover = empty_cover({"weight": np.zeros(3)}, dim=2, capacity=4)
    >>> cover = add_member(cover, {"weight": np.ones(3)}, np.eye(2))
    >>> int(cover.size), cover.sigma_sum.tolist()
    (1, [[1.0, 0.0], [0.0, 1.0]])
    """
    index = int(cover.size)
    if index >= cover.capacity:
        raise ValueError(f"the cover is full: capacity {cover.capacity}")
    if not np.all(np.isfinite(sigma)):
        raise ValueError(f"the covariance of member {index} contains a non-finite value")
    sigma = np.asarray(sigma, np.float64)
    if sigma.shape != cover.sigmas.shape[1:]:
        raise ValueError(f"a covariance of this cover has shape {cover.sigmas.shape[1:]}, got {sigma.shape}")

    def put(stack: np.ndarray, value: object) -> np.ndarray:
        stack = stack.copy()
        stack[index] = value
        return stack

    members = jax.tree.map(put, cover.members, policy)
    sigmas = put(cover.sigmas, (sigma + sigma.T) / 2)
    return Cover(members, sigmas, cover.weights, np.asarray(index + 1, np.int32))


def with_weights(cover: Cover[Policy], weights: np.ndarray) -> Cover[Policy]:
    """The cover with the given weights of its members, padded with zeros.

    Args:
        cover: The cover; it stays as it is.
        weights: A number for each member, [size].

    Returns:
        A new cover.
    """
    size = int(cover.size)
    if weights.shape != (size,):
        raise ValueError(f"{size} members need {size} weights, got shape {weights.shape}")
    padded = np.zeros(cover.capacity)
    padded[:size] = weights
    return Cover(cover.members, cover.sigmas, padded, cover.size)


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
