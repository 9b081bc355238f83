"""Minibatch gradient descent over a batch of samples: epochs, global-norm clipping, Adam."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from pcpg.learning.shuffle import random_order

Tree = TypeVar("Tree")
Metrics = dict[str, jax.Array]
Array = jax.Array | np.ndarray


class Adam(NamedTuple):
    """Moments over ALL parameters as one vector: one fused kernel a step instead of several a leaf."""

    steps: Array
    mu: Array  # [number of parameters]
    nu: Array


def init_adam(params: Any) -> Adam:
    """Zero moments, made on the host."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    return Adam(np.zeros((), np.int32), np.zeros(size, np.float32), np.zeros(size, np.float32))


def clip_by_norm(gradient: jax.Array, max_norm: float) -> jax.Array:
    """The gradient vector, scaled down to the largest allowed Euclidean norm where it is longer."""
    norm = jnp.sqrt(jnp.sum(gradient**2))
    return gradient * jnp.minimum(1.0, max_norm / jnp.maximum(norm, 1e-12))


def adam_step(
    gradient: jax.Array, adam: Adam, learning_rate: jax.Array, *, max_grad_norm: float, eps: float = 1e-5
) -> tuple[jax.Array, Adam]:
    """The step to add to the parameter vector, and the new moments."""
    transform = optax.scale_by_adam(eps=eps)
    before: Any = optax.ScaleByAdamState(*adam)  # optax declares the moments as any tree: here they are vectors
    after: Any
    direction, after = transform.update(clip_by_norm(gradient, max_grad_norm), before)
    return -learning_rate * jnp.asarray(direction), Adam(*after)


def minimise(
    loss: Callable[[Tree, Any], tuple[jax.Array, Metrics]],
    params: Tree,
    adam: Adam,
    batch: Any,  # pytree with a leading axis of n samples
    key: jax.Array,
    learning_rate: jax.Array,
    *,
    num_epochs: int,
    minibatch_size: int,
    max_grad_norm: float,
) -> tuple[Tree, Adam, Metrics]:
    """Parameters after `num_epochs` passes over the shuffled samples, and the mean of the loss's metrics.

    Samples beyond the last whole minibatch of a pass are left out of that pass.
    """
    size = jax.tree.leaves(batch)[0].shape[0]
    minibatch_size = min(minibatch_size, size)
    count = size // minibatch_size
    vector, unravel = ravel_pytree(params)
    gradient_of = jax.grad(lambda vector, part: loss(unravel(vector), part), has_aux=True)

    def minibatch_step(carry: tuple[jax.Array, Adam], part: Any) -> tuple[tuple[jax.Array, Adam], Metrics]:
        vector, adam = carry
        gradient, metrics = gradient_of(vector, part)
        step, adam = adam_step(gradient, adam, learning_rate, max_grad_norm=max_grad_norm)
        return (vector + step, adam), metrics

    def epoch(carry: tuple[jax.Array, Adam], key: jax.Array) -> tuple[tuple[jax.Array, Adam], Metrics]:
        order = random_order(key, size)[: count * minibatch_size]
        parts = jax.tree.map(lambda x: x[order].reshape(count, minibatch_size, *x.shape[1:]), batch)
        carry, metrics = jax.lax.scan(minibatch_step, carry, parts)
        return carry, jax.tree.map(jnp.mean, metrics)

    (vector, adam), metrics = jax.lax.scan(epoch, (vector, adam), jax.random.split(key, num_epochs))
    return unravel(vector), adam, jax.tree.map(jnp.mean, metrics)
