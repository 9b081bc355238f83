"""The samplers are unbiased against exact values, by proper statistics, and count what they use."""

import numpy as np
import pytest
from scipy import stats

from pcpg_theory import exact, samplers
from pcpg_theory.mdp import TabularMDP, random_mdp, random_policy
from pcpg_theory.problems import lock

SIGNIFICANCE = 1e-4  # of each test below, with fixed seeds: a failure is a bug, not luck


def chi_square_p(counts, probabilities):
    """Return the p-value of a goodness-of-fit test, cells of small expectation pooled."""
    expected = counts.sum() * probabilities
    small = expected < 5
    observed, wanted = counts[~small], expected[~small]
    if small.any() and expected[small].sum() > 0:
        observed, wanted = np.append(observed, counts[small].sum()), np.append(wanted, expected[small].sum())
    return stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue


@pytest.mark.parametrize("gamma", [0.0, 0.7, 0.95])
def test_the_d_sampler_draws_from_the_occupancy_from_s0_and_from_any_start(gamma):
    mdp = random_mdp(1, 5, 3, gamma)
    pi, count, rng = random_policy(mdp, 2), 40_000, np.random.default_rng(3)
    sim, policies, nobody = samplers.Simulator(mdp, rng), samplers.Policies(pi), np.zeros(count, np.int64)
    nu = rng.dirichlet(np.ones(15))
    start = rng.choice(15, size=count, p=nu)
    cases = [(None, exact.occupancy(mdp, pi)), (start, exact.occupancy(mdp, pi, nu.reshape(5, 3)))]
    for chosen, d in cases:
        given = None if chosen is None else samplers.Pairs(chosen // 3, chosen % 3)
        pairs = samplers.d_sampler(sim, policies, nobody, given)
        counts = np.bincount(pairs.s * 3 + pairs.a, minlength=15)
        assert chi_square_p(counts, d.reshape(-1)) > SIGNIFICANCE
        if gamma > 0:  # the companion: the test can tell a wrong occupancy
            wrong = exact.occupancy(TabularMDP(mdp.P, mdp.r, gamma * 0.9), pi).reshape(-1)
            assert chi_square_p(counts, wrong) < SIGNIFICANCE


@pytest.mark.parametrize("gamma", [0.0, 0.7, 0.95])
def test_q_estimates_are_unbiased_and_a_discounted_sum_would_not_be(gamma):
    mdp = random_mdp(4, 5, 3, gamma)
    pi, count = random_policy(mdp, 5), 60_000
    sim = samplers.Simulator(mdp, np.random.default_rng(6))
    Q = exact.action_values(mdp, pi)
    start = samplers.Pairs(np.full(count, 2), np.full(count, 1))
    estimates = samplers.q_estimator(sim, samplers.Policies(pi), np.zeros(count, np.int64), start, mdp.r)
    z = (estimates.mean() - Q[2, 1]) / (estimates.std() / np.sqrt(count) + 1e-9)
    assert abs(z) < stats.norm.isf(SIGNIFICANCE / 2)
    if gamma > 0:  # discounting on top of stopping counts gamma twice
        doubled = exact.action_values(TabularMDP(mdp.P, mdp.r, gamma**2), pi)[2, 1]
        assert abs(estimates.mean() - doubled) / (estimates.std() / np.sqrt(count)) > 10


def test_caps_cut_estimates_from_above_only():
    mdp = random_mdp(4, 5, 3, 0.95)
    sim, count = samplers.Simulator(mdp, np.random.default_rng(0)), 1000
    start = samplers.Pairs(np.zeros(count, np.int64), np.zeros(count, np.int64))
    policies, nobody = samplers.Policies(random_policy(mdp, 5)), np.zeros(count, np.int64)
    assert samplers.q_estimator(sim, policies, nobody, start, mdp.r, cap=2.0).max() == 2.0


@pytest.mark.parametrize("gamma", [0.0, 0.8])
def test_steps_are_counted_one_by_one(gamma):
    mdp = random_mdp(7, 4, 2, gamma)
    count = 50_000
    sim = samplers.Simulator(mdp, np.random.default_rng(8))
    policies, nobody = samplers.Policies(random_policy(mdp, 9)), np.zeros(count, np.int64)
    pairs = samplers.d_sampler(sim, policies, nobody)
    rolled_in = sim.steps
    assert abs(rolled_in / count - gamma / (1 - gamma)) <= 5 * np.sqrt(gamma) / (1 - gamma) / np.sqrt(count)
    # With reward one, an estimate is the number of decisions played: the count must be equal to the last step.
    estimates = samplers.q_estimator(sim, policies, nobody, pairs, np.ones(mdp.shape))
    assert sim.steps - rolled_in == estimates.sum()


def test_decisions_after_the_end_of_an_episode_are_not_environment_steps():
    problem, count = lock(3), 2000
    sim = samplers.Simulator(problem.mdp, np.random.default_rng(0))
    stack = np.full((1, *problem.mdp.shape), 0.1)
    samplers.start_values(sim, stack, count, problem.mdp.r)
    assert sim.steps == 4 * count  # H + 1 decisions an episode, though the sum runs on until gamma^t < 0.01


def test_start_values_agree_with_exact_values_for_every_policy_of_a_stack():
    mdp = random_mdp(10, 5, 3, 0.8)
    stack = np.stack([random_policy(mdp, i) for i in range(4)])
    sim, episodes = samplers.Simulator(mdp, np.random.default_rng(11)), 20_000
    found = samplers.start_values(sim, stack, episodes, mdp.r, tail=1e-6)
    truth = np.array([exact.value(mdp, pi) for pi in stack])
    np.testing.assert_allclose(found, truth, atol=5 * 1.0 / np.sqrt(episodes))


def test_each_chain_follows_its_own_policy():
    mdp = random_mdp(12, 3, 2, 0.9)
    stack = np.zeros((2, 3, 2))
    stack[0, :, 0] = stack[1, :, 1] = 1.0
    sim = samplers.Simulator(mdp, np.random.default_rng(0))
    which = np.arange(1000) % 2
    assert (samplers.d_sampler(sim, samplers.Policies(stack), which).a == which).all()


def test_actions_of_probability_zero_are_never_drawn():
    pi = np.array([[0.0, 0.5, 0.0, 0.5, 0.0]])
    rng = np.random.default_rng(0)
    drawn = samplers.Policies(pi).act(np.zeros(100_000, np.int64), np.zeros(100_000, np.int64), rng)
    assert set(drawn) == {1, 3}
