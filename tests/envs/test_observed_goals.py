"""Goals that observations name: found in a Dict, soon reached, and left alone where rewards are not theirs."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pcpg
from pcpg.algos import deep_learn
from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv

BOX = spaces.Box(-2.0, 2.0, (1,), np.float32)


class Line(gymnasium.Env):
    """A place on a line, and a goal somewhere; every step costs 1, but at the goal."""

    observation_space = spaces.Dict({"achieved_goal": BOX, "desired_goal": BOX, "observation": BOX})
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = np.zeros(1, "f4"), self.np_random.uniform(-1.5, 1.5, 1).astype("f4")
        return self._seen(), {}

    def step(self, action):
        self.place = np.clip(self.place + 0.15 * np.asarray(action, "f4"), -2, 2).astype("f4")
        return self._seen(), float(self.compute_reward(self.place, self.goal, {})), False, False, {}

    def compute_reward(self, achieved, desired, info):
        return np.asarray(np.linalg.norm(achieved - desired, axis=-1) < 0.1, np.float32) - 1

    def _seen(self):
        return {"observation": self.place, "achieved_goal": self.place, "desired_goal": self.goal}


class Ending(Line):
    def compute_terminated(self, achieved, desired, info):
        return bool(np.linalg.norm(achieved - desired) < 0.1)


class Alone(Line):
    def compute_reward(self, achieved, desired, info):
        return np.full(len(achieved), 0.0 if info["is_success"] else -1.0, np.float32)


def hosted(kind):
    return GymnasiumEnv(kind.__name__, kind, max_steps_wanted=20)


def test_goals_are_the_entries_of_their_names_and_the_reward_is_the_environments():
    found = hosted(Line).observed_goals
    assert (found.achieved, found.desired, found.ends) == (slice(0, 1), slice(1, 2), None)
    assert found.reward(np.float32([[0.0], [1.0]]), np.float32([[0.05], [0.0]])).tolist() == [0.0, -1.0]
    assert hosted(Ending).observed_goals.ends is True


def test_there_are_no_goals_where_the_reward_is_known_of_a_step_alone_or_nothing_names_them():
    assert hosted(Alone).observed_goals is None
    assert (
        GymnasiumEnv("MountainCarContinuous-v0", lambda: gymnasium.make("MountainCarContinuous-v0")).observed_goals
        is None
    )


class Bold(gymnasium.Wrapper):
    """Pays for moving, whatever the environment inside it pays."""

    def step(self, action):
        seen, _, terminated, truncated, info = self.env.step(action)
        return seen, float(np.abs(action).sum()), terminated, truncated, info


@pytest.mark.parametrize(("kind", "is_used"), [(Line, True), (lambda: Bold(Line()), False)])
def test_hindsight_is_used_only_where_rewards_are_those_of_the_goals(tmp_path, monkeypatch, kind, is_used):
    calls, own = [], deep_learn.relabelled
    monkeypatch.setattr(deep_learn, "relabelled", lambda *given: calls.append(1) or own(*given))
    small = {"learn": {"hidden": [8], "updates": 4.0}, "explore": {"updates": 1.0, "num_features": 16}}
    wanted = {"total_steps": 600, "max_steps": 20, "config": small, "out": tmp_path / "run"}
    pcpg.train(kind, "pcpg-deep", **wanted, quiet=True, progress=False)
    assert bool(calls) is is_used


def test_goals_that_are_new_at_every_reset_are_reached_after_few_steps(tmp_path):
    small = {"learn": {"hidden": [32, 32], "updates": 4.0}, "explore": {"updates": 2.0, "num_features": 64}}
    run = pcpg.train(
        Line,
        "pcpg-deep",
        total_steps=3_000,
        max_steps=30,
        config=small,
        out=tmp_path / "run",
        quiet=True,
        progress=False,
    )
    assert run.evaluate(30, greedy=True).mean_return[0] > -12, "random play gets about -27, the best possible is -6"
