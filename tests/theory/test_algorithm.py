"""Algorithms 1 and 2: what each step must do, and that they solve what they should, exact and sampled."""

import dataclasses

import numpy as np
import pytest

from pcpg_theory import exact, npg, problems, tabular
from pcpg_theory.mdp import random_mdp, uniform_policy
from pcpg_theory.settings import Settings, beta_from_mass


def raw(problem, pi):
    assert problem.raw_return is not None
    return problem.raw_return(pi)


def relative_gap(problem, pi):
    best, uniform = problem.gap()
    return (best - exact.value(problem.mdp, pi)) / (best - uniform)


def test_npg_starts_uniform_in_known_states_and_over_bonus_actions_elsewhere():
    b = np.array([[0.0, 0.0, 0.0], [0.0, 2.0, 2.0], [2.0, 0.0, 0.0]])
    pi = npg.restricted_uniform(b, np.ones((3, 3), bool))
    np.testing.assert_allclose(pi, [[1 / 3] * 3, [0, 0.5, 0.5], [1, 0, 0]])
    assert npg.known_states(b, np.ones((3, 3), bool)).tolist() == [True, False, False]


def test_unknown_states_keep_their_policy_whatever_the_critic_says():
    b = np.array([[0.0, 0.0], [5.0, 0.0]])
    phi = np.eye(4).reshape(2, 2, 4)
    theta, everywhere = np.array([0.0, 1.0, -9.0, 9.0]), np.ones((2, 2), bool)
    made = npg.npg_update(phi, b, everywhere, lambda pi, t: theta, lambda p: np.arange(len(p)), T=5, eta=1.0)
    assert (made.iterates[:, 1] == [1.0, 0.0]).all()
    t = np.arange(5)
    np.testing.assert_allclose(made.iterates[:, 0, 1], np.exp(t) / (1 + np.exp(t)))
    assert made.chosen == 4


def test_a_probability_that_underflows_comes_back():
    phi = np.eye(2).reshape(1, 2, 2)
    thetas = [np.array([0.0, 2000.0])] * 2 + [np.array([4500.0, 0.0])] * 2
    b, everywhere = np.zeros((1, 2)), np.ones((1, 2), bool)
    made = npg.npg_update(phi, b, everywhere, lambda pi, t: thetas[t], lambda p: np.zeros(len(p)), T=4, eta=1.0)
    assert made.iterates[2, 0, 0] == 0.0 and made.iterates[3, 0, 0] > 0.99


def test_the_bonus_is_an_indicator_of_one_over_one_minus_gamma():
    mdp = random_mdp(0, 4, 2, 0.75)
    phi = np.eye(8).reshape(4, 2, 8)
    visits = np.arange(8.0).reshape(4, 2) / 4
    visits[visits == 1.0] = 0.999  # at the threshold itself rounding decides
    for labels in (None, np.arange(8)):  # the dense and the diagonal way
        bonus = tabular.theory_bonus(phi, visits, labels, ridge=1.0, beta=1 / 2.0, gamma=mdp.gamma)
        np.testing.assert_allclose(bonus.form, 1 / (visits + 1))
        np.testing.assert_allclose(bonus.b, np.where(visits <= 1.0, 4.0, 0.0))
        assert bonus.log_det == pytest.approx(np.log1p(visits).sum())


def test_a_threshold_above_every_form_is_an_input_error():
    problem = problems.lock(2)
    with pytest.raises(ValueError, match="every pair would count as known"):
        tabular.run(problem.mdp, problem.phi, Settings(beta=1.0), "exact")
    with pytest.raises(ValueError, match="W must be finite"):
        tabular.run(problem.mdp, problem.phi, Settings(critic="sgd"), "sampled")
    with pytest.raises(ValueError, match="got 'both'"):
        tabular.run(problem.mdp, problem.phi, Settings(), "both")


