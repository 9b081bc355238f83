"""What a feature map is, and how observations and actions become vectors.

A feature map phi(s, a) is fixed for a run: it is drawn on the host with NumPy, its arrays are the leaves of
an Equinox module (saved with the run), and everything else in it is static and hashable.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Discrete, Image, MultiDiscrete, Space, flat_size

Array = jax.Array | np.ndarray


class FeatureMap(eqx.Module):
    """phi(s, a) for one pair by a call, for many by `batch`."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Number of features."""

    @abc.abstractmethod
    def __call__(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Features of one pair, float32 [dim]."""

    def batch(self, observations: jax.Array, actions: jax.Array) -> jax.Array:
        """Features of n pairs, float32 [n, dim]."""
        return jax.vmap(self)(observations, actions)


class Inputs(eqx.Module):
    """The vector of an observation, and of its action where asked, shifted and scaled entry by entry."""

    mean: Array  # [size]
    std: Array  # [size]
    observation_space: Space = eqx.field(static=True)
    action_space: Space | None = eqx.field(static=True)  # None: the action is left out

    def __call__(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        vector = observation_vector(observation, self.observation_space)
        if self.action_space is not None:
            vector = jnp.concatenate([vector, action_vector(action, self.action_space)])
        return (vector - self.mean) / self.std


def observation_vector(observation: jax.Array, space: Space) -> jax.Array:
    """The observation as float32 [size]: one-hot where discrete, in [0, 1] where an image."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        return _one_hots(observation, space)
    vector = observation.reshape(-1).astype(jnp.float32)
    return vector / 255.0 if isinstance(space, Image) else vector


def action_vector(action: jax.Array, space: Space) -> jax.Array:
    """The action as float32 [size]: one-hot where discrete, else clipped to the bounds of the space."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(action, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        return _one_hots(action, space)
    if isinstance(space, Image):
        raise ValueError("an action cannot be an image")
    return jnp.clip(action.reshape(-1).astype(jnp.float32), space.low, space.high)


def _one_hots(element: jax.Array, space: MultiDiscrete) -> jax.Array:
    parts = zip(element, space.sizes, strict=True)
    return jnp.concatenate([jax.nn.one_hot(entry, n, dtype=jnp.float32) for entry, n in parts])


def input_size(observation_space: Space, action_space: Space | None) -> int:
    """Number of entries of the vector that `Inputs` makes."""
    return flat_size(observation_space) + (0 if action_space is None else flat_size(action_space))
