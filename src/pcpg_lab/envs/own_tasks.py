"""Two environments of our own for `pcpg reproduce environments`, as a user would write them for Gymnasium.

gymnasium:pcpg_lab.envs.own_tasks:Stages-v0      one room, three stages, a reward at the end; Dict, with noise
gymnasium:pcpg_lab.envs.own_tasks:NewMaze-v0     a maze that is another one after every reset
"""

import gymnasium
import numpy as np
from gymnasium import spaces

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class Stages(gymnasium.Env):
    """Fetch a key in one corner of a room, open a chest in the next, leave by a third: then the reward, 1."""

    size, max_steps = 8, 80
    goals = ((7, 0), (0, 7), (7, 7))
    action_space = spaces.Discrete(4)
    observation_space = spaces.Dict(
        {
            "place": spaces.Box(0.0, 1.0, (2,), np.float32),
            "stage": spaces.Discrete(3),
            "noise": spaces.Box(-1.0, 1.0, (3,), np.float32),
        }
    )

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self.place, self.stage = np.zeros(2, int), 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[object, float, bool, bool, dict[str, object]]:
        self.place = np.clip(self.place + MOVES[int(action)], 0, self.size - 1)
        self.stage += tuple(self.place) == self.goals[self.stage]
        done = self.stage == len(self.goals)
        return self._seen(), float(done), bool(done), False, {}

    def _seen(self) -> dict[str, object]:
        noise = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        place = (self.place / (self.size - 1)).astype(np.float32)
        return {"place": place, "stage": min(self.stage, 2), "noise": noise}


class NewMaze(gymnasium.Env):
    """From one corner to the other of a new maze at every reset, fully observed. Reward 1 at the end."""

    size, max_steps = 7, 150
    action_space = spaces.Discrete(4)
    observation_space = spaces.Box(0.0, 1.0, (3, size, size), np.float32)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self.open, self.place = self._drawn(), (0, 0)
        return self._seen(), {}

    def step(self, action: int) -> tuple[object, float, bool, bool, dict[str, object]]:
        row, column = np.array(self.place) + MOVES[int(action)]
        if 0 <= row < self.size and 0 <= column < self.size and self.open[row, column]:
            self.place = int(row), int(column)
        done = self.place == (self.size - 1, self.size - 1)
        return self._seen(), float(done), done, False, {}

    def _drawn(self) -> np.ndarray:
        """Open cells: a random spanning tree over every second cell, by depth-first search."""
        is_open, path = np.zeros((self.size, self.size), bool), [(0, 0)]
        is_open[0, 0] = True
        while path:
            near = [(move, np.array(path[-1]) + 2 * move) for move in MOVES]
            fresh = [(m, (int(r), int(c))) for m, (r, c) in near if min(r, c) >= 0 and max(r, c) < self.size]
            fresh = [(move, cell) for move, cell in fresh if not is_open[cell]]
            if not fresh:
                path.pop()
                continue
            move, cell = fresh[self.np_random.integers(len(fresh))]
            is_open[tuple(np.array(path[-1]) + move)] = is_open[cell] = True
            path.append(cell)
        return is_open

    def _seen(self) -> np.ndarray:
        seen = np.zeros((3, self.size, self.size), np.float32)
        seen[0], seen[1][self.place], seen[2, -1, -1] = self.open, 1.0, 1.0
        return seen


for name, kind in (("Stages-v0", Stages), ("NewMaze-v0", NewMaze)):
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=f"{__name__}:{kind.__name__}", max_episode_steps=kind.max_steps)
