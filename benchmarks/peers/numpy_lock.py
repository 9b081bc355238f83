"""The combination lock as a plain Gymnasium environment, made as cheap per step as Python allows.

The peers step this one, so that their rate is their own and not the cost of crossing into JAX.
States are integers: 0 is the start; (level, lock, place) follow, with places 0 and 1 good and 2 dead.
"""

import random
from typing import Any, ClassVar

import gymnasium
import numpy as np

NUM_ACTIONS = 10
NUM_PLACES = 3
DEAD = 2


def state_index(level: int, lock: int, place: int) -> int:
    """Index of the state at `level` (1 .. horizon + 1); the start is 0."""
    return 1 + ((level - 1) * 2 + lock) * NUM_PLACES + place


def observation_table(horizon: int) -> np.ndarray:
    """One observation per state: one-hots of place, level and lock; zero at the start and at the end."""
    table = np.zeros((1 + (horizon + 1) * 2 * NUM_PLACES, NUM_PLACES + horizon + 2), np.float32)
    for level in range(1, horizon + 1):
        for lock in range(2):
            for place in range(NUM_PLACES):
                hot = [place, NUM_PLACES + level - 1, NUM_PLACES + horizon + lock]
                table[state_index(level, lock, place), hot] = 1.0
    table.flags.writeable = False
    return table


class NumpyLock(gymnasium.Env[np.ndarray, int]):
    """Two locks of `horizon` levels behind a start state; one pays 5 at its end, the other 2."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, horizon: int = 10, instance_seed: int = 0) -> None:
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        instance = np.random.default_rng(instance_seed)
        self.horizon = horizon
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (NUM_PLACES + horizon + 2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        # combination[lock][place][level - 1] is the one action that leads on; drawn as the library draws it.
        self.combination: list = instance.integers(NUM_ACTIONS, size=(2, 2, horizon), dtype=np.int32).tolist()
        self.prizes: list[float] = instance.permutation(np.array([5.0, 2.0], np.float32)).tolist()
        self._observations = list(observation_table(horizon))
        self._random = random.Random(instance_seed)
        self._level = self._lock = self._place = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Back to the start: the zero observation."""
        if seed is not None:
            super().reset(seed=seed)
            self._random = random.Random(seed)
        self._level = self._lock = self._place = 0
        return self._observations[0].copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One decision; the episode terminates after `horizon + 1` of them."""
        level, reward = self._level, 0.0
        if level == 0:
            self._lock = 0 if action < NUM_ACTIONS // 2 else 1
            opened = True
        else:
            place = self._place
            opened = place != DEAD and action == self.combination[self._lock][place][level - 1]
        if not opened:
            self._place = DEAD
        else:
            self._place = self._random.getrandbits(1)
            reward = -1.0 / self.horizon if level < self.horizon else self.prizes[self._lock]
        self._level = level + 1
        state = state_index(self._level, self._lock, self._place)
        return self._observations[state].copy(), reward, level == self.horizon, False, {}
