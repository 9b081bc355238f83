"""MiniGrid's view in one pass is MiniGrid's own view."""

from typing import Any

import numpy as np
import pytest

from pcpg.envs.adapters.from_gymnasium import gymnasium_env

envs: Any = pytest.importorskip("minigrid.envs")
MiniGridEnv: Any = pytest.importorskip("minigrid.minigrid_env").MiniGridEnv


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MultiRoom-N6-v0", {}),
        ("KeyCorridorS3R2-v0", {}),
        ("ObstructedMaze-2Dlhb-v1", {"agent_view_size": 5}),
        ("LavaCrossingS9N2-v0", {"agent_view_size": 3}),
    ],
)
def test_the_view_is_that_of_minigrid_at_every_step(name: str, options: dict[str, int]) -> None:
    env = gymnasium_env(f"MiniGrid-{name}", options)
    inner, rng = env.unwrapped, np.random.default_rng(0)
    assert "gen_obs" in vars(inner)
    for seed in range(4):
        seen, ended = env.reset(seed=seed)[0], False
        for _ in range(100):
            own = MiniGridEnv.gen_obs(inner)
            np.testing.assert_array_equal(seen["image"], own["image"])
            assert seen["image"].dtype == own["image"].dtype and seen["direction"] == own["direction"]
            if ended:
                break
            seen, _, terminated, truncated, _ = env.step(rng.choice(6, p=[0.15, 0.15, 0.4, 0.1, 0.05, 0.15]))
            ended = terminated or truncated


def test_an_environment_with_a_view_of_its_own_keeps_it() -> None:
    from pcpg.envs.adapters.minigrid_view import hasten

    class Blind(envs.EmptyEnv):
        def gen_obs(self) -> dict[str, object]:
            return {}

    for env, is_hastened in ((Blind(), False), (envs.EmptyEnv(), False), (envs.MultiRoomEnv(2, 2), True)):
        hasten(env)
        assert ("gen_obs" in vars(env)) is is_hastened
