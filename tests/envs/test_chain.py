"""The chain: returns that can be counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs import Chain
from tests.values import optimal_value, policy_value


@pytest.mark.parametrize(("length", "horizon", "best"), [(8, 16, 9.0), (4, 4, 1.0), (2, 10, 9.0)])
def test_the_best_return_goes_straight_to_the_far_end(length: int, horizon: int, best: float):
    env = Chain(length, horizon)
    assert optimal_value(env.tabular(()), horizon) == pytest.approx(best, abs=1e-12)


def test_the_lure_is_best_where_the_far_end_is_out_of_reach():
    env = Chain(length=8, horizon=7)
    assert optimal_value(env.tabular(()), 7) == pytest.approx(7 * 0.005, abs=1e-12)


def test_always_left_earns_the_lure_every_time():
    env = Chain(5, 12)
    left = np.tile([1.0, 0.0], (5, 1))
    assert policy_value(env.tabular(()), left, 12) == pytest.approx(12 * 0.005, abs=1e-12)


def test_going_right_all_the_time_is_played_as_computed_and_is_truncated_not_terminated():
    env = Chain(length=4, horizon=6)
    _, state = env.reset(jax.random.key(0), ())
    rewards, positions, ends = [], [], []
    move = jax.jit(env.transition)
    for key in jax.random.split(jax.random.key(1), 6):
        moved = move(key, state, jnp.int32(1), ())
        state = moved.state
        rewards.append(float(moved.reward))
        positions.append(int(jnp.argmax(moved.observation)))
        ends.append((bool(moved.terminated), bool(moved.truncated)))
    assert rewards == [0, 0, 0, 1, 1, 1]
    assert positions == [1, 2, 3, 3, 3, 3]
    assert ends == [(False, False)] * 5 + [(False, True)]


def test_a_left_move_at_the_near_end_stays_and_pays_the_lure():
    env = Chain()
    _, state = env.reset(jax.random.key(0), ())
    moved = env.transition(jax.random.key(1), state, jnp.int32(0), ())
    assert (int(moved.state.position), float(moved.reward)) == (0, pytest.approx(0.005))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "length must be at least 2, got 1"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Chain(**options)
