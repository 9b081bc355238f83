"""Features learned from kept data, which predict the action between consecutive observations.

The encoder is that of E3B (features/inverse_dynamics.py), trained on kept transitions. What no action moves does not
help and leaves the features, whether it jumps or drifts; the kernel then tells apart by features what it would else
tell apart entry by entry. The encoder is learned from scratch whenever the data have doubled: it is a function
of the data alone.

How far neighbouring places come to lie apart, beside one place with another noise, is measured in
tests/kernel/test_learned.py. Observations several steps apart made noise stay: which action came first is then hard
to tell, and is remembered by the noise.
"""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.data import Kept, Stream, table_of_rows, vectors_of
from pcpg.envs.spaces import Box, Discrete
from pcpg.features.inverse_dynamics import InverseDynamics, init_inverse_dynamics, inverse_loss
from pcpg.kernel.landmarks import ranges_of
from pcpg.learners.update import init_adam, minimise
from pcpg.policies.distributions import categorical
from pcpg.shapes import Array

WIDTHS = (128, 32)
"""Units of the encoder; the last are the features."""
DECAY = 3e-3
"""Weight of the squared parameters in the loss: with little of it more of the noise stays."""
DRAWN, EPOCHS, MINIBATCH, RATE = 16_384, 20, 256, 1e-3
"""Transitions that an encoder is trained on, drawn with replacement, so often, in such minibatches, at this rate."""


class LearnInputs(NamedTuple):
    """Transitions to learn from; observations are rows of x."""

    encoder: InverseDynamics
    x: Array  # [U, size]
    row: Array  # [DRAWN]
    next_row: Array  # [DRAWN]
    action: Array  # [DRAWN]
    seed: Array | np.integer


def learn_encoder(inputs: LearnInputs, *, num_actions: int) -> InverseDynamics:
    """The encoder after its training."""
    x, distribution = jnp.asarray(inputs.x), categorical(num_actions)

    def loss(encoder: InverseDynamics, part: tuple[jax.Array, ...]) -> tuple[jax.Array, dict[str, jax.Array]]:
        row, next_row, action = part
        found = inverse_loss(encoder.outputs(x[row], x[next_row]), action, jnp.ones(len(row), bool), distribution)
        large = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(encoder))
        return found + DECAY * large, {"inverse_loss": found}

    drawn = tuple(jnp.asarray(one) for one in (inputs.row, inputs.next_row, inputs.action))
    settings = {"num_epochs": EPOCHS, "minibatch_size": MINIBATCH, "max_grad_norm": 5.0}
    key, adam = jax.random.key(inputs.seed), init_adam(inputs.encoder)
    return minimise(loss, inputs.encoder, adam, drawn, key, RATE, **settings)[0]


def encoded(inputs: tuple[InverseDynamics, Array]) -> jax.Array:
    """Observation vectors [U, size] through an encoder."""
    encoder, x = inputs
    return encoder.features(x)


@functools.cache
def fresh_encoder(size: int, num_actions: int, seed: int) -> InverseDynamics:
    """An encoder of observation vectors before any training."""
    seen, rng = Box(-np.inf, np.inf, (size,)), np.random.default_rng([seed, Stream.WEIGHTS])
    return init_inverse_dynamics(rng, seen, Discrete(num_actions), WIDTHS)


def learn_inputs(kept: Kept, places: np.ndarray, seed: int, num_actions: int) -> LearnInputs:
    """What an encoder is trained on: draws from some kept transitions, each as likely as the others."""
    drawn = np.random.default_rng([seed, kept.size, Stream.LEARN]).choice(places, DRAWN)
    codes = np.concatenate([kept.column("code")[drawn], kept.column("next_code")[drawn]])
    distinct, rows = np.unique(codes, return_inverse=True)
    x = kept.observations[distinct]
    ranges = ranges_of(vectors_of(x)).astype(np.float32)
    ranges[list(kept.ignored)] = np.inf  # zero weights: ignored entries are kept as zeros
    encoder = eqx.tree_at(  # entries of any size begin alike
        lambda made: made.encoder.layers[0].weight,
        fresh_encoder(len(ranges), num_actions, seed),
        replace_fn=lambda weight: weight / ranges[:, None],
    )
    row, next_row = np.split(rows.astype(np.int32), 2)
    return LearnInputs(encoder, table_of_rows(x), row, next_row, kept.column("action")[drawn], np.uint32(seed))
