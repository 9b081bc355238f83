"""Small mechanical worlds whose observations never repeat: a point mass in a box, an arm, a cart with a pole.

Actions in [-1, 1] push a position and a velocity, in float32 and without noise except in the start. The reward is a
function of the observation after the move, so data can be relabelled for another task. Random play does not meet it in
the first thousands of steps: these worlds need exploration.
"""

import abc
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import About, CellGrid, Described, Step
from pcpg.envs.spaces import Box, Image

CELLS = 20  # rows and columns of the grid of visits
GOALS = 2  # the stream of random numbers from which goals are drawn


class Target(NamedTuple):
    """The place of the reward."""

    place: np.ndarray | jax.Array  # float32
    radius: np.ndarray | jax.Array  # float32; below 0 where there is no reward


class Moving(NamedTuple):
    """Positions, velocities, and the number of moves."""

    position: jax.Array  # float32[k]
    velocity: jax.Array  # float32[k]
    time: jax.Array  # int32


@dataclasses.dataclass(frozen=True)
class Mechanical(Described[Target, Moving]):
    """Base of these worlds: episodes of `steps`, a reward computed from the observation, and a plane of cells."""

    steps: int = 200
    """Steps after which an episode is truncated."""
    ends_at_target = True

    def __post_init__(self) -> None:
        require_int("steps", self.steps, minimum=1)

    @abc.abstractmethod
    def start(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The first position and velocity."""

    @abc.abstractmethod
    def move(self, position: jax.Array, velocity: jax.Array, push: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Position and velocity after a push in [-1, 1]."""

    @abc.abstractmethod
    def seen(self, position: jax.Array, velocity: jax.Array) -> jax.Array:
        """The observed vector."""

    @abc.abstractmethod
    def at_target(self, target: Target, seen: Any) -> jax.Array:
        """Whether an observation earns reward, [..., size of an observation] -> [...]."""

    @abc.abstractmethod
    def plane(self, position: jax.Array, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Two numbers in [-1, 1] that summarise the position, for pictures."""

    def observe(self, state: Moving) -> jax.Array:
        """The observation of a state."""
        return self.seen(state.position, state.velocity)

    def reset(self, key: jax.Array, params: Target) -> tuple[jax.Array, Moving]:
        del params
        state = Moving(*self.start(key), jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def transition(self, key: jax.Array, state: Moving, action: jax.Array, params: Target) -> Step[Moving]:
        del key  # moves are deterministic
        position, velocity = self.move(state.position, state.velocity, jnp.clip(action, -1.0, 1.0))
        moved = Moving(position, velocity, state.time + 1)
        paid = self.at_target(params, self.seen(position, velocity))
        terminated = paid & self.ends_at_target
        truncated = (moved.time >= self.max_steps) & ~terminated
        return Step(self.observe(moved), moved, paid.astype(jnp.float32), terminated, truncated, {})

    def rewards_of(
        self, params: Target, observations: np.ndarray, actions: np.ndarray, next_observations: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        del observations, actions
        if isinstance(self.observation_space, Image):
            return None
        paid = np.asarray(self.at_target(params, next_observations))
        return paid.astype(np.float32), paid & self.ends_at_target

    @property
    def cells(self) -> CellGrid:
        names = tuple(f"{value:+.1f}" for value in np.linspace(-1, 1, CELLS + 1)[:-1])
        return CellGrid(panels=("plane",), rows=names, columns=names)

    def cell(self, state: Moving) -> jax.Array:
        places = [((x + 1) / 2 * CELLS).astype(jnp.int32) for x in self.plane(state.position, state.velocity)]
        column, row = (jnp.clip(place, 0, CELLS - 1) for place in places)
        return row * CELLS + column


# A point mass in a box.

GAP = 0.6  # the wall at 0 on the first axis is open where the second is above this
CORNER, REACH, GOAL_REACH = 0.8, 0.2, 0.15  # distance of start and target from the middle; radius of targets
PUSH, DRAG = 0.004, 0.9  # a steady push crosses the box in fifty steps
TOP_SPEED = PUSH / (1 - DRAG)
PIXELS = 48


@dataclasses.dataclass(frozen=True)
class PointMass(Mechanical):
    """A point mass in a box with a wall: reward 1 in the far corner, which ends the episode."""

    axes: int = 2
    """Dimensions of the box; an observation has two numbers for each."""
    picture: bool = False
    """Whether an observation is a picture of 48 x 48: the mass now, the mass a step before, the wall."""
    reward: bool = dataclasses.field(default=True, compare=False)
    """Whether the far corner pays; without it the box is reward-free."""
    goals: int = dataclasses.field(default=0, compare=False)
    """Number of goals spread over the box: seed s is box s // goals with goal number s % goals."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int("axes", self.axes, minimum=2, maximum=16)
        require_int("goals", self.goals, minimum=0)
        if self.picture and self.axes != 2:
            raise ValueError(f"a picture shows 2 axes, got axes={self.axes}")

    @property
    def about(self) -> About:
        seen = Image(PIXELS, PIXELS, 3) if self.picture else Box(-1.0, 1.0, (2 * self.axes,))
        return About(seen, Box(-1.0, 1.0, (self.axes,)), self.steps, self.goals or 1)

    @property
    def is_reward_free(self) -> bool:
        return not self.reward and not self.goals

    def instance(self, seed: int) -> Target:
        """The far corner: across the wall, at the bottom; or one of the goals."""
        if self.goals:
            rng, near = np.random.default_rng([self.dynamics_seed(seed), GOALS]), np.full(self.axes, -CORNER)
            drawn = rng.uniform(-0.9, 0.9, (64 * self.goals, self.axes))
            far = drawn[np.abs(drawn - near).max(axis=1) > 0.5][: self.goals]
            return Target(far[seed % self.goals].astype(np.float32), np.array(GOAL_REACH, np.float32))
        place = np.full(self.axes, -CORNER, np.float32)
        place[0] = CORNER
        return Target(place, np.array(REACH if self.reward else -1.0, np.float32))

    def start(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        position = jax.random.uniform(key, (self.axes,), jnp.float32, -CORNER - 0.05, -CORNER + 0.05)
        return position, jnp.zeros(self.axes, jnp.float32)

    def move(self, position: jax.Array, velocity: jax.Array, push: jax.Array) -> tuple[jax.Array, jax.Array]:
        velocity = DRAG * velocity + PUSH * push
        moved = position + velocity
        is_wall = ((position[0] < 0) != (moved[0] < 0)) & (position[1] < GAP)
        stopped = (jnp.arange(self.axes) == 0) & is_wall
        moved = jnp.where(stopped, position, moved)
        return jnp.clip(moved, -1.0, 1.0), jnp.where(stopped | (jnp.abs(moved) > 1.0), 0.0, velocity)

    def seen(self, position: jax.Array, velocity: jax.Array) -> jax.Array:
        return jnp.concatenate([position, velocity / TOP_SPEED])

    def observe(self, state: Moving) -> jax.Array:
        if not self.picture:
            return super().observe(state)
        here = jnp.linspace(-1.0, 1.0, PIXELS)
        discs = []
        for x, y in (state.position, state.position - state.velocity):
            distance = jnp.hypot(here[None] - x, -here[:, None] - y)
            discs.append(jnp.clip(1.5 - distance / 0.08, 0.0, 1.0))
        wall = (jnp.abs(here[None]) < 0.03) & (-here[:, None] < GAP)
        return (255 * jnp.stack([*discs, wall.astype(jnp.float32)], axis=-1)).astype(jnp.uint8)

    def at_target(self, target: Target, seen: Any) -> jax.Array:
        return jnp.max(jnp.abs(seen[..., : self.axes] - target.place), axis=-1) < target.radius

    def plane(self, position: jax.Array, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
        return position[0], position[1]


# An arm.

LINKS = 5
TWIST, FRICTION = 0.01, 0.9


@dataclasses.dataclass(frozen=True)
class Arm(Mechanical):
    """An arm of five links: reward 1 with its tip at a place behind it, which ends the episode."""

    @property
    def about(self) -> About:
        return About(Box(-1.0, 1.0, (3 * LINKS,)), Box(-1.0, 1.0, (LINKS,)), self.steps)

    def instance(self, seed: int) -> Target:
        """The same for every seed."""
        del seed
        return Target(np.array([-0.7, 0.0], np.float32), np.array(0.1, np.float32))

    def start(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.random.uniform(key, (LINKS,), jnp.float32, -0.05, 0.05), jnp.zeros(LINKS, jnp.float32)

    def move(self, position: jax.Array, velocity: jax.Array, push: jax.Array) -> tuple[jax.Array, jax.Array]:
        velocity = FRICTION * velocity + TWIST * push
        return position + velocity, velocity

    def seen(self, position: jax.Array, velocity: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.cos(position), jnp.sin(position), velocity * (1 - FRICTION) / TWIST])

    def at_target(self, target: Target, seen: Any) -> jax.Array:
        angles = jnp.cumsum(jnp.arctan2(seen[..., LINKS : 2 * LINKS], seen[..., :LINKS]), axis=-1)
        return jnp.linalg.norm(_tip(angles) - target.place, axis=-1) < target.radius

    def plane(self, position: jax.Array, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, y = _tip(jnp.cumsum(position))
        return x, y


def _tip(angles: Any) -> jax.Array:
    """The place of the tip from the direction of each link."""
    return jnp.stack([jnp.cos(angles).mean(axis=-1), jnp.sin(angles).mean(axis=-1)], axis=-1)


# A cart with a pole.

TRACK = 2.4
TICK, GRAVITY, CART, POLE, HALF_LENGTH, FORCE = 0.02, 9.8, 1.0, 0.1, 0.5, 10.0
UPRIGHT = 0.95  # cosine


@dataclasses.dataclass(frozen=True)
class SwingUp(Mechanical):
    """A pole that hangs from a cart: reward 1 for each step in which it is upright and the cart in the middle."""

    steps: int = 500
    """Steps of an episode."""
    ends_at_target = False

    @property
    def about(self) -> About:
        return About(Box(-10.0, 10.0, (5,)), Box(-1.0, 1.0, (1,)), self.steps)

    def instance(self, seed: int) -> Target:
        """The same for every seed."""
        del seed
        return Target(np.zeros(1, np.float32), np.array(0.5, np.float32))

    def start(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        place = jax.random.uniform(key, (2,), jnp.float32, -0.05, 0.05)
        return place + jnp.array([0.0, jnp.pi], jnp.float32), jnp.zeros(2, jnp.float32)

    def move(self, position: jax.Array, velocity: jax.Array, push: jax.Array) -> tuple[jax.Array, jax.Array]:
        angle, spin = position[1], velocity[1]
        sine, cosine, mass = jnp.sin(angle), jnp.cos(angle), CART + POLE
        pulled = (FORCE * push[0] + POLE * HALF_LENGTH * spin**2 * sine) / mass
        turned = (GRAVITY * sine - cosine * pulled) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / mass))
        pushed = pulled - POLE * HALF_LENGTH * turned * cosine / mass
        velocity = jnp.clip(velocity + TICK * jnp.stack([pushed, turned]), -10.0, 10.0)
        moved = position + TICK * velocity
        is_outside = (jnp.arange(2) == 0) & (jnp.abs(moved) > TRACK)
        return jnp.where(is_outside, jnp.sign(moved) * TRACK, moved), jnp.where(is_outside, 0.0, velocity)

    def seen(self, position: jax.Array, velocity: jax.Array) -> jax.Array:
        (place, angle), (speed, spin) = position, velocity
        return jnp.stack([place, jnp.cos(angle), jnp.sin(angle), speed, spin])

    def at_target(self, target: Target, seen: Any) -> jax.Array:
        return (seen[..., 1] > UPRIGHT) & (jnp.abs(seen[..., 0] - target.place[0]) < target.radius)

    def plane(self, position: jax.Array, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
        angle = jnp.arctan2(jnp.sin(position[1]), jnp.cos(position[1]))
        return angle / jnp.pi, velocity[1] / 10.0
