"""Environments of the extras, by name alone; where an extra is not installed, its test is skipped."""

import math
from typing import Any

import pytest

import pcpg
from pcpg.algos.auto import look_and_choose
from pcpg.envs.spaces import Box, Discrete

SMALL = {"learn": {"hidden": [8], "batch": 8, "updates": 1.0}, "explore": {"num_features": 8, "updates": 1.0}}
CASES = {
    "gymnasium:dm_control/cartpole-swingup_sparse-v0": ("dm_control", 5, 1000, "pcpg-deep"),
    "gymnasium:PointMaze_UMaze-v3": ("gymnasium_robotics", 8, 300, None),
    "gymnasium:FetchReach-v4": ("gymnasium_robotics", 16, 50, "pcpg-deep"),
    "gymnasium:ALE/Freeway-v5": ("ale_py", 210 * 160 * 3, None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_an_environment_of_an_extra_is_looked_at_and_trained_on(name: str, tmp_path: Any) -> None:
    package, entries, limit, algo = CASES[name]
    pytest.importorskip(package)
    env = pcpg.make(name, max_steps=limit or 20)
    assert isinstance(env.action_space, Box | Discrete) and math.prod(env.observation_space.shape) == entries
    if limit is None:
        return
    found = look_and_choose(name, {}, 2 * limit)
    assert pcpg.make(name, **found.options).max_steps == limit
    assert found.choice is not None and (algo is None or found.choice.algo == algo)
    few = {"total_steps": 3 * limit, "config": SMALL, "quiet": True}
    run = pcpg.train(name, "pcpg-deep", out=tmp_path / "run", **few, **found.options)
    assert run.summary["env_steps"][0] >= 2 * limit and len(run.evaluate(1).mean_return) == 1
