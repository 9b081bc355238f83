"""State-action aggregation: pairs with the same label share one feature."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from pcpg.envs.protocol import Environment
from pcpg.features.base import Array, FeatureMap
from pcpg.features.one_hot import NOWHERE, StateIndex, num_actions, state_index


class Aggregation(FeatureMap):
    """phi(s, a) = the unit vector of the pair's label."""

    index: StateIndex
    labels: Array  # int32 [num_states, num_actions]
    num_labels: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return self.num_labels

    def __call__(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        state = self.index(observation)
        label = jnp.where(state == NOWHERE, NOWHERE, jnp.asarray(self.labels)[state, action])
        return jax.nn.one_hot(label, self.dim, dtype=jnp.float32)


def aggregation(
    env: Environment[Any, Any],
    rng: np.random.Generator,
    *,
    labels: ArrayLike,
    codes: ArrayLike | None = None,
) -> Aggregation:
    """One feature for each label; `labels` is [states, actions], or [states] where all actions share."""
    del rng
    index = state_index(env, codes)
    table = np.asarray(labels)
    if table.ndim == 1:
        table = np.repeat(table[:, None], num_actions(env), axis=1)
    expected = (index.num_states, num_actions(env))
    if table.shape != expected or table.dtype.kind not in "iu" or table.min() < 0:
        raise ValueError(
            f"labels must be integers >= 0 of shape {expected} or ({expected[0]},), "
            f"got {table.dtype} of shape {np.shape(labels)}"
        )
    return Aggregation(index, table.astype(np.int32), int(table.max()) + 1)
