"""The experiment on other people's environments: every line of it, its table, and the page that shows it."""

import json
import shutil
from pathlib import Path

import pytest

from pcpg.experiments.environments import TASKS, Flags, make_cell, table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "environments"
CELLS = sorted((RESULTS / "cells").glob("*.json"))


def test_smoke_runs_both_algorithms_and_writes_the_table(cli, tmp_path):
    flags = ("reproduce", "environments", "--scale", "smoke", "--tasks", "frozenlake", "--out", tmp_path, "--json")
    summary = cli(*flags).json
    assert [cell["algo"] for cell in summary["cells"]] == ["pcpg", "ppo"]
    ours, baseline = (cell["env_steps_per_seed"] for cell in summary["cells"])
    assert baseline >= ours, "the baseline has as many steps"
    assert table(summary) == (tmp_path / "table.md").read_text()
    assert "FrozenLake 8x8, slippery | mean return at least 0.7 | PC-PG | **0/1**" in table(summary)
    assert cli(*flags).json == summary  # nothing is run twice


def test_settings_are_chosen_from_the_environment():
    lake = make_cell(Flags(), "frozenlake", "pcpg").config.resolved()
    assert (lake.features, lake.agent.ppo.num_episodes, lake.agent.explore.max_policies) == ("one-hot", 48, 20)
    car = make_cell(Flags(), "mountaincar", "pcpg-bonus").config.resolved()
    assert (car.features, car.env_options["max_steps"], car.make_env().evaluation_env.max_steps) == (
        "fourier",
        200,
        999,
    )


def test_the_command_as_it_stands_finds_every_cell_that_is_kept(cli, tmp_path):
    shutil.copytree(RESULTS / "cells", tmp_path / "cells")
    tasks = ("frozenlake", "mountaincar")  # the others need extras
    answer = cli("reproduce", "environments", "--tasks", *tasks, "--out", tmp_path, "--json")
    assert answer.json == json.loads((RESULTS / "summary.json").read_text()), "nothing is run again"
    firsts = {json.loads(path.read_text())["task"]: json.loads(path.read_text())["seeds"][0] for path in CELLS}
    assert {name: task.first_seed for name, task in TASKS.items()} == firsts


def test_an_unknown_task_is_named(cli):
    answer = cli("reproduce", "environments", "--tasks", "deepsee")
    assert answer.code == 2 and "unknown task 'deepsee'; valid: deepsea-10" in answer.err
