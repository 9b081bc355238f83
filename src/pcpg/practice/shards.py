"""One update of one seed on several devices: minibatches are cut into shards, each with its gradient on one of them.

How many shards there are is a setting, since it decides how sums are rounded; how many devices there are is not. Every
gradient comes from the same compiled code, whichever device runs it, and the first device adds them up in the order of
the shards. So a run has the same bytes on one device and on eight, which no all-reduce would promise. Episodes are
played on the first device: they are a small part of the work where a network is large.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from pcpg.learning.update import Adam, adam_step, random_order
from pcpg.practice.ppo import Carry, ImproveInputs, Learner, Measured, Metrics, Prepared, Samples, between
from pcpg.practice.program import Program, compiler_options, devices


class Ready(NamedTuple):
    """What the minibatches of an update need."""

    prepared: Prepared
    orders: Any  # [num_epochs, size] of the samples
    progress: Any  # share of the round that is over


class Shard(NamedTuple):
    """A part of a minibatch, with what its loss depends on beside the parameters."""

    samples: Samples
    rnd: Any
    inputs: ImproveInputs  # of which the task and the environment are used
    progress: Any


class ShardedLearn:
    """`Learner.learn` for updates of one seed each, as a program is called."""

    def __init__(self, learner: Learner, prepare: Callable[[Any], tuple[Prepared, jax.Array, jax.Array]]) -> None:
        """`prepare` gives the samples of an update, a key for their orders, and the share of the round that is over."""
        self.learner = learner
        self._prepare = Program(functools.partial(self._ready, prepare), lanes=1)
        self._finish: Program[Any, tuple[Carry, Measured]] = Program(lambda given: learner.updated(*given), lanes=1)
        self._gradient = jax.jit(self._weighted_gradient, compiler_options=compiler_options())
        self._step = jax.jit(self._stepped, compiler_options=compiler_options())

    @property
    def compilations(self) -> int:
        return self._prepare.compilations + self._finish.compilations

    @property
    def compile_seconds(self) -> float:
        return self._prepare.compile_seconds + self._finish.compile_seconds

    def __call__(self, updates: Sequence[Any]) -> list[tuple[Carry, Measured]]:
        """What goes on to the next update of each, and what it measured."""
        return [self._learn(update) for update in updates]

    def _learn(self, update: Any) -> tuple[Carry, Measured]:
        [ready] = self._prepare([update])
        prepared, places = ready.prepared, devices()
        size = len(prepared.samples.mask)
        minibatch = min(self.learner.config.minibatch_size, size)
        shards = math.gcd(self.learner.config.shards, minibatch)
        places, number = places[:shards], minibatch // shards
        inputs = update.inputs._replace(cover=None, policy=None, adam=None, rnd=None)
        rest = [jax.device_put((prepared.rnd, inputs, ready.progress), place) for place in places]
        trained, adam, measured = prepared.trained, update.carry.adam, []
        rate = np.asarray(between(update.inputs.task.learning_rate, ready.progress))
        for order in ready.orders:
            for first in range(0, size // minibatch * minibatch, minibatch):
                there = [jax.device_put(trained, place) for place in places]
                found = []
                for shard in range(shards):
                    chosen = order[first + shard * number : first + (shard + 1) * number]
                    samples = jax.tree.map(lambda values, chosen=chosen: values[chosen], prepared.samples)
                    which = shard % len(places)
                    part = Shard(jax.device_put(samples, places[which]), *rest[which])
                    found.append(self._gradient(there[which], part))
                trained, adam, metrics = self._step(trained, adam, jax.device_put(found, places[0]), rate)
                measured.append(metrics)
        losses = jax.tree.map(lambda *values: np.mean(values, dtype=np.float32), *jax.device_get(measured))
        without = prepared._replace(samples=None, trained=None)  # pyright: ignore[reportArgumentType]
        return self._finish([(without, *jax.device_get((trained, adam)), losses)])[0]

    # What is compiled.

    def _ready(self, prepare: Callable[[Any], tuple[Prepared, jax.Array, jax.Array]], update: Any) -> Ready:
        prepared, key, progress = prepare(update)
        size, keys = prepared.samples.mask.shape[0], jax.random.split(key, self.learner.config.num_epochs)
        return Ready(prepared, jax.vmap(lambda key: random_order(key, size))(keys), progress)

    def _weighted_gradient(self, trained: Any, shard: Shard) -> tuple[jax.Array, Metrics, jax.Array]:
        """Gradient and metrics of a shard, means over its own steps, times their number; and that."""
        vector, unravel = ravel_pytree(trained)

        def loss(vector: jax.Array) -> tuple[jax.Array, Metrics]:
            return self.learner.loss(unravel(vector), *shard)

        gradient, metrics = jax.grad(loss, has_aux=True)(vector)
        weight = jnp.sum(shard.samples.mask, dtype=jnp.float32)
        return weight * gradient, {name: weight * value for name, value in metrics.items()}, weight

    def _stepped(
        self, trained: Any, adam: Adam, found: list[tuple[jax.Array, Metrics, jax.Array]], rate: jax.Array
    ) -> tuple[Any, Adam, Metrics]:
        """The parameters after a step by the mean over all shards, added up one after the other."""
        gradient, metrics, weight = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), found)
        weight = jnp.maximum(weight, 1.0)
        vector, unravel = ravel_pytree(trained)
        step, adam = adam_step(gradient / weight, adam, rate, max_grad_norm=self.learner.config.max_grad_norm)
        return unravel(vector + step), adam, {name: value / weight for name, value in metrics.items()}
