"""The measured table: its protocol, its fits, its aggregated problems, and the command at smoke scale."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.optimize import minimize
from scipy.stats import norm

from pcpg.experiments.table1 import plan, summary
from pcpg.experiments.table1.cells import Store, measure, run_cells
from pcpg.experiments.table1.command import ReproduceTable1
from pcpg.experiments.table1.fits import GRID_NOISE, fit_growth, fit_line
from pcpg.experiments.table1.measures import choose, measure_losses
from pcpg.experiments.table1.plan import Table1Cell
from pcpg.experiments.table1.problems import LARGEST_ERROR, MISSPECIFIED, WAIT, errors, misspecified, unavoidable
from pcpg.experiments.table1.settings import OPTIONS, POWER, SETTINGS, allowed, check_algos, maker, scale_of
from pcpg.experiments.table1.table import THEOREMS, main_table, name_of, tables
from pcpg.theory.learners import problem, runner
from pcpg.theory.learners.registry import COMPARATORS

SMOKE = SETTINGS["smoke"]


# the fits


def drawn(law, sizes, budget, seeds=20, noise=0.4, seed=0):
    """Samples by size with log-normal noise, inf beyond the budget."""
    rng = np.random.default_rng(seed)
    times = {size: law(size) * np.exp(noise * rng.normal(size=seeds)) for size in sizes}
    return {size: np.where(found > budget, np.inf, found) for size, found in times.items()}


SIZES = (2, 3, 4, 5, 6, 8)


def test_a_power_law_is_found_through_censored_runs():
    samples = drawn(lambda h: 1000.0 * h**4, SIZES, budget=1e6)
    found = fit_growth(samples, 1e6)
    assert found.censored > 20 and found.law == "polynomial"
    assert found.exponent_low < 4.0 < found.exponent_high and found.exponent_high - found.exponent_low < 1.0


def test_an_exponential_law_is_found_through_censored_runs():
    samples = drawn(lambda h: 30.0 * 8.0**h, SIZES, budget=1e6)
    found = fit_growth(samples, 1e6)
    assert found.censored > 20 and found.law == "exponential"
    assert found.base_low < 8.0 < found.base_high


def test_taking_censored_runs_at_the_budget_would_give_too_small_an_exponent():
    samples = drawn(lambda h: 1000.0 * h**4, SIZES, budget=1e6)
    naive = {size: np.minimum(found, 1e6) for size, found in samples.items()}
    assert fit_growth(naive, 1e6).exponent < 3.5 < fit_growth(samples, 1e6).exponent


def test_the_fit_has_the_largest_likelihood():
    samples = drawn(lambda h: 1000.0 * h**4, SIZES, budget=1e6)
    x = np.log(np.repeat(SIZES, 20))
    T = np.concatenate(list(samples.values()))
    censored = ~np.isfinite(T)
    y = np.log(np.where(censored, 1e6, T))
    found = fit_line(x, y, censored, np.ones((1, len(x))))

    def loss(p):
        z, seen = (y - p[0] - p[1] * x) / np.exp(p[2]), ~censored
        grid = 0.5 * seen.sum() * (GRID_NOISE / np.exp(p[2])) ** 2
        return grid - np.where(censored, norm.logsf(z), norm.logpdf(z) - p[2]).sum()

    other = minimize(
        loss, [1.0, 1.0, 0.0], method="Nelder-Mead", options={"maxiter": 5000, "xatol": 1e-8, "fatol": 1e-10}
    )
    assert found.log_likelihood[0] == pytest.approx(-other.fun, abs=1e-5)
    assert [found.intercept[0], found.slope[0], found.noise[0]] == pytest.approx(
        [other.x[0], other.x[1], np.exp(other.x[2])], rel=1e-3
    )


def test_weights_of_a_run_count_it_as_often():
    x, y = np.array([1.0, 1.0, 2.0, 2.0, 3.0]), np.array([1.0, 1.2, 2.1, 1.9, 3.3])
    censored = np.array([False, False, False, True, False])
    twice = fit_line(np.append(x, x[1]), np.append(y, y[1]), np.append(censored, False), np.ones((1, 6)))
    weighted = fit_line(x, y, censored, np.array([[1.0, 2.0, 1.0, 1.0, 1.0]]))
    assert weighted.slope[0] == pytest.approx(twice.slope[0], rel=1e-5)


def test_growth_needs_two_sizes_with_a_seed_that_got_there():
    never, once = np.full(3, np.inf), np.array([10.0, 20.0, np.inf])
    assert fit_growth({2: once, 3: never}, 100.0) is None
    assert fit_growth({2: once, 3: once * 2.0}, 100.0, resamples=5).law == "undecided"
    with pytest.raises(ValueError, match="two sizes"):
        fit_line(np.array([2.0, 3.0]), np.zeros(2), np.array([False, True]), np.ones((1, 2)))


# the protocol


class Scripted:
    """A learner whose policy follows a script: optimal or not after each episode; it counts what it is given."""

    def __init__(self, layout, streams, good, batch=1):
        self.batch, self.good, self.episodes = batch, good, 0
        self.left = np.zeros((streams.n, layout.num_states, layout.num_actions))
        self.left[..., 0] = 1.0
        self.right = self.left[..., ::-1].copy()

    def policy(self):
        return self.right if self.good(self.episodes) else self.left

    behaviour = policy

    def learn(self, episodes):
        self.episodes += episodes.a.shape[1]


def scripted(good, budget, settle=None, batch=1):
    made, learners = problem.riverswim(2, 3), []

    def make(layout, streams):
        learners.append(Scripted(layout, streams, good, batch))
        return learners[-1]

    history = runner.run(made, make, [0, 1], budget, grid=runner.log_grid(budget), settle=settle)
    return history, learners[0]


def test_samples_to_epsilon_are_those_after_which_the_policy_stays_good():
    history, learner = scripted(lambda k: 10 <= k < 20 or k >= 100, 20_000)
    assert learner.episodes * 20 == history.steps == 20_000
    grid = runner.log_grid(20_000)
    assert runner.samples_to(history, 0.1).tolist() == [grid[grid >= 2000][0]] * 2


def test_a_run_ends_early_only_after_it_stayed_good_for_a_factor_of_its_samples():
    history, learner = scripted(lambda k: 10 <= k < 20 or k >= 100, 20_000, runner.Settle(0.1, 3.0))
    reached = runner.samples_to(history, 0.1)[0]
    assert reached <= history.samples[-1] / 3.0 < history.samples[-1] < 20_000
    assert reached == runner.samples_to(scripted(lambda k: 10 <= k < 20 or k >= 100, 20_000)[0], 0.1)[0]
    assert learner.episodes * 20 == history.steps <= history.samples[-1]


def test_a_hopeless_run_is_given_up_where_that_was_asked_for():
    settle = runner.Settle(0.1, 3.0, hope=5_000)
    assert 5_000 <= scripted(lambda k: False, 20_000, settle)[0].samples[-1] < 7_000
    assert scripted(lambda k: k == 100, 20_000, settle)[0].samples[-1] == 20_000  # it was good once
    assert scripted(lambda k: False, 20_000, runner.Settle(0.1, 3.0))[0].samples[-1] == 20_000


def test_the_grid_of_samples_is_the_same_for_all_budgets_and_ends_with_the_budget():
    short, long = runner.log_grid(1_000), runner.log_grid(100_000)
    assert short[-1] == 1_000 and long[-1] == 100_000 and short[0] == long[0]
    assert set(short[:-1]) <= set(long)
    assert np.diff(np.log(long[20:])).max() < 0.2
    with pytest.raises(ValueError, match="the grid must end at the budget, 100, got 200"):
        runner.run(problem.riverswim(1), COMPARATORS["psrl"].make, [0], 100, grid=runner.log_grid(200))


def test_samples_that_are_counted_are_all_that_a_learner_saw():
    for batch in (1, 3):
        history, learner = scripted(lambda k: False, 1_990, batch=batch)
        assert learner.episodes * 20 == history.steps <= 1_990


# the aggregated problems


@pytest.mark.parametrize("kappa", [0.1, 0.4])
def test_the_error_is_zero_on_the_optimal_path_and_as_declared_off_it(kappa):
    declared = {"mix": (0.0, kappa), "wait": (0.0, 4.0 * kappa), "local": (kappa, kappa)}
    for name in MISSPECIFIED:
        assert errors(misspecified(name, kappa)) == pytest.approx(declared[name])
        assert errors(misspecified(name, 0.0)) == (0.0, 0.0)


@pytest.mark.parametrize("name", MISSPECIFIED)
def test_the_optimal_path_is_worth_one_and_labels_reach_what_they_can(name):
    made = misspecified(name, 0.4).episodic(1)
    assert made.optimal()[0] == pytest.approx(1.0)
    first = np.zeros((1, made.layout.num_states, 3))
    first[..., 0] = 1.0
    assert made.returns(first)[0] == pytest.approx({"mix": 1.0, "wait": 1.0, "local": 0.8}[name])
    assert made.returns(first)[0] == pytest.approx(1.0 - unavoidable(name, 0.4))


def test_who_is_deluded_loses_what_is_declared():
    for name, loss in (("mix", 0.4 / 3.0), ("wait", 0.2)):
        made = misspecified(name, 0.4).episodic(1)
        aside = np.zeros((1, made.layout.num_states, 3))
        aside[..., 0] = 1.0
        aside[0, 0] = [0.0, 1.0, 0.0]
        assert 1.0 - made.returns(aside)[0] == pytest.approx(loss)


def test_in_wait_a_model_that_forgets_the_time_overrates_its_own_play():
    made = misspecified("wait", 0.4).episodic(1)
    aside = np.zeros((1, made.layout.num_states, 3))
    aside[..., 0] = 1.0
    aside[0, 0] = [0.0, 1.0, 0.0]
    env = runner.EpisodeSource(made, runner.Streams([0], 0))
    shared, timed = (_believed(made, env.roll_out(aside, 4000), share) for share in (True, False))
    assert timed == pytest.approx(0.8, abs=0.03)  # what it is worth
    step = 0.8 / (WAIT + 0.2)  # the share of steps from x or late, in its own play, that lead to y
    visits = sum(1.0 - (1.0 - step) ** i for i in range(1, WAIT + 1))  # of y, as the model sees it
    assert shared == pytest.approx(0.4 + 0.5 * visits, abs=0.05)
    assert shared > 1.1


def _believed(made, episodes, share):
    """The value of action 1 at s0 by the empirical model of some episodes."""
    from pcpg.theory.learners import tables

    counts = tables.Counts(made.layout, 1, share=share)
    counts.add(episodes)
    which = counts.model_state
    Q = tables.induct(
        made.layout, counts.mean_reward()[:, which], counts.transitions()[:, which], tables.plain, tables.best
    )
    return Q[0, 0, 1]


def test_r_max_is_deluded_by_the_error_off_the_path_and_a_learner_of_its_own_play_is_not():
    lost = {}
    for algo, factor in (("r-max", 1e-5), ("ucb-q", 1e-3)):
        found = measure_losses(algo, "mix", [0.0, 0.4], factor, 8_000, list(range(4)))
        lost[algo] = [float(np.mean(row["loss"])) for row in found["rows"]]
    assert lost["r-max"][0] < 0.01 and lost["r-max"][1] == pytest.approx(0.4 / 3.0, abs=0.02)
    assert max(lost["ucb-q"]) < 0.02


def test_other_factors_are_tried_only_where_the_tuned_one_loses_and_the_best_counts():
    rows = measure_losses("ucb-q", "mix", [0.0], 10.0, 3_000, [0, 1])["rows"]
    assert set(rows[0]["mean_loss_by_factor"]) == {"10", "1", "100"}
    assert np.mean(rows[0]["loss"]) == min(rows[0]["mean_loss_by_factor"].values())
    rows = measure_losses("ucb-q", "mix", [0.0], 1e-3, 3_000, [0, 1])["rows"]
    assert set(rows[0]["mean_loss_by_factor"]) == {"0.001"}


def test_an_error_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match=r"kappa must be an error in .*, got 0\.7"):
        misspecified("mix", 0.7)
    assert max(max(s.errors) for s in SETTINGS.values()) <= LARGEST_ERROR
    assert all(s.errors[0] == 0.0 for s in SETTINGS.values())


# tuning


def test_the_tuning_takes_the_best_factor_and_among_equals_the_one_nearest_to_the_papers():
    def trial(factor, log_samples, share=0.5, got_there=True):
        samples = {"lock": [1.0 if got_there else None]}
        return {"factor": factor, "log_samples": log_samples, "share": share, "samples": samples}

    assert choose([trial(1.0, 9.0), trial(0.1, 5.0), trial(0.01, 6.0)]) == 0.1
    assert choose([trial(0.001, 5.0), trial(0.1, 5.2), trial(0.01, 5.0)]) == 0.1
    none = [trial(f, 9.0, share, got_there=False) for f, share in ((1.0, 0.0), (0.1, 0.2), (0.01, 0.1))]
    assert choose(none) == 0.1


def test_all_are_tuned_on_the_same_grid_and_seeds_that_are_not_measured():
    arguments = {k: v for k, v in plan.tuning_cell(SETTINGS["laptop"], "psrl").arguments.items() if k != "algo"}
    assert not set(arguments["seeds"]) & set(range(SETTINGS["laptop"].seeds))
    cells = plan.first_cells(SETTINGS["laptop"], tuple(COMPARATORS), ["A"])
    tunings = [cell for cell in cells if cell.kind == "tuning"]
    assert len(tunings) == len(COMPARATORS)
    assert all({k: v for k, v in cell.arguments.items() if k != "algo"} == arguments for cell in tunings)
    assert allowed("epsilon-greedy-q", (10.0, 1.0, 0.1)) == [1.0, 0.1] and allowed("psrl", (10.0,)) == [10.0]
    assert scale_of("r-max", 0.1) == pytest.approx(1e-3) and scale_of("psrl", 0.1) == 0.1
    assert set(POWER) | set(OPTIONS) <= set(COMPARATORS)


def test_every_comparator_can_be_made_with_a_factor():
    made = problem.lock(2, [0])
    for algo in COMPARATORS:
        learner = maker(algo, 0.5)(made.layout, runner.Streams([0], 1))
        assert learner.policy().shape == (1, made.layout.num_states, 10)


# what follows from what


def _size_record(samples, size):
    return {"kind": "A", "arguments": plan.size_cell(SMOKE, "psrl", "lock", size, 1.0).arguments, "samples": samples}


def test_sizes_end_after_one_at_which_no_seed_got_there():
    after = plan.cells_after(_size_record([None, 100.0], 1), SMOKE, ["A"])
    assert [cell.arguments["size"] for cell in after] == [2]
    assert plan.cells_after(_size_record([None, None], 1), SMOKE, ["A"]) == []
    assert plan.cells_after(_size_record([1.0, 1.0], 2), SMOKE, ["A"]) == []


def test_cells_that_are_done_are_not_measured_again_and_other_settings_are_refused(tmp_path):
    store, seen = Store(tmp_path, "command"), []
    first = plan.first_cells(SMOKE, ["psrl"], ["A"])[1:2]
    assert first[0].kind == "theory"
    once = run_cells(first, lambda record: [], store, 1, seen.append)
    again = run_cells(first, lambda record: [], store, 1, seen.append)
    assert once == again and len(seen) == 1
    assert again[0]["command"] == "command" and again[0]["arguments"] == first[0].arguments
    other = Table1Cell(first[0].kind, first[0].name, first[0].arguments | {"seeds": [0, 1, 2]})
    with pytest.raises(ValueError, match=r"other settings \(seeds\): choose another --out"):
        store.read(other)


def test_a_process_of_its_own_measures_the_same(tmp_path):
    cell = next(cell for cell in plan.first_cells(SMOKE, ["psrl"], ["A"]) if cell.kind == "theory")
    found = run_cells([cell], lambda record: [], Store(tmp_path, ""), 2, lambda record: None)
    assert [record["samples"] for record in found] == [measure(cell)[0]["samples"]]


def test_workers_end_with_the_process_that_started_them_even_if_it_is_killed():
    script = "\n".join(
        [
            "import os, signal, time",
            "from pcpg.experiments.table1.cells import _pool",
            "if __name__ == '__main__':",
            "    with _pool(2) as pool:",
            "        print(pool.submit(os.getpid).result(), flush=True)",
            "        os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    worker, until = int(done.stdout), time.monotonic() + 20
    while _is_running(worker) and time.monotonic() < until:
        time.sleep(0.2)
    assert not _is_running(worker)


def _is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return "State:\tZ" not in (status.read_text() if status.exists() else "")


# the table


def test_every_comparator_has_a_label_of_its_own_and_every_row_a_theorem():
    assert len({entry.label for entry in COMPARATORS.values()}) == len(COMPARATORS)
    assert name_of("pcpg", {"assumes_restarts": False}) == "PC-PG"
    assert {entry.row for entry in COMPARATORS.values()} <= set(THEOREMS)
    assert check_algos(()) == tuple(COMPARATORS)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("table1")
    command = ReproduceTable1(scale="smoke", algos=("ucbvi", "reinforce", "pcpg", "cpi"), out=str(out), jobs=1)
    assert command(Console(quiet=True)) == 0
    return out, command


def test_the_command_writes_the_table_the_summary_the_tuning_and_the_figures(results):
    out, command = results
    made = json.loads((out / "summary.json").read_text())
    assert list(made["algos"]) == ["ucbvi", "reinforce", "pcpg", "cpi"] and len(made["trees"]) == 3
    assert made["commands"] == [command.command] and made["core_minutes"] >= 0.0
    text = (out / "table.md").read_text()
    assert text == tables(made) and main_table(made) in text
    assert "CPI (s0)" in text and "A^H at least" in text and "PC-PG" in text and "states none" in text
    assert set(json.loads((out / "tuning.json").read_text())) == set(made["algos"])
    for name in ("samples", "loss", "tree"):
        assert (out / f"{name}.png").stat().st_size > 0 and (out / f"{name}.svg").stat().st_size > 0


def test_the_kept_table_follows_from_the_kept_summary():
    kept = Path(__file__).parents[2] / "results" / "table1"
    summary = json.loads((kept / "summary.json").read_text())
    assert (kept / "table.md").read_text() == tables(summary)
    assert list(summary["algos"]) == list(COMPARATORS) and len(summary["commits"]) == 1


def test_the_same_command_again_measures_nothing_and_says_the_same(results):
    out, command = results
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    text = (out / "table.md").read_text()
    assert command(Console(quiet=True)) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == before
    assert (out / "table.md").read_text() == text


def test_the_old_name_of_pc_pg_is_accepted_and_its_old_cells_are_read(tmp_path):
    old = ReproduceTable1(algos=("pc-pg", "psrl"))
    assert check_algos(old.algos) == ("psrl", "pcpg") and "--algos pcpg psrl" in old.command
    cell, store = plan.size_cell(SMOKE, "pcpg", "lock", 1, 0.1), Store(tmp_path, "command")
    store.write(cell, {"samples": [1.0, None]}, 0.5)
    path = tmp_path / "cells" / "A-pcpg-lock-1.json"
    path.with_name("A-pc-pg-lock-1.json").write_text(path.read_text().replace("pcpg", "pc-pg"))
    path.unlink()
    assert store.read(cell)["samples"] == [1.0, None]
    assert [record["arguments"] for record in store.all()] == [cell.arguments]


def _family(law, reached=True, precision=1.0):
    points = [{"size": 2, "reached": int(reached), "seeds": 1, "low": 1.0, "median": 1.0, "high": 1.0, "budget": 10}]
    growth = None if law is None else {"law": law, "base_low": 1.5}
    return {"points": points, "growth": growth, "precision_base": precision}


def test_the_table_says_where_samples_disagree_with_the_theory():
    def verdict(explores, **laws):
        found = {"exploration": {name.replace("_", " "): _family(law) for name, law in laws.items()}}
        return summary._samples_verdict(explores, found)

    assert verdict(True, lock="polynomial", chain="undecided")["agrees"] is True
    assert "disagrees" in verdict(True, lock="exponential", chain="polynomial")["says"]
    assert verdict(False, lock="exponential", chain="polynomial")["agrees"] is True
    assert "disagrees" in verdict(False, lock="polynomial", deep_sea="exponential")["says"]
    steep = {"exploration": {"chain": _family("exponential", precision=1.7)}}
    assert summary._samples_verdict(True, steep)["agrees"] is True, "no steeper than 1/epsilon^2"
    never = {"exploration": {"lock": _family(None, reached=False)}}
    assert summary._samples_verdict(True, never)["says"] == "never got there within the budget"


def test_the_growth_of_the_precision_is_that_of_the_gap():
    def record(size, gap):
        return {"arguments": {"size": size}, "optimal": [gap + 1.0], "uniform": [1.0]}

    assert summary.precision_base([record(3, 8.0), record(4, 4.0), record(5, 2.0)]) == pytest.approx(4.0)
    assert summary.precision_base([record(3, 8.0)]) == 1.0


def _rows(*losses):
    return [{"kappa": 0.2 * i, "loss": loss, "error": 0.001} for i, loss in enumerate(losses)]


def test_an_algorithm_counts_as_degraded_by_errors_off_the_path_if_it_loses_more_with_them():
    local = _rows(0.0, 0.1, 0.2)

    def verdict(mix, wait):
        return summary._error_verdict({"misspecification": {"mix": mix, "wait": wait, "local": local}})

    assert verdict(_rows(0.0, 0.07, 0.13), _rows(0.0, 0.0, 0.0))["off_path"] == ["mix"]
    assert verdict(_rows(0.0, 0.0, 0.0), _rows(0.0, 0.2, 0.4))["measured"] == "l-infinity"
    assert verdict(_rows(0.0, 0.0, 0.01), _rows(0.0, 0.0, 0.0))["measured"] == "local"
    assert verdict(_rows(0.5, 0.5, 0.5), _rows(0.0, 0.0, 0.0))["measured"] is None


def test_wrong_flags_are_refused_before_any_work():
    with pytest.raises(ValueError, match="unknown algorithm 'ucb'"):
        ReproduceTable1(algos=("ucb",))
    with pytest.raises(ValueError, match="jobs must be"):
        ReproduceTable1(jobs=-1)
    with pytest.raises(ValueError, match="only must be some of A, B, C, got none"):
        ReproduceTable1(only=())
    assert dataclasses.replace(ReproduceTable1(), seeds=3).settings.seeds == 3
