"""Features that kept data learn: what tells which action led from one kept observation to the next.

The encoder is that of E3B (features/inverse_dynamics.py), trained on kept transitions. What no action moves does not
help and leaves the features, whether it jumps or drifts; the kernel then tells apart by features what it would else
tell apart entry by entry. The encoder is learned anew, from nothing, whenever the data have doubled: it is a function
of the data alone.

How far neighbouring places come to lie apart, beside one place with another noise, is measured in
tests/practice/test_learned.py. Observations several steps apart made noise stay: which action came first is then hard
to tell, and is remembered by the noise.
"""

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.landmarks import ranges_of
from pcpg.envs.spaces import Box, Discrete
from pcpg.features.inverse_dynamics import InverseDynamics, init_inverse_dynamics, inverse_loss
from pcpg.learning.update import init_adam, minimise
from pcpg.policies.distributions import categorical
from pcpg.practice.kept import Kept
from pcpg.practice.replay_state import table_of_rows, vectors_of

if TYPE_CHECKING:
    from pcpg.practice.replay import ReplayAgent

WIDTHS = (128, 32)
"""Units of the encoder; the last are the features."""
DECAY = 3e-3
"""Weight of the squared parameters in the loss: with little of it more of the noise stays."""
DRAWN, EPOCHS, MINIBATCH, RATE = 16_384, 20, 256, 1e-3
"""Transitions that an encoder is trained on, drawn with replacement, so often, in such minibatches, at this rate."""


class LearnInputs(NamedTuple):
    """Transitions to learn from; observations are rows of x."""

    encoder: InverseDynamics
    x: Any  # [U, size]
    row: Any  # [DRAWN]
    next_row: Any  # [DRAWN]
    action: Any  # [DRAWN]
    seed: Any


def learn_encoder(inputs: LearnInputs, *, num_actions: int) -> InverseDynamics:
    """The encoder after its training."""
    x, distribution = jnp.asarray(inputs.x), categorical(num_actions)

    def loss(encoder: InverseDynamics, part: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        row, next_row, action = part
        found = inverse_loss(encoder.outputs(x[row], x[next_row]), action, jnp.ones(len(row), bool), distribution)
        large = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(encoder))
        return found + DECAY * large, {"inverse_loss": found}

    drawn = tuple(jnp.asarray(one) for one in (inputs.row, inputs.next_row, inputs.action))
    settings = {"num_epochs": EPOCHS, "minibatch_size": MINIBATCH, "max_grad_norm": 5.0}
    key, adam = jax.random.key(inputs.seed), init_adam(inputs.encoder)
    return minimise(loss, inputs.encoder, adam, drawn, key, RATE, **settings)[0]


def encoded(inputs: tuple[InverseDynamics, Any]) -> jax.Array:
    """Observation vectors [U, size] through an encoder."""
    encoder, x = inputs
    return encoder.features(x)


@functools.cache
def fresh_encoder(size: int, num_actions: int, seed: int) -> InverseDynamics:
    """An encoder of observation vectors before any training."""
    seen, rng = Box(-np.inf, np.inf, (size,)), np.random.default_rng([seed, 5])
    return init_inverse_dynamics(rng, seen, Discrete(num_actions), WIDTHS)


def learned_encoder(agent: "ReplayAgent", kept: Kept, places: np.ndarray, seed: int) -> InverseDynamics:
    """The encoder of some kept transitions, each as likely as the others."""
    rng = np.random.default_rng([seed, kept.size, 6])
    drawn = rng.choice(places, DRAWN)
    codes = np.concatenate([kept.column("code")[drawn], kept.column("next_code")[drawn]])
    distinct, rows = np.unique(codes, return_inverse=True)
    x = kept.observations[distinct]
    ranges = ranges_of(vectors_of(x)).astype(np.float32)
    ranges[list(kept.ignored)] = np.inf  # their weights are zero, and stay so: they are kept as zeros
    encoder = eqx.tree_at(  # entries of any size begin alike
        lambda made: made.encoder.layers[0].weight,
        fresh_encoder(len(ranges), len(agent.candidates), seed),
        replace_fn=lambda weight: weight / ranges[:, None],
    )
    row, next_row = np.split(rows.astype(np.int32), 2)
    (found,) = agent.learn(
        [LearnInputs(encoder, table_of_rows(x), row, next_row, kept.column("action")[drawn], np.uint32(seed))]
    )
    return jax.tree.map(np.asarray, found)
