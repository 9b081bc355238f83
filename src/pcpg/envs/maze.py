"""The maze of the paper: a tree of corridors seen from above as an image, reward-free unless a goal is given.

The border is wall. Inside it cells are opened depth-first from a random one: a cell may be opened only if
exactly one of its four neighbours is open, so the open cells form a tree, and where the last step of the
stack turned the next one must go straight on. An episode starts at the cell where carving began.

Actions: 0 up, 1 down, 2 left, 3 right, 4 stay; a move into a wall stays. Observation: bytes 0 or 255,
channel 0 the walls, channel 1 the agent, channel 2 zero (the goal is not shown). A move that ends at the goal
gives reward 1 and terminates; every other reward is 0. The time limit truncates.
"""

import dataclasses
from collections import deque
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import About, CellGrid, Described, Step, TabularModel
from pcpg.envs.spaces import Discrete, Image

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))  # (row, column) of up, down, left, right, stay
NO_GOAL = -1

GOALS = 1  # the stream of random numbers from which goals are drawn, separate from that of the walls

Cell = tuple[int, int]


class MazeParams(NamedTuple):
    """One maze; a cell is its index row * size + column."""

    background: np.ndarray | jax.Array  # uint8[size * size * 3], the observation without the agent
    next_cell: np.ndarray | jax.Array  # int32[size * size, 5]
    start: np.ndarray | jax.Array  # int32
    goal: np.ndarray | jax.Array  # int32, NO_GOAL if there is none


class MazeState(NamedTuple):
    """Where the agent is and how many moves it has made."""

    cell: jax.Array  # int32
    time: jax.Array  # int32


