"""The combination lock against the paper's numbers, exact and played."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs import CombinationLock
from pcpg.envs.lock import LockParams, LockState
from tests.values import occupancy, optimal_value, policy_value

DEAD = 2


def small_lock() -> tuple[CombinationLock, LockParams]:
    """Two levels; right actions 1 2 / 3 4 in lock 0 and 5 6 / 7 8 in lock 1, which pays 5."""
    good_action = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.int32)
    return CombinationLock(horizon=2), LockParams(good_action, np.array([2.0, 5.0], np.float32))


def state(lock: int, kind: int, level: int) -> LockState:
    return LockState(jnp.int32(lock), jnp.int32(kind), jnp.int32(level))


@functools.cache
def many_moves(env: CombinationLock):
    """The compiled transition of many keys from one state."""
    return jax.jit(jax.vmap(env.transition, (0, None, None, None)))


def policy_of(env: CombinationLock, params: LockParams, first_action: int, depth: int) -> np.ndarray:
    """Enter by `first_action`, take right actions up to level `depth`, then wrong ones."""
    states = env.all_states()
    policy = np.zeros((6 * env.horizon + 2, 10))
    for index, (lock, kind, level) in enumerate(zip(*map(np.asarray, states), strict=True)):
        action = 0
        if level == 0:
            action = first_action
        elif kind != DEAD and level <= env.horizon:
            good = params.good_action[lock, kind, level - 1]
            action = good if level <= depth else (good + 1) % 10
        policy[index, action] = 1.0
    return policy


@pytest.mark.parametrize("horizon", [1, 4, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_return_is_exactly_four(horizon: int, seed: int):
    env = CombinationLock(horizon)
    model = env.tabular(env.instance(seed))
    assert optimal_value(model, env.max_steps) == pytest.approx(4.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_lesser_lock_gives_one_and_the_better_one_four(seed: int):
    env = CombinationLock(5)
    params = env.instance(seed)
    model = env.tabular(params)
    values = [policy_value(model, policy_of(env, params, first, 5), 6) for first in (0, 4, 5, 9)]
    in_lock_0, in_lock_1 = (4.0, 1.0) if params.final_reward[0] == 5 else (1.0, 4.0)
    assert values == pytest.approx([in_lock_0, in_lock_0, in_lock_1, in_lock_1], abs=1e-12)


@pytest.mark.parametrize("horizon", [1, 4, 10])
def test_dying_at_once_costs_one_entry(horizon: int):
    env = CombinationLock(horizon)
    params = env.instance(0)
    value = policy_value(env.tabular(params), policy_of(env, params, 3, 0), env.max_steps)
    assert value == pytest.approx(-1.0 / horizon, abs=1e-12)


def test_every_level_passed_costs_one_part_more():
    env = CombinationLock(4)
    params = env.instance(2)
    model = env.tabular(params)
    values = [policy_value(model, policy_of(env, params, 0, depth), 5) for depth in range(4)]
    assert values == pytest.approx([-0.25, -0.5, -0.75, -1.0], abs=1e-12)


@pytest.mark.parametrize("horizon", [1, 4, 10])
def test_uniform_play_opens_a_lock_with_probability_ten_to_the_minus_horizon(horizon: int):
    env = CombinationLock(horizon)
    params = env.instance(0)
    model = env.tabular(params)
    visits = occupancy(model, np.full(model.shape, 0.1), env.max_steps)
    opened = sum(
        visits[env.state_index(state(lock, kind, horizon)), params.good_action[lock, kind, horizon - 1]]
        for lock in (0, 1)
        for kind in (0, 1)
    )
    assert opened == pytest.approx(10.0**-horizon, rel=1e-12)


@pytest.mark.parametrize(
    ("before", "action", "lock", "good", "level", "reward", "terminated"),
    [
        ((0, 0, 0), 4, 0, True, 1, -0.5, False),  # s0, last action of lock 0
        ((0, 0, 0), 5, 1, True, 1, -0.5, False),  # s0, first action of lock 1
        ((0, 0, 1), 1, 0, True, 2, -0.5, False),
        ((0, 1, 1), 3, 0, True, 2, -0.5, False),
        ((1, 0, 1), 5, 1, True, 2, -0.5, False),
        ((1, 1, 1), 7, 1, True, 2, -0.5, False),
        ((0, 1, 1), 1, 0, False, 2, 0.0, False),  # right for the other good state only
        ((1, 0, 1), 1, 1, False, 2, 0.0, False),  # right for the other lock only
        ((1, 0, 1), 6, 1, False, 2, 0.0, False),  # right for the next level only
        ((0, 0, 2), 2, 0, True, 3, 2.0, True),
        ((1, 1, 2), 8, 1, True, 3, 5.0, True),
        ((1, 1, 2), 9, 1, False, 3, 0.0, True),
        ((0, DEAD, 1), 3, 0, False, 2, 0.0, False),
        ((1, DEAD, 2), 8, 1, False, 3, 0.0, True),
    ],
)
def test_a_decision_does_what_the_paper_says(before, action, lock, good, level, reward, terminated):
    env, params = small_lock()
    keys = jax.random.split(jax.random.key(0), 40)
    moved = many_moves(env)(keys, state(*before), jnp.int32(action), params)
    assert set(moved.state.kind.tolist()) == ({0, 1} if good else {DEAD})
    assert set(moved.state.lock.tolist()) == {lock}
    assert set(moved.state.level.tolist()) == {level}
    assert set(moved.reward.tolist()) == {reward}
    assert set(moved.terminated.tolist()) == {terminated}
    assert set(moved.truncated.tolist()) == {False}


def test_the_observation_is_kind_level_and_lock_in_a_row():
    env, _ = small_lock()
    model = env.tabular(small_lock()[1])
    at = {
        place: model.observations[env.state_index(state(*place))].tolist()
        for place in [(0, 0, 0), (0, 0, 1), (1, 1, 2), (0, DEAD, 2), (1, DEAD, 3)]
    }
    assert at == {
        (0, 0, 0): [0, 0, 0, 0, 0, 0, 0],
        (0, 0, 1): [1, 0, 0, 1, 0, 1, 0],
        (1, 1, 2): [0, 1, 0, 0, 1, 0, 1],
        (0, DEAD, 2): [0, 0, 1, 0, 1, 1, 0],
        (1, DEAD, 3): [0, 0, 0, 0, 0, 0, 0],  # after the last decision
    }


def test_the_two_good_states_are_a_fair_coin():
    env, params = small_lock()
    keys = jax.random.split(jax.random.key(1), 40_000)
    kinds = many_moves(env)(keys, state(0, 0, 0), jnp.int32(0), params).state.kind
    assert np.mean(kinds) == pytest.approx(0.5, abs=4 * 0.5 / 200)


def test_right_actions_return_four_in_every_played_episode():
    env = CombinationLock(10)
    params = env.instance(7)
    better = int(np.argmax(params.final_reward))

    def decide(carry, key):
        at, total = carry
        good = jnp.asarray(params.good_action)[at.lock, at.kind, at.level - 1]
        action = jnp.where(at.level == 0, 5 * better, good)
        moved = jax.vmap(env.transition, (0, 0, 0, None))(jax.random.split(key, 64), at, action, params)
        return (moved.state, total + moved.reward), moved.terminated

    start = LockState(*[jnp.zeros(64, jnp.int32)] * 3)
    keys = jax.random.split(jax.random.key(3), env.max_steps)
    (_, totals), ended = jax.lax.scan(decide, (start, jnp.zeros(64)), keys)
    np.testing.assert_allclose(totals, 4.0, atol=1e-5)
    np.testing.assert_array_equal(ended, np.tile([[False]] * 10 + [[True]], (1, 64)))


def test_instances_are_a_function_of_the_seed_and_uniform_over_seeds():
    env = CombinationLock(5)
    instances = [env.instance(seed) for seed in range(400)]
    again = env.instance(17)
    np.testing.assert_array_equal(again.good_action, instances[17].good_action)
    np.testing.assert_array_equal(again.final_reward, instances[17].final_reward)
    assert all(sorted(params.final_reward.tolist()) == [2.0, 5.0] for params in instances)
    first_is_better = np.mean([params.final_reward[0] == 5 for params in instances])
    assert first_is_better == pytest.approx(0.5, abs=4 * 0.5 / 20)
    actions = np.stack([params.good_action for params in instances])
    shares = np.bincount(actions.ravel(), minlength=10) / actions.size
    np.testing.assert_allclose(shares, 0.1, atol=4 * 0.3 / np.sqrt(actions.size))
    assert (instances[0].good_action.dtype, instances[0].final_reward.dtype) == (np.int32, np.float32)


def test_cells_name_lock_kind_and_level():
    env = CombinationLock(4)
    panel, row, column = np.unravel_index(int(env.cell(state(1, DEAD, 3))), env.cells.shape)
    named = env.cells.panels[panel], env.cells.rows[row], env.cells.columns[column]
    assert named == ("lock 1", "dead", "3")
    assert int(env.cell(state(0, 0, 0))) == -1
    assert int(env.cell(state(0, DEAD, 5))) == -1
    assert sorted(env.cell(env.all_states()).tolist()) == [-1, -1, *range(24)]


def test_a_decision_draws_one_random_number():
    env, params = small_lock()
    program = jax.make_jaxpr(env.transition)(jax.random.key(0), state(0, 0, 0), jnp.int32(0), params)
    assert str(program).count("random_bits[") == 1


@pytest.mark.parametrize(
    ("horizon", "message"),
    [
        (0, "horizon must be at least 1, got 0"),
        (-3, "horizon must be at least 1, got -3"),
        (2.5, "horizon must be an integer, got 2.5"),
        ("5", "horizon must be an integer, got '5'"),
        (True, "horizon must be an integer, got True"),
    ],
)
def test_a_horizon_that_is_no_positive_integer_is_refused(horizon, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        CombinationLock(horizon)
