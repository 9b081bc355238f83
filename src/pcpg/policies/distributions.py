"""Action distributions as one argument: categorical for discrete actions, one or several; Gaussian for boxes.

A distribution is a bundle of pure functions of the network's outputs; the last axis of `outputs` is the
parameter axis, everything before it is batch.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pcpg.envs.spaces import Box, Discrete, MultiDiscrete, Space, flat_size
from pcpg.shapes import Array, Float, Int, Key

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Distribution(NamedTuple):
    """The functions of a family of action distributions."""

    sample: Callable[[jax.Array, jax.Array], jax.Array]  # (key, outputs) -> actions
    mode: Callable[[jax.Array], jax.Array]  # outputs -> actions
    log_prob: Callable[[jax.Array, jax.Array], jax.Array]  # (outputs, actions) -> log density
    entropy: Callable[[jax.Array], jax.Array]  # outputs -> nats
    random: Callable[[jax.Array, tuple[int, ...]], jax.Array]  # (key, batch shape) -> uniform actions
    random_log_prob: Callable[[jax.Array], jax.Array]  # actions -> log density of `random`
    to_env: Callable[[jax.Array], jax.Array]  # actions -> what the environment and the features see


def for_space(space: Space) -> Distribution:
    """The distribution that fits an action space."""
    if isinstance(space, Discrete):
        return categorical(space.n)
    if isinstance(space, MultiDiscrete):
        return factored(space.sizes)
    if isinstance(space, Box):
        return gaussian(space)
    raise ValueError(f"actions must be Discrete, MultiDiscrete or Box, got {space}")


def num_outputs(space: Space) -> int:
    """The number of outputs of a policy's last layer: logits or means."""
    return flat_size(space)


def categorical(n: int) -> Distribution:
    """Softmax over n actions."""

    def sample(key: Key[jax.Array, ""], outputs: Float[Array, "*batch n"]) -> Int[jax.Array, "*batch"]:
        # Inverse transform: one uniform number a decision, where the Gumbel trick needs n.
        weights = jnp.exp(outputs - jnp.max(outputs, axis=-1, keepdims=True))
        cumulative = jnp.cumsum(weights, axis=-1)
        point = jax.random.uniform(key, (*outputs.shape[:-1], 1), jnp.float32) * cumulative[..., -1:]
        # Ends at n - 1 at most in exact arithmetic; the clip guards the rounding of the sum.
        return jnp.minimum(jnp.sum(point >= cumulative, axis=-1), n - 1).astype(jnp.int32)

    def log_prob(outputs: Float[Array, "*batch n"], actions: Int[Array, "*batch"]) -> Float[jax.Array, "*batch"]:
        # A comparison instead of a gather: its gradient is then no scatter, which is slow on every device.
        chosen = actions[..., None] == jnp.arange(n)
        return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(outputs), 0.0), axis=-1)

    def entropy(outputs: Float[Array, "*batch n"]) -> Float[jax.Array, "*batch"]:
        log_p = jax.nn.log_softmax(outputs)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    return Distribution(
        sample=sample,
        mode=lambda outputs: jnp.argmax(outputs, axis=-1).astype(jnp.int32),
        log_prob=log_prob,
        entropy=entropy,
        random=lambda key, shape: jax.random.randint(key, shape, 0, n, dtype=jnp.int32),
        random_log_prob=lambda actions: jnp.full(actions.shape, -math.log(n), jnp.float32),
        to_env=lambda actions: actions,
    )


def factored(sizes: tuple[int, ...]) -> Distribution:
    """Independent softmaxes, one for each entry of the action; `outputs` holds their logits one after the other."""
    factors = [categorical(n) for n in sizes]
    cuts = list(itertools.accumulate(sizes))[:-1]

    def split(outputs: Array) -> list[jax.Array]:
        return jnp.split(outputs, cuts, axis=-1)

    def sample(key: Key[jax.Array, ""], outputs: Float[Array, "*batch outputs"]) -> Int[jax.Array, "*batch parts"]:
        parts = zip(factors, jax.random.split(key, len(sizes)), split(outputs), strict=True)
        return jnp.stack([factor.sample(key, part) for factor, key, part in parts], axis=-1)

    def log_prob(
        outputs: Float[Array, "*batch outputs"], actions: Int[Array, "*batch parts"]
    ) -> Float[jax.Array, "*batch"]:
        parts = zip(factors, split(outputs), jnp.moveaxis(actions, -1, 0), strict=True)
        return sum((factor.log_prob(part, action) for factor, part, action in parts), jnp.float32(0.0))

    def entropy(outputs: Float[Array, "*batch outputs"]) -> Float[jax.Array, "*batch"]:
        parts = zip(factors, split(outputs), strict=True)
        return sum((factor.entropy(part) for factor, part in parts), jnp.float32(0.0))

    def mode(outputs: Float[Array, "*batch outputs"]) -> Int[jax.Array, "*batch parts"]:
        return jnp.stack([factor.mode(part) for factor, part in zip(factors, split(outputs), strict=True)], axis=-1)

    return Distribution(
        sample=sample,
        mode=mode,
        log_prob=log_prob,
        entropy=entropy,
        random=lambda key, shape: jax.random.randint(key, (*shape, len(sizes)), 0, jnp.asarray(sizes), jnp.int32),
        random_log_prob=lambda actions: jnp.full(actions.shape[:-1], -math.log(math.prod(sizes)), jnp.float32),
        to_env=lambda actions: actions,
    )


def gaussian(space: Box) -> Distribution:
    """Independent normals; `outputs` holds the means, then the logarithms of the standard deviations."""
    if len(space.shape) != 1:
        raise ValueError(f"continuous actions must be vectors, got shape {space.shape}")
    (size,) = space.shape

    def sample(key: Key[jax.Array, ""], outputs: Float[Array, "*batch outputs"]) -> Float[jax.Array, "*batch size"]:
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, jnp.float32)

    def log_prob(
        outputs: Float[Array, "*batch outputs"], actions: Float[Array, "*batch size"]
    ) -> Float[jax.Array, "*batch"]:
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        z = (actions - mean) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * z**2 - log_std - LOG_SQRT_2_PI, axis=-1)

    def entropy(outputs: Float[Array, "*batch outputs"]) -> Float[jax.Array, "*batch"]:
        _, log_std = jnp.split(outputs, 2, axis=-1)
        return jnp.sum(log_std + 0.5 + LOG_SQRT_2_PI, axis=-1)

    def random_log_prob(actions: Float[Array, "*batch size"]) -> Float[jax.Array, "*batch"]:
        inside = jnp.all((actions >= space.low) & (actions <= space.high), axis=-1)
        return jnp.where(inside, -size * math.log(space.high - space.low), -jnp.inf)

    return Distribution(
        sample=sample,
        mode=lambda outputs: jnp.split(outputs, 2, axis=-1)[0],
        log_prob=log_prob,
        entropy=entropy,
        random=lambda key, shape: jax.random.uniform(key, (*shape, size), jnp.float32, space.low, space.high),
        random_log_prob=random_log_prob,
        to_env=lambda actions: jnp.clip(actions, space.low, space.high),
    )
