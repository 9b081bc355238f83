"""Intervals over seeds and fits: known values, independent statements, and coverage where the truth is known."""

import math

import numpy as np
import pytest

from pcpg.reports.statistics import bootstrap, iqm, wilson
from pcpg_lab.claims.lock_figures import fit_power_law

Z = 1.959963984540054  # the 97.5% quantile of the normal distribution


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (1, 20), (10, 20), (19, 20), (20, 20), (3, 4)])
def test_wilson_intervals_hold_the_shares_that_a_score_test_would_not_reject(successes: int, trials: int) -> None:
    interval = wilson(successes, trials)
    assert interval.value == successes / trials
    for end in (interval.low, interval.high):
        if 0 < end < 1:
            score = (interval.value - end) / math.sqrt(end * (1 - end) / trials)
            assert abs(score) == pytest.approx(Z, rel=1e-9)
    assert (interval.low == 0.0) == (successes == 0) and (interval.high == 1.0) == (successes == trials)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="got 5 of 4"):
        wilson(5, 4)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 20, 41])
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(count, 6))
    middle = np.sort(values, axis=0)[count // 4 : count - count // 4]
    np.testing.assert_allclose(iqm(values), middle.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(iqm(values.T, axis=1), iqm(values), rtol=1e-12)


def test_the_interquartile_mean_ignores_the_outer_quarters() -> None:
    assert iqm(np.array([-1e9, 1.0, 3.0, 1e9])) == 2.0


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(1.0, 2.0, (20, 600))  # 600 experiments of 20 seeds, one a column
    band = bootstrap([data], samples=1000, seed=1)
    covered = np.mean((band.low <= 1.0) & (band.high >= 1.0))
    assert 0.90 <= covered <= 0.97


def test_strata_are_drawn_apart() -> None:
    # Two environments of constant score: resampling inside each can change nothing, across them it would.
    strata = [np.full((5, 1), 0.0), np.full((5, 1), 10.0)]
    band = bootstrap(strata, lambda rows: rows.mean(axis=0))
    assert band.value[0] == band.low[0] == band.high[0] == 5.0
    mixed = bootstrap([np.concatenate(strata)], lambda rows: rows.mean(axis=0))
    assert mixed.low[0] < 4.0 and mixed.high[0] > 6.0


def test_the_interval_is_a_function_of_its_seed() -> None:
    data = np.random.default_rng(2).normal(size=(6, 3))
    first, again, other = (bootstrap([data], seed=seed, samples=200) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.low, again.low)
    assert np.any(first.low != other.low)


def test_one_seed_has_an_interval_of_no_width_and_none_is_refused() -> None:
    band = bootstrap([np.array([[3.0]])])
    assert band.value[0] == band.low[0] == band.high[0] == 3.0
    with pytest.raises(ValueError, match="one seed in every stratum"):
        bootstrap([np.zeros((0, 1))])


def test_a_power_law_is_found_with_its_exponent_inside_the_interval() -> None:
    x = np.repeat([2.0, 5.0, 10.0, 15.0], 10)
    noise = np.random.default_rng(0).normal(0, 0.1, x.size)
    law = fit_power_law(x, 3.0 * x**1.5 * np.exp(noise))
    assert law.low < 1.5 < law.high and abs(law.factor - 3.0) < 0.5
    with pytest.raises(ValueError, match="two places"):
        fit_power_law(np.ones(3), np.ones(3))