@dataclasses.dataclass(frozen=True)
class Maze(Described[MazeParams, MazeState]):
    """A maze of `size` x `size` cells, border included."""

    size: int = 20
    """Rows and columns of the maze, including the border walls."""
    steps: int = 200
    """Steps after which an episode is truncated."""
    goal: Cell | str | None = dataclasses.field(default=None, compare=False)
    """ROW,COLUMN of an open cell with reward 1 that ends the episode; none: the reward is always 0."""
    goals: int = dataclasses.field(default=0, compare=False)
    """Number of goals per maze, near and far: seed s is maze s // goals with goal number s % goals."""
    # Both act through the instance's arrays only. Left out of the comparison, mazes that differ in nothing else are
    # one constant to the compiler: a new goal causes no compilation.

    def __post_init__(self) -> None:
        require_int("size", self.size, minimum=4, maximum=1000)  # the border is wall, and one cell makes no maze
        require_int("steps", self.steps, minimum=1)
        require_int("goals", self.goals, minimum=0)
        if self.goal is not None and self.goals:
            raise ValueError(f"set one goal or a number of goals, not both: got {self.goal!r} and {self.goals}")
        if self.goal is not None:
            object.__setattr__(self, "goal", read_cell(self.goal))

    @property
    def about(self) -> About:
        return About(Image(self.size, self.size, 3), Discrete(len(MOVES)), self.steps, self.goals or 1)

    def instance(self, seed: int) -> MazeParams:
        """The maze with this seed, and its goal if one is set."""
        maze = self.dynamics_seed(seed)
        is_open, root = carve(np.random.default_rng(maze), self.size)
        background = np.zeros((self.size, self.size, 3), np.uint8)
        background[..., 0] = np.where(is_open, 0, 255)
        params = MazeParams(
            background=background.reshape(-1),
            next_cell=next_cells(is_open),
            start=np.asarray(root[0] * self.size + root[1], np.int32),
            goal=np.asarray(NO_GOAL, np.int32),
        )
        if self.goals:
            cells = draw_goals(self.distances(params), self.goals, np.random.default_rng([maze, GOALS]))
            return params._replace(goal=np.asarray(cells[seed % self.goals]))
        return params if self.goal is None else self.with_goal(params, read_cell(self.goal))

    @property
    def is_reward_free(self) -> bool:
        return self.goal is None and not self.goals

    def with_goal(self, params: MazeParams, goal: Cell | None) -> MazeParams:
        """The same maze with another goal, which must be an open cell other than the start, or without a goal."""
        if goal is None:
            return params._replace(goal=np.asarray(NO_GOAL, np.int32))
        row, column = goal
        is_open = self.open_cells(params).reshape(self.size, self.size)
        inside = 0 <= row < self.size and 0 <= column < self.size
        if not (inside and is_open[row, column]):
            cells = np.argwhere(is_open)
            near_row, near_column = cells[np.abs(cells - [row, column]).sum(axis=1).argmin()]
            what = "a wall" if inside else f"outside the {self.size} x {self.size} maze"
            raise ValueError(f"goal ({row}, {column}) is {what}; the nearest open cell is ({near_row}, {near_column})")
        if row * self.size + column == params.start:
            raise ValueError(f"goal ({row}, {column}) is the start, so there is nothing to reach")
        return params._replace(goal=np.asarray(row * self.size + column, np.int32))

    def reset(self, key: jax.Array, params: MazeParams) -> tuple[jax.Array, MazeState]:
        del key  # every episode starts at the same cell
        state = MazeState(cell=jnp.asarray(params.start), time=jnp.zeros((), jnp.int32))
        return self.observe(params, state), state

    def transition(self, key: jax.Array, state: MazeState, action: jax.Array, params: MazeParams) -> Step[MazeState]:
        del key  # moves are deterministic
        cell = jnp.asarray(params.next_cell)[state.cell, action]
        moved = MazeState(cell, state.time + 1)
        at_goal = cell == params.goal
        return Step(
            observation=self.observe(params, moved),
            state=moved,
            reward=at_goal.astype(jnp.float32),
            terminated=at_goal,
            truncated=(moved.time >= self.steps) & ~at_goal,
            info={},
        )

    def observe(self, params: MazeParams, state: MazeState) -> jax.Array:
        """The image of a state, uint8 [size, size, 3]."""
        # A comparison fuses into one pass over the image; a scatter would not, under vmap on CPU.
        agent = jnp.arange(self.size * self.size * 3) == state.cell * 3 + 1
        image = jnp.where(agent, jnp.uint8(255), params.background)
        return image.reshape(self.size, self.size, 3)

    def observation_table(self, params: MazeParams) -> jax.Array:
        """The image with the agent at each cell, walls included."""
        return jax.vmap(self.observe, (None, 0))(params, self.all_states())

    def rewards_of(
        self, params: MazeParams, observations: np.ndarray, actions: np.ndarray, next_observations: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        del observations, actions
        places = np.argmax(next_observations[..., 1].reshape(len(next_observations), -1), axis=1)
        at_goal = places == int(params.goal)
        return at_goal.astype(np.float32), at_goal

    @property
    def cells(self) -> CellGrid:
        numbers = tuple(str(i) for i in range(self.size))
        return CellGrid(panels=("maze",), rows=numbers, columns=numbers)

    def cell(self, state: MazeState) -> jax.Array:
        return state.cell

    def state_index(self, state: MazeState) -> jax.Array:
        """The number of a state in the exact model: its cell, without the time."""
        return state.cell

    def all_states(self) -> MazeState:
        """The agent at each cell in turn, including walls, which it cannot leave."""
        cells = np.arange(self.size * self.size, dtype=np.int32)
        return MazeState(jnp.asarray(cells), jnp.zeros(cells.shape, jnp.int32))

    def tabular(self, params: MazeParams) -> TabularModel:
        """The exact model of the instance without its time limit; the goal is terminal."""
        num_cells = self.size * self.size
        transitions = np.eye(num_cells)[np.asarray(params.next_cell)]
        terminal = np.arange(num_cells) == params.goal
        transitions[terminal] = np.eye(num_cells)[terminal][:, None]
        rewards = np.where(terminal[:, None], 0.0, transitions @ terminal)
        images = np.tile(params.background, (num_cells, 1))
        images[np.arange(num_cells), 3 * np.arange(num_cells) + 1] = 255
        return TabularModel(transitions, rewards, terminal, int(params.start), images.astype(np.float64))

    def open_cells(self, params: MazeParams) -> np.ndarray:
        """Which cells are open, bool [size * size], indexed as `cell` does."""
        return np.asarray(params.background)[0::3] == 0

    def reachable_cells(self, params: MazeParams) -> np.ndarray:
        """The open cells, all reachable since they form a tree."""
        return self.open_cells(params)

    def distances(self, params: MazeParams) -> np.ndarray:
        """Moves from the start to each cell, int32 [size * size]; -1 for walls."""
        distance = np.full(self.size * self.size, -1, np.int32)
        table = np.asarray(params.next_cell)
        queue = deque([int(params.start)])
        distance[queue[0]] = 0
        while queue:
            cell = queue.popleft()
            for neighbour in table[cell]:
                if distance[neighbour] < 0:
                    distance[neighbour] = distance[cell] + 1
                    queue.append(int(neighbour))
        return distance

    def render(self, params: MazeParams, state: MazeState, scale: int = 16) -> np.ndarray:
        """A picture, uint8 [size * scale, size * scale, 3]: agent green, goal red, walls dark."""
        picture = np.where(self.open_cells(params)[:, None], (255, 255, 255), (51, 51, 51)).astype(np.uint8)
        if params.goal >= 0:
            picture[int(params.goal)] = (200, 30, 30)
        picture[int(state.cell)] = (30, 150, 60)
        picture = picture.reshape(self.size, self.size, 3)
        return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def read_cell(cell: Cell | list[int] | str) -> Cell:
    """A row and a column from a pair, or from text such as "3,7"."""
    parts = [part.strip() for part in cell.split(",")] if isinstance(cell, str) else cell
    parts = parts.tolist() if isinstance(parts, np.ndarray) else parts
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        raise ValueError(f"goal must be a row and a column such as 3,7, got {cell!r}")
    row, column = (_whole(part) for part in parts)
    require_int("row of goal", row, minimum=0)
    require_int("column of goal", column, minimum=0)
    return int(row), int(column)


def _whole(part: object) -> Any:
    """A Python integer from an integer of NumPy's, or from text."""
    if isinstance(part, str) and part.removeprefix("-").isdecimal():
        return int(part)
    return int(part) if isinstance(part, np.integer) else part


def draw_goals(distances: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` distinct open cells except the start, int32, nearest first: one from each of `count` bands of distance.

    The bands hold equal numbers of cells, up to rounding, so the goals are spread like the cells of the maze.
    """
    cells = np.flatnonzero(distances > 0)
    if count > len(cells):
        raise ValueError(f"goals must be at most {len(cells)}, the number of open cells besides the start, got {count}")
    cells = rng.permutation(cells)  # so that the order within a distance is chance
    bands = np.array_split(cells[np.argsort(distances[cells], kind="stable")], count)
    return np.array([rng.choice(band) for band in bands], np.int32)


def carve(rng: np.random.Generator, size: int) -> tuple[np.ndarray, Cell]:
    """Open cells of a new maze, bool [size, size], and the cell where carving began."""
    is_open = np.zeros((size, size), bool)
    root = (int(rng.integers(1, size - 1)), int(rng.integers(1, size - 1)))
    is_open[root] = True
    stack = [root]
    while stack:
        row, column = stack[-1]
        ways = [(i, j) for i, j in _ways_on(stack) if _can_open(is_open, row + i, column + j)]
        if not ways:
            stack.pop()
            continue
        i, j = ways[rng.integers(len(ways))]
        stack.append((row + i, column + j))
        is_open[row + i, column + j] = True
    return is_open, root


def _ways_on(stack: list[Cell]) -> list[Cell]:
    """The directions in which the stack may grow: straight on if its last step turned, otherwise any."""
    directions = list(MOVES[:4])
    if len(stack) < 3:
        return directions
    (row_0, column_0), (row_1, column_1), (row_2, column_2) = stack[-3:]
    last = (row_2 - row_1, column_2 - column_1)
    return directions if last == (row_1 - row_0, column_1 - column_0) else [last]


def _can_open(is_open: np.ndarray, row: int, column: int) -> bool:
    """Whether a closed cell inside the border has exactly one open neighbour."""
    if not (0 < row < len(is_open) - 1 and 0 < column < len(is_open) - 1) or is_open[row, column]:
        return False
    return sum(bool(is_open[row + i, column + j]) for i, j in MOVES[:4]) == 1


def next_cells(is_open: np.ndarray) -> np.ndarray:
    """The cell each action leads to from each cell, int32 [size * size, 5]; walls lead to themselves."""
    index = np.arange(is_open.size, dtype=np.int32).reshape(is_open.shape)
    # np.roll wraps around, but only from the border, which is wall and moves nowhere.
    reached = [np.roll(index, (-i, -j), axis=(0, 1)) for i, j in MOVES]
    into_open = [np.roll(is_open, (-i, -j), axis=(0, 1)) for i, j in MOVES]
    table = [np.where(is_open & ok, to, index) for to, ok in zip(reached, into_open, strict=True)]
    return np.stack(table, axis=-1).reshape(is_open.size, len(MOVES)).astype(np.int32)
