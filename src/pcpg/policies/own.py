"""A user's network: an Equinox module from one observation to hidden units, below our heads.

The module sees one observation as policies do (a vector, or an image with values from 0 to 1) and gives a vector; the
heads for actions and value are the library's. Policy and value share it, or have one each (`shared_body`).
"""

import contextlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.functions import Functions
from pcpg.envs.options import InvalidOption
from pcpg.envs.spaces import Image, Space
from pcpg.shapes import Array, Float, Shaped

Network = Callable[..., Any]
"""network(shape, key): a module for observations of this shape, with weights drawn by the key."""

_FUNCTIONS = Functions("python", "network")


class OwnBody(eqx.Module):
    """A user's module for observations with any axes in front; its arrays are apart from what is not an array."""

    arrays: Any
    rest: Any = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    is_image: bool = eqx.field(static=True)

    def __call__(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "*batch width"]:
        x = jnp.asarray(observations)
        batch = x.shape[: x.ndim - len(self.shape)]
        x = x.reshape(-1, *self.shape).astype(jnp.float32)
        x = x / 255.0 if self.is_image else x
        hidden = jax.vmap(eqx.combine(self.arrays, self.rest))(x)
        return hidden.reshape(*batch, hidden.shape[-1])


def register_network(function: Network) -> str:
    """Register a network's function in this process; returns the name under which `own_body` finds it."""
    if not callable(function):
        raise InvalidOption(f"a network must be a function of a shape and a key, got {function!r}")
    return _FUNCTIONS.register(function)


def given_network(name: str, function: Network) -> contextlib.AbstractContextManager[None]:
    """A context in which a name stands for this function."""
    return _FUNCTIONS.given(name, function)


def own_body(rng: np.random.Generator, name: str, space: Space) -> tuple[OwnBody, int]:
    """A body with fresh weights, and the number of its hidden units; refuses what gives no vector."""
    function = _FUNCTIONS.needed(name, f"the network {name} is")
    key = jax.random.key(int(rng.integers(2**32)))
    try:
        module = function(space.shape, key)
        shape = eqx.filter_eval_shape(module, jax.ShapeDtypeStruct(space.shape, jnp.float32)).shape
    except Exception as error:
        raise InvalidOption(f"the network {name} failed on an observation of shape {space.shape}: {error}") from error
    if len(shape) != 1:
        raise InvalidOption(f"the network {name} must give a vector for an observation, got shape {shape}")
    arrays, rest = eqx.partition(module, eqx.is_array)
    return OwnBody(jax.tree.map(np.asarray, arrays), rest, space.shape, isinstance(space, Image)), int(shape[0])
