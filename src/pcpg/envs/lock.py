"""The bidirectional diabolical combination lock of the PC-PG paper.

An episode has H + 1 decisions. The first, at s0, chooses a lock (actions 0-4: lock 0, actions 5-9: lock 1)
and enters one of the two good states of its level 1. At a good state of level h one action of the ten leads
on to a good state of level h + 1, the nine others to the dead state, which leads to dead states until the
end. Every arrival in a good state, by a fair coin one or the other, costs 1/H; the right action at level H
opens the lock and pays 5 in one of the locks and 2 in the other. So the best return is 4, the lesser lock
gives 1, dying at once -1/H, and uniform play opens a lock with probability 10^-H.

States are numbered: 0 is s0, then 1 + (lock * 3 + kind) * H + (level - 1), and 6 H + 1 is the end.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.options import require_int
from pcpg.envs.protocol import About, CellGrid, Described, Step, TabularModel
from pcpg.envs.spaces import Box, Discrete

NUM_ACTIONS = 10
DEAD = 2  # the kinds of state: 0 and 1 are good


class LockParams(NamedTuple):
    """What is drawn once per instance."""

    good_action: np.ndarray | jax.Array  # int32[2 locks, 2 good states, H levels]
    final_reward: np.ndarray | jax.Array  # float32[2 locks]


class LockState(NamedTuple):
    """Where the episode is."""

    lock: jax.Array  # int32: 0, 1
    kind: jax.Array  # int32: 0, 1 good, 2 dead
    level: jax.Array  # int32: 0 at s0, 1 .. H, H + 1 after the last decision


@dataclasses.dataclass(frozen=True)
class CombinationLock(Described[LockParams, LockState]):
    """Two locks of `horizon` levels, of which one pays 5 and the other 2."""

    horizon: int = 10
    """Levels of each lock; an episode takes one more step."""

    def __post_init__(self) -> None:
        require_int("horizon", self.horizon, minimum=1, maximum=10_000)

    @property
    def about(self) -> About:
        return About(Box(0.0, 1.0, (3 + self.horizon + 2,)), Discrete(NUM_ACTIONS), self.horizon + 1)

    @property
    def solved_return(self) -> float:
        """The paper's success: well above the lesser lock's 1, near the best 4."""
        return 3.5

    def instance(self, seed: int) -> LockParams:
        """The right actions, uniform and independent, and the lock that pays 5, by a fair coin."""
        rng = np.random.default_rng(seed)
        good_action = rng.integers(NUM_ACTIONS, size=(2, 2, self.horizon), dtype=np.int32)
        final_reward = rng.permutation(np.array([5.0, 2.0], np.float32))
        return LockParams(good_action, final_reward)

    def reset(self, key: jax.Array, params: LockParams) -> tuple[jax.Array, LockState]:
        """s0, whose observation is zero."""
        del key, params
        zero = jnp.zeros((), jnp.int32)
        state = LockState(zero, zero, zero)
        return jnp.zeros(self.observation_space.shape, jnp.float32), state

    def transition(self, key: jax.Array, state: LockState, action: jax.Array, params: LockParams) -> Step[LockState]:
        """One decision; the last one of the episode terminates it."""
        at_start = state.level == 0
        right = at_start | (action == self._good_action(state, params))
        # One random bit per move: which of the two good states.
        coin = (jax.random.bits(key, (), jnp.uint32) & 1).astype(jnp.int32)
        new_state = LockState(
            lock=jnp.where(at_start, (action >= NUM_ACTIONS // 2).astype(jnp.int32), state.lock),
            kind=jnp.where(right, coin, DEAD),
            level=state.level + 1,
        )
        terminated = new_state.level > self.horizon
        gain = jnp.where(terminated, jnp.asarray(params.final_reward)[state.lock], -1.0 / self.horizon)
        reward = jnp.where(right, gain, 0.0)
        return Step(self._observe(new_state), new_state, reward, terminated, jnp.array(False), {})

    def _good_action(self, state: LockState, params: LockParams) -> jax.Array:
        """The action that leads on, or -1 at a dead state; without meaning at s0 and after the end."""
        index = (state.lock * 2 + state.kind) * self.horizon + state.level - 1
        good_action = jnp.take(jnp.asarray(params.good_action), index, mode="clip")  # of the flattened table
        return jnp.where(state.kind == DEAD, -1, good_action)

    def _observe(self, state: LockState) -> jax.Array:
        """One-hot of kind, level and lock in a row; zero at s0 and after the last decision."""
        kind, level, lock = (part[..., None] for part in (state.kind, state.level, state.lock))
        place = jnp.arange(3 + self.horizon + 2, dtype=jnp.int32)
        ones = (place == kind) | (place == 2 + level) | (place == 3 + self.horizon + lock)
        inside = (level >= 1) & (level <= self.horizon)
        return (ones & inside).astype(jnp.float32)

    @property
    def cells(self) -> CellGrid:
        levels = tuple(str(level) for level in range(1, self.horizon + 1))
        return CellGrid(("lock 0", "lock 1"), ("good 1", "good 2", "dead"), levels)

    def cell(self, state: LockState) -> jax.Array:
        """The cell of lock, kind and level; -1 at s0 and after the last decision."""
        inside = (state.level >= 1) & (state.level <= self.horizon)
        return jnp.where(inside, (state.lock * 3 + state.kind) * self.horizon + state.level - 1, -1)

    def possible_cells(self, params: LockParams) -> np.ndarray:
        """All but the dead state of the first level of each lock: the first decision cannot be wrong."""
        del params
        cells = np.ones((2, 3, self.horizon), bool)
        cells[:, DEAD, 0] = False
        return cells.reshape(-1)

    def render(self, params: LockParams, state: LockState) -> np.ndarray:
        """Both locks, good states green and dead ones grey, and what a lock pays."""
        from pcpg.envs.drawing import draw_cells

        pays = [f"lock {lock} pays {float(reward):g}" for lock, reward in enumerate(np.asarray(params.final_reward))]
        level, is_dead = int(state.level), int(state.kind) == DEAD
        where = "start" if level == 0 else f"level {level}" if level <= self.horizon else "dead" if is_dead else "open"
        tints = ((205, 232, 210), (190, 224, 198), (214, 216, 219))
        grid = self.cells._replace(panels=(pays[0], pays[1]))
        return draw_cells(grid, np.ones(grid.size, bool), int(self.cell(state)), tints=tints, note=where)

    def state_index(self, state: LockState) -> jax.Array:
        """The number of a state: s0 is 0, a state with a cell comes after its cell, the end is last."""
        return jnp.where(state.level > self.horizon, 6 * self.horizon + 1, self.cell(state) + 1)

    def state_observations(self, params: LockParams) -> np.ndarray:
        del params  # the same in every instance
        return np.asarray(self._observe(self.all_states()))

    def all_states(self) -> LockState:
        """All 6 H + 2 states in their order; the end is written as a dead state of level H + 1."""
        lock, kind, level = np.indices((2, 3, self.horizon), np.int32).reshape(3, -1)
        first, last = np.zeros((3, 1), np.int32), np.array([[0], [DEAD], [self.horizon + 1]], np.int32)
        numbers = np.concatenate([first, np.stack([lock, kind, level + 1]), last], axis=1)
        return LockState(*map(jnp.asarray, numbers))

    def tabular(self, params: LockParams) -> TabularModel:
        """The exact model of the instance, in the numbering of the module."""
        num_states, end = 6 * self.horizon + 2, 6 * self.horizon + 1
        transitions = np.zeros((num_states, NUM_ACTIONS, num_states))
        rewards = np.zeros((num_states, NUM_ACTIONS))
        step_cost = -1.0 / self.horizon

        def number(lock: int, kind: int, level: int) -> int:
            return end if level > self.horizon else 1 + (lock * 3 + kind) * self.horizon + level - 1

        def lead_on(state: int, action: int, lock: int, level: int, reward: float) -> None:
            transitions[state, action] = 0.0
            for kind in (0, 1):  # the end is the successor of both coins at level H
                transitions[state, action, number(lock, kind, level)] += 0.5
            rewards[state, action] = reward

        for action in range(NUM_ACTIONS):
            lead_on(0, action, action // (NUM_ACTIONS // 2), 1, step_cost)
        for lock, kind, level in np.ndindex(2, 3, self.horizon):
            state = number(lock, kind, level + 1)
            transitions[state, :, number(lock, DEAD, level + 2)] = 1.0
            if kind != DEAD:
                final = level + 1 == self.horizon
                reward = float(params.final_reward[lock]) if final else step_cost
                lead_on(state, int(params.good_action[lock, kind, level]), lock, level + 2, reward)
        transitions[end, :, end] = 1.0
        terminal = np.arange(num_states) == end
        observations = np.asarray(self._observe(self.all_states()), np.float64)
        return TabularModel(transitions, rewards, terminal, 0, observations)
