"""HOMER: labels of observations by contrast, and policies that reach them, on a lock seen through observations."""

import numpy as np
import pytest

from pcpg_theory.learners import runner
from pcpg_theory.learners.homer import HOMER, block_lock, fit_labels


def test_labels_are_those_of_observations_that_follow_the_same_pairs():
    shares = np.array([[0.9, 0.9, 0.1, 0.1, 0.1], [0.2, 0.2, 0.8, 0.8, 0.8]])  # of real ones, by pair and observation
    found = fit_labels(100.0 * (1.0 - shares), 100.0 * shares, 2, np.random.default_rng(0).random((5, 5)))
    assert found[0] == found[1] != found[2] == found[3] == found[4]
    alone = fit_labels(np.ones((2, 1)), np.ones((2, 1)), 3, np.array([[0.5]]))
    assert alone.shape == (1,)


def test_the_block_lock_pays_after_right_actions_and_its_observations_say_no_more_than_the_state():
    made = block_lock(3, [0, 1], observations=2, actions=4)
    np.testing.assert_allclose(made.optimal(), 1.0)
    np.testing.assert_allclose(made.uniform(), 4.0**-3)
    assert made.horizon == 4 and made.layout.width == 6
    np.testing.assert_array_equal(made.P[:, 1], made.P[:, 2])  # two observations of one state
    with pytest.raises(ValueError, match="observations must be 1 or more, got 3 and 0"):
        block_lock(3, [0], observations=0)


def test_homer_opens_the_block_lock_and_tells_its_states_apart():
    made, learners = block_lock(2, [0, 1], observations=4), []

    def make(layout, streams):
        learners.append(HOMER(layout, streams))
        return learners[-1]

    history = runner.run(made, make, [0, 1], 60_000, points=60)
    assert (history.returns[:, -1] > 0.95).all() and history.returns[:, 0].max() < 0.1
    latent = np.repeat([0, 0, 1], 4)  # where an observation came from: the good states alike, or the dead end
    for found in learners[0].backward[:, 1:13]:
        assert not set(found[latent == 0]) & set(found[latent == 1])


def test_homer_refuses_numbers_below_one():
    with pytest.raises(ValueError, match="pairs must be a positive number, got 0"):
        HOMER(block_lock(2, [0]).layout, runner.Streams([0], 1), pairs=0)
