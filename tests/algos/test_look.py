"""A look at an environment: what random play shows of it."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pcpg.algos.look import GRID, _good, _noise, by_action, lines, look  # pyright: ignore[reportPrivateUsage]
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


def test_an_entry_is_noise_where_its_steps_are_as_large_as_the_distance_of_any_two_of_its_values() -> None:
    """A walk that is pulled back by c has steps of squared size 2 c of its variance: noise from c = 0.8 on."""
    rng, alive = np.random.default_rng(0), np.ones((400, 20), bool)
    pulls = np.array([0.1, 0.5, 0.7, 0.9, 1.0])
    x = rng.normal(size=(20, 5))
    walks = []
    for _ in range(400):
        x = (1 - pulls) * x + np.sqrt(1 - (1 - pulls) ** 2) * rng.normal(size=x.shape)
        walks.append(np.concatenate([x, rng.integers(3, size=(20, 1))], axis=1))  # the last has few values
    assert _noise(make("MountainCarContinuous-v0"), np.array(walks), alive) == (3, 4)
    early = alive.copy()
    early[1:] = False
    assert _noise(make("MountainCarContinuous-v0"), np.array(walks), early) == ()


def test_the_share_of_the_reward_that_actions_explain_is_that_of_a_regression() -> None:
    rng = np.random.default_rng(0)
    actions, rest = rng.integers(3, size=500), rng.normal(size=500)
    rewards = np.array([0.0, 1.0, 5.0])[actions] + rest
    means = np.array([rewards[actions == a].mean() for a in range(3)])[actions]
    assert abs(by_action(actions, rewards) - np.var(means) / np.var(rewards)) < 1e-9
    real = rng.uniform(-2, 2, (500, 1))  # clipped to [-1, 1] as environments do
    assert by_action(real, 3 * np.clip(real[:, 0], -1, 1) ** 2 - 1) > 1 - 1e-9
    assert by_action(real, rest) < 0.05 and by_action(actions, np.ones(500)) == 1.0


def test_an_episode_is_good_where_it_earned_more_than_what_is_usual() -> None:
    alive, never = np.ones((3, 3), bool), np.zeros((3, 3), bool)
    rewards = np.array([[1.0, 1.0, -1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    assert _good(rewards, never, alive, 0.0) == 1 / 3  # 1 is usual, 2 is not
    assert _good(np.minimum(rewards, 1.0) - 1.0, never, alive, 0.0) == 0.0  # nothing above 0
    lasting = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]], bool)
    assert _good(np.ones((3, 3)), ~lasting, lasting, 1.0) == 2 / 3  # of constant pay, longer than the shortest
    assert _good(np.zeros((3, 3)), never, alive, 1.0) == 0.0
    assert (
        _good(np.random.default_rng(0).random((10, 3)) - 5, np.zeros((10, 3), bool), np.ones((10, 3), bool), 0.5) == 1.0
    )


def test_the_look_counts_actions_as_kept_data_do_by_default() -> None:
    assert KeepConfig().num_actions == GRID
