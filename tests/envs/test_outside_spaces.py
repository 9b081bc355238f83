"""What networks see of other people's observations, and what the environments get for actions."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pcpg.envs import Box, Discrete, Image, MultiDiscrete
from pcpg.envs.options import InvalidOption
from pcpg.envs.outside.spaces import actions_of, observations_of


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
    assert seen.notices == ("the observation['mission'] is text and is left out",)


@pytest.mark.parametrize("space", [spaces.Sequence(spaces.Discrete(2)), spaces.Text(3)])
def test_other_observations_are_refused_with_what_is_supported(space: gymnasium.Space):
    with pytest.raises(InvalidOption, match="supported are Box, Discrete, MultiDiscrete, MultiBinary"):
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
    with pytest.raises(InvalidOption, match="supported are Discrete, MultiDiscrete, and Box with finite bounds"):
        actions_of(space)
