"""The experiment on worlds in which no observation comes again: its cells, its table, and its public environments."""

import sys
import types

import numpy as np
import pytest

from pcpg.algorithms import ALGORITHMS
from pcpg_lab.claims.control import ALONE, ARMS, CLAIM, COMPARED, OURS, WORLDS, Flags, settings

pytestmark = pytest.mark.slow


def record(seed, arm=OURS, greedy=1.0, steps=9_000, met=3_000, world="point-mass"):
    return {
        "world": world,
        "arm": arm,
        "algo": ARMS[arm].algo,
        "seeds": [seed],
        "steps": 30_000,
        "env_steps": [steps],
        "greedy_return": [greedy],
        "history": {str(seed): [[1_000, None, -1], [steps, greedy, met]]},
        "seconds": 5.0,
        "command": f"pcpg reproduce control --worlds {world} --algos {arm} --steps 30000 --seeds 1 --seed {seed}",
        "device": "cpu",
        "commit": "c",
        "time": "t",
    }


def test_smoke_runs_a_world_with_and_without_the_explorer_and_nothing_twice(cli, tmp_path):
    flags = ("reproduce", "control", "--scale", "smoke", "--steps", "800", "--out", tmp_path, "--json")
    summary = cli(*flags).json
    assert [(row["world"], row["arm"]) for row in summary["cells"]] == [("point-mass", OURS), ("point-mass", ALONE)]
    assert CLAIM.table(summary) == (tmp_path / "table.md").read_text() and (tmp_path / "control.svg").exists()
    assert cli(*flags).json == summary


def test_the_settings_are_the_defaults_in_every_world_and_an_arm_changes_one():
    for world in WORLDS.values():
        assert settings(world, OURS) == ALGORITHMS[OURS].presets.host == ALGORITHMS[OURS].presets.compiled
        assert settings(world, ALONE) == ALGORITHMS[ALONE].presets.host
    ours = settings(WORLDS["arm"], OURS)
    for arm in ARMS.values():
        changed = {name for part in arm.changes.values() for name in part}
        assert len(changed) == (0 if arm.name in (ARMS[OURS].name, ARMS[ALONE].name) else 1)
        made = settings(WORLDS["arm"], next(name for name, one in ARMS.items() if one is arm))
        assert (made == ours) == (not changed and arm.algo == OURS)


def test_the_table_has_the_steps_of_solved_seeds_and_a_median_only_where_half_are_solved():
    records = [record(0), record(1, steps=12_000), record(2, greedy=0.85, steps=30_000), record(0, ALONE, 0.0, met=-1)]
    ours, alone = CLAIM.rows(records)
    assert (ours["successes"], ours["seeds"], ours["solved_at"]) == (2, 3, [9_000, 12_000, None])
    assert (alone["successes"], alone["solved_at"], alone["met_at"]) == (0, [None], [None])
    assert ours["seconds_per_seed"] == 5.0
    texts = [[text(row) for text in CLAIM.columns.values()] for row in (ours, alone)]
    assert "9k, 12k, 12k" in texts[0] and "-" in texts[1] and texts[0][1] == "0.9"
    (few,) = CLAIM.rows([record(0), record(1, greedy=0.0), record(2, greedy=0.0)])
    assert "9k, -, 9k" in CLAIM.columns["steps when it stopped: least, median, most"](few)
    assert COMPARED.merged(records)[0]["command"].endswith("--seeds 3 --seed 0")


def test_a_world_without_a_threshold_is_reported_and_never_stops_early():
    (cell,) = CLAIM.cells(Flags(worlds=("arm",), algos=(OURS,), seeds=1), [])
    assert cell.config.limits.until == 0.9 and cell.name == "arm-pcpg-deep-seed-0"
    assert not np.isfinite(WORLDS["acrobot-sparse"].solved)
    (row,) = CLAIM.rows([record(0, greedy=900.0, world="acrobot-sparse")])
    assert row["successes"] == 0 and CLAIM.columns["solved from"](row) == "-"


def test_a_cost_is_charged_for_the_squared_action_and_a_maze_has_one_start_and_goal(monkeypatch):
    import gymnasium

    from pcpg_lab.envs.control import MAZES, Costly, far_maze

    class Plain(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,))

        def reset(self, *, seed=None, options=None):
            self.options = options
            return np.zeros(2), {}

        def step(self, action):
            return np.zeros(2), 1.0, False, False, {}

    assert Costly(Plain()).step(np.array([0.5, -1.0]))[1] == pytest.approx(1 - 0.1 * 1.25)
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", types.ModuleType("gymnasium_robotics"))
    monkeypatch.setattr(gymnasium, "register_envs", lambda module: None)
    monkeypatch.setattr(gymnasium, "make", lambda name, **options: Plain())
    maze = far_maze("Large")
    maze.reset(seed=1, options={"goal_cell": "another"})
    start, goal, _ = MAZES["Large"]
    assert {name: tuple(cell) for name, cell in maze.env.options.items()} == {"reset_cell": start, "goal_cell": goal}
