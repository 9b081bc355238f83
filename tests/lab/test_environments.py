"""The experiment on thirteen environments: every line of it, its test against PPO, and what is kept of it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pcpg.algos.auto import STEPS
from pcpg_lab.claims.environments import (
    CLAIM,
    TASKS,
    UNSEEN_CLAIM,
    Flags,
    UnseenFlags,
    cells,
    is_worse,
    make_cell,
)
from pcpg_lab.claims.harness import read_records

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "environments"


def test_smoke_runs_what_a_look_chooses_and_ppo_with_as_many_steps(cli, tmp_path):
    flags = ("reproduce", "environments", "--scale", "smoke", "--tasks", "cliff", "--algos", "auto", "ppo")
    flags += ("--out", tmp_path, "--json")
    summary = cli(*flags).json
    assert [(cell["column"], cell["algo"]) for cell in summary["cells"]] == [("auto", "pcpg-replay"), ("ppo", "ppo")]
    ours, baseline = (cell["env_steps_per_seed"] for cell in summary["cells"])
    assert baseline >= ours, "the baseline has as many steps"
    assert CLAIM.table(summary) == (tmp_path / "table.md").read_text()
    assert "CliffWalking, 200 steps | mean return at least -15 | PC-PG (`pcpg-replay`) |" in CLAIM.table(summary)
    assert cli(*flags).json == summary  # nothing is run twice


def test_every_task_has_the_default_budget_and_no_setting_of_its_own():
    cell = make_cell(Flags(), "frozenlake", "auto").config
    assert cell.algo == "pcpg-replay" and cell.limits.steps == STEPS and cell.seed_list == [0, 1, 2, 3, 4]
    assert make_cell(Flags(), "frozenlake", "ppo", 50_000).config.limits.steps == 50_000
    assert not make_cell(Flags(), "cartpole", "auto").config.agent.ppo.normalise_observations
    assert make_cell(Flags(), "cartpole", "normalised").config.agent.ppo.normalise_observations
    assert len(TASKS) == 13 and all(set(task.options) <= {"max_steps", "size"} for task in TASKS.values())


def test_an_ablation_fixes_one_thing_and_is_left_out_where_that_changes_nothing():
    def settings(task, name):
        cell = make_cell(Flags(), task, name)
        return None if cell is None else (cell.config.features, cell.config.agent)

    cliff = settings("cliff", "auto")[1]
    assert settings("cliff", "discount")[1].explore.discount * 200 == pytest.approx(100), "1 / (1 - 0.99)"
    assert settings("cliff", "bandwidth")[1].replay.bandwidth_scale == "raw" != cliff.replay.bandwidth_scale
    assert settings("cliff", "updates")[1].exploit.backups == 200 != cliff.exploit.backups
    assert settings("stages", "noise")[1].replay.ignored == () != settings("stages", "auto")[1].replay.ignored
    assert settings("cliff", "learned")[1].replay.features == "inverse-dynamics"
    assert settings("cliff", "noise") is settings("cartpole", "discount") is settings("cliff", "normalised") is None
    assert settings("cartpole", "updates") is None, "they have that size"


def test_what_a_cover_depends_on_is_fixed_in_pcpg_everywhere():
    for task in ("stages", "cartpole"):
        features, ridge = (make_cell(Flags(), task, name, 150_000).config for name in ("features", "ridge"))
        plain = make_cell(Flags(), task, "pcpg", 150_000).config
        assert features.algo == ridge.algo == plain.algo == "pcpg" and features.limits.steps == 150_000
        assert features.features == "identity" != plain.features and features.agent == plain.agent
        assert ridge.agent.explore.ridge_scale == "raw" and ridge.features == plain.features


@pytest.mark.parametrize(
    ("ours", "theirs", "worse"),
    [
        ([500, 500, 500], [500, 500, 500], False),
        ([499, 500, 500], [500, 500, 500], False),  # within the allowance of 2% of what is to be learned
        ([100, 110, 105], [500, 490, 495], True),
        ([100, 500, 500], [500, 490, 495], False),  # within the noise of three seeds
        ([-100, -100, -100], [-13, -13, -13], True),  # no noise at all
    ],
)
def test_worse_is_what_lies_beyond_allowance_and_noise(ours, theirs, worse):
    success = 475.0 if min(theirs) > 0 else -15.0
    assert is_worse(np.array(ours, float), np.array(theirs, float), success) is worse


@pytest.mark.parametrize("experiment", [CLAIM, UNSEEN_CLAIM])
def test_the_table_is_that_of_the_cells_that_are_kept(experiment):
    results = ROOT / experiment.flags.out
    if not list((results / "cells").glob("*.json")):
        pytest.skip("no cell is kept")
    summary = experiment.summarise(read_records(experiment, results))
    assert json.loads((results / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert (results / "table.md").read_text() == CLAIM.table(summary)


def test_what_nothing_was_tuned_on_has_tasks_and_seeds_of_its_own():
    assert not set(UnseenFlags.tasks) & set(TASKS)
    cell = make_cell(UnseenFlags(), "lake", "auto")
    assert cell.command == "pcpg reproduce unseen --scale laptop --tasks lake --algos auto --seeds 3 --seed 0"
    with pytest.raises(ValueError, match="unknown task 'cliff'; valid: acrobot"):
        UnseenFlags(tasks=("cliff",))


def test_the_command_as_it_stands_finds_a_cell_that_is_kept(cli, tmp_path):
    kept = RESULTS / "cells" / "cliff-auto.json"
    if not kept.exists():
        pytest.skip("no cell is kept")
    (tmp_path / "cells").mkdir()
    shutil.copy(kept, tmp_path / "cells")
    answer = cli("reproduce", "environments", "--tasks", "cliff", "--algos", "auto", "--out", tmp_path, "--json")
    assert answer.code == 0 and not (tmp_path / "runs").exists(), "nothing is run again"


def test_a_baseline_that_is_asked_for_alone_has_the_steps_of_the_kept_pcpg():
    kept = json.loads((RESULTS / "cells" / "cliff-auto.json").read_text())
    [cell] = cells(Flags(tasks=("cliff",), algos=("ppo-rnd",), out=str(RESULTS)), [])
    assert cell.config.limits.steps == max(kept["env_steps"])


def test_every_kept_baseline_has_the_steps_that_pcpg_used():
    kept = read_records(CLAIM, RESULTS)
    used = {record["task"]: max(record["env_steps"]) for record in kept if record["column"] == "auto"}
    budgets = {
        (r["task"], r["column"]): r["config"]["budget"] for r in kept if r["column"] in ("ppo", "ppo-rnd", "ppo-e3b")
    }
    assert budgets == {(task, column): used[task] for task, column in budgets} and len(budgets) == 3 * len(TASKS)


def test_an_unknown_task_is_named(cli):
    answer = cli("reproduce", "environments", "--tasks", "deepsee")
    assert answer.code == 2 and "unknown task 'deepsee'; valid: cartpole" in answer.err
