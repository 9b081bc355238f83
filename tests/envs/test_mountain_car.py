"""MountainCarContinuous against Gymnasium's own, step for step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs.contract import check_environment
from pcpg.envs.mountain_car import FULL_EPISODE, MountainCarContinuous, MountainCarState

ENV = MountainCarContinuous()
PARAMS = ENV.instance(0)


def random_states(rng, count):
    """States all over the box, with its edges and the surroundings of the flag well represented."""
    position = rng.uniform(-1.2, 0.6, count)
    velocity = rng.uniform(-0.07, 0.07, count)
    position[: count // 8] = -1.2
    position[count // 8 : count // 4] = rng.uniform(0.40, 0.46, count // 8)
    velocity[count // 2 : count // 2 + count // 8] = rng.choice([-0.07, 0.07], count // 8)
    return np.stack([position, velocity], axis=1).astype(np.float32)


def test_thousands_of_random_moves_equal_gymnasium_s_to_float32_accuracy():
    rng = np.random.default_rng(0)
    states = random_states(rng, 8000)
    actions = rng.uniform(-1.5, 1.5, (8000, 1)).astype(np.float32)  # beyond the bounds too

    def move(state, action):
        return ENV.transition(jax.random.key(0), MountainCarState(state[0], state[1], jnp.int32(0)), action, PARAMS)

    ours = jax.jit(jax.vmap(move))(states, actions)
    theirs = gymnasium.make("MountainCarContinuous-v0").unwrapped
    observations, rewards, ends = [], [], []
    for state, action in zip(states, actions, strict=True):
        theirs.state = state.copy()
        observation, reward, terminated, _, _ = theirs.step(action)
        observations.append(observation)
        rewards.append(reward)
        ends.append(terminated)
    np.testing.assert_allclose(ours.observation, np.stack(observations), rtol=0, atol=3e-7)
    # Where the flag is met within rounding, either answer is right.
    edge = np.abs(np.stack(observations)[:, 0] - 0.45) < 1e-6
    assert edge.sum() < 5
    np.testing.assert_array_equal(np.asarray(ours.terminated)[~edge], np.asarray(ends)[~edge])
    np.testing.assert_allclose(np.asarray(ours.reward)[~edge], np.asarray(rewards)[~edge], rtol=1e-6)
    assert 100 < sum(ends) < 4000 and not ours.truncated.any()
    at_wall = np.stack(observations)[:, 0] == np.float32(-1.2)
    assert at_wall.sum() > 100 and not np.asarray(ours.state.velocity)[at_wall].any()


@pytest.mark.parametrize("policy", ["swing", "idle"])
def test_a_whole_episode_equals_gymnasium_s_with_its_limit_of_999(policy):
    env = MountainCarContinuous(steps=FULL_EPISODE)
    theirs = gymnasium.make("MountainCarContinuous-v0")
    assert theirs.spec is not None and theirs.spec.max_episode_steps == env.max_steps == 999
    observation, _ = theirs.reset(seed=1)
    theirs.unwrapped.state = observation  # its first state alone is float64
    state = MountainCarState(jnp.float32(observation[0]), jnp.float32(0), jnp.int32(0))
    step = jax.jit(env.transition)
    total = their_total = 0.0
    count, done = 0, False
    while not done:
        count += 1
        # Chosen by Gymnasium's state for both: a swing chosen by each would part at a rounding of velocity 0.
        action = np.asarray([0.0 if policy == "idle" else 1.0 if observation[1] >= 0 else -1.0], np.float32)
        ours = step(jax.random.key(0), state, action, PARAMS)
        observation, reward, terminated, truncated, _ = theirs.step(action)
        np.testing.assert_allclose(ours.observation, observation, atol=1e-4)
        assert (bool(ours.terminated), bool(ours.truncated)) == (terminated, truncated)
        state, total, their_total = ours.state, total + float(ours.reward), their_total + float(reward)
        done = terminated or truncated
    assert (count == 999) == (policy == "idle")
    assert total == pytest.approx(their_total, abs=1e-3)
    assert (total > 85) == (policy == "swing")


def test_training_episodes_of_200_are_truncated_never_terminated_by_time():
    state = MountainCarState(jnp.float32(-0.5), jnp.float32(0), jnp.int32(199))
    moved = ENV.transition(jax.random.key(0), state, jnp.zeros(1), PARAMS)
    assert ENV.max_steps == 200 and moved.truncated and not moved.terminated
    at_flag = MountainCarState(jnp.float32(0.44), jnp.float32(0.07), jnp.int32(199))
    moved = ENV.transition(jax.random.key(0), at_flag, jnp.zeros(1), PARAMS)
    assert moved.terminated and not moved.truncated and moved.reward == 100


def test_episodes_start_at_rest_evenly_between_minus_0_6_and_minus_0_4():
    observations, states = jax.jit(jax.vmap(ENV.reset, (0, None)))(jax.random.split(jax.random.key(0), 2000), PARAMS)
    position = np.asarray(observations)[:, 0]
    assert position.min() >= -0.6 and position.max() < -0.4
    assert np.abs(np.histogram(position, 4, (-0.6, -0.4))[0] / 2000 - 0.25).max() < 0.04
    assert not np.asarray(observations)[:, 1].any() and not states.time.any()
    assert all(ENV.observation_space.contains(o) for o in np.asarray(observations)[:20])


def test_cells_are_a_histogram_of_velocity_by_position():
    assert ENV.cells.shape == (1, 20, 20)
    states = random_states(np.random.default_rng(1), 800)
    cells = jax.vmap(lambda s: ENV.cell(MountainCarState(s[0], s[1], jnp.int32(0))))(states)
    edges = np.linspace(-0.07, 0.07, 21), np.linspace(-1.2, 0.6, 21)
    row, column = (
        np.clip(np.searchsorted(e, s, "right") - 1, 0, 19) for e, s in zip(edges, states.T[::-1], strict=True)
    )
    # A state on an edge may fall on either side of it by rounding.
    assert np.mean(cells == row * 20 + column) > 0.99
    corner = ENV.cell(MountainCarState(jnp.float32(0.6), jnp.float32(0.07), jnp.int32(0)))
    assert int(corner) == 399 and ENV.cells.size == 400


def test_the_car_keeps_the_contract_of_environments():
    check_environment(MountainCarContinuous(steps=30), num_steps=60)


def test_examples_cover_the_box_of_states_and_actions():
    observations, actions = ENV.examples(np.random.default_rng(0), 1000)
    assert observations.shape == (1000, 2) and actions.shape == (1000, 1)
    np.testing.assert_allclose(observations.mean(0), [-0.3, 0], atol=0.05)
    np.testing.assert_allclose(observations.std(0), np.array([1.8, 0.14]) / np.sqrt(12), rtol=0.05)
    assert np.abs(actions).max() <= 1
