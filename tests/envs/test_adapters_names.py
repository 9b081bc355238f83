"""Environments of bsuite, MiniGrid and gymnax behind their names."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import pcpg
from pcpg.envs import Box, Discrete, check_environment
from pcpg.envs.adapters.from_dm_env import DmEnv, to_space
from pcpg.envs.adapters.names import outside_module
from pcpg.envs.options import InvalidOption
from pcpg.presets import suggested


def test_every_copy_of_deep_sea_has_the_same_treasure():
    pytest.importorskip("bsuite")
    env = pcpg.make("bsuite:deep_sea", size=5, num_envs=2)
    assert (env.max_steps, env.observation_space, env.action_space) == (5, Box(-np.inf, np.inf, (25,)), Discrete(2))
    first, second = env.players.envs
    np.testing.assert_array_equal(first.env._action_mapping, second.env._action_mapping)
    right = [int(first.env._action_mapping[i, i]) for i in range(5)]
    env.players.reset([0, 1])
    moved = [env.players.step(np.array([action, 1 - action]), np.ones(2, bool)) for action in right]
    assert moved[-1].terminated.all() and not moved[-1].truncated.any() and not moved[0].terminated.any()
    np.testing.assert_allclose(sum(step.rewards[0] for step in moved), 0.99)
    assert suggested(env, 0) == ("one-hot", {})


class Cut:
    """A dm_env environment that is cut, not ended, after two steps."""

    def observation_spec(self):
        dm_env = pytest.importorskip("dm_env")
        return {"x": dm_env.specs.BoundedArray((2,), np.float64, 0.0, [1.0, 3.0])}

    def action_spec(self):
        return pytest.importorskip("dm_env").specs.DiscreteArray(2)

    def reset(self):
        self.time = 0
        return pytest.importorskip("dm_env").restart({"x": np.zeros(2)})

    def step(self, action):
        dm_env = pytest.importorskip("dm_env")
        self.time += 1
        move = dm_env.truncation if self.time == 2 else dm_env.transition
        return move(reward=1.0, observation={"x": np.ones(2)}, discount=0.9)


def test_an_end_with_a_discount_is_a_truncation():
    pytest.importorskip("dm_env")
    env = DmEnv(Cut(), max_steps=2)
    space: Any = env.observation_space
    assert space["x"] == gymnasium.spaces.Box(np.zeros(2), np.array([1.0, 3.0]), (2,), np.float64)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_specs_without_numbers_are_refused():
    specs = pytest.importorskip("dm_env").specs
    with pytest.raises(ValueError, match="expected arrays of numbers"):
        to_space(specs.StringArray(()))


def test_minigrid_is_seen_as_codes_and_its_limit_is_found():
    pytest.importorskip("minigrid")
    env = pcpg.make("gymnasium:MiniGrid-DoorKey-6x6-v0", num_envs=1)
    assert env.max_steps == 360
    assert env.observation_space.shape == (4 + 7 * 7 * (11 + 6 + 4),)
    assert env.notices == ("ignoring the observation['mission']: it is text",)
    [seen] = env.players.reset([0])
    assert set(np.unique(seen)) == {0.0, 1.0} and seen.sum() == 1 + 7 * 7 * 3


def test_an_environment_of_gymnax_keeps_the_contract():
    pytest.importorskip("gymnax")
    check_environment(pcpg.make("gymnax:DeepSea-bsuite"))


@pytest.mark.parametrize(
    ("env_id", "package"),
    [
        ("gymnasium:ALE/Pong-v5", "ale_py"),
        ("gymnasium:dm_control/hopper-hop-v0", "shimmy"),
        ("gymnasium:PointMaze_Open-v3", "gymnasium_robotics"),
        ("gymnasium:FetchPush-v4", "gymnasium_robotics"),
        ("gymnasium:HandReach-v3", "gymnasium_robotics"),
        ("gymnasium:MiniGrid-DoorKey-6x6-v0", "minigrid"),
        ("bsuite:deep_sea/0", "bsuite"),
        ("gymnax:DeepSea-bsuite", "gymnax"),
    ],
)
def test_making_imports_what_trust_asks_about(
    env_id: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{package}.py").write_text("raise ImportError('imported from here')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package, raising=False)
    assert repr(package) in str(outside_module(env_id, {}))
    with pytest.raises(InvalidOption, match=f"^{package} is not installed .imported from here.: pip install"):
        pcpg.make(env_id)


def test_tasks_of_our_own_have_their_old_names_too() -> None:
    for module in ("pcpg.envs.adapters.own_tasks", "pcpg_lab.envs.own_tasks"):
        env_id = f"gymnasium:{module}:Stages-v0"
        assert "pcpg_lab.envs.own_tasks" in str(outside_module(env_id, {}))
        assert pcpg.make(env_id, num_envs=1).max_steps == 80
