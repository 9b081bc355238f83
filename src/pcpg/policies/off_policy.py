"""The policies of the off-policy learner: layers with layer norm, and how they act.

A policy explores, or is sure of its best action. Inside training real actions are given before tanh, as the learner has
them; the final policy speaks for the environment's own distribution (`is_final`), so everything else can play it.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Box, Discrete, Image, MultiDiscrete, Space
from pcpg.policies.distributions import Distribution, gaussian
from pcpg.policies.networks import Body, Linear, init_body, orthogonal
from pcpg.shapes import Array

LARGEST = 10.0
"""Where scaled observations are cut."""
SURE, EXACT = 60.0, -12.0
"""Logit of an action that is chosen for sure, and the logarithm of the deviation of a real one."""
LOG_STD = (-5.0, 1.0)
"""Bounds of the logarithm of the deviation before tanh."""
WIDE = 0.75
"""Output of an actor for which the deviation before tanh is 0.9: the actions are nearly uniform."""
CONVOLVED = 64
"""Units after the convolutions."""
NORM_EPS = 1e-5


class Scale(NamedTuple):
    """Mean and inverse deviation of the entries of observations; unused for images."""

    mean: Array
    inverse: Array

    def seen(self, observations: Array, body: Body | None) -> jax.Array:
        """Observations as the layers take them."""
        if body is not None:
            return body(observations)
        return jnp.clip((jnp.asarray(observations) - self.mean) * self.inverse, -LARGEST, LARGEST)


class Layers(eqx.Module):
    """Linear layers; all but the last with layer norm and a ReLU."""

    layers: tuple[Linear, ...]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers[:-1]:
            x = layer(x)
            x = x - jnp.mean(x, axis=-1, keepdims=True)
            x = jax.nn.relu(x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + NORM_EPS))
        return self.layers[-1](x)

    def on_host(self, x: np.ndarray) -> np.ndarray:
        """The same in NumPy."""
        for layer in self.layers[:-1]:
            x = x @ layer.weight + layer.bias
            x = x - x.mean(axis=-1, keepdims=True)
            x = np.maximum(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + np.float32(NORM_EPS)), 0.0)
        return np.asarray(x @ self.layers[-1].weight + self.layers[-1].bias)


class DeepPolicy(eqx.Module):
    """A policy of the off-policy learner; without an actor its layers are those of the critics."""

    body: Body | None
    layers: Layers  # [critics, ...] where values choose
    scale: Scale
    temperature: Array  # of the softmax of values
    epsilon: Array  # share of uniform actions
    is_sure: Array  # 1: the best action, without exploring
    space: Space = eqx.field(static=True)
    is_final: bool = eqx.field(static=True)

    def sure(self) -> "DeepPolicy":
        """The same policy without exploring."""
        return eqx.tree_at(lambda policy: policy.is_sure, self, np.ones((), np.float32))

    def final(self) -> "DeepPolicy":
        """The sure policy in the terms of the environment."""
        return dataclasses.replace(self.sure(), is_final=True)

    def in_training(self) -> "DeepPolicy":
        """The final policy in the terms of training."""
        return dataclasses.replace(self, is_final=False)

    def at_random(self) -> "DeepPolicy":
        """Actions that nothing has been learned about: uniform, or nearly so after tanh."""
        *first, last = self.layers.layers
        last = jax.tree.map(np.zeros_like, last)
        if isinstance(self.space, Box):
            last.bias[..., last.bias.shape[-1] // 2 :] = WIDE
        layers = Layers((*first, last))
        return dataclasses.replace(self, layers=layers, epsilon=np.ones((), np.float32))

    def outputs(self, observations: Array) -> jax.Array:
        """Parameters of the action distribution, for observations [*batch, ...]."""
        seen = self.scale.seen(observations, self.body)
        if isinstance(self.space, Box):
            return _real(self.layers(seen), self.is_sure, self.space, self.is_final, jnp)
        values = jnp.mean(jax.vmap(lambda one: one(seen))(self.layers), axis=0)
        return _logits(values, self, parts_of(self.space), jnp)

    def portable(self) -> dict[str, np.ndarray]:
        """The arrays of the best action, for programs without JAX: layers [networks, ...], with the norm between."""
        if self.body is not None:
            raise ValueError("only plain layers can be written for other programs, no convolutions")
        layers = jax.tree.map(np.asarray, self.layers.layers)
        *first, last = [layer if layer.weight.ndim == 3 else jax.tree.map(lambda x: x[None], layer) for layer in layers]
        if isinstance(self.space, Box):  # how sure it is comes after the actions
            last = jax.tree.map(lambda x: x[..., : x.shape[-1] // 2], last)
        arrays = {f"w{index}": layer.weight for index, layer in enumerate((*first, last))}
        arrays |= {f"b{index}": layer.bias[:, None] for index, layer in enumerate((*first, last))}
        scale = {"mean": np.asarray(self.scale.mean), "scale": np.asarray(self.scale.inverse)}
        return arrays | scale | {"layers": np.array(len(layers)), "norm": np.float32(NORM_EPS)}

    @property
    def acts_on_host(self) -> bool:
        """Whether `on_host` serves: convolutions are compiled."""
        return self.body is None

    def on_host(self, observations: np.ndarray) -> np.ndarray:
        """`outputs` in NumPy, of a policy whose arrays are."""
        seen = np.clip((observations - self.scale.mean) * self.scale.inverse, -LARGEST, LARGEST)
        if isinstance(self.space, Box):
            return _real(self.layers.on_host(seen), self.is_sure, self.space, self.is_final, np)
        count = len(self.layers.layers[-1].bias)
        each = [jax.tree.map(lambda leaf, i=i: leaf[i], self.layers).on_host(seen) for i in range(count)]
        return _logits(np.mean(each, axis=0), self, parts_of(self.space), np)


def _real(outputs: Any, is_sure: Any, space: Box, is_final: bool, xp: Any) -> Any:
    """Means and logarithms of deviations: before tanh in training, of the environment's own actions at the end."""
    mean, raw = xp.split(outputs, 2, axis=-1)
    if is_final:
        middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
        return xp.concatenate([middle + half * xp.tanh(mean), xp.full_like(mean, EXACT)], axis=-1)
    low, high = LOG_STD
    log_std = low + 0.5 * (high - low) * (xp.tanh(raw) + 1.0)
    return xp.concatenate([mean, xp.where(is_sure > 0, EXACT, log_std)], axis=-1)


