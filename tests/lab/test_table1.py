"""The measured table: its protocol, its fits, its aggregated problems, and the command at smoke scale."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pcpg_lab.table1 import command, growth, measures, plan, summary
from pcpg_lab.table1.command import ReproduceTable1, Store, measure, run_cells, source_of
from pcpg_lab.table1.growth import compare
from pcpg_lab.table1.measures import choose, choose_own, measure_losses, regret_curve
from pcpg_lab.table1.plan import Table1Cell
from pcpg_lab.table1.problems import LARGEST_ERROR, MISSPECIFIED, WAIT, errors, misspecified, unavoidable
from pcpg_lab.table1.settings import (
    CONTROLS,
    OPTIONS,
    PATIENT,
    POWER,
    SETTINGS,
    allowed,
    budget_of,
    check_algos,
    maker,
    scale_of,
)
from pcpg_lab.table1.table import ERRORS, main_table, name_of, short_table, tables
from pcpg_theory.learners import problem, runner
from pcpg_theory.learners.layout import Streams
from pcpg_theory.learners.registry import COMPARATORS
from pcpg_theory.theorems import NONE, THEOREMS, WAITS, Size, Theorem

SMOKE = SETTINGS["smoke"]


# growth beside a theorem


def sized(points, epsilon=0.1):
    return {k: Size(states=k, timed=k * k, width=k, actions=2, horizon=k, epsilon=epsilon) for k in points}


def seeds_at(*medians, spread=0.1):
    """Ten seeds around each number; None: nobody got there."""
    noise = np.exp(spread * np.random.default_rng(0).normal(size=10))
    return [np.full(10, np.inf) if m is None else m * noise for m in medians]


CUBE = Theorem("L^3", lambda s: float(s.horizon**3))


def verdict(theorem, *medians, budget=1e6, claims=True):
    points = list(range(2, 2 + len(medians)))
    return compare(dict(zip(points, seeds_at(*medians), strict=True)), sized(points), theorem, budget, 200, claims)


def test_samples_that_grow_as_the_theorem_or_less_are_within_it_whatever_the_law():
    assert verdict(CUBE, 800, 2700, 6400).verdict == "within"
    found = verdict(CUBE, 100, 100, 120)
    assert found.verdict == "within" and found.theorem == pytest.approx(8.0) and found.measured == pytest.approx(1.2)
    steep = Theorem("60 L^2 + L^8 / 1000", lambda s: 60.0 * s.horizon**2 + 1e-3 * s.horizon**8)
    assert verdict(steep, *(60 * h**2 + 1e-3 * h**8 for h in range(2, 9))).verdict == "within"


def test_samples_that_grow_faster_exceed_it_at_any_size_and_beyond_the_budget():
    assert verdict(CUBE, 100, 1000, 10_000).verdict == "exceeds"
    assert verdict(CUBE, 100, 1000, 700).verdict == "exceeds"  # at the second size
    assert verdict(CUBE, 100, 200, None, budget=1e6).verdict == "exceeds"  # 10,000 times at least, of 8
    assert verdict(CUBE, 100, 200, None, budget=500).verdict == "open"
    assert verdict(CUBE, None, None).verdict == "open"
    assert verdict(CUBE, 100, 1000, 10_000, claims=False).verdict == "no claim"
    assert verdict(NONE, 100, 1000).verdict == "no claim" and verdict(NONE, 100, 1000).measured == pytest.approx(10.0)


def test_a_lower_bound_is_met_by_growing_at_least_as_fast():
    assert verdict(WAITS, 100, 250, 600).verdict == "within"  # of 2^L
    assert verdict(WAITS, 100, 110, 120).verdict == "exceeds"
    assert verdict(WAITS, 100, None, budget=1e6).verdict == "within"


def test_a_difference_that_chance_may_explain_is_open_and_a_size_that_only_larger_ones_pass_is_stuck():
    wide = compare(dict(zip((2, 3), seeds_at(100, 700, spread=1.5), strict=True)), sized((2, 3)), CUBE, 1e6, 200)
    assert wide.verdict == "open" and (wide.measured or 0.0) > 3.0 * (wide.theorem or np.inf) / 2.0
    few = dict(zip((2, 3), seeds_at(100, 120, spread=1.5), strict=True))
    assert compare(few, sized((2, 3)), WAITS, 1e6, 200).verdict == "open"  # 1.2 times, of 2 at least
    assert verdict(CUBE, 100, None, 200).verdict == "stuck"
    assert verdict(CUBE, None, 100, 200).verdict == "stuck"
    assert verdict(CUBE, None, 100, claims=False).verdict == "no claim"


def test_a_factor_of_a_size_counts_only_where_it_is_better_by_more_than_noise():
    def trials(*scores):
        return [
            {"factor": f, "log_samples": s, "share": 0.5, "samples": {"lock": [1.0]}}
            for f, s in zip((0.1, 1.0, 10.0), scores, strict=True)
        ]

    assert choose_own(trials(5.0, 5.1, 5.0), 1.0) == 1.0 and choose_own(trials(5.0, 6.0, 7.0), 1.0) == 0.1


def test_a_point_counts_as_reached_if_half_of_the_seeds_got_there_and_the_shares_are_kept():
    half, few = (np.r_[np.full(n, 100.0), np.full(10 - n, np.inf)] for n in (5, 4))
    found = compare({2: half, 3: half * 4, 4: few}, sized((2, 3, 4)), CUBE, 1e4, 50)
    assert found.last == 3 and found.shares == [0.5, 0.5, 0.4] and found.measured == pytest.approx(4.0)
    assert all(
        value is None or np.isfinite(value) for key, value in found.as_record().items() if key in ("low", "high")
    )


# power


def test_a_family_has_power_from_the_first_size_on_from_which_every_control_fails():
    sizes = (2, 3, 4, 5)
    assert growth.fails({"a": {2: 1.0, 3: 0.4, 4: 0.6, 5: 0.1}, "b": {2: 0.5, 3: 0.0}}, sizes) == 5
    assert growth.fails({"a": {2: 1.0, 3: 0.4, 4: 0.0}}, sizes) == 3, "what was not run after that has failed"
    assert growth.fails({"a": dict.fromkeys(sizes, 1.0), "b": {2: 0.0}}, sizes) is None
    assert growth.fails({}, sizes) is None


def test_growth_that_ends_where_controls_get_there_too_has_no_power():
    found = verdict(CUBE, 800, 2700, 6400)
    said = [growth.judged(found, place, True).verdict for place in (None, 3, 4, 5)]
    assert said == ["no power", "within", "within", "no power"]
    assert growth.judged(found, None, False).verdict == "within", "without controls nothing is known"
    other = verdict(CUBE, 100, 1000, 10_000)
    assert growth.judged(other, None, True).verdict == "exceeds"


def test_the_exponential_law_is_that_of_uniform_play():
    locks = growth.uniform_growth({h: problem.lock(h, [0, 1]) for h in (2, 3, 4)})
    # An episode of H + 1 steps opens the better lock with probability 10^-H / 2.
    assert list(locks.values()) == pytest.approx([1.0, 10 * 4 / 3, 100 * 5 / 3])
    river = problem.riverswim(1, 3, 4)
    source = runner.EpisodeSource(river, Streams([0], 0))
    seen = source.roll_out(np.full((1, river.layout.num_states, 2), 0.5), 40_000)
    met = float((seen.r == river.r.max()).sum() / 40_000)
    assert growth.rewards_met(river) == pytest.approx(met, abs=4 * met**0.5 / 200)


def test_polynomial_data_look_polynomial_and_exponential_ones_do_not():
    points, budget = (2, 4, 8), 1e9
    sizes, exponential = sized(points), {2: 1.0, 4: 1e3, 8: 1e6}
    samples = dict(zip(points, seeds_at(800, 5000, 40_000), strict=True))
    measured = compare(samples, sizes, CUBE, budget, 60)
    found = growth.chances(samples, sizes, CUBE, budget, exponential, measured, 60)
    assert measured.verdict == "within"
    assert found.polynomial > 0.5 and found.exponential == found.as_little == 0.0
    blind = growth.chances(samples, sizes, CUBE, budget, {2: 1.0, 4: 2.0, 8: 4.0}, measured, 60)
    assert blind.exponential > 0.9, "an exponential that grows less than the theorem cannot be told from it"
    assert blind.as_little == 1.0
    again = growth.chances(samples, sizes, CUBE, budget, exponential, measured._replace(verdict="exceeds"), 60)
    assert again.exponential == 1.0 and again.as_little == 0.0
    assert growth.chances({2: np.full(10, np.inf)}, sizes, CUBE, budget, exponential, measured, 9) is None


def test_the_chances_are_those_of_coins():
    """Half of the seeds take ten times as many samples as the others: medians are then tenfold or not by a coin.

    The lower median of ten seeds is the low value if five or more are low. `within` 8 and 64 from size 2 to 4 and 8:
    polynomial ones are if the first is tenfold, or if none is; these exponential ones only if the first alone is.
    """
    low = sum(math.comb(10, k) for k in range(5, 11)) / 2**10
    samples = {p: np.repeat([m, 10.0 * m], 5) for p, m in {2: 1e3, 4: 8e3, 8: 5e4}.items()}
    measured = compare(samples, sized(samples), CUBE, 1e9, 200)
    assert measured.verdict == "within" and measured.measured == 50.0
    found = growth.chances(samples, sized(samples), CUBE, 1e9, {2: 1.0, 4: 24.0, 8: 300.0}, measured, 1500)
    assert found.polynomial == pytest.approx(1 - low + low**3, abs=0.05)
    assert found.exponential == pytest.approx((1 - low) * low**2, abs=0.04)
    assert found.as_little == pytest.approx((1 - low) * low, abs=0.05), "30 times, where 50 were measured"
    cut = growth.chances(samples, sized(samples), CUBE, 1e5, {2: 1.0, 4: 24.0, 8: 300.0}, measured, 1500)
    assert cut.as_little == 0.0, "300,000 and more lie beyond the budget"


def test_growth_under_a_theorem_steeper_than_uniform_play_is_still_told_from_it():
    points, steep = (2, 4, 8), Theorem("L^12", lambda s: float(s.horizon**12))
    samples = dict(zip(points, seeds_at(800, 5000, 40_000), strict=True))
    measured = compare(samples, sized(points), steep, 1e9, 60)
    found = growth.chances(samples, sized(points), steep, 1e9, {2: 1.0, 4: 1e2, 8: 1e4}, measured, 60)
    assert measured.verdict == "within" and found.exponential == 1.0 and found.as_little == 0.0
    as_it = compare(dict(zip(points, seeds_at(10, 1000, 100_000), strict=True)), sized(points), steep, 1e9, 60)
    again = growth.chances(samples, sized(points), steep, 1e9, {2: 1.0, 4: 1e2, 8: 1e4}, as_it, 60)
    assert again.as_little > 0.3, "what grows as uniform play does is no rarity"


def test_a_control_is_judged_by_the_budget_of_whom_it_is_a_control_for():
    record = {
        "kind": "A",
        "arguments": {"algo": "npg", "family": "lock", "size": 2},
        "samples": [10.0, 300.0, None, None],
    }
    shares = [growth.controls_of([record], budget)["lock"]["npg"][2] for budget in (5, 100, 1000)]
    assert shares == [0.0, 0.25, 0.5]
    settings = SETTINGS["laptop"]
    assert {budget_of(settings, name) for name in ("pcpg", *CONTROLS)} == {settings.long_budget}
    assert budget_of(settings, "ucbvi") == settings.budget < settings.long_budget


def test_theorems_are_functions_of_the_size_and_grow_as_they_say():
    small = Size(states=5, timed=100, width=5, actions=2, horizon=20, epsilon=0.1)
    double = small._replace(epsilon=0.05)
    for name, degree in (("ucbvi", 2), ("e3", 5), ("r-max", 4), ("delayed-q", 4), ("lsvi-ucb", 2), ("kwik", 3)):
        logs = double.log / small.log
        assert THEOREMS[name].growth(small, double) == pytest.approx(2.0**degree * logs)
    longer = small._replace(horizon=40)
    assert THEOREMS["ucbvi"].growth(small, longer) == pytest.approx(32.0)
    assert THEOREMS["ucbvi-bernstein"].growth(small, longer) == pytest.approx(16.0)
    assert THEOREMS["reinforce"].growth(small, longer) == pytest.approx(2.0**20) and THEOREMS["reinforce"].lower
    assert (THEOREMS["pcpg"].growth(small, double) or 0.0) > 2.0**6 and THEOREMS["cpi"].growth(small, double) is None


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
    from pcpg_theory.learners import tables

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
        found = measure_losses(algo, "mix", [0.0, 0.4], factor, 8_000, list(range(4)), [1000])
        lost[algo] = [float(np.mean(row["loss"])) for row in found["rows"]]
    assert lost["r-max"][0] < 0.01 and lost["r-max"][1] == pytest.approx(0.4 / 3.0, abs=0.02)
    assert max(lost["ucb-q"]) < 0.02


def test_other_factors_are_tried_only_where_the_tuned_one_loses_and_the_best_counts():
    rows = measure_losses("ucb-q", "mix", [0.0], 10.0, 3_000, [0, 1], [1000, 1001])["rows"]
    assert set(rows[0]["mean_loss_by_factor"]) == {"10", "1", "100"}
    assert np.mean(rows[0]["loss"]) == rows[0]["mean_loss_by_factor"][f"{rows[0]['factor']:g}"]
    alone = measure_losses("ucb-q", "mix", [0.0], 1.0, 3_000, [0, 1], [1000])["rows"]
    assert alone[0]["mean_loss_by_factor"]["1"] == rows[0]["mean_loss_by_factor"]["1"]
    rows = measure_losses("ucb-q", "mix", [0.0], 1e-3, 3_000, [0, 1], [1000])["rows"]
    assert set(rows[0]["mean_loss_by_factor"]) == {"0.001"}


def test_the_factor_of_an_error_is_chosen_by_other_seeds_than_those_that_are_reported(monkeypatch):
    losses = {1.0: [0.0, 0.0, 9.0], 0.1: [5.0, 5.0, 1.0], 10.0: [7.0, 7.0, 8.0]}  # two seeds, and one of the tuning
    monkeypatch.setattr(
        measures, "_losses", lambda algo, factors, problem, kappas, *_: [[losses[f] for f in factors] for _ in kappas]
    )
    (row,) = measure_losses("ucb-q", "mix", [0.0], 1.0, 3_000, [0, 1], [1000])["rows"]
    assert row["factor"] == 0.1 and row["loss"] == [5.0, 5.0]


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
    for cell in tunings:
        more = PATIENT.get(cell.arguments["algo"], 1)
        asked = {k: v for k, v in cell.arguments.items() if k != "algo"}
        assert asked == arguments | {"budget": arguments["budget"] * more}
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


def test_sizes_end_after_one_at_which_no_seed_got_there_and_ends_where_one_failed_have_a_factor_of_their_own():
    def after(samples, size):
        cells = plan.cells_after(_size_record(samples, size), SMOKE, ["A"])
        return [(cell.kind, cell.arguments["size"]) for cell in cells]

    assert after([None, 100.0], 1) == [("A", 2), ("own", 1)]
    assert after([None, None], 1) == [("own", 1)]
    assert after([1.0, None], 2) == [("own", 2)]
    assert after([1.0, 1.0], 2) == []
    limits = [
        plan.own_cell(SMOKE, _size_record(found, 1)).arguments["limit"] for found in ([None, 900.0], [None, None])
    ]
    assert limits == [900, 666]


def test_a_seed_ends_by_itself_whoever_runs_beside_it():
    def samples(seeds):
        made = problem.noisy_sea(3, seeds)
        settle = runner.Settle(0.1 * (made.optimal() - made.uniform()), 3.0, hope=3000)
        make = maker("ucbvi", 3e-4)
        history = runner.run(made, make, seeds, 8_000, grid=runner.log_grid(8_000), settle=settle)
        return runner.samples_to(history, settle.epsilon), history.returns[:, -1]

    together = samples([3, 4, 5, 6])
    assert len(set(together[0].tolist())) > 1
    for i, seed in enumerate([3, 4, 5, 6]):
        alone = samples([seed])
        assert alone[0][0] == together[0][i] and alone[1][0] == pytest.approx(together[1][i])


def test_families_with_noise_need_a_bonus_and_pay_what_they_say():
    for made in (problem.tree(3, [0, 1]), problem.noisy_sea(4, [0, 1])):
        assert made.noisy
        pi = np.full((2, made.layout.num_states, 2), 0.5)
        episodes = runner.EpisodeSource(made, runner.Streams([0, 1], 0)).roll_out(pi, 20_000)
        assert set(np.unique(episodes.r)) == {0.0, 1.0}
        raw = (made.low + (made.high - made.low) * episodes.r).sum(-1)
        assert np.abs(raw.mean(1) - made.uniform()).max() < 4.0 * (raw.std(1) / np.sqrt(20_000)).max()
    wild = problem.tree(3, [0, 1], astray=2)
    good = 0.98**3 * 0.3 + (1 - 0.98**3) * 0.1  # who slips off the tree gets what another leaf pays
    assert wild.optimal() == pytest.approx([good, good])
    blind = 0.1 + 0.2 * (0.98 / 4) ** 3  # the good leaf is met by one of four actions at each of three nodes
    assert wild.uniform() == pytest.approx([blind, blind])
    sea = problem.noisy_sea(4, [0])
    slip, cost = 0.5 / 4, 0.05 / 4
    reach = (1 - slip) ** 3
    best = reach * 0.3 * (1 - slip) - cost * sum((1 - slip) ** k for k in range(4))
    assert sea.optimal()[0] == pytest.approx(best, abs=2e-3)  # after a slip it does not pay to go on


def test_the_regret_curve_adds_up_what_each_episode_loses():
    history = runner.History(np.array([20, 40, 80]), np.array([[0.0, 0.5, 1.0]]), np.ones(1), np.zeros(1), 80)
    assert regret_curve(history, 10)["regret"] == [2.0, 3.0, 3.0]


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


def test_cells_of_another_tree_are_measured_again(monkeypatch):
    cells = [plan.size_cell(SMOKE, "ucb-q", family, 2, 1.0) for family in ("tree", "lock")]
    cells.append(plan.tuning_cell(SMOKE, "ucb-q"))
    before = [source_of(cell) for cell in cells]
    monkeypatch.setattr(command, "ASTRAY", 3)
    assert [source_of(cell) == one for cell, one in zip(cells, before, strict=True)] == [False, True, False]


def test_a_process_of_its_own_measures_the_same(tmp_path):
    cell = next(cell for cell in plan.first_cells(SMOKE, ["psrl"], ["A"]) if cell.kind == "theory")
    found = run_cells([cell], lambda record: [], Store(tmp_path, ""), 2, lambda record: None)
    assert [record["samples"] for record in found] == [measure(cell)[0]["samples"]]


def test_workers_end_with_the_process_that_started_them_even_if_it_is_killed():
    script = "\n".join(
        [
            "import os, signal, time",
            "from pcpg_lab.sweeps.local import LocalEngine",
            "print(LocalEngine(1, 0.0).hire(0, lambda: False).pid, flush=True)",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    worker, until = int(done.stdout), time.monotonic() + 120
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
    assert name_of("pcpg", {"label": "PC-PG", "assumes_restarts": False}) == "PC-PG"
    assert {entry.row for entry in COMPARATORS.values()} <= set(ERRORS) and set(COMPARATORS) == set(THEOREMS)
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
    assert text == tables(made) and text.startswith(short_table(made)) and main_table(made) in text
    assert "CPI (s0)" in text and "A^H at least" in text and "PC-PG" in text and "states none" in text
    assert "L^5 S A / eps^2" in text and "no bonus, at" in text and "samples: LSVI-UCB" in text
    assert set(json.loads((out / "tuning.json").read_text())) == set(made["algos"])
    for name in ("samples", "regret", "loss", "tree"):
        assert (out / f"{name}.png").stat().st_size > 0 and (out / f"{name}.svg").stat().st_size > 0


def test_the_kept_table_follows_from_the_kept_summary():
    kept = Path(__file__).parents[2] / "results" / "table1"
    summary = json.loads((kept / "summary.json").read_text())
    assert (kept / "table.md").read_text() == tables(summary)
    assert list(summary["algos"]) == list(COMPARATORS)
    made: dict[str, set[str]] = {}
    for path in (kept / "cells").glob("*.json"):
        record = json.loads(path.read_text())
        made.setdefault(record["arguments"].get("algo", "trees"), set()).add(record["commit"])
    assert all(len(commits) == 1 for commits in made.values())  # those of an algorithm are of one commit


def test_pc_pg_is_within_its_theorem_where_every_control_fails_with_as_many_samples():
    kept = Path(__file__).parents[2] / "results" / "table1"
    summary = json.loads((kept / "summary.json").read_text())
    assert (kept / "table.md").read_text() == tables(summary)
    for controls in summary["controls"].values():
        for family, sizes in summary["protocol"]["sizes"].items():
            assert all(share.get(str(sizes[-1]), 0.0) < 0.5 for share in controls[family]["reached"].values())
            assert len(controls[family]["reached"]) == len(CONTROLS) and controls[family]["from"] <= sizes[-1]
    found = {family: part["growth"]["verdict"] for family, part in summary["algos"]["pcpg"]["exploration"].items()}
    assert found == {"lock": "within", "chain": "open", "tree": "within", "noisy sea": "within"}


def test_the_same_command_again_measures_nothing_and_says_the_same(results, monkeypatch):
    out, command = results
    monkeypatch.setattr("pcpg_lab.table1.command.draw_all", lambda summary, out: [])  # seconds, seen above
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
