"""The environment protocol: pure functions of a key, a state, an action and the instance's parameters.

An environment is a frozen (hashable) dataclass of its options, so compiled programs can take it as a
constant. The random parts of an instance (the combination of a lock, the walls of a maze) are a pytree of arrays,
`params`, created outside the compiled program by `instance(seed)`.

    params            = env.instance(seed)
    observation, state = env.reset(key, params)
    step              = env.step(key, state, action, params)

`transition` moves once and never resets; `step` is `transition` followed by a reset where the episode ended,
and keeps the true last observation in `info["final_observation"]`. `terminated` (the task ended) and
`truncated` (a time limit) are never merged. `check_environment` checks all of this on any environment.
"""

import abc
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Space

Params = TypeVar("Params")
State = TypeVar("State")


class Step(NamedTuple, Generic[State]):
    """The result of one step of the environment."""

    observation: jax.Array
    state: State
    reward: jax.Array  # float32 scalar
    terminated: jax.Array  # bool scalar
    truncated: jax.Array  # bool scalar
    info: dict[str, jax.Array]


class CellGrid(NamedTuple):
    """The layout of an environment's cells in pictures of visits: panels of rows x columns."""

    panels: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.panels), len(self.rows), len(self.columns)

    @property
    def size(self) -> int:
        panels, rows, columns = self.shape
        return panels * rows * columns


class Goals(NamedTuple):
    """Goals that are part of the observation: any place that was reached could have been the goal."""

    achieved: slice  # entries of the observation that say what is reached
    desired: slice  # entries that hold the goal
    reward: Callable[[np.ndarray, np.ndarray], np.ndarray]  # of achieved and desired [n, k]
    ends: bool | None  # whether an episode ends at its goal; None: unknown


