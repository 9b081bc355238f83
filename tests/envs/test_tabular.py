"""Exact models: they agree with the simulators they describe, and their values with each other."""

from typing import Any

import jax
import numpy as np
import pytest

from pcpg.envs import Chain, CombinationLock, DeepSea, Tabular, TabularModel
from tests.values import occupancy, optimal_value, policy_value

TABULAR = [CombinationLock(3), DeepSea(4), Chain(length=4, horizon=6)]
each_tabular = pytest.mark.parametrize("env", TABULAR, ids=lambda env: type(env).__name__)


def random_policy(model: TabularModel, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(model.shape[1]), size=model.shape[0])


@each_tabular
def test_the_model_agrees_with_the_simulator_at_every_state_and_action(env: Any):
    params = env.instance(4)
    model = env.tabular(params)
    num_states, num_actions = model.shape
    draws = 200
    which = np.indices((num_states, num_actions, draws)).reshape(3, -1)

    def play(key, number, action):
        state = jax.tree.map(lambda column: column[number], env.all_states())
        moved = env.transition(key, state, action, params)
        return env.state_index(moved.state), moved.reward, moved.terminated, moved.observation

    keys = jax.random.split(jax.random.key(0), which.shape[1])
    played = jax.jit(jax.vmap(play))(keys, which[0].astype(np.int32), which[1].astype(np.int32))
    index, reward, terminated, observation = (
        np.asarray(column).reshape(num_states, num_actions, draws, *column.shape[1:]) for column in played
    )
    live = ~model.terminal
    frequency = np.mean(index[..., None] == np.arange(num_states), axis=2)
    np.testing.assert_array_equal(frequency[live] > 0, model.transitions[live] > 0)
    np.testing.assert_allclose(frequency[live], model.transitions[live], atol=5 * 0.5 / np.sqrt(draws))
    np.testing.assert_allclose(reward[live], model.rewards[live][..., None] + np.zeros(draws), atol=1e-6)
    np.testing.assert_array_equal(terminated[live], model.terminal[index][live])
    np.testing.assert_array_equal(observation[live], model.observations[index][live])


@each_tabular
def test_states_are_numbered_in_their_order_and_the_start_is_where_reset_goes(env: Any):
    assert isinstance(env, Tabular)
    params = env.instance(0)
    model = env.tabular(params)
    np.testing.assert_array_equal(env.state_index(env.all_states()), np.arange(model.shape[0]))
    observation, state = env.reset(jax.random.key(0), params)
    assert int(env.state_index(state)) == model.start
    np.testing.assert_array_equal(observation, model.observations[model.start])


@each_tabular
def test_every_row_of_the_model_is_a_distribution_and_the_end_absorbs(env: Any):
    model = env.tabular(env.instance(0))
    assert model.transitions.min() >= 0
    np.testing.assert_array_equal(model.transitions.sum(axis=2), 1.0)
    ends = np.flatnonzero(model.terminal)
    assert all(model.transitions[end, :, end].tolist() == [1.0] * model.shape[1] for end in ends)
    assert np.all(model.rewards[model.terminal] == 0)
    assert {array.dtype for array in (model.transitions, model.rewards, model.observations)} == {np.dtype(float)}


@each_tabular
def test_the_value_of_a_policy_is_its_rewards_weighted_by_its_visits(env: Any):
    model = env.tabular(env.instance(2))
    policy = random_policy(model, 0)
    visits = occupancy(model, policy, env.max_steps)
    assert policy_value(model, policy, env.max_steps) == pytest.approx(np.sum(visits * model.rewards), abs=1e-12)
    # All three environments have episodes of one length, whatever is played.
    assert visits.sum() == pytest.approx(env.max_steps, abs=1e-9)
    np.testing.assert_allclose(visits, visits.sum(axis=1, keepdims=True) * policy, atol=1e-15)


@each_tabular
def test_no_policy_is_better_than_the_best(env: Any):
    model = env.tabular(env.instance(2))
    best = optimal_value(model, env.max_steps)
    assert all(policy_value(model, random_policy(model, seed), env.max_steps) <= best for seed in range(5))


def test_values_of_a_model_small_enough_for_the_head():
    # From 0: action 0 ends with 1; action 1 stays with 0.4. Two decisions: stay, then end.
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0, 1] = transitions[0, 1, 0] = transitions[1, :, 1] = 1.0
    rewards = np.array([[1.0, 0.4], [0.0, 0.0]])
    model = TabularModel(transitions, rewards, np.array([False, True]), 0, np.eye(2))
    even = np.full((2, 2), 0.5)
    assert [optimal_value(model, steps) for steps in (0, 1, 2, 3)] == pytest.approx([0.0, 1.0, 1.4, 1.8])
    assert [policy_value(model, even, steps) for steps in (1, 2)] == pytest.approx([0.7, 0.7 + 0.5 * 0.7])
    np.testing.assert_allclose(occupancy(model, even, 2), [[0.75, 0.75], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.ones((3, 2)) / 2, r"shape \(4, 2\) \(states, actions\), got \(3, 2\)"),
        (np.ones((4, 2)), "probability distribution"),
        (np.tile([1.5, -0.5], (4, 1)), "probability distribution"),
    ],
)
def test_a_policy_that_is_none_is_refused(policy: np.ndarray, message: str):
    model = Chain(length=4).tabular(())
    with pytest.raises(ValueError, match=message):
        policy_value(model, policy, 3)
    with pytest.raises(ValueError, match=message):
        occupancy(model, policy, 3)
