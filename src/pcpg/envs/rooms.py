"""Rooms in a chain, new at every reset: through closed doors to a goal in the last room, with a partial view.

A self-avoiding walk over a square of rooms draws the chain; each pair of neighbours has one door, at a random place of
the wall between them. The agent begins anywhere in the first room and faces anywhere; the goal lies anywhere in the
last one. It sees the 7 x 7 cells in front of it, as far as open cells lead, and pays 1 - 0.9 t / max_steps at the goal,
like MiniGrid's MultiRoom. Compiled, thousands of levels are played at once.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import About, Described, Step
from pcpg.envs.spaces import Cells, Discrete

UNSEEN, EMPTY, WALL, DOOR, OPEN_DOOR, GOAL = range(6)
"""What a cell of the view holds."""
VIEW = 7
LEFT, RIGHT, FORWARD, OPEN = range(4)
"""The actions."""
AHEAD = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)], np.int32)
"""Row and column ahead: east, south, west, north."""
WALKS = 8
"""Walks that are drawn for a chain; the first without a dead end is taken."""


class RoomsState(NamedTuple):
    """A level and who walks in it."""

    grid: jax.Array  # uint8 [side, side] of the codes above
    place: jax.Array  # int32 [2] row and column
    facing: jax.Array  # int32, index into AHEAD
    time: jax.Array  # int32


@dataclasses.dataclass(frozen=True)
class Rooms(Described[np.ndarray, RoomsState]):
    """Another chain of rooms at every reset, or a few that take turns."""

    rooms: int = 4
    """Number of rooms in the chain."""
    size: int = 4
    """Rows and columns of a room, its walls included."""
    levels: int = 0
    """Number of levels that take turns; 0: every reset draws a new one."""

    def __post_init__(self) -> None:
        require_int("rooms", self.rooms, minimum=2, maximum=30)
        require_int("size", self.size, minimum=4, maximum=20)
        require_int("levels", self.levels, minimum=0)

    @property
    def across(self) -> int:
        """Rooms along a side of the square."""
        return math.ceil(math.sqrt(self.rooms)) + 1

    @property
    def side(self) -> int:
        """Cells along a side; rooms share their walls."""
        return self.across * (self.size - 1) + 1

    @property
    def about(self) -> About:
        return About(Cells(0.0, 1.0, (VIEW * VIEW * 6,), 0, VIEW * VIEW, 6), Discrete(4), 20 * self.rooms)

    def instance(self, seed: int) -> np.ndarray:
        """The number from which levels follow that take turns."""
        return np.asarray(seed, np.uint32)

    def reset(self, key: jax.Array, params: np.ndarray) -> tuple[jax.Array, RoomsState]:
        if self.levels:
            key = jax.random.fold_in(jax.random.key(params), jax.random.randint(key, (), 0, self.levels))
        key_chain, key_doors, key_start, key_goal, key_facing = jax.random.split(key, 5)
        chain = self._chain(key_chain)
        corners = chain * (self.size - 1)
        lines = np.arange(self.side) % (self.size - 1) == 0
        grid = jnp.asarray(np.where(lines[:, None] | lines, WALL, EMPTY), jnp.uint8)
        grid = grid.at[tuple(self._doors(key_doors, corners).T)].set(DOOR)
        grid = grid.at[tuple(self._inside(key_goal, corners[-1]))].set(GOAL)
        place, facing = self._inside(key_start, corners[0]), jax.random.randint(key_facing, (), 0, 4)
        state = RoomsState(grid, place, facing, jnp.zeros((), jnp.int32))
        return self._observe(state), state

    def _chain(self, key: jax.Array) -> jax.Array:
        """The rooms in their order, row and column of each, [rooms, 2]: a walk that got through, or a snake."""
        walks, through = jax.vmap(self._walk)(jax.random.split(key, WALKS))
        row, column = np.divmod(np.arange(self.rooms), self.across)
        snake = np.stack([row, np.where(row % 2 == 0, column, self.across - 1 - column)], axis=1).astype(np.int32)
        return jnp.where(jnp.any(through), walks[jnp.argmax(through)], snake)

    def _walk(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A random walk over rooms that were not met before, and whether it ran into no dead end."""
        key_start, key_steps = jax.random.split(key)
        start = jax.random.randint(key_start, (2,), 0, self.across)
        met = jnp.zeros((self.across, self.across), bool).at[tuple(start)].set(True)

        def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Any]:
            here, met = carry
            near = here + AHEAD
            is_free = jnp.all((near >= 0) & (near < self.across), axis=1) & ~met[tuple(near.T)]
            there = near[jnp.argmax(jnp.where(is_free, jax.random.uniform(key, (4,)), -1.0))]
            return (there, met.at[tuple(there)].set(True)), (there, jnp.any(is_free))

        _, (others, is_free) = jax.lax.scan(step, (start, met), jax.random.split(key_steps, self.rooms - 1))
        return jnp.concatenate([start[None], others]), jnp.all(is_free)

    def _inside(self, key: jax.Array, corner: jax.Array) -> jax.Array:
        """A random cell inside the room with this corner."""
        return corner + jax.random.randint(key, (2,), 1, self.size - 1)

    def _doors(self, key: jax.Array, corners: jax.Array) -> jax.Array:
        """The doors between neighbours, [rooms - 1, 2]: at a random place of the wall that both have."""
        wall = jnp.maximum(corners[:-1], corners[1:])  # that of the later room, to the right or below
        along = wall + jax.random.randint(key, (self.rooms - 1, 1), 1, self.size - 1)
        return jnp.where(corners[:-1] != corners[1:], wall, along)

    def transition(self, key: jax.Array, state: RoomsState, action: jax.Array, params: np.ndarray) -> Step[RoomsState]:
        del key, params
        turn = jnp.where(action == RIGHT, 1, jnp.where(action == LEFT, -1, 0))
        ahead = state.place + jnp.asarray(AHEAD)[state.facing]
        there = state.grid[tuple(ahead)]
        opened = jnp.where((action == OPEN) & (there == DOOR), OPEN_DOOR, there).astype(jnp.uint8)
        is_free = (there != WALL) & (there != DOOR)
        moved = RoomsState(
            state.grid.at[tuple(ahead)].set(opened),
            jnp.where((action == FORWARD) & is_free, ahead, state.place),
            (state.facing + turn) % 4,
            state.time + 1,
        )
        at_goal = moved.grid[tuple(moved.place)] == GOAL
        reward = jnp.where(at_goal, 1.0 - 0.9 * moved.time / self.max_steps, 0.0).astype(jnp.float32)
        return Step(self._observe(moved), moved, reward, at_goal, (moved.time >= self.max_steps) & ~at_goal, {})

    def _observe(self, state: RoomsState) -> jax.Array:
        """The cells in front, one-hot; those to which no open cell leads are unseen."""
        ahead, aside = jnp.asarray(AHEAD)[state.facing], jnp.asarray(AHEAD)[(state.facing + 1) % 4]
        depth, width = np.divmod(np.arange(VIEW * VIEW), VIEW)
        cells = state.place + depth[:, None] * ahead + (width - VIEW // 2)[:, None] * aside
        inside = jnp.all((cells >= 0) & (cells < self.side), axis=1)
        codes = jnp.where(inside, state.grid[tuple(jnp.clip(cells, 0, self.side - 1).T)], UNSEEN).reshape(VIEW, VIEW)
        is_clear = (codes != WALL) & (codes != DOOR) & inside.reshape(VIEW, VIEW)
        seen = jnp.zeros((VIEW, VIEW), bool).at[0, VIEW // 2].set(True)
        for _ in range(VIEW):
            seen = seen | _widened(seen & is_clear)
        return jax.nn.one_hot(jnp.where(seen, codes, UNSEEN).reshape(-1), 6, dtype=jnp.float32).reshape(-1)

    def render(self, params: np.ndarray, state: RoomsState, scale: int = 16) -> np.ndarray:
        """A picture for people: walls dark, doors brown, the goal red, the agent green, the cell ahead of it pale."""
        del params
        colours = np.array([(255,) * 3, (255,) * 3, (51,) * 3, (150, 90, 40), (220, 190, 150), (200, 30, 30)], np.uint8)
        picture = colours[np.asarray(state.grid)]
        ahead = np.asarray(state.place) + AHEAD[int(state.facing)]
        picture[tuple(ahead)] = picture[tuple(ahead)] // 2 + np.array([60, 125, 60], np.uint8)
        picture[tuple(np.asarray(state.place))] = (30, 150, 60)
        return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def _widened(seen: jax.Array) -> jax.Array:
    """The cells of a view and all around them."""
    padded = jnp.pad(seen, 1)
    shifted = [padded[i : i + VIEW, j : j + VIEW] for i in range(3) for j in range(3)]
    return jnp.any(jnp.stack(shifted), axis=0)
