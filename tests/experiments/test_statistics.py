"""Intervals and fits against independent statements of them."""

import numpy as np
import pytest
from scipy.stats import binomtest

from pcpg.reports.statistics import fit_power_law, wilson


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (1, 20), (10, 20), (19, 20), (20, 20), (3, 4)])
def test_wilson_intervals_agree_with_scipy(successes, trials):
    ours = wilson(successes, trials)
    theirs = binomtest(successes, trials).proportion_ci(method="wilson")
    np.testing.assert_allclose([ours.low, ours.high], [theirs.low, theirs.high], atol=1e-6)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="got 5 of 4"):
        wilson(5, 4)


def test_a_power_law_is_found_with_its_exponent_inside_the_interval():
    x = np.repeat([2.0, 5.0, 10.0, 15.0], 10)
    noise = np.random.default_rng(0).normal(0, 0.1, x.size)
    law = fit_power_law(x, 3.0 * x**1.5 * np.exp(noise))
    assert law.low < 1.5 < law.high and abs(law.factor - 3.0) < 0.5
    with pytest.raises(ValueError, match="two places"):
        fit_power_law(np.ones(3), np.ones(3))
