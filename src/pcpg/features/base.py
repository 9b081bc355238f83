"""The protocol of a feature map, and the conversion of observations and actions to vectors.

A feature map phi(s, a) is fixed for a run: it is drawn on the host with NumPy, its arrays are the leaves of
an Equinox module (saved with the run), and everything else in it is static and hashable.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from pcpg.envs.spaces import Discrete, Image, MultiDiscrete, Space, flat_size
from pcpg.shapes import Array, Float, Int, Shaped


class FeatureMap(eqx.Module):
    """phi(s, a) for one pair by a call, for many by `batch`."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Number of features."""

    @abc.abstractmethod
    def __call__(
        self, observation: Shaped[Array, "*observation"], action: Shaped[Array, "*action"]
    ) -> Float[jax.Array, " dim"]:
        """The features of one pair, in float32."""

    def batch(
        self, observations: Shaped[Array, "n *observation"], actions: Shaped[Array, "n *action"]
    ) -> Float[jax.Array, "n dim"]:
        """The features of n pairs, in float32."""
        return jax.vmap(self)(observations, actions)


class Inputs(eqx.Module):
    """The vector of an observation, and of its action where asked, shifted and scaled entry by entry."""

    mean: Float[Array, " size"]
    std: Float[Array, " size"]
    observation_space: Space = eqx.field(static=True)
    action_space: Space | None = eqx.field(static=True)  # None: the action is left out

    def __call__(
        self, observation: Shaped[Array, "*observation"], action: Shaped[Array, "*action"]
    ) -> Float[jax.Array, " size"]:
        vector = observation_vector(observation, self.observation_space)
        if self.action_space is not None:
            vector = jnp.concatenate([vector, action_vector(action, self.action_space)])
        return (vector - self.mean) / self.std


def observation_vector(observation: Shaped[Array, "..."], space: Space) -> Float[jax.Array, " size"]:
    """The observation as a float32 vector: one-hot where discrete, in [0, 1] where an image."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        return _one_hots(observation, space)
    vector = jnp.asarray(observation).reshape(-1).astype(jnp.float32)
    return vector / 255.0 if isinstance(space, Image) else vector


def action_vector(action: Shaped[Array, "..."], space: Space) -> Float[jax.Array, " size"]:
    """The action as a float32 vector: one-hot where discrete, else clipped to the bounds of the space."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(action, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        return _one_hots(action, space)
    if isinstance(space, Image):
        raise ValueError("an action cannot be an image")
    return jnp.clip(action.reshape(-1).astype(jnp.float32), space.low, space.high)


def _one_hots(element: Int[Array, " parts"], space: MultiDiscrete) -> jax.Array:
    parts = zip(element, space.sizes, strict=True)
    return jnp.concatenate([jax.nn.one_hot(entry, n, dtype=jnp.float32) for entry, n in parts])


def input_size(observation_space: Space, action_space: Space | None) -> int:
    """Number of entries of the vector that `Inputs` makes."""
    return flat_size(observation_space) + (0 if action_space is None else flat_size(action_space))
