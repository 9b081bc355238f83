"""The mazes at smoke scale: the command from end to end, and coverage as a share of the open cells."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pcpg.agents.config import preset
from pcpg.agents.run_config import RunConfig
from pcpg.envs.lock import CombinationLock
from pcpg.envs.maze import Maze
from pcpg.experiments.common import read_records, value_at
from pcpg.experiments.maze import analysis
from pcpg.experiments.maze.command import ReproduceMaze
from pcpg.experiments.maze.sweep import ALGOS, ENV, make_cell

RESULTS = Path(__file__).parents[2] / "results" / "maze"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The folder of the whole experiment at smoke scale."""
    out = tmp_path_factory.mktemp("maze")
    assert ReproduceMaze(scale="smoke", out=str(out))(Console(stderr=True)) == 0
    return out


def test_the_command_leaves_a_summary_a_table_and_figures_as_png_and_svg(smoke):
    summary = json.loads((smoke / "summary.json").read_text())
    assert [cell["algo"] for cell in summary["cells"]] == list(ALGOS)
    assert (smoke / "table.md").read_text() == analysis.table(summary)
    for name in ("coverage-size6", "cover-size6"):
        assert (smoke / f"{name}.png").stat().st_size > 1000
        assert (smoke / f"{name}.svg").stat().st_size > 1000


def test_a_tiny_maze_is_covered_to_all_of_its_open_cells_and_its_walls_do_not_count(smoke):
    ours = read_records(smoke, ALGOS)[0]
    assert ours["coverage"] == [1.0, 1.0]
    for seed, count in zip(ours["seeds"], ours["open_cells"], strict=True):
        assert count == Maze(6).open_cells(Maze(6).instance(seed)).sum() < 36
    is_open = np.array(ours["cover"]["reachable"])
    visited = np.array(ours["cover"]["counts"]).sum(axis=0) > 0
    np.testing.assert_array_equal(visited, is_open)


def test_every_cell_counts_where_an_environment_closes_none():
    env = CombinationLock(3)
    assert env.reachable_cells(env.instance(0)).tolist() == [True] * env.num_cells


def test_the_baselines_have_at_least_as_many_steps_as_pcpg(smoke):
    ours, *others = read_records(smoke, ALGOS)
    assert all(min(other["env_steps"]) >= max(ours["env_steps"]) for other in others)


def test_a_curve_holds_its_newest_value_and_has_none_before_its_first():
    rows = [[10, 0.0, 0.2], [30, 0.0, 0.6]]
    np.testing.assert_array_equal(value_at(rows, np.array([5, 10, 29, 30, 99]), 2), [np.nan, 0.2, 0.2, 0.6, 0.6])
    record = {"env_steps": [30], "history": {"0": rows}}
    assert analysis.by_tenth(record) == [None, None, None, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.6]


def test_the_preset_explores_without_reward_and_without_an_exploit_phase():
    config = RunConfig.from_json({"env": ENV, "env_options": {"size": 10}}).resolved()
    assert config.agent == preset(ENV, "pcpg")
    assert config.agent.explore.reward_coef == 0 and config.agent.exploit.num_rounds == 0
    assert config.features == "random-conv"


def test_the_scale_of_the_paper_has_the_papers_kernel_and_network():
    config = make_cell("paper", "pcpg", 20, 5, 0, 0).config.resolved()
    assert (config.feature_options["num_features"], config.feature_options["num_kernels"]) == (512, [32, 64])
    assert config.agent.ppo.hidden == (512,)
    assert make_cell("paper", "ppo-rnd", 20, 5, 0, 0).config.agent.budget == 10_000_000


@pytest.mark.skipif(not (RESULTS / "summary.json").exists(), reason="no results are kept")
def test_the_kept_results_follow_from_their_cells():
    kept = json.loads((RESULTS / "summary.json").read_text())
    assert json.loads(json.dumps(analysis.summarise(read_records(RESULTS, ALGOS)))) == kept
    assert (RESULTS / "table.md").read_text() == analysis.table(kept)