@pytest.mark.parametrize("bad", [{"N": 0}, {"eta": 0.0}, {"beta": -1.0}, {"M": 2.5}, {"critic": "magic"}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Settings(**bad)


@pytest.mark.parametrize("horizon", [4, 10, 15])
def test_exact_mode_opens_the_lock(horizon):
    problem, settings = problems.lock(horizon, seed=7), problems.lock_settings(horizon, "exact")
    found = tabular.run(problem.mdp, problem.phi, settings, "exact")
    assert raw(problem, found.pi) > 3.9 and relative_gap(problem, found.pi) < 0.01
    assert found.steps == 0


@pytest.mark.parametrize("seed", [100, 101])
def test_sampled_mode_opens_the_lock_from_resets_alone(seed):
    problem, settings = problems.lock(4, seed), problems.lock_settings(4, "sampled")
    found = tabular.run(problem.mdp, problem.phi, settings, "sampled", seed)
    assert raw(problem, found.pi) > 3.5 and found.steps < 2_000_000
    assert sum(found.samples.values()) == found.steps


def no_bonus(phi, visits, labels, **numbers):
    return tabular.Bonus(np.zeros(visits.shape), np.zeros(visits.shape), 0.0)


def test_without_a_bonus_the_same_npg_does_not_open_the_lock(monkeypatch):
    problem, settings = problems.lock(4, seed=7), problems.lock_settings(4, "sampled")
    monkeypatch.setattr(tabular, "theory_bonus", no_bonus)
    found = tabular.run(problem.mdp, problem.phi, settings, "sampled", 1)
    assert raw(problem, found.pi) < 0.5


def test_the_linear_lock_is_opened_with_the_bonus_and_not_without(monkeypatch):
    problem, settings = problems.linear_lock(3), problems.linear_settings("lock")
    found = tabular.run(problem.mdp, problem.phi, settings, "sampled", 3)
    assert relative_gap(problem, found.pi) < 0.05
    monkeypatch.setattr(tabular, "theory_bonus", no_bonus)
    assert relative_gap(problem, tabular.run(problem.mdp, problem.phi, settings, "sampled", 3).pi) > 0.5


@pytest.mark.parametrize("make", [problems.chain, problems.deep_sea, problems.maze])
def test_exact_mode_solves_the_small_environments(make):
    problem = make(8)
    settings = Settings(N=40, T=50, eta=20.0, beta=beta_from_mass(5e-4))
    assert relative_gap(problem, tabular.run(problem.mdp, problem.phi, settings, "exact").pi) < 0.05


def test_runs_with_the_same_seed_are_equal_and_with_another_are_not():
    problem, settings = problems.lock(2), problems.lock_settings(2, "sampled")
    first, again, other = (tabular.run(problem.mdp, problem.phi, settings, "sampled", s) for s in (5, 5, 6))
    assert (first.cover.policies == again.cover.policies).all() and first.steps == again.steps
    assert first.steps != other.steps


def test_the_known_set_only_grows():
    for problem in (problems.lock(3), problems.linear_lock(1, horizon=3)):
        settings = Settings(N=12, T=10, eta=10.0, ridge=0.01, beta=beta_from_mass(0.01, 0.01))
        found = tabular.run(problem.mdp, problem.phi, settings, "exact")
        for before, after in zip(found.bonuses, found.bonuses[1:], strict=False):
            assert (after.form <= before.form * (1 + 1e-9)).all()
            assert ((before.b == 0) <= (after.b == 0)).all()


def test_the_sgd_critic_with_a_practical_step_opens_a_short_lock():
    problem = problems.lock(2, seed=4)
    settings = dataclasses.replace(
        problems.lock_settings(2, "sampled"), critic="sgd", W=1000.0, M=400, N=12, sgd_step=1.0
    )
    assert raw(problem, tabular.run(problem.mdp, problem.phi, settings, "sampled", 4).pi) > 3.5


@pytest.mark.parametrize("spelling", ["d-optimal", "d_optimal"])
def test_d_optimal_weights_can_take_the_place_of_uniform_ones(spelling):
    problem = problems.lock(2, seed=4)
    settings = dataclasses.replace(problems.lock_settings(2, "exact"), weights=spelling)
    found = tabular.run(problem.mdp, problem.phi, settings, "exact")
    assert raw(problem, found.pi) > 3.5


def test_a_bandit_with_one_state_is_solved_without_any_planning():
    """A probe: gamma = 0, reward by action alone."""
    from pcpg_theory.mdp import TabularMDP, one_hot_pairs

    mdp = TabularMDP(np.ones((1, 3, 1)), np.array([[0.1, 0.9, 0.5]]), 0.0)
    settings = Settings(N=3, T=30, eta=5.0, beta=beta_from_mass(0.1))
    found = tabular.run(mdp, one_hot_pairs(mdp), settings, "exact")
    assert exact.value(mdp, found.pi) > 0.89 > exact.value(mdp, uniform_policy(mdp))
