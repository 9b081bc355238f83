"""Random networks as kernels: fixed weights, outputs of norm one.

The convolutional one is the paper's kernel for the maze: the body of the policy network as initialised. It
has no biases, which start at zero there.
"""

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Image
from pcpg.features.base import Action, FeatureMap, Inputs, Observation
from pcpg.features.examples import Pairs, examples, fit_inputs
from pcpg.policies.networks import convolve, orthogonal
from pcpg.shapes import Array, Float, Shaped

HIGHEST = jax.lax.Precision.HIGHEST
GAIN = math.sqrt(2.0)
"""Of the weights: a ReLU halves the variance, which this makes up for."""


class RandomConv(FeatureMap):
    """phi(s, a) = unit vector along f(s), f two 3 x 3 convolutions with stride 2 and a linear layer."""

    kernels: tuple[Float[Array, "3 3 _ _"], ...]
    dense: Float[Array, "units dim"]
    divisor: float = eqx.field(static=True)  # the features have norm 1 / divisor

    @property
    def dim(self) -> int:
        return self.dense.shape[-1]

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " {self.dim}"]:
        return self.batch(observation[None], action[None])[0]

    def batch(
        self, observations: Shaped[Array, "n height width channels"], actions: Shaped[Array, "n *action"]
    ) -> Float[jax.Array, "n {self.dim}"]:
        del actions  # the paper's kernel for images looks at the state only
        x = observations.astype(jnp.float32) / 255.0
        for kernel in self.kernels:
            x = jax.nn.relu(convolve(x, jnp.asarray(kernel), HIGHEST))
        x = jnp.matmul(x.reshape(x.shape[0], -1), self.dense, precision=HIGHEST)
        return unit(x) / self.divisor


class RandomMLP(FeatureMap):
    """phi(s, a) = unit vector along f(s) or f(s, a), f a network with ReLU between its layers."""

    inputs: Inputs
    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    divisor: float = eqx.field(static=True)  # the features have norm 1 / divisor

    @property
    def dim(self) -> int:
        return self.biases[-1].shape[-1]

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " {self.dim}"]:
        x = self.inputs(observation, action)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = jax.nn.relu(x) if layer > 0 else x
            x = jnp.matmul(x, weight, precision=HIGHEST) + bias
        return unit(x) / self.divisor


def unit(x: Float[jax.Array, "*batch d"]) -> Float[jax.Array, "*batch d"]:
    """x divided by its norm along the last axis; a zero vector stays zero."""
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-8)


def random_conv(
    env: Environment,
    rng: np.random.Generator,
    *,
    num_features: int = 512,
    num_kernels: Sequence[int] = (32, 64),
    divisor: float = 1.0,
) -> RandomConv:
    """A random convolutional network for image observations.

    Args:
        env: With observations that are images.
        rng: From which the weights are drawn.
        num_features: Outputs of the last layer.
        num_kernels: Outputs of each convolution.
        divisor: The features have norm 1 / divisor.

    Returns:
        The map, which looks at the state only.
    """
    space = env.observation_space
    if not isinstance(space, Image):
        raise ValueError(f"random-conv features need image observations, got {space}; random-mlp takes vectors")
    height, width, channels = space.shape
    _check_sizes(num_features, num_kernels=num_kernels)
    kernels = []
    for outputs in num_kernels:
        kernels.append(orthogonal(rng, (3, 3, channels, outputs), GAIN))
        height, width, channels = math.ceil(height / 2), math.ceil(width / 2), outputs
    dense = orthogonal(rng, (height * width * channels, num_features), GAIN)
    return RandomConv(tuple(kernels), dense, divisor)


def random_mlp(
    env: Environment,
    rng: np.random.Generator,
    *,
    num_features: int = 64,
    hidden: Sequence[int] = (64,),
    with_actions: bool = True,
    divisor: float = 1.0,
    pairs: Pairs | None = None,
) -> RandomMLP:
    """A small random network for vectors.

    Args:
        env: With observations that are vectors.
        rng: From which weights and, if there are none given, pairs are drawn.
        num_features: Outputs of the last layer.
        hidden: Units of the layers before it.
        with_actions: Whether the action is part of the input.
        divisor: The features have norm 1 / divisor.
        pairs: Observations [n, ...] and actions [n, ...] by which the input is scaled; by default drawn.

    Returns:
        The map.
    """
    _check_sizes(num_features, hidden=hidden)
    pairs = examples(env, rng, 1000) if pairs is None else pairs
    inputs, vectors = fit_inputs(env, pairs, with_actions=with_actions)
    sizes = (vectors.shape[1], *hidden, num_features)
    weights = tuple(orthogonal(rng, shape, GAIN) for shape in itertools.pairwise(sizes))
    # Without biases the outputs for x and 2 x would lie on one ray, and be equal once normalised.
    biases = tuple(rng.uniform(-1, 1, size).astype(np.float32) for size in sizes[1:])
    return RandomMLP(inputs, weights, biases, divisor)


def _check_sizes(num_features: int, **layers: Sequence[int]) -> None:
    require_int("num_features", num_features, minimum=1)
    for name, sizes in layers.items():
        for size in sizes:
            require_int(f"each of {name}", size, minimum=1)
