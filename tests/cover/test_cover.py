"""The cover as a stack of fixed capacity."""

import jax
import numpy as np
import pytest

from pcpg.cover.cover import add_member, empty_cover, with_weights
from pcpg.envs.spaces import Box, Discrete
from pcpg.policies.networks import init_actor_critic


def policy(seed):
    rng = np.random.default_rng(seed)
    return init_actor_critic(rng, Box(0.0, 1.0, (3,)), Discrete(4), hidden=(5,), shared_body=True)


def sigma(seed):
    return np.diag(np.random.default_rng(seed).random(2)).astype(np.float32)


def cover_of(*seeds, capacity=4):
    cover = empty_cover(policy(0), dim=2, capacity=capacity)
    for seed in seeds:
        cover = add_member(cover, policy(seed), sigma(seed))
    return cover


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
        assert np.asarray(x).dtype == np.asarray(y).dtype


def test_members_are_the_policies_that_were_added_in_their_order():
    cover = cover_of(7, 3, 9)
    assert (int(cover.size), cover.capacity) == (3, 4)
    for index, seed in enumerate((7, 3, 9)):
        assert_same(cover.member(index), policy(seed))
        np.testing.assert_array_equal(cover.used[index], sigma(seed).astype(np.float64))


def test_places_beyond_the_size_are_zeros_with_weight_zero():
    cover = with_weights(cover_of(7, 3), np.array([0.25, 0.75]))
    np.testing.assert_array_equal(cover.weights, [0.25, 0.75, 0, 0])
    assert all(not leaf[2:].any() for leaf in jax.tree.leaves(cover.members))
    assert not cover.sigmas[2:].any()


def test_adding_a_member_changes_no_shape_and_leaves_the_old_cover_alone():
    before = with_weights(cover_of(7), np.ones(1))
    copy = jax.tree.map(np.copy, before)
    after = add_member(before, policy(3), sigma(3))
    assert_same(before, copy)
    assert jax.tree.map(np.shape, after) == jax.tree.map(np.shape, before)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    np.testing.assert_array_equal(after.weights, [1, 0, 0, 0])  # the newcomer has none until weights are set


def test_the_summed_covariance_is_that_of_the_members_there_are():
    np.testing.assert_allclose(cover_of(7, 3).sigma_sum, sigma(7).astype(float) + sigma(3), rtol=1e-12)
    np.testing.assert_array_equal(cover_of().sigma_sum, np.zeros((2, 2)))


def test_covariances_are_kept_symmetric_in_float64():
    lopsided = np.array([[1.0, 0.5], [0.3, 2.0]], np.float32)
    cover = add_member(cover_of(), policy(0), lopsided)
    assert cover.sigmas.dtype == np.float64
    np.testing.assert_allclose(cover.used[0], [[1.0, 0.4], [0.4, 2.0]], rtol=1e-6)


def test_a_full_cover_takes_no_more():
    with pytest.raises(ValueError, match="the cover is full: capacity 2"):
        add_member(cover_of(1, 2, capacity=2), policy(3), sigma(3))


@pytest.mark.parametrize("index", [-1, 2, 4])
def test_there_is_no_member_beyond_the_size(index):
    with pytest.raises(IndexError, match=f"the cover has members 0 to 1, got {index}"):
        cover_of(1, 2).member(index)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_covariance_that_is_not_finite_is_refused_with_the_number_of_the_member(value):
    with pytest.raises(ValueError, match="the covariance of member 1 contains a non-finite value"):
        add_member(cover_of(1), policy(2), np.full((2, 2), value))


@pytest.mark.parametrize("shape", [(3, 3), (1, 1), (2,)])
def test_a_covariance_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"a covariance of this cover has shape \(2, 2\), got"):
        add_member(cover_of(1), policy(2), np.ones(shape))


@pytest.mark.parametrize("count", [1, 3])
def test_there_is_one_weight_for_each_member(count):
    with pytest.raises(ValueError, match=rf"2 members need 2 weights, got shape \({count},\)"):
        with_weights(cover_of(1, 2), np.ones(count) / count)


@pytest.mark.parametrize("capacity", [0, -3])
def test_a_cover_needs_room_for_one(capacity):
    with pytest.raises(ValueError, match=f"the capacity of a cover must be at least 1, got {capacity}"):
        empty_cover(policy(0), dim=2, capacity=capacity)
