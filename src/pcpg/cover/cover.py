"""The cover: an ensemble of policies as one module with stacked leaves and a fixed capacity.

Its arrays live on the host. The capacity is fixed so that adding a policy changes no shape, and so compiles
nothing; members beyond `size` are zeros with weight zero.
"""

from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import numpy as np

from pcpg.shapes import Float

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
        """The covariances of the members that there are."""
        return self.sigmas[: int(self.size)]

    @property
    def sigma_sum(self) -> Float[np.ndarray, "d d"]:
        """The sum of the members' covariances: the paper's sigma_mix without its ridge."""
        return self.used.sum(axis=0)

    def member(self, index: int) -> Policy:
        """One policy of the cover."""
        if not 0 <= index < int(self.size):
            raise IndexError(f"the cover has {int(self.size)} members, there is no member {index}")
        return jax.tree.map(lambda leaf: leaf[index], self.members)


def empty_cover(policy: Policy, dim: int, capacity: int) -> Cover[Policy]:
    """A cover without members, with room for `capacity` policies shaped like `policy`.

    Args:
        policy: Any policy of the kind that is to be covered, a pytree of arrays.
        dim: Number of features.
        capacity: The most members.

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
        raise ValueError(f"the covariance of member {index} holds a value that is not finite")
    sigma = np.asarray(sigma, np.float64)
    if sigma.shape != cover.sigmas.shape[1:]:
        raise ValueError(f"a covariance of this cover has shape {cover.sigmas.shape[1:]}, got {sigma.shape}")

    def put(stack: np.ndarray, value: Any) -> np.ndarray:
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
