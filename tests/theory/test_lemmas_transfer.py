"""Transfer error and state aggregation, with the paper's slips as companions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg_theory import analysis, critic, exact
from pcpg_theory.mdp import TabularMDP, aggregation_features, random_mdp, random_policy
from pcpg_theory.parameters import aggregation_W

seeds = st.integers(0, 2**31)
many = settings(max_examples=30, deadline=None)


@many
@given(seeds)
def test_the_transfer_error_is_zero_in_linear_MDPs_for_one_of_the_best_fits(scene, seed):
    it = scene(seed, linear=True, policies=1)
    pi, b = random_policy(it.mdp, seed + 5), it.bonus.b
    Q = exact.action_values(it.mdp, pi, it.mdp.r + b)
    rho = np.zeros(it.mdp.shape)
    rho[it.mdp.s0] = 1 / it.mdp.num_actions  # a cover that has seen nothing but s0
    d_star = analysis.comparator_distribution(it.mdp, it.comparator)
    found = analysis.transfer_error(it.phi, rho, d_star, Q - b, it.linear.W)
    assert found.least < 1e-14 * max(1.0, float(np.abs(Q).max())) ** 2 and found.norm <= it.linear.W


def test_the_transfer_error_is_not_zero_for_every_best_fit_nor_when_W_binds(scene):
    it = scene(2, linear=True)
    Q = exact.action_values(it.mdp, it.comparator)
    rho = np.zeros(it.mdp.shape)
    rho[it.mdp.s0, 0] = 1.0
    d_star = analysis.comparator_distribution(it.mdp, it.comparator)
    free = analysis.transfer_error(it.phi, rho, d_star, Q)
    assert free.least < 1e-12 < 1e-3 < free.least_norm  # the member of least norm does not transfer
    tight = analysis.transfer_error(it.phi, rho, d_star, Q, W=0.8 * free.norm)
    assert tight.binds and tight.least > 1e-3


@many
@given(seeds)
def test_the_transfer_error_is_at_most_concentrability_times_the_loss(scene, ratios, seed):
    it = scene(seed)
    phi = np.random.default_rng(seed).dirichlet(np.ones(3), size=it.mdp.shape)
    Q = exact.action_values(it.mdp, random_policy(it.mdp, seed))
    nu = 0.9 * it.rho + 0.1 / it.rho.size
    d_star = analysis.comparator_distribution(it.mdp, it.comparator)
    found = analysis.transfer_error(phi, nu, d_star, Q)
    loss = critic.loss(phi, nu, Q, found.theta)
    ratios.check("eps_bias <= norm(d*/nu) L", found.least, analysis.concentrability(d_star, nu) * loss)
    assert analysis.relative_condition_number(phi, d_star, nu) <= analysis.concentrability(d_star, nu) + 1e-9


def test_coverage_numbers_are_infinite_where_something_is_missed():
    d_star, nu = np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
    assert analysis.concentrability(d_star, nu) == np.inf
    phi = np.eye(2)[None]
    assert analysis.relative_condition_number(phi, d_star, nu) == np.inf
    same = np.ones((1, 2, 2)) / np.sqrt(2)  # one direction only: nothing is missed
    assert analysis.relative_condition_number(same, d_star, nu) == pytest.approx(1.0)


def aggregated(seed, noise=0.2, r_scale=1.0):
    """Return an MDP whose pairs of one label differ a little, with the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=(8, 3))
    P = rng.dirichlet(np.ones(8), size=5)[labels]
    P = (1 - noise) * P + noise * rng.dirichlet(np.ones(8), size=(8, 3))
    r = np.clip(rng.random(5)[labels] + noise * rng.normal(size=(8, 3)), 0, 1) * r_scale
    return TabularMDP(P, r, float(rng.choice([0.3, 0.8, 0.95]))), labels


def spread(values, labels):
    """Return the largest difference of values within each label."""
    return np.array([np.ptp(values[labels == z]) if (labels == z).any() else 0.0 for z in range(labels.max() + 1)])


@many
@given(seeds, st.sampled_from([0.05, 1.0]))
def test_action_values_within_a_label_differ_by_no_more_than_the_true_claim(ratios, seed, r_scale):
    mdp, labels = aggregated(seed, r_scale=r_scale)
    eps, gamma = analysis.misspecification(mdp, labels), mdp.gamma
    Q = exact.action_values(mdp, random_policy(mdp, seed))
    right = eps * (1 + gamma * r_scale / (1 - gamma))
    for left, bound in zip(spread(Q, labels), right, strict=True):
        ratios.check("aggregation: spread of Q <= eps_z (1 + gamma r_max/(1-gamma))", left, bound)


@many
@given(seeds)
def test_Q_minus_b_within_a_label_differs_by_at_most_eps_over_one_minus_gamma_squared(ratios, seed):
    mdp, labels = aggregated(seed)
    b = (np.random.default_rng(seed).random(5) < 0.4)[labels] / (1 - mdp.gamma)  # a bonus is a function of the label
    Q = exact.action_values(mdp, random_policy(mdp, seed), mdp.r + b)
    eps = analysis.misspecification(mdp, labels)
    for left, z in zip(spread(Q - b, labels), range(5), strict=False):
        ratios.check("aggregation: spread of Q - b <= eps_z/(1-gamma)^2", left, eps[z] / (1 - mdp.gamma) ** 2)


def absorbed(seed, share=0.4):
    """An aggregated MDP, its labels, the absorbing MDP of a random bonus, and which pairs are unknown."""
    mdp, labels = aggregated(seed)
    unknown = (np.random.default_rng(seed).random(5) < share)[labels]
    return mdp, labels, analysis.absorbing_mdp(mdp, unknown / (1 - mdp.gamma)), unknown


