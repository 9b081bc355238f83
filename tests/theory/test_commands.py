"""The commands: results that JSON holds, with the keys that were promised, and clear refusals."""

import json

import pytest

from pcpg.cli.flags import parse
from pcpg_theory import parameters
from pcpg_theory.cli import examples as examples
from pcpg_theory.cli import run as commands
from pcpg_theory.cli.compare import CompareCommand


def test_run_returns_what_json_holds_with_the_promised_keys(capsys, tmp_path):
    found = commands.RunCommand(mdp="lock", horizon=2, seeds=2, seed=40, json=True, out=tmp_path / "run.json")()
    assert capsys.readouterr().out == ""  # the command line prints it, once
    assert found == json.loads((tmp_path / "run.json").read_text()) == json.loads(json.dumps(found, allow_nan=False))
    assert len(found["raw_return"]) == len(found["value_gap"]) == 2
    assert min(found["raw_return"]) > 3.5 and max(found["value_gap"]) < found["epsilon"]
    assert isinstance(found["env_steps_per_seed"], int) and found["env_steps_per_seed"] == max(found["env_steps"])
    assert sum(found["steps_by_kind"].values()) == found["env_steps"][0]


def test_tables_go_to_standard_error(capsys):
    command = commands.RunCommand(mdp="chain", horizon=3, mode="exact", N=3, T=5)
    command.render(command())
    other = commands.ParametersCommand()
    other.render(other())
    captured = capsys.readouterr()
    assert captured.out == "" and "chain of 3" in captured.err and "corrected" in captured.err


def test_the_old_spellings_of_flags_are_still_accepted():
    words = ["--mdp", "chain", "--horizon", "3", "--mode", "exact", "--N", "2", "--T", "2"]
    old, new = (
        parse(commands.RunCommand, [*words, *more], "pcpg theory run")
        for more in (["--lam", "0.5", "--weights", "d_optimal"], ["--ridge", "0.5", "--weights", "d-optimal"])
    )
    assert old.ridge == new.ridge == 0.5 and old() == new()
    names = {"mdp": "lock", "horizon": 1, "budget": 100, "seeds": 1}
    found = [CompareCommand(algos=(name,), **names)()["algos"] for name in ("pc-pg", "pcpg")]
    assert [*found[0].values()] == [*found[1].values()]


def test_settings_can_be_given_one_by_one():
    run = commands.RunCommand(mdp="lock", horizon=2, mode="exact", N=3, T=4, eta=1.5, beta=0.5, json=True)()
    assert run["settings"]["N"] == 3 and run["settings"]["eta"] == 1.5 and len(run["rounds"]) == 3


@pytest.mark.parametrize("bad", [{"seeds": 0}, {"horizon": 0}, {"mdp": "gridworld"}, {"N": 0}, {"beta": 2.0}])
def test_bad_runs_are_refused_before_any_work(bad):
    with pytest.raises(ValueError, match=r"must be"):
        commands.RunCommand(**bad)()


