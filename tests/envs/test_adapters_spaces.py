"""What networks see of other people's observations, and what the environments get for actions."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pcpg.envs import Box, Discrete, Image, MultiDiscrete
from pcpg.envs.adapters.spaces import actions_of, observations_of
from pcpg.envs.options import InvalidOption


def test_a_box_is_seen_as_its_entries():
    seen = observations_of(spaces.Box(-2.0, 3.0, (2, 2)))
    assert seen.space == Box(-2.0, 3.0, (4,))
    np.testing.assert_array_equal(seen.encode([[1, 2], [3, -1]]), np.float32([1, 2, 3, -1]))


def test_a_discrete_observation_is_one_hot_from_its_start():
    seen = observations_of(spaces.Discrete(3, start=5))
    assert seen.space == Box(0.0, 1.0, (3,))
    np.testing.assert_array_equal(seen.encode(6), np.float32([0, 1, 0]))


def test_several_discrete_observations_are_one_hot_one_after_the_other():
    seen = observations_of(spaces.MultiDiscrete([[2, 3]]))
    np.testing.assert_array_equal(seen.encode([[1, 2]]), np.float32([0, 1, 0, 0, 1]))


def test_bits_are_zeros_and_ones():
    np.testing.assert_array_equal(observations_of(spaces.MultiBinary(3)).encode([1, 0, 1]), np.float32([1, 0, 1]))


def test_bytes_of_the_size_of_a_picture_are_an_image_and_smaller_ones_are_scaled():
    picture = np.arange(16 * 20 * 3, dtype=np.uint8).reshape(16, 20, 3)
    seen = observations_of(spaces.Box(0, 255, (16, 20, 3), np.uint8))
    assert seen.space == Image(16, 20, 3)
    np.testing.assert_array_equal(seen.encode(picture), picture)
    np.testing.assert_allclose(observations_of(spaces.Box(0, 255, (2,), np.uint8)).encode([51, 255]), [0.2, 1.0])


def test_parts_of_dict_and_tuple_are_put_together_and_text_is_left_out_with_a_notice():
    space = spaces.Dict(
        {
            "a": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 4.0, (1,))]),
            "mission": spaces.Text(10),
            "z": spaces.MultiBinary(1),
        }
    )
    seen = observations_of(space)
    assert seen.space == Box(-1.0, 4.0, (4,))
    np.testing.assert_array_equal(seen.encode({"a": (1, [3.5]), "mission": "go", "z": [1]}), np.float32([0, 1, 3.5, 1]))
    assert seen.notices == ("ignoring the observation['mission']: it is text",)


@pytest.mark.parametrize("space", [spaces.Sequence(spaces.Discrete(2)), spaces.Text(3)])
def test_other_observations_are_refused_with_what_is_supported(space: gymnasium.Space):
    with pytest.raises(InvalidOption, match="supported: Box, Discrete, MultiDiscrete, MultiBinary"):
        observations_of(space)


def test_discrete_actions_begin_where_the_space_begins():
    acts = actions_of(spaces.Discrete(3, start=-1))
    assert acts.space == Discrete(3)
    np.testing.assert_array_equal(acts.decode(np.int32([0, 2])), [-1, 1])


def test_several_discrete_actions_get_the_shape_of_the_space():
    acts = actions_of(spaces.MultiDiscrete([[2, 3]]))
    assert acts.space == MultiDiscrete((2, 3))
    np.testing.assert_array_equal(acts.decode(np.int32([[1, 2]])), [[[1, 2]]])


def test_real_actions_go_from_minus_one_and_one_to_the_bounds_and_are_cut_there():
    acts = actions_of(spaces.Box(np.float32([0.0, -2.0]), np.float32([1.0, 2.0])))
    assert acts.space == Box(-1.0, 1.0, (2,))
    np.testing.assert_allclose(acts.decode(np.float32([[0.0, 1.0], [5.0, -1.0]])), [[0.5, 2.0], [1.0, -2.0]])


@pytest.mark.parametrize("space", [spaces.Box(-np.inf, 1.0, (1,)), spaces.MultiBinary(2)])
def test_other_actions_are_refused_with_what_is_supported(space: gymnasium.Space):
    with pytest.raises(InvalidOption, match="supported: Discrete, MultiDiscrete, and Box with finite bounds"):
        actions_of(space)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16])
def test_a_box_of_integers_is_seen_as_its_entries(dtype: type):
    space = spaces.Box(1, 100, (2,), dtype)
    for seen, value in [
        (observations_of(space), dtype([3, 100])),
        (observations_of(spaces.Dict({"x": space})), {"x": [3, 100]}),
    ]:
        assert seen.space == Box(1.0, 100.0, (2,))
        encoded = seen.encode(value)
        assert encoded.dtype == np.float32
        np.testing.assert_array_equal(encoded, [3, 100])


def test_a_box_of_truth_values_is_seen_as_zeros_and_ones():
    dtype: Any = np.bool_
    seen = observations_of(spaces.Box(0, 1, (2,), dtype))
    assert seen.space == Box(0.0, 1.0, (2,))
    np.testing.assert_array_equal(seen.encode([True, False]), np.float32([1, 0]))


def test_integer_actions_have_equal_shares_and_reach_both_ends():
    acts = actions_of(spaces.Box(np.int64([0, -1]), np.int64([1, 3]), dtype=np.int64))
    assert acts.space == Box(-1.0, 1.0, (2,))
    even = np.linspace(-1, 1, 1000, endpoint=False) + 0.001
    got = acts.decode(np.stack([even, even], axis=1).astype(np.float32))
    assert got.dtype == np.int64
    np.testing.assert_array_equal(np.unique(got[:, 0], return_counts=True), [[0, 1], [500, 500]])
    np.testing.assert_array_equal(np.unique(got[:, 1], return_counts=True), [[-1, 0, 1, 2, 3], [200] * 5])
    np.testing.assert_array_equal(acts.decode(np.float32([[-1, -1], [1, 1], [-9, 9]])), [[0, -1], [1, 3], [0, 3]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_integer_actions_reach_the_ends_of_their_type(dtype: type):
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    got = actions_of(spaces.Box(least, most, (1, 1), dtype)).decode(np.float32([[-1], [1]]))
    assert got.dtype == dtype and got.ravel().tolist() == [least, most] and got.shape == (2, 1, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_real_actions_are_scaled_by_the_middle_and_half_of_the_bounds(dtype: type):
    space = spaces.Box(dtype([-0.3, 0.1]), dtype([0.7, 2.3]), dtype=dtype)
    actions = np.random.default_rng(0).uniform(-1.2, 1.2, (50, 2)).astype(np.float32)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    expected = ((low + high) / 2 + (high - low) / 2 * np.clip(actions, -1.0, 1.0)).astype(dtype)
    assert actions_of(space).decode(actions).tobytes() == expected.tobytes()


def test_parts_without_numbers_are_left_out():
    space = spaces.Dict(
        {
            "empty": spaces.Box(-9.0, 9.0, (0,)),
            "nothing": spaces.Dict({}),
            "words": spaces.Dict({"goal": spaces.Text(5)}),
            "x": spaces.Box(-2.0, 3.0, (1,)),
        }
    )
    seen = observations_of(space)
    assert seen.space == Box(-2.0, 3.0, (1,))
    assert seen.notices == ("ignoring the observation['words']['goal']: it is text",)
    value = {"empty": np.zeros(0), "nothing": {}, "words": {"goal": "go"}, "x": [1.5]}
    np.testing.assert_array_equal(seen.encode(value), np.float32([1.5]))


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (spaces.Box(0.0, 1.0, (3,)), 0.5, r"the observation has shape \(\), expected shape \(3,\) of Box"),
        (spaces.Box(0.0, 1.0, (2, 3)), np.zeros((3, 2)), r"shape \(3, 2\), expected shape \(2, 3\)"),
        (spaces.Box(0, 255, (2,), np.uint8), [7], r"shape \(1,\), expected shape \(2,\)"),
        (spaces.Box(0, 255, (16, 20, 3), np.uint8), np.zeros((20, 16, 3), np.uint8), r"shape \(20, 16, 3\), expected"),
        (spaces.MultiBinary(2), [1], r"shape \(1,\), expected shape \(2,\)"),
        (spaces.MultiDiscrete([2, 2]), [1], r"shape \(1,\), expected shape \(2,\)"),
        (spaces.Discrete(3, start=5), 4, "the observation is 4, expected 5 to 7"),
        (spaces.Discrete(3), 3, "the observation is 3, expected 0 to 2"),
        (spaces.Discrete(3), 1.5, r"the observation is 1\.5, expected integers"),
        (spaces.MultiDiscrete([2, 3]), np.uint8([2, 0]), "entry 0 of the observation is 2, expected 0 to 1"),
        (spaces.MultiDiscrete([2, 3]), [0, -1], "entry 1 of the observation is -1, expected 0 to 2"),
        (spaces.Dict({"x": spaces.Box(0.0, 1.0, (2,))}), {"x": [1.0]}, r"the observation\['x'\] has shape \(1,\)"),
        (spaces.Dict({"x": spaces.Discrete(2)}), {"y": 1}, r"no 'x': got the keys \['y'\], expected .*Dict\('x'"),
        (spaces.Dict({"x": spaces.Discrete(2)}), np.zeros(2), "no 'x': got a ndarray"),
        (spaces.Tuple([spaces.Discrete(2)] * 2), (1,), "the observation has no 1: got a tuple"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused(space: gymnasium.Space, value: Any, message: str):
    with pytest.raises(ValueError, match=message):
        observations_of(space).encode(value)


def test_a_discrete_observation_may_come_as_an_array_with_one_entry():
    np.testing.assert_array_equal(observations_of(spaces.Discrete(3)).encode(np.uint64([2])), np.float32([0, 0, 1]))
