"""A look at an environment: what random play shows of it."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pcpg.algos.look import GRID, _good, lines, look  # pyright: ignore[reportPrivateUsage]
from pcpg.envs import make
from pcpg.envs.adapters.names import register_function
from pcpg.kernel.views import KeepConfig


class Walk(gymnasium.Env[Any, Any]):
    """Five places in a row; the right end pays 2 and ends the episode. The last entry never changes."""

    observation_space = spaces.Box(-9.0, 9.0, (3,))
    action_space = spaces.Discrete(2)
    max_steps = 6

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.layout = 0, float(self.np_random.integers(1000))
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        return np.array([self.place, self.layout / 500, 7.0], np.float32)

    def step(self, action: Any) -> Any:
        self.place = max(self.place + (1 if action else -1), 0)
        done = self.place == 4
        return self.seen(), 2.0 * done, done, False, {}


def test_what_random_play_shows_is_measured() -> None:
    found = look(make(register_function(Walk)))
    assert found.episodes == 64 and found.max_steps == 6 and found.lengths[0] == 4 and found.lengths[2] == 6
    # Four of four moves to the right, or five of six with a single step back before the end, or one at the wall.
    assert 0.02 < found.ended_early < 0.4
    assert found.rewards == (0.0, 2.0) and found.returns[0] == 0.0 and found.returns[2] == 2.0 and found.is_paid
    assert found.rewarded_steps == round(found.returns[1] * 64 / 2) / found.env_steps
    assert found.kind == "vector" and found.constant == 1 and found.observed == (0.0, 7.0)
    assert found.differs_after_reset and found.first > 50
    first, second, third = lines("Walk", found)
    assert first.startswith("Walk: episodes of 4 to 6 (mean ") and "from 0 to 2; returns 0 to 2" in second
    assert "2 of 3 entries change, between 0 and 7" in third and "distinct first observations" in third


def test_a_maze_pays_nothing_and_starts_alike(cli: Callable[..., Any]) -> None:
    answer = cli("look", "Maze-v0", "--env.size", 5, "--env.steps", 20, "--json")
    assert answer.json["kind"] == "image" and answer.json["is_paid"] is False and answer.json["first"] == 1
    assert "every episode returned 0: random actions never found a reward" in answer.err.replace("\n", " ")
    assert cli("look", "Mase-v0").code == 2


def test_an_end_at_the_time_limit_is_nothing_good() -> None:
    rewards, alive = -np.ones((4, 2)), np.ones((4, 2), bool)
    terminated = np.zeros((4, 2), bool)
    terminated[-1] = True
    assert _good(rewards, terminated, alive, 1.0) == 0.0
    alive[2:, 0], terminated[1, 0], terminated[-1, 0] = False, True, False
    assert _good(rewards, terminated, alive, 1.0) == 0.5


def test_the_look_counts_actions_as_kept_data_do_by_default() -> None:
    assert KeepConfig().num_actions == GRID
