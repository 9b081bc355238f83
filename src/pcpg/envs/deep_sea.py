"""Deep Sea, by the rules of bsuite (Osband et al., 2020), deterministic version.

A square of `size` x `size` cells, entered at the top left. Every decision goes one row down, and one column
right or left; which of the two actions means right is drawn for each cell, once per instance. Going right
costs 0.01 / size, and going right from the bottom right cell pays 1. So the best return is 0.99, and uniform
play reaches the treasure with probability 2^-size.

The number of a state in the tabular model is row * size + column; size * size is the end.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import About, CellGrid, Described, Step, TabularModel
from pcpg.envs.spaces import Box, Discrete

MOVE_COST = 0.01  # of a whole descent to the right


class DeepSeaParams(NamedTuple):
    """What is drawn once per instance."""

    right_action: np.ndarray | jax.Array  # int32[size, size]


class DeepSeaState(NamedTuple):
    """Where the diver is."""

    row: jax.Array  # int32: 0 .. size - 1, size after the last decision
    column: jax.Array  # int32: 0 .. size - 1


@dataclasses.dataclass(frozen=True)
class DeepSea(Described[DeepSeaParams, DeepSeaState]):
    """A descent in which only going right `size` times in a row reaches the treasure."""

    size: int = 10
    """Rows and columns of the sea, and steps per episode."""

    def __post_init__(self) -> None:
        require_int("size", self.size, minimum=1, maximum=1000)

    @property
    def about(self) -> About:
        return About(Box(0.0, 1.0, (self.size * self.size,)), Discrete(2), self.size)

    def instance(self, seed: int) -> DeepSeaParams:
        """The action that goes right in each cell, uniform and independent."""
        rng = np.random.default_rng(seed)
        return DeepSeaParams(rng.integers(2, size=(self.size, self.size), dtype=np.int32))

    def reset(self, key: jax.Array, params: DeepSeaParams) -> tuple[jax.Array, DeepSeaState]:
        """The top left cell."""
        del key, params
        zero = jnp.zeros((), jnp.int32)
        state = DeepSeaState(zero, zero)
        return self._observe(state), state

    def transition(
        self, key: jax.Array, state: DeepSeaState, action: jax.Array, params: DeepSeaParams
    ) -> Step[DeepSeaState]:
        """One row down; the last row terminates."""
        del key
        place = state.row * self.size + state.column
        right = action == jnp.take(jnp.asarray(params.right_action), place, mode="clip")  # of the flat table
        last = self.size - 1
        column = jnp.clip(state.column + jnp.where(right, 1, -1), 0, last)
        new_state = DeepSeaState(state.row + 1, column)
        # The last column is first reached in the last row, so the treasure needs no test of the row.
        gain = (state.column == last).astype(jnp.float32) - jnp.float32(MOVE_COST / self.size)
        reward = jnp.where(right, gain, 0.0)
        terminated = new_state.row >= self.size
        return Step(self._observe(new_state), new_state, reward, terminated, jnp.array(False), {})

    def _observe(self, state: DeepSeaState) -> jax.Array:
        """One-hot of the cell, row after row; zero after the last decision."""
        place = (state.row * self.size + state.column)[..., None]  # beyond every cell after the last decision
        return (place == jnp.arange(self.size * self.size, dtype=jnp.int32)).astype(jnp.float32)

    @property
    def cells(self) -> CellGrid:
        names = tuple(str(place) for place in range(self.size))
        return CellGrid(("sea",), names, names)

    def cell(self, state: DeepSeaState) -> jax.Array:
        """Row and column; -1 after the last decision."""
        return jnp.where(state.row < self.size, state.row * self.size + state.column, -1)

    def state_index(self, state: DeepSeaState) -> jax.Array:
        """The number of the cell; the end is last."""
        return jnp.minimum(state.row * self.size + state.column, self.size * self.size)

    def state_observations(self, params: DeepSeaParams) -> np.ndarray:
        del params  # the same in every instance
        return np.asarray(self._observe(self.all_states()))

    def all_states(self) -> DeepSeaState:
        """All cells, row after row, and the end; those above the diagonal are never reached."""
        place = jnp.arange(self.size * self.size + 1, dtype=jnp.int32)
        return DeepSeaState(place // self.size, place % self.size)

    def tabular(self, params: DeepSeaParams) -> TabularModel:
        """The exact model of the instance, in the numbering of the module."""
        end = self.size * self.size
        transitions, rewards = np.zeros((end + 1, 2, end + 1)), np.zeros((end + 1, 2))
        for row, column in np.ndindex(self.size, self.size):
            state, right = row * self.size + column, int(params.right_action[row, column])
            for action in (0, 1):
                next_column = min(column + 1, self.size - 1) if action == right else max(column - 1, 0)
                below = end if row + 1 == self.size else (row + 1) * self.size + next_column
                transitions[state, action, below] = 1.0
            rewards[state, right] = float(column == self.size - 1) - MOVE_COST / self.size
        transitions[end, :, end] = 1.0
        observations = np.eye(end + 1, end)
        return TabularModel(transitions, rewards, np.arange(end + 1) == end, 0, observations)
