"""MountainCarContinuous-v0 of Gymnasium as a pure function, in float32.

A car in a valley, too weak to drive straight up, must swing to reach the flag on the right. Observation:
position and velocity. Action: a force, which the engine clips to [-1, 1]; as in Gymnasium, the reward is
-0.1 force^2 per step for the requested force, and 100 at the flag, where the episode terminates.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import About, CellGrid, Described, Step
from pcpg.envs.spaces import Box

MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
GOAL_POSITION = 0.45
POWER = 0.0015
GRAVITY = 0.0025
FULL_EPISODE = 999  # the time limit under which Gymnasium registers the environment
CELLS = 20  # rows and columns of the grid of visits


class MountainCarParams(NamedTuple):
    """The interval from which the first position is drawn."""

    start: np.ndarray | jax.Array  # float32[2]


class MountainCarState(NamedTuple):
    """The car and how many moves it has made."""

    position: jax.Array  # float32
    velocity: jax.Array  # float32
    time: jax.Array  # int32


@dataclasses.dataclass(frozen=True)
class MountainCarContinuous(Described[MountainCarParams, MountainCarState]):
    """The continuous mountain car with a time limit of `steps`."""

    steps: int = 200
    """Steps after which an episode is truncated; Gymnasium's own limit is 999."""

    def __post_init__(self) -> None:
        require_int("steps", self.steps, minimum=1)

    @property
    def about(self) -> About:
        return About(Box(MIN_POSITION, MAX_POSITION, (2,)), Box(-1.0, 1.0, (1,)), self.steps)

    @property
    def evaluation_env(self) -> "MountainCarContinuous":
        return MountainCarContinuous(steps=FULL_EPISODE)

    @property
    def solved_return(self) -> float:
        return 90.0

    def instance(self, seed: int) -> MountainCarParams:
        """The start interval, the same for every seed."""
        del seed
        return MountainCarParams(start=np.asarray([-0.6, -0.4], np.float32))

    def reset(self, key: jax.Array, params: MountainCarParams) -> tuple[jax.Array, MountainCarState]:
        position = jax.random.uniform(key, (), jnp.float32, params.start[0], params.start[1])
        state = MountainCarState(position, jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))
        return observe(state), state

    def transition(
        self, key: jax.Array, state: MountainCarState, action: jax.Array, params: MountainCarParams
    ) -> Step[MountainCarState]:
        del key, params  # moves are deterministic
        force = jnp.clip(action[0], -1.0, 1.0)
        velocity = state.velocity + (force * POWER - GRAVITY * jnp.cos(3 * state.position))
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        terminated = (position >= GOAL_POSITION) & (velocity >= 0)
        moved = MountainCarState(position, velocity, state.time + 1)
        return Step(
            observation=observe(moved),
            state=moved,
            reward=jnp.where(terminated, 100.0, 0.0) - 0.1 * action[0] ** 2,
            terminated=terminated,
            truncated=(moved.time >= self.steps) & ~terminated,
            info={},
        )

    @property
    def cells(self) -> CellGrid:
        positions = np.linspace(MIN_POSITION, MAX_POSITION, CELLS + 1)[:-1]
        velocities = np.linspace(-MAX_SPEED, MAX_SPEED, CELLS + 1)[:-1]
        return CellGrid(
            panels=("velocity by position",),
            rows=tuple(f"{v:+.3f}" for v in velocities),
            columns=tuple(f"{p:+.2f}" for p in positions),
        )

    def cell(self, state: MountainCarState) -> jax.Array:
        column = (state.position - MIN_POSITION) / (MAX_POSITION - MIN_POSITION)
        row = (state.velocity + MAX_SPEED) / (2 * MAX_SPEED)
        row, column = (jnp.clip((x * CELLS).astype(jnp.int32), 0, CELLS - 1) for x in (row, column))
        return row * CELLS + column

    def render(self, params: MountainCarParams, state: MountainCarState) -> np.ndarray:
        """The valley with the car and its flag, uint8 [240, 480, 3]."""
        del params
        return draw_valley(float(state.position))

    def examples(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Observations [count, 2] and actions [count, 1], drawn uniformly from their spaces."""
        high = np.asarray([MAX_POSITION, MAX_SPEED])
        observations = rng.uniform((MIN_POSITION, -MAX_SPEED), high, (count, 2))
        return observations.astype(np.float32), rng.uniform(-1, 1, (count, 1)).astype(np.float32)


def draw_valley(position: float) -> np.ndarray:
    """A car at a position in the valley, drawn at twice the size and halved for smooth edges."""
    from pcpg.envs.drawing import AGENT, INK, PAPER, canvas

    width, height = 960, 480

    def place(x: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        across = (np.asarray(x) - MIN_POSITION) / (MAX_POSITION - MIN_POSITION)
        return 20 + across * (width - 40), height - 60 - (np.sin(3 * np.asarray(x)) + 1) * 150

    image, pen = canvas(width, height)
    xs, ys = place(np.linspace(MIN_POSITION, MAX_POSITION, 200))
    ground = list(zip(xs.tolist(), ys.tolist(), strict=True))
    pen.polygon([*ground, (width - 20, height), (20, height)], fill=PAPER)
    pen.line(ground, fill=INK, width=5)
    flag_x, flag_y = (float(part) for part in place(GOAL_POSITION))
    pen.line(((flag_x, flag_y), (flag_x, flag_y - 90)), fill=INK, width=5)
    pen.polygon(((flag_x, flag_y - 90), (flag_x + 46, flag_y - 74), (flag_x, flag_y - 58)), fill=(190, 40, 50))
    x, y = (float(part) for part in place(position))
    (x_0, x_1), (y_0, y_1) = place(np.array([position - 0.01, position + 0.01]))
    along = np.array([x_1 - x_0, y_1 - y_0]) / np.hypot(x_1 - x_0, y_1 - y_0)
    up = np.array([along[1], -along[0]])
    corners = [np.array([x, y]) + a * along + b * up for a, b in ((-36, 12), (36, 12), (30, 40), (-30, 40))]
    pen.polygon([(float(px), float(py)) for px, py in corners], fill=AGENT)
    for side in (-20, 20):
        wheel = np.array([x, y]) + side * along + 11 * up
        pen.ellipse((*(wheel - 12).tolist(), *(wheel + 12).tolist()), fill=INK)
    return np.asarray(image.resize((width // 2, height // 2)))


def observe(state: MountainCarState) -> jax.Array:
    """Position and velocity, float32 [2]."""
    return jnp.stack([state.position, state.velocity])
