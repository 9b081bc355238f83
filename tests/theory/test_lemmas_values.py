"""Lemmas about values: linearity, performance difference, augmented MDP. Each has a companion that must fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg_theory import critic, exact
from pcpg_theory.analysis import augmented_comparator, augmented_mdp
from pcpg_theory.mdp import TabularMDP, random_policy
from pcpg_theory.npg import known_states, restricted_uniform

seeds = st.integers(0, 2**31)
many = settings(max_examples=40, deadline=None)


@many
@given(seeds)
def test_Q_minus_b_is_linear_in_a_linear_MDP_with_norm_at_most_W(scene, ratios, seed):
    it = scene(seed, linear=True)
    b, pi = it.bonus.b, random_policy(it.mdp, seed)
    V, Q = exact.evaluate(it.mdp, pi, it.mdp.r + b)
    w = it.linear.theta + it.mdp.gamma * it.linear.mu @ V
    np.testing.assert_allclose(it.phi @ w, Q - b, atol=1e-9)
    ratios.check("norm of Q - b <= omega + xi/(1-gamma)^2", np.linalg.norm(w), it.linear.W)


def test_Q_itself_is_not_linear_once_there_is_a_bonus(scene):
    it = scene(5, linear=True)
    b = it.bonus.b
    assert 0 < (b > 0).sum() < b.size
    Q = exact.action_values(it.mdp, random_policy(it.mdp, 5), it.mdp.r + b)
    fit = critic.least_squares(critic.factorise(it.phi, np.full(b.shape, 1.0 / b.size)), Q)
    assert np.abs(it.phi @ fit - Q).max() > 0.1


def test_values_with_bonus_exceed_the_range_that_the_paper_gives():
    """r + b <= 1/(1-gamma) as printed; it is (2-gamma)/(1-gamma), though Q - b does stay below 1/(1-gamma)^2."""
    gamma = 0.5
    mdp = TabularMDP(np.ones((1, 1, 1)), np.ones((1, 1)), gamma)
    V, Q = exact.evaluate(mdp, np.ones((1, 1)), mdp.r + 1 / (1 - gamma))
    assert V[0] == pytest.approx((2 - gamma) / (1 - gamma) ** 2) and V[0] > 1 / (1 - gamma) ** 2
    assert Q[0, 0] - 1 / (1 - gamma) <= 1 / (1 - gamma) ** 2


@many
@given(seeds)
def test_the_performance_difference_lemma_holds_with_the_comparators_occupancy(scene, seed):
    it = scene(seed)
    pi, other = random_policy(it.mdp, seed + 1), it.comparator
    difference = exact.value(it.mdp, other) - exact.value(it.mdp, pi)
    A = exact.advantages(it.mdp, pi)
    right = (exact.occupancy(it.mdp, other) * A).sum() / (1 - it.mdp.gamma)
    assert difference == pytest.approx(right, abs=1e-8)


def test_the_performance_difference_lemma_fails_with_the_learners_occupancy(scene):
    it = scene(3)
    pi = random_policy(it.mdp, 4)
    difference = exact.value(it.mdp, it.comparator) - exact.value(it.mdp, pi)
    wrong = (exact.occupancy(it.mdp, pi) * exact.advantages(it.mdp, pi)).sum() / (1 - it.mdp.gamma)
    assert abs(difference - wrong) > 0.01


@many
@given(seeds)
def test_known_states_are_visited_no_more_often_on_the_augmented_MDP(scene, ratios, seed):
    it = scene(seed)
    known = known_states(it.bonus.b, it.mdp.available)
    plain = exact.occupancy(it.mdp, it.comparator)
    extra = exact.occupancy(augmented_mdp(it.mdp, it.bonus.b), augmented_comparator(it.mdp, it.bonus.b, it.comparator))
    for s, a in zip(*np.nonzero(known[:, None] & (plain > 1e-12)), strict=True):
        ratios.check("occupancy in K^n: augmented <= plain", extra[s, a], plain[s, a])
    assert extra[~known].sum() == pytest.approx(1.0 - extra[known].sum())


def test_unknown_states_may_be_visited_more_often_on_the_augmented_MDP(scene):
    """The companion: the lemma is about known states only."""
    it = scene(3)
    b = np.zeros(it.mdp.shape)
    b[it.mdp.s0] = 1 / (1 - it.mdp.gamma)
    extra = exact.occupancy(augmented_mdp(it.mdp, b), augmented_comparator(it.mdp, b, it.comparator))
    assert extra[it.mdp.s0].sum() > exact.occupancy(it.mdp, it.comparator)[it.mdp.s0].sum() + 0.1


@many
@given(seeds)
def test_the_augmented_comparator_is_worth_at_least_the_comparator(scene, ratios, seed):
    it = scene(seed)
    augmented = augmented_mdp(it.mdp, it.bonus.b)
    above = exact.value(augmented, augmented_comparator(it.mdp, it.bonus.b, it.comparator))
    ratios.check("V of the comparator: plain <= augmented", exact.value(it.mdp, it.comparator), above)


def test_an_extra_action_that_paid_less_than_the_largest_reward_would_not_do():
    """The companion: with rewards above one, a_dagger's reward of one is not enough."""
    mdp = TabularMDP(np.ones((1, 1, 1)), np.full((1, 1), 2.0), 0.5, r_max=2.0)
    b = np.full((1, 1), 2.0)
    comparator = np.ones((1, 1))
    above = exact.value(augmented_mdp(mdp, b), augmented_comparator(mdp, b, comparator))
    assert above < exact.value(mdp, comparator)


@many
@given(seeds)
def test_policies_without_the_extra_action_have_the_same_values_on_both(scene, seed):
    it = scene(seed)
    pi = restricted_uniform(it.bonus.b, it.mdp.available)
    V = exact.values(it.mdp, pi, it.mdp.r + it.bonus.b)
    never = np.concatenate([pi, np.zeros((len(pi), 1))], axis=1)  # takes a_dagger
    np.testing.assert_allclose(exact.values(augmented_mdp(it.mdp, it.bonus.b), never), V, atol=1e-8)


@many
@given(seeds)
def test_the_bonus_adds_the_escape_probability_over_one_minus_gamma_squared(scene, seed):
    it = scene(seed)
    pi, g = random_policy(it.mdp, seed + 2), 1 - it.mdp.gamma
    added = exact.value(it.mdp, pi, it.mdp.r + it.bonus.b) - exact.value(it.mdp, pi)
    escape = exact.occupancy(it.mdp, pi)[it.bonus.b > 0].sum()
    assert added == pytest.approx(escape / g**2, abs=1e-8)


def test_the_paper_loses_a_factor_of_one_minus_gamma_there(scene):
    """Printed: V >= V_b - Pr(unknown)/(1-gamma). One state, nothing known: V_b - V = 4, the printed bound allows 2."""
    mdp = TabularMDP(np.ones((1, 1, 1)), np.zeros((1, 1)), 0.5)
    added = exact.value(mdp, np.ones((1, 1)), np.full((1, 1), 2.0))
    assert added == pytest.approx(4.0) and added > 1 / (1 - mdp.gamma)
