"""Roll-in: who is drawn how often, for how long, and with which probability the first own step acts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pcpg.cover.cover import draw_roll_in, mixed_log_prob
from pcpg.engine.rollout import rollout
from pcpg.envs.lock import CombinationLock
from pcpg.learners.ppo import Learner, make_task
from pcpg.learners.settings import PPOConfig
from pcpg.policies.distributions import categorical
from pcpg.policies.networks import init_actor_critic

WEIGHTS = np.array([0.5, 0.0, 0.2, 0.3, 0.0, 0.0], np.float32)
MEMBERS = {"number": np.arange(6), "vector": np.arange(12.0).reshape(6, 2)}  # any stacked tree will do
EPISODES, HORIZON = 8_000, 5


@functools.partial(jax.jit, static_argnums=(2, 3))
def compiled_draw(seed, start_share, groups, episodes):
    options = {"num_episodes": episodes, "num_groups": groups, "horizon": HORIZON, "start_share": start_share}
    return draw_roll_in(jax.random.key(seed), MEMBERS, WEIGHTS, **options)


def draw(seed=0, *, groups=EPISODES, episodes=EPISODES, start_share=0.0):
    return jax.device_get(compiled_draw(seed, start_share, groups, episodes))


@pytest.fixture(scope="module")
def drawn():
    return draw(seed=1)


def test_policies_are_drawn_as_often_as_their_weights_say(drawn):
    counts = np.bincount(drawn.policies["number"], minlength=6)
    positive = WEIGHTS > 0
    assert stats.chisquare(counts[positive], EPISODES * WEIGHTS[positive].astype(np.float64)).pvalue > 0.01
    assert counts[~positive].sum() == 0


def test_all_parts_of_a_policy_are_taken_from_the_same_member(drawn):
    np.testing.assert_array_equal(drawn.policies["vector"], MEMBERS["vector"][drawn.policies["number"]])


def test_lengths_are_uniform_over_the_horizon_and_independent_of_the_policy(drawn):
    assert drawn.length.dtype == np.int32
    assert (drawn.length.min(), drawn.length.max()) == (0, HORIZON - 1)
    assert stats.chisquare(np.bincount(drawn.length, minlength=HORIZON)).pvalue > 0.01
    table = [np.bincount(drawn.length[drawn.policies["number"] == member], minlength=HORIZON) for member in (0, 2, 3)]
    assert stats.chi2_contingency(table).pvalue > 0.01


def test_with_groups_there_is_a_policy_for_each_group_and_a_length_for_each_episode():
    grouped = draw(groups=10, episodes=1_000)
    assert grouped.policies["number"].shape == (10,)
    assert grouped.policies["vector"].shape == (10, 2)
    assert grouped.length.shape == (1_000,)
    for group in grouped.length.reshape(10, 100):
        assert stats.chisquare(np.bincount(group, minlength=HORIZON)).pvalue > 1e-4


def test_the_start_share_is_added_to_the_episodes_whose_length_comes_out_as_zero():
    length = draw(start_share=0.4).length
    expected = EPISODES * np.array([0.4 + 0.6 / HORIZON, *[0.6 / HORIZON] * (HORIZON - 1)])
    assert stats.chisquare(np.bincount(length, minlength=HORIZON), expected).pvalue > 0.01
    assert not draw(start_share=1.0).length.any()


def test_another_key_draws_others():
    assert (draw(seed=1).length != draw(seed=0).length).any()


@pytest.mark.parametrize("point", [0.0, 1 - 2**-23], ids=["least", "largest"])
def test_a_place_without_a_policy_is_never_drawn_however_the_sum_is_rounded(monkeypatch, point):
    # The cover of a maze has 408 places. Such sums are rounded in blocks, and with 291, 317, 328 or 330 policies the
    # empty places seemed to have a weight of 1e-7 together.
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, *rest: jnp.full(shape, point, jnp.float32))

    @jax.jit
    def run(weights):
        options = {"num_episodes": 1, "num_groups": 1, "horizon": 2, "start_share": 0.0}
        return draw_roll_in(jax.random.key(0), jnp.arange(408), weights, **options).policies

    for size in range(1, 409):
        weights = np.where(np.arange(408) < size, 1 / size, 0.0).astype(np.float32)
        assert run(weights).item() < size
        assert run(weights[::-1]).item() >= 408 - size


@pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("epsilon", [1e-6, 0.05, 0.5, 1.0])
def test_the_mixed_probability_is_that_of_policy_and_uniform_together(how, epsilon):
    p = np.random.default_rng(0).dirichlet(np.ones(10), size=3)
    p[0] = np.eye(10)[0] * (1 - 1e-30) + 1e-30  # as good as deterministic
    mixed = how(mixed_log_prob)(
        np.log(p).astype(np.float32), np.full(p.shape, -np.log(10), np.float32), np.float32(epsilon)
    )
    np.testing.assert_allclose(mixed, np.log((1 - epsilon) * p + epsilon / 10), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(np.asarray(mixed, np.float64)).sum(axis=-1), 1.0, rtol=1e-4)


def test_without_epsilon_the_mixed_probability_is_the_policy_s():
    log_prob = np.float32([-0.5, -3.0, -80.0])
    np.testing.assert_allclose(mixed_log_prob(log_prob, np.float32([-2.3, -np.inf, -2.3]), 0.0), log_prob, rtol=1e-6)


def test_where_the_uniform_density_is_zero_only_the_policy_s_share_is_left():
    mixed = mixed_log_prob(np.float32([-1.0]), np.float32([-np.inf]), 0.25)
    np.testing.assert_allclose(mixed, [-1.0 + np.log(0.75)], rtol=1e-6)


ENV = CombinationLock(horizon=3)
PPO = PPOConfig(num_updates=2, num_episodes=32, minibatch_size=32, hidden=(16,))
LEARNER = Learner(ENV, PPO, num_groups=8, sample_share=0.0)


@jax.jit
def learned_from(policy, intruder):
    """The samples of an update, with whatever the roll-in earned; their marks say which step they were."""
    key_roll_in, key_rollout, key_keep = jax.random.split(jax.random.key(0), 3)
    members = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), policy)
    options = {"num_episodes": 32, "num_groups": 8, "horizon": ENV.max_steps, "start_share": 0.0}
    roll_in = draw_roll_in(key_roll_in, members, jnp.float32([0.5, 0.5]), **options)
    instance = jax.tree.map(jnp.asarray, ENV.instance(0))
    distribution = categorical(10)
    data = rollout(
        ENV, instance, policy, distribution, key_rollout, num_episodes=32, roll_in=roll_in, epsilon=jnp.float32(0.05)
    )
    task = make_task(start_share=0.0, epsilon=0.05, learning_rate=(1e-3, 1e-3), entropy_coef=(0.0, 0.0))
    marks = jnp.arange(data.rewards.size, dtype=jnp.int32).reshape(data.rewards.shape)
    data = data._replace(actions=marks, rewards=jnp.where(data.own, data.rewards, intruder))
    values, keep = policy.value(data.observations), LEARNER.num_samples(True)
    samples = LEARNER._samples(data, data.rewards, values, task, key_keep, keep, with_next=False)
    return samples, data.own, roll_in.length


def test_steps_of_the_roll_in_are_not_learned_from_and_their_rewards_do_not_matter():
    rng = np.random.default_rng(0)
    policy = init_actor_critic(rng, ENV.observation_space, ENV.action_space, hidden=(16,), shared_body=True)
    samples, own, length = jax.device_get(learned_from(policy, jnp.float32(0.0)))
    np.testing.assert_array_equal(own, np.arange(ENV.max_steps)[:, None] >= length)
    assert 0 < own.sum() < own.size
    kept = samples.actions[samples.mask]
    assert own.reshape(-1)[kept].all()
    assert len(set(kept.tolist())) == len(kept) == min(own.sum(), len(samples.mask))
    disturbed = jax.device_get(learned_from(policy, jnp.float32(1e6)))[0]
    for name in ("advantages", "targets", "actions"):
        before, after = getattr(samples, name), getattr(disturbed, name)
        np.testing.assert_array_equal(before[samples.mask], after[samples.mask])


def test_a_cover_among_others_gives_the_draws_that_it_gives_alone():
    options = {"num_episodes": 64, "num_groups": 64, "horizon": HORIZON, "start_share": 0.0}
    alone = draw_roll_in(jax.random.key(3), MEMBERS, WEIGHTS, **options)
    beside = jax.tree.map(lambda leaf: np.concatenate([leaf + 100, leaf, leaf + 200]), MEMBERS)
    found = draw_roll_in(jax.random.key(3), beside, WEIGHTS, first=jnp.int32(6), **options)
    jax.tree.map(np.testing.assert_array_equal, found, alone)
