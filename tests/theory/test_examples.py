"""The paper's examples: the tree, the aggregated swamp and the kernel swimmer, with their contrasts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcpg_theory import analysis, critic, exact, examples, kernel, tabular
from pcpg_theory.examples import fitted_q_iteration, lsvi_ucb, swamp
from pcpg_theory.mdp import TabularMDP, random_policy, uniform_policy, with_start
from pcpg_theory.problems import random_linear_mdp
from pcpg_theory.settings import Settings, beta_from_mass

seeds = st.integers(0, 2**31)
RIDGE = 1e-3
tree_settings = Settings(N=8, T=40, eta=10.0, ridge=RIDGE, beta=beta_from_mass(0.01, RIDGE), stop=0.02)


def uniform(mdp):
    return np.full(mdp.shape, 1.0 / mdp.r.size)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_the_transfer_error_of_the_tree_is_zero_whatever_its_features(seed):
    made = examples.random_tree(3, 2, seed % 1000)
    rng = np.random.default_rng(seed)
    b = (rng.random(made.mdp.shape) < 0.3) / (1 - made.mdp.gamma)
    b[1] = b[1, 0]  # a bonus is a function of the features, and s1 has one feature
    pi = random_policy(made.mdp, seed)
    V, Q = exact.evaluate(made.mdp, pi, made.mdp.r + b)
    rho = exact.occupancy(made.mdp, random_policy(made.mdp, seed + 1))
    rho[0, 0] = 0.0  # the cover may even have missed the left path
    rho[1] = 0.0
    d_star = analysis.comparator_distribution(made.mdp, made.comparator)
    found = analysis.transfer_error(made.phi, rho / rho.sum(), d_star, Q - b)
    assert found.least < 1e-12 * float(np.abs(Q).max()) ** 2
    theta_1, theta_3 = examples.exact_left_fit(made.mdp, V)
    assert found.theta[0] == pytest.approx(theta_1, abs=1e-7) and found.theta[2] == pytest.approx(theta_3, abs=1e-7)


def test_the_trees_fit_as_printed_subtracts_the_bonus_twice():
    """Printed: theta_1 = 1/2 - b(s0, L). With a bonus at s1 the fit of Q - b there is 1/2 + gamma V(s1; r + b)."""
    made = examples.random_tree(2)
    b = np.zeros(made.mdp.shape)
    b[1], b[0, 0] = 10.0, 10.0
    Q = exact.action_values(made.mdp, made.comparator, made.mdp.r + b)
    V = exact.values(made.mdp, made.comparator, made.mdp.r + b)
    assert Q[0, 0] - b[0, 0] == pytest.approx(examples.exact_left_fit(made.mdp, V)[0])
    assert abs(Q[0, 0] - b[0, 0] - (0.5 - b[0, 0])) > 50


def test_a_binding_norm_couples_the_blocks_of_the_tree():
    """The companion: with W too small the best fit of the tree takes from the left path."""
    made = examples.random_tree(3, 2, 0)
    Q = exact.action_values(made.mdp, made.comparator, made.mdp.r) * 5
    d_star = analysis.comparator_distribution(made.mdp, made.comparator)
    assert analysis.transfer_error(made.phi, uniform(made.mdp), d_star, Q, W=0.5).least > 1e-3


@pytest.mark.parametrize("mode", ["exact", "sampled"])
def test_pcpg_reaches_one_half_on_random_searched_and_constructed_trees(mode):
    for made in (
        examples.random_tree(4),
        examples.adversarial_tree(4, tries=60),
        examples.deluding_tree(6, right_value=0.42),
    ):
        found = tabular.run(made.mdp, made.phi, tree_settings, mode, 1)
        assert exact.value(made.mdp, found.pi) > 0.5 - 0.01


def test_fitted_q_iteration_is_deluded_by_searched_features():
    made = examples.adversarial_tree(4, tries=100)
    found = fitted_q_iteration(made.mdp, made.phi, uniform(made.mdp))
    assert found.Q[0, 1] > 0.5 > found.value + 0.05


def test_lsvi_ucb_is_deluded_on_its_own_data_by_constructed_features():
    made = examples.deluding_tree(6, right_value=0.42)
    found = lsvi_ucb(made.mdp, made.phi, 300, 8, 1.0, seed=0)
    assert found.Q[0, 1] > 0.505 and found.value == pytest.approx(0.42, abs=1e-6)


def test_the_belief_of_the_constructed_tree_is_the_one_derived():
    """Where each pair of the path has equal weight, fitted Q iteration settles at gamma w c_0."""
    made, depth = examples.deluding_tree(8), 8
    path = [2**level + 1 for level in range(depth)]
    weights = np.zeros(made.mdp.shape)
    weights[0], weights[1], weights[path, 0] = 1.0, 1.0, 1.0
    found = fitted_q_iteration(made.mdp, made.phi, weights, iterations=2000)
    c = made.phi[path, 0, 3]
    A = np.eye(depth) - 0.45 * (np.eye(depth, k=1) + np.eye(depth, k=-1))
    w = made.mdp.r.max(where=np.arange(258)[:, None] > 1, initial=0) * c[-1] / (c @ A @ c)
    assert found.Q[0, 1] == pytest.approx(0.9 * w * c[0], rel=1e-6) and found.Q[0, 1] > 0.55


def test_bootstrapping_works_where_the_features_are_right_everywhere():
    """The contrasts are no straw men: on a linear MDP both find a good policy."""
    made = random_linear_mdp(0, 15, 3, 4)
    best = exact.optimal_policy(made.mdp).V[0]
    assert fitted_q_iteration(made.mdp, made.phi, uniform(made.mdp)).value == pytest.approx(best, rel=1e-3)
    assert lsvi_ucb(made.mdp, made.phi, 150, 20, 0.5, ridge=0.1).value > 0.95 * best


def test_pcpg_loses_nothing_to_errors_off_the_comparators_path_and_fitted_q_iteration_does():
    made = swamp(0.3)
    eps = analysis.misspecification(made.mdp, made.labels)
    assert eps.max() == pytest.approx(0.3)
    assert analysis.average_misspecification(made.mdp, made.labels, made.comparator) == 0.0
    found = tabular.run(made.mdp, made.phi, Settings(N=12, T=60, eta=10.0, beta=beta_from_mass(0.01)), "exact")
    target = exact.value(made.mdp, made.comparator)
    assert target - exact.value(made.mdp, found.pi) < 1e-3
    assert target - fitted_q_iteration(made.mdp, made.phi, uniform(made.mdp)).value > 0.3


def test_errors_on_the_comparators_path_cost_something_within_the_theorem(ratios):
    """Two arms that look the same differ by kappa: the theorem allows 2 kappa, who cannot tell them loses kappa/2."""
    for kappa in (0.1, 0.3):
        mdp, labels = TabularMDP(np.ones((1, 2, 1)), np.array([[0.5, 0.5 + kappa]]), 0.0), np.zeros((1, 2), int)
        found = tabular.run(mdp, np.ones((1, 2, 1)), Settings(N=4, T=10, beta=beta_from_mass(0.01)), "exact")
        best = np.array([[0.0, 1.0]])
        gap, bound = exact.value(mdp, best) - exact.value(mdp, found.pi), analysis.aggregation_bias(mdp, labels, best)
        assert gap == pytest.approx(kappa / 2) and bound == pytest.approx(2 * kappa) and bound < exact.value(mdp, best)
        ratios.check("aggregation theorem: loss on the path", gap, bound)
    made = swamp(0.2, on_path=True)
    found = tabular.run(made.mdp, made.phi, Settings(N=12, T=60, eta=10.0, beta=beta_from_mass(0.01)), "exact")
    assert exact.value(made.mdp, made.comparator) - exact.value(made.mdp, found.pi) > 0.05


def test_the_swimmer_is_linear_in_its_kernel_with_the_stated_norm():
    made = kernel.swimmer(30)
    gram = made.kernel(made.points, made.points)
    reward = made.mdp.r.reshape(-1)
    coefficients = np.linalg.solve(gram + 1e-10 * np.eye(len(gram)), reward)
    np.testing.assert_allclose(gram @ coefficients, reward, atol=1e-5)
    assert made.omega == pytest.approx(np.sqrt(reward @ coefficients), rel=1e-6)


def test_the_kernel_explores_in_fewer_policies_than_one_hot_pairs_and_both_end_near_the_optimum():
    made = kernel.swimmer(40)
    chosen = Settings(N=10, T=15, eta=4.0, ridge=0.01, beta=beta_from_mass(0.02, 0.01), W=200.0)
    dual, primal = (kernel.run_kernel(made, chosen, "exact", dual=which) for which in (True, False))
    best = exact.optimal_policy(made.mdp).V[made.mdp.s0]
    assert exact.value(made.mdp, dual.pi) > 0.97 * best and dual.gains[-1] < primal.gains[-1] / 2
    assert dual.known[2] == made.mdp.r.size > primal.known[2]


def test_the_tree_with_two_sides_has_no_good_start_distribution_and_pc_pg_still_competes_with_its_leftmost_path():
    for depth in (3, 4):
        made = examples.two_sided_tree(depth)
        assert exact.value(made.mdp, made.comparator) == pytest.approx(0.5)
        d_star = analysis.comparator_distribution(made.mdp, made.comparator)
        rolled = exact.occupancy(made.mdp, uniform_policy(made.mdp))
        path = d_star.sum(1) > 0
        assert (d_star.sum(1)[path] / rolled.sum(1)[path]).max() >= 2**depth * 0.99
        found = tabular.run(made.mdp, made.phi, tree_settings, "exact", 1)
        assert exact.value(made.mdp, found.pi) > 0.5 - 0.01


def test_the_tree_is_no_linear_MDP_of_few_dimensions():
    """The rank of its transitions, which no factorisation P = phi mu can be below, grows as the number of nodes."""
    for depth in (2, 3, 4):
        assert examples.transition_rank(examples.tree_mdp(depth)) == 2**depth + 1
    assert examples.transition_rank(random_linear_mdp(0, 15, 3, 4).mdp) == 4


def test_a_start_distribution_is_a_state_in_front_of_it():
    """V from nu is V(s0) of the larger MDP over gamma, for any policy; the new state has one action, pays nothing."""
    mdp, nu = random_linear_mdp(0, 6, 2, 3).mdp, np.array([0.0, 0.5, 0.25, 0.25, 0.0, 0.0])
    larger = with_start(mdp, nu)
    pi = random_policy(mdp, 1)
    above = np.concatenate([pi, [[1.0, 0.0]]])
    assert exact.value(larger, above) == pytest.approx(mdp.gamma * float(nu @ exact.values(mdp, pi)))
    assert larger.s0 == 6 and larger.available[6].tolist() == [True, False]
    with pytest.raises(ValueError, match="must be a distribution over 6 states"):
        with_start(mdp, np.ones(6))


def test_bad_examples_are_refused():
    for bad in (lambda: examples.tree_mdp(0), lambda: examples.deluding_tree(5, right_value=0.7), lambda: swamp(1.5)):
        with pytest.raises(ValueError, match="must be"):
            bad()
    with pytest.raises(ValueError, match="must be 1 or more"):
        lsvi_ucb(examples.tree_mdp(2), examples.random_tree(2).phi, 0, 5, 1.0)
    with pytest.raises(ValueError, match="inner features"):
        examples.tree_features(examples.tree_mdp(2), np.zeros((2, 2, 1)))
    assert critic.partition_labels(swamp(0.1).phi) is not None
