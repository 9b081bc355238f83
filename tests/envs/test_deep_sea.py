"""Deep Sea against the rules of bsuite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs import DeepSea
from pcpg.envs.deep_sea import DeepSeaParams, DeepSeaState
from tests.values import occupancy, optimal_value, policy_value


def policy_from(right: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The policy that takes `actions` (0: left, 1: right) whatever the buttons mean."""
    size = len(right)
    chosen = np.where(actions == 1, right, 1 - right).ravel()
    return np.eye(2)[np.append(chosen, 0)].reshape(size * size + 1, 2)


@pytest.mark.parametrize("size", [1, 2, 7, 10])
def test_the_best_return_is_one_less_the_cost_of_the_whole_way(size: int):
    env = DeepSea(size)
    model = env.tabular(env.instance(3))
    assert optimal_value(model, env.max_steps) == pytest.approx(0.99, abs=1e-12)


def test_always_left_returns_nothing_and_always_right_the_best():
    env = DeepSea(6)
    params = env.instance(1)
    model = env.tabular(params)
    left = policy_from(params.right_action, np.zeros((6, 6)))
    right = policy_from(params.right_action, np.ones((6, 6)))
    assert policy_value(model, left, 6) == 0.0
    assert policy_value(model, right, 6) == pytest.approx(0.99, abs=1e-12)


def test_one_wrong_turn_loses_the_treasure_but_not_the_cost():
    env = DeepSea(4)
    params = env.instance(5)
    moves = np.ones((4, 4))
    moves[1, 1] = 0
    value = policy_value(env.tabular(params), policy_from(params.right_action, moves), 4)
    assert value == pytest.approx(-3 * 0.01 / 4, abs=1e-15)


def test_uniform_play_finds_the_treasure_with_probability_two_to_the_minus_size():
    env = DeepSea(8)
    params = env.instance(0)
    model = env.tabular(params)
    visits = occupancy(model, np.full(model.shape, 0.5), 8)
    assert visits[63, params.right_action[7, 7]] == pytest.approx(2.0**-8, rel=1e-12)


@pytest.mark.parametrize(
    ("row", "column", "action", "next_column", "reward", "terminated"),
    [
        (0, 0, 1, 1, -0.005, False),  # right
        (0, 0, 0, 0, 0.0, False),  # left, at the wall
        (1, 0, 1, 0, 0.0, True),  # here action 1 means left
        (1, 0, 0, 1, -0.005, True),
        (1, 1, 1, 1, 0.995, True),  # the treasure
        (1, 1, 0, 0, 0.0, True),
    ],
)
def test_a_decision_follows_the_meaning_of_the_cell(row, column, action, next_column, reward, terminated):
    params = DeepSeaParams(np.array([[1, 0], [0, 1]], np.int32))
    env = DeepSea(2)
    at = DeepSeaState(jnp.int32(row), jnp.int32(column))
    moved = env.transition(jax.random.key(0), at, jnp.int32(action), params)
    assert (int(moved.state.row), int(moved.state.column)) == (row + 1, next_column)
    assert float(moved.reward) == pytest.approx(reward, abs=1e-7)
    assert (bool(moved.terminated), bool(moved.truncated)) == (terminated, False)
    place = np.zeros(4) if terminated else np.eye(4)[2 * (row + 1) + next_column]
    np.testing.assert_array_equal(moved.observation, place)


def test_the_meaning_of_actions_is_drawn_per_cell_and_instance():
    env = DeepSea(10)
    drawn = np.stack([env.instance(seed).right_action for seed in range(50)])
    assert drawn.mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(drawn.size))
    assert not np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize(("size", "message"), [(0, "at least 1, got 0"), (1.5, "an integer, got 1.5")])
def test_a_size_that_is_no_positive_integer_is_refused(size, message):
    with pytest.raises(ValueError, match=f"^size must be {message}$"):
        DeepSea(size)
