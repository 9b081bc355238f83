"""The interquartile mean and its bootstrap interval: known values, and coverage on data whose truth is known."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from pcpg.reports.statistics import bootstrap, iqm


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 20, 41])
def test_the_interquartile_mean_is_scipys_trimmed_mean(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(count, 6))
    np.testing.assert_allclose(iqm(values), trim_mean(values, 0.25, axis=0), rtol=1e-12)
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
    with pytest.raises(ValueError, match="a seed in every stratum"):
        bootstrap([np.zeros((0, 1))])
