"""The off-policy learner against exact values: of chains, of a bandit, and of minibatches computed one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcpg.envs.spaces import Box, Discrete, MultiDiscrete
from pcpg.learners.off_policy import (
    LearnInputs,
    OffPolicy,
    Rates,
    all_values,
    init_learner,
    init_params,
    policy_of,
    rescaled,
    unravelled,
)
from pcpg.learners.transitions import Episodes, Transitions
from pcpg.policies.off_policy import Scale

GAMMA = 0.9
RATES = {"learning": 3e-3, "tau": 0.05, "average": 0.01, "entropy": -0.5, "cloning": 0.0, "low": -10.0, "high": 10.0}


def episodes(observations, actions, rewards, terminated, lengths):
    kinds = np.float32, None, np.float32, bool, np.int32
    arrays = observations, actions, rewards, terminated, lengths
    made = [np.asarray(one, kind) for one, kind in zip(arrays, kinds, strict=True)]
    return Episodes._make([*made, np.zeros(len(lengths), np.int8)])


def one_scale(size):
    return Scale(np.zeros(size, np.float32), np.ones(size, np.float32))


def learned(kept, space, size, *, updates=1500, n=1, critics=1, **rates):
    """A learner after some updates on everything that was kept."""
    params = init_params(np.random.default_rng(0), Box(-1, 1, (size,)), space, hidden=(32,), critics=critics)
    rng, batch = np.random.default_rng(1), 32
    places = rng.integers(kept.size, size=(updates, batch))
    noise_size = (2, batch, *space.shape) if isinstance(space, Box) else (0,)
    noise = rng.standard_normal((updates, *noise_size), np.float32)
    minibatches = kept.minibatch(places, n, GAMMA, kept.returns(places, n, GAMMA, kept.column("reward")), noise)
    inputs = LearnInputs(
        init_learner(params),
        minibatches,
        one_scale(size),
        Rates(*(np.float32((RATES | rates)[name]) for name in Rates._fields)),
    )
    done = jax.jit(OffPolicy(params, space).learn)(inputs)
    return jax.tree.map(np.asarray, done.learner), params


def values_in(vector, params, observations):
    return np.asarray(all_values(unravelled(vector, params).critics, jnp.asarray(observations, jnp.float32)))


@pytest.fixture(scope="module")
def chain():
    """Three states in a row: action 1 goes on and ends with reward 1, action 0 stays, and time limits cut it."""
    rng = np.random.default_rng(3)
    seen, actions, rewards, ends, lengths = [], [], [], [], []
    for _ in range(200):
        state, length = 0, 0
        while length < 6 and state < 3:
            seen.append(np.eye(4)[state])
            actions.append(int(rng.integers(2)))
            state += actions[-1]
            length += 1
            rewards.append(float(state == 3))
            ends.append(state == 3)
        seen.append(np.eye(4)[state])
        lengths.append(length)
    kept = Transitions(Box(0, 1, (4,)), Discrete(2))
    kept.add(episodes(seen, actions, rewards, ends, lengths))
    return kept


@pytest.mark.parametrize("critics", [1, 2])
def test_values_of_a_chain_are_exact_and_a_time_limit_is_no_end(chain, critics):
    learner, params = learned(chain, Discrete(2), 4, critics=critics)
    q = values_in(learner.params, params, np.eye(4)[:3])
    forward = GAMMA ** np.array([2, 1, 0])
    exact = np.stack([GAMMA * forward, forward], axis=1)
    assert np.abs(q - exact).max() < 0.05


def test_several_steps_reach_the_value_sooner(chain):
    forward = GAMMA ** np.array([2, 1, 0])
    errors = []
    for n in (1, 3):
        learner, params = learned(chain, Discrete(2), 4, updates=150, n=n, tau=0.01)
        q = values_in(learner.params, params, np.eye(4)[:3])
        errors.append(np.abs(q[0, :, 1] - forward).max())
    assert errors[1] < 0.7 * errors[0]


def test_targets_stay_within_the_bounds_of_values(chain):
    learner, params = learned(chain, Discrete(2), 4, updates=400, high=0.5)
    q = values_in(learner.params, params, np.eye(4)[:3])
    assert q.max() < 0.55


def test_real_actions_find_the_best_one_and_its_policy_says_so():
    rng = np.random.default_rng(0)
    actions = rng.uniform(-2, 4, (400, 1)).astype(np.float32)
    rewards = -((actions[:, 0] - 2.5) ** 2) / 4
    kept = Transitions(Box(-1, 1, (1,)), Box(-2.0, 4.0, (1,)))
    kept.add(episodes(np.ones((800, 1)), actions, rewards, np.ones(400, bool), np.ones(400)))
    learner, params = learned(kept, Box(-2.0, 4.0, (1,)), 1, updates=2500)
    policy = policy_of(learner.average, params, one_scale(1), Box(-2.0, 4.0, (1,)), 0.1, 0.0)
    found = float(policy.final().on_host(np.ones((1, 1), np.float32))[0, 0])
    assert abs(found - 2.5) < 0.3
    on_device = float(policy.final().outputs(jnp.ones((1, 1)))[0, 0])
    assert on_device == pytest.approx(found, abs=1e-4)


def test_of_an_action_in_parts_each_part_learns_its_own_value():
    space, rng = MultiDiscrete((2, 3)), np.random.default_rng(0)
    actions = np.stack([rng.integers(2, size=600), rng.integers(3, size=600)], axis=1)
    rewards = 0.5 * (actions[:, 0] == 1) + 0.5 * (actions[:, 1] == 2)
    kept = Transitions(Box(-1, 1, (1,)), space)
    kept.add(episodes(np.ones((1200, 1)), actions, rewards, np.ones(600, bool), np.ones(600)))
    learner, params = learned(kept, space, 1)
    policy = policy_of(learner.params, params, one_scale(1), space, 0.01, 0.0).final()
    logits = policy.on_host(np.ones((1, 1), np.float32))[0]
    assert (logits[:2].argmax(), logits[2:].argmax()) == (1, 2)


def test_a_learner_of_rescaled_rewards_has_rescaled_values():
    params = init_params(np.random.default_rng(0), Box(-1, 1, (2,)), Discrete(3), hidden=(8,), critics=2)
    here = np.random.default_rng(1).normal(size=(5, 2)).astype(np.float32)
    learner = rescaled(init_learner(params), params, 0.25)
    before, after = (values_in(one, params, here) for one in (init_learner(params).target, learner.target))
    np.testing.assert_allclose(after, 0.25 * before, rtol=1e-5)


def test_what_nobody_has_learned_about_is_nearly_uniform():
    space = Box(-2.0, 4.0, (2,))
    params = init_params(np.random.default_rng(0), Box(-1, 1, (3,)), space, hidden=(8,), critics=1)
    policy = policy_of(init_learner(params).params, params, one_scale(3), space, 0.1, 0.1).at_random()
    mean, log_std = np.split(policy.on_host(np.ones((1, 3), np.float32))[0], 2)
    noise = np.random.default_rng(2).normal(size=(20_000, 2))
    shares = np.histogram(np.tanh(mean + np.exp(log_std) * noise), bins=5, range=(-1, 1))[0] / 40_000
    assert np.abs(shares - 0.2).max() < 0.04


# Minibatches.


@pytest.mark.parametrize("n", [1, 3, 10])
def test_a_minibatch_is_what_one_computes_step_by_step(n):
    rng, lengths = np.random.default_rng(n), [5, 1, 12, 4]
    steps = sum(lengths)
    seen, rewards = rng.normal(size=(steps + 4, 2)), rng.normal(size=steps)
    last = np.cumsum(lengths) - 1
    ends = np.zeros(steps, bool)
    ends[last[[0, 2]]] = True  # the others were cut
    kept = Transitions(Box(-1, 1, (2,)), Discrete(3))
    kept.add(
        episodes(seen[:7], np.arange(5) % 3, rewards[:5], ends[:5], lengths[:1])._replace(
            observations=seen[:6].astype(np.float32)
        )
    )
    rest = episodes(seen[6:], np.arange(5, steps) % 3, rewards[5:], ends[5:], lengths[1:])
    kept.add(rest)
    places = np.arange(steps)[None]
    made = kept.minibatch(places, n, GAMMA, kept.returns(places, n, GAMMA, kept.column("reward")), np.zeros((1, 0)))
    begin, episode = np.concatenate([[0], last[:-1] + 1]), np.repeat(np.arange(4), lengths)
    for i in range(steps):
        stop = min(i + n, begin[episode[i]] + lengths[episode[i]])
        total = sum(GAMMA**k * rewards[i + k] for k in range(stop - i))
        assert made.returns[0, i] == pytest.approx(total, abs=1e-5)
        assert made.discounts[0, i] == pytest.approx(0.0 if ends[stop - 1] else GAMMA ** (stop - i), abs=1e-6)
        np.testing.assert_array_equal(made.observations[0, i], seen[i + episode[i]].astype(np.float32))
        np.testing.assert_array_equal(made.later[0, i], seen[stop + episode[i]].astype(np.float32))
    discounted = [sum(GAMMA**k * r for k, r in enumerate(part)) for part in np.split(rewards, last[:-1] + 1)]
    np.testing.assert_allclose(kept.discounted(kept.column("reward"), GAMMA), discounted, atol=1e-5)


def test_behind_an_end_of_another_task_nothing_counts():
    kept = Transitions(Box(-1, 1, (1,)), Discrete(2))
    kept.add(episodes(np.arange(9)[:, None], np.zeros(7), np.zeros(7), np.zeros(7, bool), [4, 3]))
    rewards, ends = np.array([0, 1, 5, 0, 0, 0, 1]), np.array([0, 1, 0, 0, 0, 0, 1], bool)
    other, places = kept.relabelled(rewards, ends), np.arange(7)
    returns = other.returns(places, 3, GAMMA, other.column("reward"))
    np.testing.assert_allclose(returns, [GAMMA, 1, 5, 0, GAMMA**2, GAMMA, 1], rtol=1e-6)
    made = other.minibatch(places, 3, GAMMA, returns, np.zeros((7, 0)))
    np.testing.assert_allclose(made.discounts, [0, 0, GAMMA**2, GAMMA, 0, 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(made.later[:, 0], [2, 2, 4, 4, 8, 8, 8])
    assert not kept.column("terminated").any(), "the data themselves stay as they are"
