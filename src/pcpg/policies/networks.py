"""Actor-critic networks of the paper: two hidden layers of 64 ReLU units, or two convolutions for images.

A network is one Equinox module whose leaves are all arrays, so a cover of policies is the same module with
one more axis in front of every leaf. Weights are drawn on the host: no compilation before the first program.

A user's network: an Equinox module from one observation to hidden units, below our heads.

The module sees one observation as policies do (a vector, or an image with values from 0 to 1) and gives a vector; the
heads for actions and value are the library's. Policy and value share it, or have one each (`shared_body`).
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import Functions, InvalidOption
from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete, Space
from pcpg.policies.distributions import num_outputs
from pcpg.policies.normaliser import Normaliser, init_normaliser
from pcpg.shapes import Array, Float, Shaped

PATCH = 8
"""Rows and columns of a square of an image that is coded by itself."""
LARGE = 32
"""Least height and width of an image that is coded by squares: in smaller ones a pixel may be a cell of a map."""


class Linear(eqx.Module):
    """An affine map of the last axis."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, x: Float[jax.Array, "*batch inputs"]) -> Float[jax.Array, "*batch outputs"]:
        return x @ self.weight + self.bias


class Conv(eqx.Module):
    """A 3 x 3 convolution with stride 2 over (batch, height, width, channels), padded to see the whole image."""

    weight: Float[Array, "3 3 inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, x: Float[Array, "batch height width inputs"]) -> Float[jax.Array, "batch rows columns outputs"]:
        return convolve(x, jnp.asarray(self.weight)) + self.bias


class Patches(eqx.Module):
    """Squares of an image as a few learned numbers each, by one map for all of them, with a ReLU.

    At 64 x 64 pixels the network takes a twentieth of the products of one with two convolutions.
    """

    weight: Float[Array, "pixels numbers"]
    bias: Float[Array, " numbers"]

    def __call__(self, images: Any) -> Any:
        xp = np if isinstance(images, np.ndarray) else jnp
        batch, (height, width, channels) = images.shape[:-3], images.shape[-3:]
        rows, columns = -(-height // PATCH), -(-width // PATCH)
        if (rows * PATCH, columns * PATCH) != (height, width):  # zeros below and to the right
            edges = (0, rows * PATCH - height), (0, columns * PATCH - width), (0, 0)
            images = xp.pad(images, (*((0, 0) for _ in batch), *edges))
        squares = xp.swapaxes(images.reshape(*batch, rows, PATCH, columns, PATCH, channels), -4, -3)
        flat = squares.reshape(*batch, rows * columns, -1).astype(np.float32)
        return xp.maximum(flat @ (self.weight / np.float32(255)) + self.bias, 0).reshape(*batch, -1)


class Body(eqx.Module):
    """Layers with a ReLU after each: observations [*batch, *shape] to hidden units [*batch, width]."""

    layers: tuple[Linear | Conv | Patches, ...]

    def __call__(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "*batch width"]:
        return jax.nn.relu(self.linear(observations))

    def linear(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "*batch width"]:
        """The hidden units before the last ReLU."""
        x = jnp.asarray(observations)
        batch = x.shape[: -3 if isinstance(self.layers[0], Conv | Patches) else -1]
        if isinstance(self.layers[0], Conv):
            x = x.reshape(-1, *x.shape[-3:]).astype(jnp.float32) / 255.0
        for index, layer in enumerate(self.layers):
            x = jax.nn.relu(x) if index and not isinstance(self.layers[index - 1], Patches) else x
            if index and isinstance(layer, Linear) and isinstance(self.layers[index - 1], Conv):
                x = x.reshape(x.shape[0], -1)
            x = layer(x)
        return x.reshape(*batch, x.shape[-1])


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


class ActorCritic(eqx.Module):
    """Policy and value network, with one body or two; `log_std` is there for Gaussian policies only."""

    actor_body: Body | OwnBody
    critic_body: Body | OwnBody | None  # None: the actor's body serves both
    actor_head: Linear
    critic_head: Linear
    log_std: Float[Array, " outputs"] | None
    normaliser: Normaliser | None = None

    def outputs(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "*batch outputs"]:
        """The parameters of the action distribution for each observation."""
        return self._head(self.actor_body(self._seen(observations)))

    def value(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "*batch"]:
        """The estimated value of each observation."""
        body = self.actor_body if self.critic_body is None else self.critic_body
        return self.critic_head(body(self._seen(observations)))[..., 0]

    def outputs_and_value(
        self, observations: Shaped[Array, "..."]
    ) -> tuple[Float[jax.Array, "*batch outputs"], Float[jax.Array, "*batch"]]:
        """Both at once; a shared body is evaluated once."""
        observations = self._seen(observations)
        hidden = self.actor_body(observations)
        hidden_critic = hidden if self.critic_body is None else self.critic_body(observations)
        return self._head(hidden), self.critic_head(hidden_critic)[..., 0]

    def portable(self) -> dict[str, np.ndarray]:
        """The arrays of the likeliest action, for programs without JAX: layers, and the scale of observations."""
        if not isinstance(self.actor_body, Body) or isinstance(self.actor_body.layers[0], Conv | Patches):
            raise ValueError("only plain layers can be written for other programs, no convolutions or own networks")
        seen = None if self.normaliser is None else self.normaliser.observations
        arrays = {} if seen is None else {"mean": seen.mean, "scale": 1 / np.sqrt(np.asarray(seen.variance) + 1e-8)}
        layers = [*jax.tree.map(np.asarray, self.actor_body.layers), self.actor_head]
        arrays |= {f"w{index}": layer.weight for index, layer in enumerate(layers)}
        arrays |= {f"b{index}": layer.bias for index, layer in enumerate(layers)}
        return {name: np.asarray(array) for name, array in arrays.items()} | {"layers": np.array(len(layers))}

    def _seen(self, observations: Array) -> Array:
        return observations if self.normaliser is None else self.normaliser.seen(observations)

    def _head(self, hidden: jax.Array) -> jax.Array:
        outputs = self.actor_head(hidden)
        if self.log_std is None:
            return outputs
        return jnp.concatenate([outputs, jnp.broadcast_to(self.log_std, outputs.shape)], axis=-1)


def convolve(
    images: Float[Array, "batch height width inputs"],
    kernel: Float[Array, "3 3 inputs outputs"],
    precision: jax.lax.Precision | None = None,
) -> Float[jax.Array, "batch rows columns outputs"]:
    """A 3 x 3 convolution with stride 2 as one matrix product; rows and columns are halved, rounded up.

    XLA's own convolution falls back to a plain loop on a CPU once it stands inside a `scan` (15 times slower, measured
    at 10 x 10 and 20 x 20 pixels), and under `vmap` with a kernel for each seed it becomes a grouped one on a GPU.

    Padded with zeros as "SAME" pads: without padding a stride of 2 leaves the last rows and columns of some sizes
    unseen (of a 10 x 10 image, rows 7 to 9), and states that differ there alone would look equal.
    """
    batch, height, width, channels = images.shape
    rows, columns = -(-height // 2), -(-width // 2)
    below, right = 2 * rows + 1 - height, 2 * columns + 1 - width  # 1 or 2 in all, the smaller half in front
    pads = ((0, 0), (below // 2, below - below // 2), (right // 2, right - right // 2), (0, 0))
    padded = jnp.pad(images, pads)
    shifted = [padded[:, i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2] for i in range(3) for j in range(3)]
    patches = jnp.concatenate(shifted, axis=-1).reshape(-1, 9 * channels)
    out = jnp.matmul(patches, kernel.reshape(9 * channels, -1), precision=precision)
    return out.reshape(batch, rows, columns, -1)


def orthogonal(rng: np.random.Generator, shape: Sequence[int], gain: float) -> Float[np.ndarray, "..."]:
    """Orthogonal weights; the last axis is the output, all others together the input."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    normal = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q *= np.sign(np.diag(r))  # makes the factor unique, hence uniformly distributed
    q = q if rows >= columns else q.T
    return (gain * q).reshape(shape).astype(np.float32)


def init_body(rng: np.random.Generator, observation_space: Space, hidden: Sequence[int], square_code: int = 0) -> Body:
    """Hidden layers that fit the observations: convolutions and one layer for images, else plain layers.

    With a `square_code` each square of a large image becomes so many numbers, in place of convolutions.
    """
    gain = math.sqrt(2.0)
    if isinstance(observation_space, Discrete | MultiDiscrete):
        raise ValueError("discrete observations must be one-hot encoded by the environment")
    layers: list[Linear | Conv | Patches] = []
    if square_code and isinstance(observation_space, Image) and min(observation_space.shape[:2]) >= LARGE:
        height, width, channels = observation_space.shape
        weight = orthogonal(rng, (PATCH * PATCH * channels, square_code), gain)
        layers.append(Patches(weight, np.zeros(square_code, np.float32)))
        size = -(-height // PATCH) * -(-width // PATCH) * square_code
    elif isinstance(observation_space, Image):
        height, width, channels = observation_space.shape
        for kernels in (32, 64):
            weight = orthogonal(rng, (3, 3, channels, kernels), gain)
            layers.append(Conv(weight, np.zeros(kernels, np.float32)))
            height, width, channels = -(-height // 2), -(-width // 2), kernels
        size = height * width * channels
    elif len(observation_space.shape) == 1:
        (size,) = observation_space.shape
    else:
        raise ValueError(f"observations must be vectors or images, got shape {observation_space.shape}")
    for units in hidden:
        layers.append(Linear(orthogonal(rng, (size, units), gain), np.zeros(units, np.float32)))
        size = units
    return Body(tuple(layers))


def init_actor_critic(
    rng: np.random.Generator,
    observation_space: Space,
    action_space: Space,
    *,
    hidden: Sequence[int],
    shared_body: bool,
    normalise_observations: bool = False,
    normalise_rewards: bool = False,
    body: str = "",
    square_code: int = 0,
) -> ActorCritic:
    """A fresh network; the small gain of the actor's head makes the first policy nearly uniform.

    `body` names one of the user's own (own.py) in place of the hidden layers.
    """
    if normalise_observations and isinstance(observation_space, Image):
        raise ValueError("normalise_observations is for vectors: images are already scaled")

    def new() -> tuple[Body | OwnBody, int]:
        if body:
            return own_body(rng, body, observation_space)
        return init_body(rng, observation_space, hidden, square_code), hidden[-1]

    actor_body, width = new()
    critic_body = None if shared_body else new()[0]
    outputs = num_outputs(action_space)
    return ActorCritic(
        actor_body,
        critic_body,
        Linear(orthogonal(rng, (width, outputs), 0.01), np.zeros(outputs, np.float32)),
        Linear(orthogonal(rng, (width, 1), 1.0), np.zeros(1, np.float32)),
        np.zeros(outputs, np.float32) if isinstance(action_space, Box) else None,
        init_normaliser(observation_space.shape, observations=normalise_observations, returns=normalise_rewards),
    )


# Networks of a user's own.

Network = Callable[..., Any]
"""network(shape, key): a module for observations of this shape, with weights drawn by the key."""

_FUNCTIONS = Functions("python", "network")


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
