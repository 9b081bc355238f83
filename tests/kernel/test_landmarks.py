"""Landmarks: a kernel on the data it was given, exactly there and never more than 1 elsewhere."""

import numpy as np
import pytest

from pcpg.envs.lock import CombinationLock
from pcpg.kernel.landmarks import (
    NEAREST,
    SHARP,
    as_wide_as_apart,
    averages,
    extend_landmarks,
    inverse_scale_of,
    no_landmarks,
    rest_of,
    spaced_landmarks,
    spread,
    with_capacity,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
ALL = np.ones(len(X), bool)


def kernel(x, y):
    return np.exp(-0.5 * np.square(x[:, None] - y[None]).sum(-1))


@pytest.fixture(scope="module")
def marks():
    return extend_landmarks(no_landmarks(np.ones(3), 64), X, ALL, tol=1e-3)


def test_features_are_a_root_of_the_kernel_on_the_data(marks):
    phi = np.asarray(marks.phi(X))
    np.testing.assert_allclose(phi @ phi.T, kernel(X, X), atol=2e-3)


def test_what_is_left_unexplained_is_below_the_tolerance_on_the_data_and_one_far_from_it(marks):
    assert np.asarray(rest_of(marks.phi(X))).max() <= 1.1e-3
    np.testing.assert_allclose(rest_of(marks.phi(X + 100)), 1.0, atol=1e-6)


def test_with_a_larger_tolerance_there_are_fewer_landmarks(marks):
    coarse = extend_landmarks(no_landmarks(np.ones(3), 64), X, ALL, tol=0.5)
    assert 0 < int(coarse.count) < int(marks.count)
    assert np.asarray(rest_of(coarse.phi(X))).max() <= 0.5 + 1e-5


def test_new_landmarks_leave_the_earlier_coordinates_as_they_are():
    first = extend_landmarks(no_landmarks(np.ones(3), 64), X[:20], ALL[:20], tol=0.05)
    both = extend_landmarks(first, X, ALL, tol=0.05)
    count = int(first.count)
    assert int(both.count) > count
    np.testing.assert_allclose(both.phi(X)[:, :count], first.phi(X)[:, :count], atol=1e-5)


def test_rows_that_are_not_allowed_become_no_landmarks():
    allowed = np.zeros(len(X), bool)
    allowed[:5] = True
    marks = extend_landmarks(no_landmarks(np.ones(3), 64), X, allowed, tol=1e-3)
    assert int(marks.count) == 5


def test_where_there_is_no_room_the_rest_stays_unexplained():
    marks = extend_landmarks(no_landmarks(np.ones(3), 4), X, ALL, tol=1e-3)
    assert int(marks.count) == 4
    assert np.asarray(rest_of(marks.phi(X))).max() > 0.1


def test_more_room_changes_no_feature(marks):
    wider = with_capacity(marks, 128)
    np.testing.assert_allclose(wider.phi(X)[:, :64], marks.phi(X), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(wider.phi(X))[:, 64:], 0.0)


def test_shares_are_a_distribution_that_is_nearly_sure_at_a_landmark_far_from_others():
    far = np.float32([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    marks = extend_landmarks(no_landmarks(np.ones(2), 8), far, np.ones(3, bool), tol=0.1)
    shares = np.asarray(marks.shares(far))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(shares.max(axis=1), 1.0, atol=1e-6)
    middle = np.asarray(marks.shares(np.float32([[4.0, 0.0]])))[0]
    ratio = np.exp(-0.5 * SHARP**2 * (6.0**2 - 4.0**2))
    np.testing.assert_allclose(np.sort(middle)[-2] / middle.max(), ratio, atol=1e-6)


def test_without_a_landmark_nothing_is_shared():
    np.testing.assert_array_equal(np.asarray(no_landmarks(np.ones(3), 8).shares(X)), 0.0)
    np.testing.assert_array_equal(np.asarray(no_landmarks(np.ones(3), 8).nearest_shares(X).share), 0.0)


def test_the_bandwidth_of_the_lock_comes_out_as_the_one_that_tells_its_states_apart():
    env = CombinationLock(15)
    x = env.state_observations(env.instance(0))
    np.testing.assert_allclose(1 / inverse_scale_of(x, x, 0.35), 0.7, rtol=1e-5)


def test_the_scale_follows_the_units_of_each_entry_and_one_that_stands_still_has_the_usual_one():
    x = np.stack([RNG.uniform(size=50), 1000 * RNG.uniform(size=50), np.full(50, 3.0)], axis=1)
    scale = 1 / inverse_scale_of(x, x, 0.35)
    assert 800 < scale[1] / scale[0] < 1250
    assert scale[0] <= scale[2] <= scale[1]


def test_nearest_shares_are_the_largest_of_all_shares_and_a_distribution(marks):
    whole, near = np.asarray(marks.shares(X)), marks.nearest_shares(X)
    largest = -np.sort(-whole, axis=1)[:, :NEAREST]
    assert int(marks.count) > NEAREST
    np.testing.assert_allclose(near.share, largest / largest.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(np.asarray(near.share).sum(axis=1), 1.0, rtol=1e-5)


def test_nearest_shares_average_and_spread_as_a_matrix_of_shares_does(marks):
    near = marks.nearest_shares(X)
    matrix = np.zeros((len(X), marks.capacity), np.float32)
    matrix[np.arange(len(X))[:, None], near.landmark] = near.share
    w, total = RNG.normal(size=(3, marks.capacity)), RNG.normal(size=(3, len(X)))
    np.testing.assert_allclose(averages(near, w), matrix @ w.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(spread(near, total), total @ matrix, rtol=1e-4, atol=1e-6)


def test_spaced_landmarks_lie_apart_and_leave_no_row_without_one_near_it():
    tol, reach = 0.25, -np.log(0.75)  # 1 - k^2 <= tol within this squared distance
    spaced = spaced_landmarks(no_landmarks(np.ones(3), 64), X, ALL, tol)
    places = np.asarray(spaced.places)[: int(spaced.count)]
    apart = np.square(places[:, None] - places[None]).sum(-1) + 10 * np.eye(len(places))
    assert 1 < len(places) < len(X)
    assert apart.min() > reach
    assert np.square(X[:, None] - places[None]).sum(-1).min(axis=1).max() <= reach


def test_spaced_landmarks_end_when_they_are_full_and_take_no_row_that_is_not_allowed():
    allowed = np.arange(len(X)) < 10
    spaced = spaced_landmarks(no_landmarks(np.ones(3), 4), X, allowed, 1e-6)
    assert int(spaced.count) == 4
    assert all((X[:10] == place).all(axis=1).any() for place in np.asarray(spaced.places))


def test_shares_of_spaced_landmarks_are_as_wide_as_they_lie_apart_so_that_every_row_has_several():
    spaced = spaced_landmarks(no_landmarks(np.ones(3), 16), X, ALL, 0.0)
    wide = as_wide_as_apart(spaced)
    places = np.asarray(wide.places)
    reach = 1 / SHARP  # the width of shares, in scaled units
    np.testing.assert_allclose(np.sqrt(np.square(places[:-1] - places[-1]).sum(-1).min()), reach, rtol=1e-5)
    nearest = np.square(X[:, None] * np.asarray(wide.inverse_scale) - places[None]).sum(-1).min(axis=1)
    assert np.sqrt(nearest).max() <= reach * (1 + 1e-5)
    assert np.all(np.sort(np.asarray(wide.shares(X)), axis=1)[:, -1] < 0.99)