@many
@given(seeds)
def test_the_absorbing_mdp_of_the_footnote_is_optimistic_without_values_above_one_over_one_minus_gamma(ratios, seed):
    mdp, _, other, unknown = absorbed(seed)
    pi = random_policy(mdp, seed)
    kept = np.concatenate([pi, np.full((1, 3), 1 / 3)])
    V, Q = exact.evaluate(other, kept)
    assert (V[:-1] >= exact.values(mdp, pi) - 1e-9).all()
    np.testing.assert_allclose(Q[:-1][unknown], 1 / (1 - mdp.gamma))
    ratios.check("absorbing MDP: values <= 1/(1-gamma)", Q.max(), 1 / (1 - mdp.gamma))
    same = analysis.absorbing_mdp(mdp, np.zeros(mdp.shape))
    np.testing.assert_allclose(exact.values(same, kept)[:-1], exact.values(mdp, pi))


@many
@given(seeds)
def test_under_the_absorbing_mdp_aggregation_costs_a_power_of_one_minus_gamma_less(ratios, seed):
    """The claim on Q and, along the comparator, the theorem's last term, each with the errors of the MDP itself."""
    mdp, labels, other, _ = absorbed(seed)
    g, eps = 1 - mdp.gamma, analysis.misspecification(mdp, labels)
    pi, comparator = random_policy(mdp, seed + 1), random_policy(mdp, seed + 2)
    V, Q = (part[:-1] for part in exact.evaluate(other, np.concatenate([pi, np.full((1, 3), 1 / 3)])))
    for left, z in zip(spread(Q, labels), range(5), strict=False):
        ratios.check("aggregation: spread of the absorbing Q <= eps_z/(1-gamma)", left, eps[z] / g)
    phi = aggregation_features(labels)
    scores = phi @ critic.least_squares(critic.factorise(phi, np.full(mdp.shape, 1 / 24)), Q, np.inf)
    error = (Q - V[:, None]) - (scores - (pi * scores).sum(1, keepdims=True))
    left = (exact.occupancy(mdp, comparator) * error).sum() / g
    ratios.check("aggregation: absorbing bias", left, analysis.absorbing_bias(mdp, labels, comparator))


def test_with_the_bonus_the_spread_does_exceed_what_the_absorbing_mdp_allows():
    """Two pairs of one label, of which one leads to unknown pairs: with a bonus their values differ by more."""
    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[0, 1, 2] = P[1, :, 1] = P[2, :, 2] = 1.0
    mdp, labels = TabularMDP(P, np.zeros((3, 2)), 0.9), np.array([[0, 0], [1, 1], [2, 2]])
    b, pi = (labels == 1) / 0.1, np.full((3, 2), 0.5)
    eps = analysis.misspecification(mdp, labels)[0]
    assert eps == 2.0
    bonus = spread(exact.action_values(mdp, pi, mdp.r + b) - b, labels)[0]
    absorbing = spread(exact.action_values(analysis.absorbing_mdp(mdp, b), np.full((4, 2), 0.5))[:-1], labels)[0]
    assert absorbing <= eps / 0.1 < bonus <= eps / 0.1**2


def test_the_aggregation_claim_as_printed_fails_for_small_rewards():
    """Printed: r_max eps_z/(1-gamma). Rewards 0 and 0.1, same transitions, gamma = 0.5: 0.1 against 0.02."""
    mdp = TabularMDP(np.ones((1, 2, 1)), np.array([[0.0, 0.1]]), 0.5, r_max=0.1)
    eps = analysis.misspecification(mdp, np.zeros((1, 2), int))[0]
    Q = exact.action_values(mdp, np.array([[1.0, 0.0]]))
    assert np.ptp(Q) > mdp.r_max * eps / (1 - mdp.gamma)
    assert np.ptp(Q) <= eps * (1 + mdp.gamma * mdp.r_max / (1 - mdp.gamma)) + 1e-12


@many
@given(seeds)
def test_the_critics_bias_under_aggregation_is_an_average_along_the_comparator(ratios, seed):
    """Term A of the aggregation lemma, with the best fit under a cover of full support."""
    mdp, labels = aggregated(seed)
    phi, g = aggregation_features(labels), 1 - mdp.gamma
    pi, comparator = random_policy(mdp, seed + 1), random_policy(mdp, seed + 2)
    V, Q = exact.evaluate(mdp, pi)
    theta = critic.least_squares(critic.factorise(phi, np.full(mdp.shape, 1 / 24)), Q, aggregation_W(5, mdp.gamma))
    scores = phi @ theta
    error = (Q - V[:, None]) - (scores - (pi * scores).sum(1, keepdims=True))
    left = (exact.occupancy(mdp, comparator) * error).sum()
    right = 2 * analysis.average_misspecification(mdp, labels, comparator) / g**2
    ratios.check("aggregation: bias of the critic", left, right)


def test_misspecification_is_zero_exactly_where_pairs_agree():
    mdp = random_mdp(0, 4, 2, 0.9)
    assert analysis.misspecification(mdp, np.arange(8).reshape(4, 2)).max() == 0.0
    labels = np.array([[0, 0], [1, 2], [3, 4], [5, 6]])
    eps = analysis.misspecification(mdp, labels)
    assert (eps > 0).tolist() == [True] + [False] * 6
    expected = max(np.abs(mdp.P[0, 0] - mdp.P[0, 1]).sum(), abs(mdp.r[0, 0] - mdp.r[0, 1]))
    assert eps[0] == pytest.approx(expected)
    only_0 = np.zeros(mdp.shape)
    only_0[:, 0] = 1.0
    occupancy = exact.occupancy(mdp, only_0).sum(1)
    assert analysis.average_misspecification(mdp, labels, only_0) == pytest.approx(occupancy[0] * eps[0])