class Environment(abc.ABC, Generic[Params, State]):
    """Base of the functional environments; subclasses are frozen dataclasses."""

    @property
    @abc.abstractmethod
    def observation_space(self) -> Space: ...

    @property
    @abc.abstractmethod
    def action_space(self) -> Space: ...

    @property
    @abc.abstractmethod
    def max_steps(self) -> int:
        """The maximum number of steps in an episode."""

    @abc.abstractmethod
    def instance(self, seed: int) -> Params:
        """The arrays of the instance with this seed, drawn on the host with NumPy."""

    @property
    def tasks(self) -> int:
        """The number of instances that differ only in reward: seed s is task s % tasks of dynamics s // tasks."""
        return 1

    def dynamics_seed(self, seed: int) -> int:
        """The seed with the same dynamics and a single task, whose cover serves this one."""
        return seed // self.tasks

    @abc.abstractmethod
    def reset(self, key: jax.Array, params: Params) -> tuple[jax.Array, State]:
        """Start an episode; returns the first observation and state."""

    @abc.abstractmethod
    def transition(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> Step[State]:
        """Move once, without a reset; `observation` belongs to the new state, even the final one."""

    def step(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> Step[State]:
        """Move once and reset if the episode ended; `info["final_observation"]` is the true last one.

        The key is split in two: the first half moves, the second resets, so a step can be repeated by hand.
        """
        key_move, key_reset = jax.random.split(key)
        moved = self.transition(key_move, state, action, params)
        first_observation, first_state = self.reset(key_reset, params)
        done = moved.terminated | moved.truncated
        new_state = jax.tree.map(lambda a, b: jnp.where(done, a, b), first_state, moved.state)
        observation = jnp.where(done, first_observation, moved.observation)
        info = moved.info | {"final_observation": moved.observation}
        return moved._replace(observation=observation, state=new_state, info=info)

    # Optional: which cell of a grid a state lies in. Used to count and draw visits, never to learn.

    @property
    def cells(self) -> CellGrid | None:
        """The grid in which visits are counted and drawn, or None."""
        return None

    def cell(self, state: State) -> jax.Array:
        """Index of the state's cell in the flattened grid (int32), or -1 for a state outside it.

        Visits with -1 are not counted: a start outside the grid, or the state after the last decision.
        Only where `cells` is not None.
        """
        raise TypeError(f"{type(self).__name__} has no cells")

    # Optional: all observations, where they are few and functions of the state. For speed (practice/tabulated.py).

    def observation_table(self, params: Params) -> jax.Array | np.ndarray | None:
        """All observations of an instance, [number of states, ...], in the order of `state_index`; or None."""
        del params
        return None

    def state_observations(self, params: Params) -> jax.Array | np.ndarray | None:
        """All observations by the number of the state, as in `observation_table`; None if they cannot be listed.

        Used by algorithms that keep their data; others use the table alone.
        """
        return self.observation_table(params)

    def rewards_of(
        self, params: Params, observations: np.ndarray, actions: np.ndarray, next_observations: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Rewards of transitions recorded under another reward, and whether they end an episode (None: unchanged).

        None if observations do not determine the reward. Used by algorithms that keep their data.
        """
        del params, observations, actions, next_observations
        return None

    def state_index(self, state: State) -> jax.Array:
        """The number of a state, int32. Only with a table of observations or an exact model."""
        raise TypeError(f"{type(self).__name__} does not number its states")

    @property
    def num_cells(self) -> int:
        """The number of cells; 0 if visits are not counted."""
        return 0 if self.cells is None else self.cells.size

    def possible_cells(self, params: Params) -> np.ndarray:
        """The subset of `reachable_cells` that some policy can visit, if known to be smaller."""
        return self.reachable_cells(params)

    def reachable_cells(self, params: Params) -> np.ndarray:
        """Which cells count for coverage, bool [num_cells]: all of them, unless the instance closes some."""
        del params
        return np.ones(self.num_cells, bool)

    # Optional: a picture for people.

    @property
    def can_render(self) -> bool:
        """Whether states can be drawn."""
        return self.cells is not None or type(self).render is not Environment.render

    def render(self, params: Params, state: State) -> np.ndarray:
        """A picture of a state, uint8 [height, width, 3]: by default, its place among the cells."""
        from pcpg.envs.drawing import draw_cells

        if self.cells is None:
            raise TypeError(f"{type(self).__name__} cannot draw its states")
        return draw_cells(self.cells, self.reachable_cells(params), int(self.cell(state)))

    @property
    def evaluation_env(self) -> "Environment[Params, State]":
        """The environment on which a finished policy is evaluated: this one, unless training shortens its episodes."""
        return self

    @property
    def is_reward_free(self) -> bool:
        """Whether no episode can earn reward, so that only exploration remains."""
        return False

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user: ignored parts and assumptions."""
        return ()

    def close(self) -> None:
        """Release what it holds: processes, where it is stepped on the host."""

    @property
    def observed_goals(self) -> Goals | None:
        """Its goals, if the observation names one and the reward is known for any other."""
        return None

    @property
    def solved_return(self) -> float | None:
        """The mean return above which the task counts as solved, if defined."""
        return None


ModelParams = TypeVar("ModelParams", contravariant=True)
ModelState = TypeVar("ModelState", contravariant=True)


class About(NamedTuple):
    """The spaces and sizes of an environment."""

    observation_space: Space
    action_space: Space
    max_steps: int
    tasks: int = 1
    cells: CellGrid | None = None


class Described(Environment[Params, State]):
    """An environment whose spaces and sizes come from one object."""

    @property
    @abc.abstractmethod
    def about(self) -> Any:
        """The object with the spaces and sizes, such as `About`."""

    @property
    def observation_space(self) -> Space:
        return self.about.observation_space

    @property
    def action_space(self) -> Space:
        return self.about.action_space

    @property
    def max_steps(self) -> int:
        return self.about.max_steps

    @property
    def tasks(self) -> int:
        return self.about.tasks

    @property
    def cells(self) -> CellGrid | None:
        return self.about.cells


class TabularModel(NamedTuple):
    """A finite model with S states and A actions."""

    transitions: np.ndarray  # float64[S, A, S], probability of the next state
    rewards: np.ndarray  # float64[S, A], expected reward of the decision
    terminal: np.ndarray  # bool[S], absorbing and without reward
    start: int
    observations: np.ndarray  # float64[S, observation size]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of states and actions."""
        return self.rewards.shape[0], self.rewards.shape[1]


@runtime_checkable
class Tabular(Protocol[ModelParams, ModelState]):
    """The additional protocol of environments whose states can be enumerated."""

    def tabular(self, params: ModelParams) -> TabularModel:
        """The exact model of the instance."""
        ...

    def state_index(self, state: ModelState) -> jax.Array:
        """The number of a state in the model (int32)."""
        ...

    def all_states(self) -> Any:
        """The states of the model in their order, stacked along a leading axis."""
        ...