def _logits(values: Any, policy: DeepPolicy, parts: tuple[int, ...], xp: Any) -> Any:
    """A softmax of the values mixed with uniform actions, or the best action for sure, for each part of an action."""
    found = []
    for part in xp.split(values, np.cumsum(parts)[:-1].tolist(), axis=-1):
        best = part - xp.max(part, axis=-1, keepdims=True)
        weights = xp.exp(best / policy.temperature)
        shares = weights / xp.sum(weights, axis=-1, keepdims=True)
        mixed = xp.log((1 - policy.epsilon) * shares + policy.epsilon / part.shape[-1] + 1e-30)
        found.append(xp.where(policy.is_sure > 0, SURE * (best >= 0.0), mixed))
    return xp.concatenate(found, axis=-1)


def squashed_gaussian(space: Box) -> Distribution:
    """The distribution of real actions inside training: normal before tanh."""
    middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
    return gaussian(space)._replace(to_env=lambda actions: middle + half * jnp.tanh(actions))


def parts_of(space: Space) -> tuple[int, ...]:
    """The numbers of choices of each part of a discrete action; () for real ones."""
    if isinstance(space, Discrete):
        return (space.n,)
    return space.sizes if isinstance(space, MultiDiscrete) else ()


def init_layers(rng: np.random.Generator, size: int, hidden: Sequence[int], outputs: int) -> Layers:
    """Fresh layers; the small last one makes first values and means nearly zero."""
    widths = [size, *hidden]
    layers = [
        Linear(orthogonal(rng, shape, math.sqrt(2.0)), np.zeros(shape[1], np.float32))
        for shape in itertools.pairwise(widths)
    ]
    return Layers((*layers, Linear(orthogonal(rng, (widths[-1], outputs), 0.01), np.zeros(outputs, np.float32))))


def init_body_for(rng: np.random.Generator, space: Space) -> tuple[Body | None, int]:
    """Convolutions for images, nothing for vectors; and the number of units that the layers see."""
    if isinstance(space, Image):
        return init_body(rng, space, (CONVOLVED,)), CONVOLVED
    return None, math.prod(space.shape)
