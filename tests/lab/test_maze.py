"""The mazes at smoke scale: both parts of the command from end to end, and what their numbers mean."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pcpg.cli.display import result_table
from pcpg.envs.lock import CombinationLock
from pcpg.envs.maze import Maze
from pcpg.presets import preset
from pcpg.reports.statistics import value_at
from pcpg.run_config import RunConfig
from pcpg.runs.errors import NotARun
from pcpg.runs.folder import RunFolder
from pcpg_lab.claims import maze, maze_goals
from pcpg_lab.claims.harness import read_records, reproduce
from pcpg_lab.claims.maze import ALGOS, CLAIM, ENV, GOAL_ALGOS, Flags, make_cell
from pcpg_lab.claims.maze_goals import GOALS
from tests.lab.conftest import check_written

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "results" / "maze"


def test_the_command_leaves_a_summary_a_table_and_figures_as_png_and_svg(smoke):
    check_written(CLAIM, smoke, ALGOS, ("coverage-size6", "cover-size6"))


def test_a_tiny_maze_is_covered_to_all_of_its_open_cells_and_its_walls_do_not_count(smoke):
    ours = read_records(CLAIM, smoke)[0]
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
    ours, *others = read_records(CLAIM, smoke)
    assert all(min(other["env_steps"]) >= max(ours["env_steps"]) for other in others)


def test_a_curve_holds_its_newest_value_and_has_none_before_its_first():
    rows = [[10, 0.0, 0.2], [30, 0.0, 0.6]]
    np.testing.assert_array_equal(value_at(rows, np.array([5, 10, 29, 30, 99]), 2), [np.nan, 0.2, 0.2, 0.6, 0.6])
    record = {"env_steps": [30], "history": {"0": rows}}
    assert maze.by_tenth(record) == [None, None, None, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.6]


def test_the_preset_explores_without_reward_and_without_an_exploit_phase():
    config = RunConfig.from_json({"env": ENV, "env_options": {"size": 10}}).resolved()
    assert config.agent == preset(ENV, "pcpg")
    assert config.agent.explore.reward_coef == 0 and config.agent.exploit.num_rounds == 0
    assert config.features == "random-conv"


def test_a_run_without_a_return_to_reach_ends_with_the_share_of_cells_visited(smoke):
    folder = RunFolder.open(smoke / "runs" / "pcpg-size6")
    columns = {str(column.header): list(column.cells) for column in result_table(folder).columns}
    coverage = json.loads((smoke / "cells" / "pcpg-size6.json").read_text())["coverage"]
    assert columns["grid cells visited"] == [f"{share:.1%}" for share in coverage]


def test_the_scale_of_the_paper_has_the_papers_kernel_and_network():
    config = make_cell(Flags(scale="paper"), "pcpg").config.resolved()
    assert (config.feature_options["num_features"], config.feature_options["num_kernels"]) == (512, [32, 64])
    assert config.agent.ppo.hidden == (512,)
    assert make_cell(Flags(scale="paper"), "ppo-rnd").config.agent.budget == 10_000_000


def test_kept_results_are_shown_by_the_command_that_made_them_and_no_other(tmp_path):
    shutil.copytree(RESULTS / "cells", tmp_path / "cells")
    with pytest.raises(ValueError, match=r"pcpg-size20.json was made with other settings \(ppo.num_updates"):
        reproduce(CLAIM, Flags(out=str(tmp_path)))
    with pytest.raises(NotARun, match="holds the measurements of its covers but not the covers"):
        reproduce(CLAIM, Flags(scale="paper", part="goals", out=str(tmp_path)))


def test_in_the_kept_results_pcpg_sees_every_cell_and_leads_at_every_tenth():
    ours, rnd, _ = json.loads((RESULTS / "summary.json").read_text())["cells"]
    assert ours["seeds_fully_covered"] == ours["seeds"] == 5
    assert all(one > other for one, other in zip(ours["mean_by_tenth"][1:], rnd["mean_by_tenth"][1:], strict=True))


# Goals given after exploration.


@pytest.fixture(scope="module")
def goals(smoke):
    """The folder of the second part, on the covers of the first."""
    assert reproduce(CLAIM, Flags(scale="smoke", part="goals", out=str(smoke)))
    return smoke / "goals"


def test_the_second_part_leaves_a_summary_a_table_and_a_figure(goals):
    check_written(maze_goals.CLAIM, goals, GOAL_ALGOS, ("goals-size6",))


def test_every_maze_has_its_goals_at_their_distances_and_both_algorithms_have_the_same(goals):
    ours, ppo = read_records(maze_goals.CLAIM, goals)
    keys = ("maze", "goal", "distance")
    pairs = [[pair[key] for key in keys] for pair in ours["pairs"]]
    assert pairs == [[pair[key] for key in keys] for pair in ppo["pairs"]]
    assert [number for number, _, _ in pairs] == [0] * GOALS["smoke"] + [1] * GOALS["smoke"]
    for number, (row, column), distance in pairs:
        env = Maze(6)
        assert env.distances(env.instance(number))[row * 6 + column] == distance > 0
    assert all(0 <= pair["reached"] <= 100 for record in (ours, ppo) for pair in record["pairs"])


def test_the_covers_steps_are_reported_beside_those_of_the_goals(goals):
    ours, ppo = read_records(maze_goals.CLAIM, goals)
    explored = json.loads((goals.parent / "cells" / "pcpg-size6.json").read_text())
    assert list(ours["cover"]["env_steps"].values()) == explored["env_steps"]
    assert max(ours["env_steps"]) < min(explored["env_steps"])
    rows = maze_goals.CLAIM.summarise([ours, ppo])["cells"]
    assert "cover_env_steps" in rows[0] and "cover_env_steps" not in rows[1]


def record(reached, distances, steps, budget=None):
    config = {} if budget is None else {"budget": budget}
    pairs = [
        {"maze": index % 2, "goal": [1, 1], "distance": d, "reached": r, "reached_greedy": 100, "env_steps": s}
        for index, (r, d, s) in enumerate(zip(reached, distances, steps, strict=True))
    ]
    made = {"algo": "ppo", "size": 6, "goals": 2, "seeds": [0], "config": config, "env_steps": steps, "pairs": pairs}
    return made | dict.fromkeys(("command", "device", "commit", "time"), "") | {"seconds": 1.0}


def test_a_goal_is_solved_from_95_of_100_on_and_a_maze_on_target_from_nine_tenths_on():
    row = maze_goals.CLAIM.summarise([record([95, 94, 100, 0], [1, 9, 4, 7], [5, 10, 10, 3], budget=10)])["cells"][0]
    assert row["solved_by_maze"] == {"0": 2, "1": 0} and row["mazes_on_target"] == 1
    assert (row["solved"], row["pairs"], row["solved_greedy"]) == (2, 4, 4)
    assert row["unsolved_below_budget"] == 1
    assert [(band["from"], band["solved"]) for band in row["by_distance"]] == [(1, 1), (4, 1), (7, 0), (9, 0)]


def test_goals_of_an_algorithm_that_has_none_are_refused():
    with pytest.raises(ValueError, match="goals are solved by pcpg and ppo, got ppo-rnd"):
        Flags(part="goals", algos=("ppo-rnd",))


def test_a_baseline_that_ran_alone_with_other_steps_is_not_shown_beside_pcpg(tmp_path):
    def run(*algos):
        return reproduce(CLAIM, Flags(scale="smoke", seeds=1, algos=algos, out=str(tmp_path)))

    assert run("ppo")
    with pytest.raises(ValueError, match=r"ppo-size6 in .* was run for 10,000 steps, not for"):
        run("pcpg", "ppo")
    assert run("ppo"), "alone it is what it was"


def test_without_a_finished_cover_the_command_to_make_it_is_named(tmp_path):
    flags = Flags(scale="smoke", part="goals", out=str(tmp_path))
    with pytest.raises(
        NotARun, match="no cover to exploit; create it with `pcpg reproduce maze --part explore --scale smoke"
    ):
        reproduce(CLAIM, flags)


def test_in_the_kept_results_pcpg_solves_nine_tenths_of_the_goals_of_every_maze():
    ours = json.loads((RESULTS / "goals" / "summary.json").read_text())["cells"][0]
    assert ours["mazes_on_target"] == len(ours["solved_by_maze"])
