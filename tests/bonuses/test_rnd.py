"""Random network distillation: what it pays for, how it is scaled, and that it reaches the advantages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.bonuses.protocol import At, RunningScale
from pcpg.bonuses.rnd import RND, prediction_error
from pcpg.engine.rollout import Rollout, discounted_sums
from pcpg.envs.lock import CombinationLock
from pcpg.envs.spaces import Box, Discrete
from pcpg.learners.ppo import ImproveInputs, Learner, make_task
from pcpg.learners.settings import PPOConfig
from pcpg.learners.update import init_adam, minimise
from pcpg.policies.networks import init_actor_critic

SPACE = Box(0.0, 1.0, (10,))
STEPS, ENVS = 4, 3
GAMMA = 0.5
ALL_OBSERVATIONS = np.eye(10, dtype=np.float32)


def fresh():
    return RND().init(np.random.default_rng(0), SPACE, Discrete(2), (16, 16))


@jax.jit
def errors(predictor, target, observations):
    return prediction_error(predictor, target, observations)


def test_the_error_is_half_the_mean_square_over_the_outputs():
    rnd = fresh()

    def hidden(body):
        first, last = body.layers
        return np.maximum(ALL_OBSERVATIONS @ first.weight + first.bias, 0.0) @ last.weight + last.bias

    expected = 0.5 * ((hidden(rnd.predictor) - hidden(rnd.target)) ** 2).mean(axis=-1)
    np.testing.assert_allclose(errors(rnd.predictor, rnd.target, ALL_OBSERVATIONS), expected, rtol=1e-4, atol=1e-7)
    assert expected.min() > 0  # the two networks start apart


def test_the_target_gets_no_gradient():
    rnd = fresh()
    loss = jax.jit(jax.grad(lambda target: jnp.sum(prediction_error(rnd.predictor, target, ALL_OBSERVATIONS))))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(jax.device_get(loss(rnd.target))))


def test_the_bonus_decays_on_what_was_visited_and_stays_on_what_was_not():
    rnd = fresh()
    visited = ALL_OBSERVATIONS[:3]
    before = np.asarray(errors(rnd.predictor, rnd.target, ALL_OBSERVATIONS))

    @jax.jit
    def train(predictor, samples, key):
        def loss(predictor, part):
            return jnp.mean(prediction_error(predictor, rnd.target, part)), {}

        options = {"num_epochs": 60, "minibatch_size": 3, "max_grad_norm": 5.0}
        return minimise(loss, predictor, init_adam(rnd.predictor), samples, key, jnp.float32(0.01), **options)[0]

    predictor = train(rnd.predictor, np.tile(visited, (4, 1)), jax.random.key(0))
    after = np.asarray(errors(predictor, rnd.target, ALL_OBSERVATIONS))
    assert (after[:3] < 0.02 * before[:3]).all()
    assert (after[3:] > 0.3 * before[3:]).all()
    assert after[3:].mean() > 0.6 * before[3:].mean()


@pytest.mark.parametrize("masked", [False, True])
def test_the_running_scale_is_that_of_all_values_together(masked):
    rng = np.random.default_rng(0)
    update = jax.jit(RunningScale.update)
    scale, everything = fresh().scale, []
    for center, spread in ((0.0, 1.0), (5.0, 0.1), (-3.0, 4.0)):
        values = rng.normal(center, spread, (STEPS, ENVS)).astype(np.float32)
        mask = rng.random((STEPS, ENVS)) < 0.6 if masked else np.ones((STEPS, ENVS), bool)
        scale = update(scale, np.where(mask, values, np.float32(1e6)), mask)
        everything.append(values[mask])
        seen = np.concatenate(everything).astype(np.float64)
        assert float(scale.total) == len(seen)
        np.testing.assert_allclose(scale.mean, seen.mean(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scale.variance, seen.var(), rtol=1e-4)
    unchanged = update(scale, values, np.zeros((STEPS, ENVS), bool))
    np.testing.assert_array_equal(unchanged, scale)


@pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_intrinsic_returns_are_accumulated_over_time_and_not_over_environments(how):
    rewards = np.float32([[1, 10], [0, 0], [2, 0]])  # 3 steps of 2 environments
    expected = [[1, 10], [0.5, 5], [2.25, 2.5]]
    np.testing.assert_allclose(how(discounted_sums)(rewards, GAMMA), expected, rtol=1e-6)


@pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_where_an_episode_ends_and_the_next_one_follows_the_sum_begins_anew(how):
    rewards = np.float32([[1, 10], [4, 0], [2, 0], [2, 0]])
    ends = np.array([[0, 1], [1, 0], [0, 0], [0, 0]], bool)
    expected = [[1, 10], [4.5, 0], [2, 0], [3, 0]]
    np.testing.assert_allclose(how(discounted_sums)(rewards, GAMMA, ends), expected, rtol=1e-6)


def paid(rnd, following, mask, bonus):
    """The bonus of steps that led to these observations."""
    observations = jnp.concatenate([following[:1], following])
    nothing = jnp.zeros(mask.shape)
    never, nowhere = jnp.zeros(mask.shape, bool), jnp.full(mask.shape, -1)
    data = Rollout(observations, nothing, nothing, nothing, never, never, mask, mask, nowhere)
    return bonus.pay(rnd, data, At(Discrete(2), GAMMA))


@jax.jit
def normalised(rnd, observations, mask):
    return paid(rnd, observations, mask, RND(normalise=True))


@jax.jit
def raw(rnd, observations, mask):
    return paid(rnd, observations, mask, RND())


def test_without_normaliser_the_intrinsic_reward_is_the_error_and_nothing_is_counted():
    rnd, mask = fresh(), np.ones((STEPS, ENVS), bool)
    mask[2:, 1] = False
    observations = ALL_OBSERVATIONS[np.arange(STEPS * ENVS).reshape(STEPS, ENVS) % 10]
    bonus, after = raw(rnd, observations, mask)
    expected = np.asarray(errors(rnd.predictor, rnd.target, observations)) * mask
    np.testing.assert_allclose(bonus, expected, rtol=1e-5)
    assert float(after.scale.total) == 0.0


def test_with_normaliser_it_is_divided_by_the_deviation_of_its_discounted_returns():
    rnd, mask = fresh(), np.ones((STEPS, ENVS), bool)
    mask[2:, 1] = False
    observations = ALL_OBSERVATIONS[np.arange(STEPS * ENVS).reshape(STEPS, ENVS) % 10]
    error = np.asarray(errors(rnd.predictor, rnd.target, observations), np.float64) * mask
    returns = np.zeros((STEPS, ENVS))
    for t in range(STEPS):
        returns[t] = error[t] + (GAMMA * returns[t - 1] if t else 0.0)
    bonus, after = normalised(rnd, observations, mask)
    np.testing.assert_allclose(after.scale.variance, returns[mask].var(), rtol=1e-3)
    np.testing.assert_allclose(bonus, error / np.sqrt(returns[mask].var() + 1e-8), rtol=1e-3)
    # The second batch is scaled by both together: here the same numbers twice, so the same scale.
    again, twice = normalised(after, observations, mask)
    assert float(twice.scale.total) == 2 * mask.sum()
    np.testing.assert_allclose(again, bonus, rtol=1e-3)


ENV = CombinationLock(horizon=2)
PPO = PPOConfig(num_updates=2, num_episodes=32, minibatch_size=32, hidden=(16,))
LEARNER = Learner(ENV, PPO, bonus=RND())


def inputs_with(coef):
    rng = np.random.default_rng(0)
    policy = init_actor_critic(rng, ENV.observation_space, ENV.action_space, hidden=(16,), shared_body=True)
    rnd = RND().init(rng, ENV.observation_space, ENV.action_space, (16,))
    task = make_task(
        reward_coef=1.0,
        bonus_coef=coef,
        start_share=1.0,
        epsilon=0.0,
        learning_rate=(1e-3, 1e-3),
        entropy_coef=(0.01, 0.01),
        advantage_floor=0.0,
    )
    adam = init_adam((policy, rnd.predictor))
    return ImproveInputs(np.uint32(0), np.int32(0), ENV.instance(0), policy, adam, task, None, rnd)


@jax.jit
def samples_of(inputs):
    """What the first update learns from, as [steps, episodes], and the bonus of each step."""
    key_gather, key_keep = jax.random.split(jax.random.key(0))
    data = LEARNER.gather(inputs.common, inputs.policy, key_gather)
    bonus, _ = LEARNER.bonus.pay(inputs.rnd, data, LEARNER.at(inputs.common))
    rewards = inputs.task.reward_coef * data.rewards + inputs.task.bonus_coef * bonus
    values, keep = inputs.policy.value(data.observations), LEARNER.num_samples(False)
    samples = LEARNER._samples(data, rewards, values, inputs.task, key_keep, keep, with_next=True)
    return jax.tree.map(lambda x: x.reshape(ENV.max_steps, 32, *x.shape[1:]), samples), bonus


def test_the_intrinsic_reward_reaches_the_targets_and_the_advantages():
    without, bonus = jax.device_get(samples_of(inputs_with(0.0)))
    with_bonus, same = jax.device_get(samples_of(inputs_with(1000.0)))
    np.testing.assert_array_equal(bonus, same)
    assert bonus[:-1].min() > 0  # the last observation of a lock is zero, which both networks map to zero
    # Targets are linear in the reward: what is added is the lambda-return of 1000 times the bonus, over time.
    added, expected = np.zeros(32), np.zeros((ENV.max_steps, 32))
    for t in reversed(range(ENV.max_steps)):
        added = 1000.0 * bonus[t] + PPO.gamma * PPO.gae_lambda * added
        expected[t] = added
    np.testing.assert_allclose(with_bonus.targets - without.targets, expected, rtol=1e-3)
    assert np.abs(with_bonus.advantages - without.advantages).max() > 0.1


def test_the_intrinsic_reward_is_that_of_the_observation_that_followed():
    samples, bonus = jax.device_get(samples_of(inputs_with(1.0)))
    rnd = inputs_with(1.0).rnd
    expected = np.asarray(errors(rnd.predictor, rnd.target, samples.next_observations))
    np.testing.assert_allclose(bonus, expected, rtol=1e-5)
    assert np.abs(bonus[1:] - np.asarray(errors(rnd.predictor, rnd.target, samples.observations))[1:]).max() > 1e-3


def test_a_round_of_updates_depends_on_the_coefficient_and_trains_the_predictor_but_not_the_target():
    improve = jax.jit(LEARNER.improve)
    start = inputs_with(0.0)
    off, on = (jax.device_get(improve(inputs_with(coef))) for coef in (0.0, 1000.0))
    assert np.abs(off.policy.actor_head.weight - on.policy.actor_head.weight).max() > 1e-4
    for output in (off, on):
        assert (output.rnd.predictor.layers[0].weight != start.rnd.predictor.layers[0].weight).any()
        np.testing.assert_array_equal(output.rnd.target.layers[0].weight, start.rnd.target.layers[0].weight)
