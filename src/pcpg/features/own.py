"""A user's feature map: a Python function phi(observation, action) that returns a vector.

The function sees one observation and one action as policies do (a vector or an image; an integer or a vector). Where
JAX can trace it, it is compiled with the rest; else it is called from the compiled program, one pair at a time.

On a CPU the call gets the program's own buffers. `jax.pure_callback` would hand over arrays of JAX, which a thread of
the CPU client has yet to fill: on one core that is the thread that waits for them, for ever (jax issue 24255).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from pcpg.envs.functions import Functions
from pcpg.envs.options import InvalidOption
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap
from pcpg.shapes import Array, Float, Shaped

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

    def __call__(
        self, observation: Shaped[Array, "*observation"], action: Shaped[Array, "*action"]
    ) -> Float[jax.Array, " {self.dim}"]:
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
