"""The cells of a sweep: what a file says, their ids, and refusals before any work."""

import os
from pathlib import Path

import pytest

from pcpg.config import ConfigError
from pcpg.runs.errors import DamagedFile
from pcpg_lab.sweeps.plan import plan_of, read_plan

TOML = """
block = 2
[base]
env = "CombinationLock-v0"
seeds = 5
[grid]
"env_options.horizon" = [2, 5]
[[cells]]
algo = "pcpg"
agent.explore.max_policies = 3
[[cells]]
algo = "ppo"
"""
ENTRIES = {
    "block": 2,
    "base": {"env": "CombinationLock-v0", "seeds": 5},
    "grid": {"env_options": {"horizon": [2, 5]}},
    "cells": [{"algo": "pcpg", "agent.explore.max_policies": 3}, {"algo": "ppo"}],
}


def test_every_combination_is_a_cell_for_each_block_of_seeds():
    plan = plan_of(ENTRIES)
    found = {(c.config["algo"], c.config["env_options"]["horizon"], c.config["seed"]): c.config for c in plan.cells}
    assert set(found) == {(a, h, s) for a in ("pcpg", "ppo") for h in (2, 5) for s in (0, 2, 4)}
    assert [found["ppo", 2, seed]["seeds"] for seed in (0, 2, 4)] == [2, 2, 1]
    assert found["pcpg", 5, 0]["agent"]["explore"]["max_policies"] == 3
    assert len({cell.group for cell in plan.cells}) == 4 and len({cell.id for cell in plan.cells}) == 12
    assert plan.cells[0].label == "horizon 2, algo pcpg, max_policies 3, seeds 0 to 1"


def test_a_toml_file_a_python_file_and_written_out_defaults_name_the_same_cells(tmp_path: Path):
    (tmp_path / "a.toml").write_text(TOML)
    (tmp_path / "b.py").write_text(f"SWEEP = {ENTRIES!r}")
    ids = {cell.id for cell in plan_of(ENTRIES).cells}
    assert {cell.id for cell in read_plan(tmp_path / "a.toml").cells} == ids
    assert {cell.id for cell in read_plan(tmp_path / "b.py").cells} == ids
    resolved = [cell.config for cell in plan_of(ENTRIES | {"block": 5}).cells]
    assert {cell.id for cell in plan_of({"block": 2, "cells": resolved}).cells} == ids


def test_a_cell_with_a_setting_that_does_not_exist_is_named_among_many():
    wrong = ENTRIES | {"cells": [*ENTRIES["cells"], {"algo": "ppo", "agent": {"explore": {"max_policies": 3}}}]}
    with pytest.raises(ConfigError, match=r"cell 5 of 6 \(horizon 2, .*\).*'explore'.*cell 6 of 6"):
        plan_of(wrong)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"grids": {}}, "'grids'"),
        ({}, "needs a cell"),
        ({"block": 0, "base": {"env": "CombinationLock-v0"}}, "block must be an integer of at least 1, got 0"),
        ({"gpus": -1, "base": {"env": "CombinationLock-v0"}}, "gpus must be a share"),
        ({"base": {"env": "CombinationLock-v0"}, "grid": {"seed": 3}}, "grid.seed must be a list"),
        ({"base": {"env": "CombinationLock-v0"}, "cells": [{}, {}]}, "two cells have the same settings"),
        ({"base": {"env": "CombinationLock-v0"}, "cells": 3}, "cells must be a list of tables"),
        ({"base": {"env": "CombinationLock-v0"}, "cells": [3]}, "a cell must be a table"),
        ({"base": {"agent": 3}, "cells": [{"agent.budget": 3}]}, "agent.budget cannot be set: agent is 3, not a table"),
        ({"base": {"env": "Maze-v0", "env_options": {"goal": [0, 0]}}}, "goal"),
    ],
)
def test_what_is_no_sweep_is_refused(entries: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        plan_of(entries)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    (tmp_path / "a.toml").write_text("= 3")
    (tmp_path / "a.py").write_text("x = 1\nSWEEP = y")
    (tmp_path / "b.py").write_text("SWEEP = (")
    (tmp_path / "link.toml").symlink_to(tmp_path / "a.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    for name, said in {
        "a.toml": "is not TOML",
        "b.toml": "no such file",
        "a.py": r"a\.py, line 2: NameError: name 'y' is not defined",
        "b.py": r"b\.py: SyntaxError",
        "link.toml": "is a link",
        "pipe.toml": "is a pipe",
    }.items():
        with pytest.raises((ConfigError, DamagedFile), match=said):
            read_plan(tmp_path / name)
