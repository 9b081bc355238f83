"""The protocol of a feature map, and the conversion of observations and actions to vectors.

A feature map phi(s, a) is fixed for a run: it is drawn on the host with NumPy, its arrays are the leaves of
an Equinox module (saved with the run), and everything else in it is static and hashable.

A user's feature map: a Python function phi(observation, action) that returns a vector.

The function sees one observation and one action as policies do (a vector or an image; an integer or a vector). Where
JAX can trace it, it is compiled with the rest; else it is called from the compiled program, one pair at a time.

On a CPU the call gets the program's own buffers. `jax.pure_callback` would hand over arrays of JAX, which a thread of
the CPU client has yet to fill: on one core that is the thread that waits for them, for ever (jax issue 24255).

The observation itself as features: the paper's kernel for the lock.
"""

import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from pcpg.envs.options import Functions, InvalidOption
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Image, MultiDiscrete, Space, flat_size
from pcpg.shapes import Array, Float, Int, Shaped

Observation = Shaped[Array, "*observation"]
Action = Shaped[Array, "*action"]


class FeatureMap(eqx.Module):
    """phi(s, a) for one pair by a call, for many by `batch`."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Number of features."""

    @abc.abstractmethod
    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " dim"]:
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

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " size"]:
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


Phi = Callable[[Any, Any], Any]
_FUNCTIONS = Functions("python", "features")


class OwnFeatures(FeatureMap):
    """phi(s, a) by a Python function."""

    function: Phi = eqx.field(static=True)
    size: int = eqx.field(static=True)
    is_traced: bool = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return self.size

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " {self.dim}"]:
        if self.is_traced:
            return jnp.asarray(self.function(observation, action), jnp.float32)
        return self.batch(observation[None], action[None])[0]

    def batch(
        self, observations: Shaped[Array, "n *observation"], actions: Shaped[Array, "n *action"]
    ) -> Float[jax.Array, "n {self.dim}"]:
        if self.is_traced:
            return super().batch(observations, actions)
        shape = jax.ShapeDtypeStruct((observations.shape[0], self.size), jnp.float32)
        if jax.default_backend() == "cpu":
            return buffer_callback(self._fill, shape, vmap_method="sequential")(observations, actions)
        return jax.pure_callback(self._rows, shape, observations, actions, vmap_method="sequential")

    def _fill(self, context: object, out: object, observations: object, actions: object) -> None:
        del context
        np.asarray(out)[...] = self._rows(observations, actions)

    def _rows(self, observations: object, actions: object) -> np.ndarray:
        pairs = zip(np.asarray(observations).copy(), np.asarray(actions).copy(), strict=True)  # its own to write to
        return np.stack([np.asarray(self.function(*pair), np.float32) for pair in pairs])


def register_features(function: Phi) -> str:
    """Register a feature function in this process; returns the name under which `own_features` finds it."""
    return _FUNCTIONS.register(function)


def given_features(name: str, function: Phi) -> AbstractContextManager[None]:
    """A context in which a name stands for this function."""
    return _FUNCTIONS.given(name, function)


def is_own_features(name: str) -> bool:
    """Whether a name is that of a user's function."""
    return name.startswith(f"{_FUNCTIONS.prefix}:")


def own_features(name: str, env: Environment) -> OwnFeatures:
    """The feature map of a registered function, tried on a pair of zeros."""
    function = _FUNCTIONS.needed(name, f"the features {name} are")
    observation, action = (np.zeros(space.shape, space.dtype) for space in (env.observation_space, env.action_space))
    try:
        vector = np.asarray(function(observation, action), np.float32)
    except Exception as error:
        raise InvalidOption(
            f"features {name} failed on an observation of shape {observation.shape} and an action of shape "
            f"{action.shape}: {error}"
        ) from error
    if vector.ndim != 1 or vector.size == 0 or not np.isfinite(vector).all():
        raise InvalidOption(f"features {name} must give a finite vector, got shape {vector.shape}: {vector}")
    return OwnFeatures(function, vector.size, _can_trace(function, observation, action))


def _can_trace(function: Phi, observation: np.ndarray, action: np.ndarray) -> bool:
    try:
        jax.eval_shape(lambda *pair: jnp.asarray(function(*pair), jnp.float32), observation, action)
    except Exception:  # whatever a function does that JAX cannot follow
        return False
    return True


class Identity(FeatureMap):
    """phi(s, a) = s, or one copy of s for each action, zero but for the action taken."""

    observation_space: Space = eqx.field(static=True)
    action_space: Discrete | None = eqx.field(static=True)  # None: the action is left out

    @property
    def dim(self) -> int:
        return flat_size(self.observation_space) * (1 if self.action_space is None else self.action_space.n)

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " {self.dim}"]:
        vector = observation_vector(observation, self.observation_space)
        if self.action_space is None:
            return vector
        return jnp.outer(action_vector(action, self.action_space), vector).reshape(-1)


def identity(env: Environment, rng: np.random.Generator, *, with_actions: bool = False) -> Identity:
    """The observation as features.

    Args:
        env: Any environment; with discrete actions where they are asked for.
        rng: Not used: nothing is drawn.
        with_actions: One copy of the observation for each action, zero but for the one taken.

    Returns:
        The map.
    """
    del rng
    if not with_actions:
        return Identity(env.observation_space, None)
    if not isinstance(env.action_space, Discrete):
        raise ValueError(f"identity features with actions need discrete actions, got {env.action_space}")
    return Identity(env.observation_space, env.action_space)