def test_every_picture_is_drawn(tmp_path):
    small = {"json": True}
    commands.RunCommand(mdp="chain", horizon=3, mode="exact", N=3, T=5, png=tmp_path / "run.png", **small)()
    tree = examples.TreeCommand(
        depth=3, mode="exact", seeds=1, tries=20, episodes=30, png=tmp_path / "tree.png", **small
    )()
    assert tree["smallest_value"] > 0.49 and max(row["transfer_error"] for row in tree["rows"]) < 1e-9
    examples.AggregationCommand.render(
        examples.AggregationCommand(points=2, png=tmp_path / "aggregation.png", **small)()
    )
    kernel = examples.KernelCommand(states=20, N=3, png=tmp_path / "kernel.png", **small)()
    assert kernel["kernel"]["value"] > kernel["uniform_value"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aggregation.png", "kernel.png", "run.png", "tree.png"]
    examples.TreeCommand.render(tree)
    examples.KernelCommand.render(kernel)
    assert all(path.stat().st_size > 10_000 for path in tmp_path.iterdir())


def test_the_theorems_numbers_for_the_lock_are_astronomic_and_the_corrected_ones_larger():
    found = commands.ParametersCommand(epsilon=0.1, gamma=0.8, dim=251, setting="aggregation", json=True)()
    assert 1e59 < found["paper"]["pairs_total"] < 1e60 < found["corrected"]["pairs_total"]
    for side in ("paper", "corrected"):
        numbers = found[side]
        assert numbers["steps_total"] > numbers["pairs_total"] > numbers["pairs_covariance"] > 0


def test_the_theorems_numbers_of_an_mdp_are_those_of_its_size():
    lock = commands.ParametersCommand(mdp="lock", horizon=4, json=True)()
    flags = commands.ParametersCommand(epsilon=0.1, gamma=0.8, dim=251, setting="aggregation", json=True)()
    assert lock["dim"] == 251 and lock["paper"] == flags["paper"]
    gain = commands.ParametersCommand(mdp="chain", horizon=4, gain_at=10, json=True)()["max_information_gain"]
    assert 0 < gain["value"] < 8 * 2.4 and gain["gap"] <= 0.05
    with pytest.raises(ValueError, match="must come with an mdp"):
        commands.ParametersCommand(gain_at=3)()


@pytest.mark.parametrize("kind", ["finite", "rbf"])
def test_N_is_the_least_that_satisfies_its_own_condition(kind):
    gain = parameters.gain_bound(kind, 3)
    for factor in (0.5, 20.0, 3e4):
        N = parameters.solve_N(factor, gain)
        assert factor * gain(N) * (1 - 1e-9) <= N
        assert N == 1 or factor * gain(N - 1) > N - 1


def test_the_papers_remark_on_N_suffices_in_finite_dimension():
    factor, dim = 4 * 50.0**2 / 0.01**3, 7
    N = parameters.paper_N_finite(factor, dim)
    assert factor * parameters.gain_bound("finite", dim)(N) <= N
    assert parameters.solve_N(factor, parameters.gain_bound("finite", dim)) <= N


def test_a_gain_that_grows_as_fast_as_N_has_no_solution():
    with pytest.raises(ValueError, match="grows too fast"):
        parameters.solve_N(2.0, lambda N: N)


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"gamma": 1.0}, {"delta": 0.7}, {"dim": 0}, {"epsilon": 20.0}])
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        commands.ParametersCommand(**bad)()


def test_compare_counts_samples_and_says_who_found_the_reward(capsys, tmp_path):
    asked = {"mdp": "lock", "horizon": 2, "budget": 60_000, "seeds": 2, "points": 30, "out": tmp_path / "compare.json"}
    command = CompareCommand(algos=("pc-pg", "r-max", "reinforce"), scales=(1.0, 1e-14, 1e-6), **asked)
    found = command()
    assert found == json.loads((tmp_path / "compare.json").read_text())
    assert [row["solved"] for row in found["algos"].values()] == [2, 2, 0]
    assert all(row["steps"] <= 60_000 for row in found["algos"].values())
    assert max(found["algos"]["r-max"]["samples_to_epsilon"]) < max(found["algos"]["pcpg"]["samples_to_epsilon"])
    assert found["algos"]["reinforce"]["samples_to_epsilon"] == [None, None]
    command.render(found)
    captured = capsys.readouterr()
    assert captured.out == "" and "> budget" in captured.err and "2 of 2" in captured.err


BAD = [{"algos": ("sarsa",)}, {"algos": ()}, {"scales": (1.0,)}, {"mdp": "gridworld"}, {"seeds": 0}, {"horizon": 0}]


@pytest.mark.parametrize("bad", [*BAD, {"epsilon": 0.0}, {"budget": 1}])
def test_bad_comparisons_are_refused_before_any_work(bad):
    with pytest.raises(ValueError, match=r"must be|expected"):
        CompareCommand(**bad)()


@pytest.mark.parametrize("mdp", ["deep-sea", "riverswim", "random"])
def test_every_problem_can_be_compared_on(mdp):
    found = CompareCommand(algos=("ucb-q",), mdp=mdp, horizon=3, budget=60, seeds=2)()
    assert len(found["algos"]["ucb-q"]["final_return"]) == 2 and found["optimal_return"] > found["uniform_return"]
