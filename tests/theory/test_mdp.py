"""Arrays that are no MDP are refused, with the place; exact oracles agree with independent ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg_theory import exact, problems
from pcpg_theory.mdp import (
    TabularMDP,
    aggregation_features,
    check_features,
    check_policy,
    one_hot_pairs,
    random_mdp,
    random_policy,
    uniform_policy,
)

seeds = st.integers(0, 2**31)
gammas = st.sampled_from([0.0, 0.3, 0.9, 0.99])


def arrays():
    mdp = random_mdp(0, 4, 3, 0.9)
    return mdp.P.copy(), mdp.r.copy()


def test_rows_of_P_that_do_not_sum_to_one_are_refused():
    P, r = arrays()
    P[2, 1] *= 0.9
    with pytest.raises(ValueError, match=r"P\[2, 1\] must sum to one, got 0.9"):
        TabularMDP(P, r, 0.9)


def test_negative_and_non_finite_probabilities_are_refused():
    P, r = arrays()
    P[1, 0, :2] += [2.0, -2.0]
    with pytest.raises(ValueError, match=r"P\[1, 0\] must not be negative"):
        TabularMDP(P, r, 0.9)
    P[1, 0, 0] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        TabularMDP(P, r, 0.9)


@pytest.mark.parametrize("bad", [1.5, -0.2, np.nan])
def test_rewards_outside_the_range_are_refused(bad):
    P, r = arrays()
    r[3, 2] = bad
    with pytest.raises(ValueError, match=r"r\[3, 2\] must lie in \[0, 1\], got"):
        TabularMDP(P, r, 0.9)


@pytest.mark.parametrize("gamma", [1.0, -0.1, 1.5, np.nan])
def test_gamma_outside_its_range_is_refused(gamma):
    with pytest.raises(ValueError, match="gamma must be"):
        TabularMDP(*arrays(), gamma)


def test_wrong_shapes_and_starts_are_refused():
    P, r = arrays()
    for bad in (lambda: TabularMDP(P[:, :, :3], r, 0.9), lambda: TabularMDP(P, r[:2], 0.9)):
        with pytest.raises(ValueError, match="shape"):
            bad()
    with pytest.raises(ValueError, match=r"s0 must be .*got 7"):
        TabularMDP(P, r, 0.9, s0=7)
    with pytest.raises(ValueError, match="terminal"):
        TabularMDP(P, r, 0.9, terminal=np.array([True, False, False, False]))


def test_features_of_norm_above_one_are_refused():
    mdp = TabularMDP(*arrays(), 0.9)
    phi = one_hot_pairs(mdp)
    phi[1, 2] *= 1.01
    with pytest.raises(ValueError, match=r"phi\(1, 2\) must have .*got 1.01"):
        check_features(mdp, phi)
    with pytest.raises(ValueError, match="shape"):
        check_features(mdp, phi[:2])


def test_a_policy_with_mass_on_a_missing_action_is_refused():
    available = np.ones((4, 3), bool)
    available[2, 0] = False
    mdp = TabularMDP(*arrays(), 0.9, available=available)
    with pytest.raises(ValueError, match="action 0, which is missing in state 2"):
        check_policy(mdp, np.full((4, 3), 1 / 3))
    with pytest.raises(ValueError, match="missing"):
        exact.values(mdp, np.full((4, 3), 1 / 3))
    check_policy(mdp, uniform_policy(mdp))


def test_policies_that_are_no_distributions_are_refused():
    mdp = TabularMDP(*arrays(), 0.9)
    for bad in (np.full((4, 3), 0.5), np.full((3, 4), 0.25), np.array([[2.0, -1.0, 0.0]] * 4)):
        with pytest.raises(ValueError, match="policy"):
            check_policy(mdp, bad)


def test_arrays_of_an_mdp_cannot_be_changed_afterwards():
    mdp = TabularMDP(*arrays(), 0.9)
    with pytest.raises(ValueError, match="read-only"):
        mdp.P[0, 0, 0] = 1.0


@settings(max_examples=30, deadline=None)
@given(seeds, gammas)
def test_values_are_the_sum_over_time_of_discounted_rewards(seed, gamma):
    mdp = random_mdp(seed, 6, 3, gamma)
    pi = random_policy(mdp, seed)
    P_pi, r_pi = exact.transition_matrix(mdp, pi), (pi * mdp.r).sum(1)
    V, reach, discount = np.zeros(6), np.eye(6), 1.0
    while discount > 1e-16:
        V, reach, discount = V + discount * reach @ r_pi, reach @ P_pi, discount * gamma
    np.testing.assert_allclose(exact.values(mdp, pi), V, rtol=1e-9, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seeds, gammas)
def test_occupancy_sums_to_one_obeys_the_flow_and_prices_rewards(seed, gamma):
    mdp = random_mdp(seed, 6, 3, gamma)
    pi, nu = random_policy(mdp, seed), np.random.default_rng(seed).dirichlet(np.ones(18)).reshape(6, 3)
    d, d_nu = exact.occupancy(mdp, pi), exact.occupancy(mdp, pi, nu)
    flow = gamma * np.einsum("sa,sat->t", d, mdp.P) + (1 - gamma) * (np.arange(6) == mdp.s0)
    np.testing.assert_allclose(d.sum(1), flow, atol=1e-12)
    assert d.sum() == pytest.approx(1.0) and d_nu.sum() == pytest.approx(1.0)
    assert (d * mdp.r).sum() == pytest.approx((1 - gamma) * exact.value(mdp, pi), rel=1e-9)
    assert (d_nu * mdp.r).sum() == pytest.approx((1 - gamma) * (nu * exact.action_values(mdp, pi)).sum(), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([0.5, 0.9, 0.97]))
def test_the_optimal_policy_agrees_with_quantecon(seed, gamma):
    from quantecon.markov import DiscreteDP

    mdp = random_mdp(seed, 8, 3, gamma)
    best = exact.optimal_policy(mdp)
    other = DiscreteDP(np.array(mdp.r), np.array(mdp.P), gamma).solve(method="policy_iteration")
    np.testing.assert_allclose(best.V, other.v, rtol=1e-9)
    np.testing.assert_allclose(exact.values(mdp, best.pi), other.v, rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_linear_mdps_are_linear_with_the_stated_norms(seed):
    made = problems.random_linear_mdp(seed, 12, 3, 4)
    np.testing.assert_allclose(made.phi @ made.mu, made.mdp.P, atol=1e-12)
    np.testing.assert_allclose(made.phi @ made.theta, made.mdp.r, atol=1e-12)
    signs = np.sign(np.random.default_rng(seed).normal(size=(200, 12)))
    assert np.linalg.norm(signs @ made.mu.T, axis=1).max() <= made.xi + 1e-9
    assert np.linalg.norm(made.mu @ np.ones(12)) == pytest.approx(made.xi)  # and it is reached


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_values_by_the_factors_of_a_linear_MDP_equal_those_by_its_transitions(seed):
    made = problems.random_linear_mdp(seed, 12, 3, 4)
    plain = TabularMDP(made.mdp.P, made.mdp.r, made.mdp.gamma)
    pi = random_policy(made.mdp, seed)
    for ours, theirs in zip(exact.evaluate(made.mdp, pi), exact.evaluate(plain, pi), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    with pytest.raises(ValueError, match="factors"):
        TabularMDP(made.mdp.P, made.mdp.r, 0.9, factors=(made.phi[::-1], made.mu))


def test_the_lock_of_the_theory_has_the_returns_of_the_paper():
    problem = problems.lock(4, seed=3)
    assert problem.raw_return is not None
    best = exact.optimal_policy(problem.mdp)
    assert problem.raw_return(best.pi) == pytest.approx(4.0)
    assert problem.phi.shape[-1] == 26 * 10 - 9  # one feature for the end
    always = np.zeros(problem.mdp.shape)
    always[:, 0] = 1.0
    # The shift moves every policy by the same discounted amount and scales it by 1 / (5 + 1/H).
    H, gamma = 4, problem.mdp.gamma
    shift = sum(gamma**t for t in range(H + 1)) / H
    for pi in (best.pi, always, uniform_policy(problem.mdp)):
        raw = problem.mdp.r * (5 + 1 / H) - 1 / H
        raw[-1] = 0.0
        unshifted = exact.value(problem.mdp, pi, raw)
        assert exact.value(problem.mdp, pi) == pytest.approx((unshifted + shift) / (5 + 1 / H))


@pytest.mark.parametrize("make", [problems.chain, problems.deep_sea, problems.maze])
def test_tabular_views_of_environments_are_mdps_that_can_be_solved(make):
    problem = make(8)
    best, uniform = problem.gap()
    assert best > uniform + 1e-3
    check_features(problem.mdp, problem.phi)


def test_rewards_are_not_shifted_where_episodes_differ_in_length():
    from pcpg.envs.protocol import TabularModel

    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[0, 1, 2] = P[1, :, 2] = P[2, :, 2] = 1.0
    model = TabularModel(P, np.array([[-1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]), np.array([0, 0, 1], bool), 0, np.eye(3))
    with pytest.raises(ValueError, match="same length"):
        problems.from_model("two ways", model, 0.9, 2, -1.0, 1.0)


def test_labels_that_are_no_labels_are_refused():
    with pytest.raises(ValueError, match="labels"):
        aggregation_features(np.array([[0.5]]))
