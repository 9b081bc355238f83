"""A deterministic chain with a small lure at its start, after RiverSwim without the current.

States 0 .. length - 1 in a row, from state 0. Action 1 goes right, action 0 left. Going right at the last
state pays 1 and stays there; going left at state 0 pays 0.005 and stays there. The episode is cut (truncated,
not terminated) after `horizon` decisions, and the observation does not hold the time.

The number of a state in the tabular model is its position; the clock is the number of decisions asked for.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import About, CellGrid, Described, Step, TabularModel
from pcpg.envs.spaces import Box, Discrete

LURE = 0.005
NoParams = tuple[()]


class ChainState(NamedTuple):
    """Where the episode is."""

    position: jax.Array  # int32
    time: jax.Array  # int32, decisions taken


@dataclasses.dataclass(frozen=True)
class Chain(Described[NoParams, ChainState]):
    """A chain whose far end pays 1 per decision and whose start pays 0.005."""

    length: int = 8
    """Number of states."""
    horizon: int = 16
    """Steps per episode."""

    def __post_init__(self) -> None:
        require_int("length", self.length, minimum=2, maximum=100_000)
        require_int("horizon", self.horizon, minimum=1)

    @property
    def about(self) -> About:
        return About(Box(0.0, 1.0, (self.length,)), Discrete(2), self.horizon)

    def instance(self, seed: int) -> NoParams:
        """Nothing: every instance is the same."""
        del seed
        return ()

    def reset(self, key: jax.Array, params: NoParams) -> tuple[jax.Array, ChainState]:
        """The near end of the chain."""
        del key, params
        zero = jnp.zeros((), jnp.int32)
        return self._observe(zero), ChainState(zero, zero)

    def transition(self, key: jax.Array, state: ChainState, action: jax.Array, params: NoParams) -> Step[ChainState]:
        """One decision; the clock truncates, nothing terminates."""
        del key, params
        right = action == 1
        last = self.length - 1
        position = jnp.clip(state.position + jnp.where(right, 1, -1), 0, last)
        gain = (right & (state.position == last)).astype(jnp.float32)
        lure = LURE * (~right & (state.position == 0)).astype(jnp.float32)
        new_state = ChainState(position, state.time + 1)
        truncated = new_state.time >= self.horizon
        return Step(self._observe(position), new_state, gain + lure, jnp.array(False), truncated, {})

    def _observe(self, position: jax.Array) -> jax.Array:
        """One-hot of the position."""
        return (position[..., None] == jnp.arange(self.length, dtype=jnp.int32)).astype(jnp.float32)

    @property
    def cells(self) -> CellGrid:
        return CellGrid(("chain",), ("position",), tuple(str(place) for place in range(self.length)))

    def cell(self, state: ChainState) -> jax.Array:
        """The position."""
        return state.position

    def state_index(self, state: ChainState) -> jax.Array:
        """The position."""
        return state.position

    def all_states(self) -> ChainState:
        """All positions, at time zero."""
        return ChainState(jnp.arange(self.length, dtype=jnp.int32), jnp.zeros(self.length, jnp.int32))

    def tabular(self, params: NoParams) -> TabularModel:
        """The exact model over positions, for `horizon` decisions: no state is terminal."""
        del params
        places, last = np.arange(self.length), self.length - 1
        transitions, rewards = np.zeros((self.length, 2, self.length)), np.zeros((self.length, 2))
        transitions[places, 0, np.maximum(places - 1, 0)] = 1.0
        transitions[places, 1, np.minimum(places + 1, last)] = 1.0
        rewards[0, 0], rewards[last, 1] = LURE, 1.0
        return TabularModel(transitions, rewards, np.zeros(self.length, bool), 0, np.eye(self.length))
