"""The potential argument, concentration of covariances, and the SGD lemma, with the paper's slips as companions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pcpg_theory import critic, exact, tabular
from pcpg_theory.analysis import (
    finite_dimensional_bound,
    information_gain,
    intrinsic_dimension,
    max_information_gain,
)
from pcpg_theory.mdp import TabularMDP, random_policy, uniform_policy
from pcpg_theory.settings import Settings, beta_from_mass

seeds = st.integers(0, 2**31)
many = settings(max_examples=30, deadline=None)


def trace_sum(sigmas, ridge):
    """Return sum_n tr(Sigma_n M_{n-1}^-1) and log det(M_N / lambda I)."""
    M, total = ridge * np.eye(sigmas.shape[-1]), 0.0
    for sigma in sigmas:
        total += np.trace(np.linalg.solve(M, sigma))
        M = M + sigma
    return total, np.linalg.slogdet(M / ridge)[1]


@many
@given(seeds, st.sampled_from([0.01, 0.3, 1.0, 4.0]), st.sampled_from([1, 20]))
def test_the_sum_of_traces_is_at_most_c_times_the_log_determinant(ratios, seed, ridge, count):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(count, 4, 4)))[0]
    eigenvalues = rng.random((count, 4)) ** rng.integers(1, 6)
    eigenvalues[:, 0] = 1.0
    total, gain = trace_sum(np.einsum("nij,nj,nkj->nik", basis, eigenvalues, basis), ridge)
    ratios.check("sum of traces, c = (1/lambda)/ln(1+1/lambda)", total, (1 / ridge) / np.log1p(1 / ridge) * gain)


def test_the_sum_of_traces_as_printed_fails_for_a_small_ridge():
    """Printed: at most 2 log det, for every lambda. One dimension, one step, lambda = 0.01: 100 against 9.2."""
    total, gain = trace_sum(np.ones((1, 1, 1)), 0.01)
    assert total > 2 * gain
    total, gain = trace_sum(np.ones((1, 1, 1)), 1.0)
    assert total <= 2 * gain and total == pytest.approx(gain / np.log(2))  # c = 1.4427 is reached at lambda = 1


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_the_potential_argument_bounds_all_bonuses_collected(scene, ratios, seed):
    it = scene(seed)
    g, N = 1 - it.mdp.gamma, 6
    beta = beta_from_mass(0.02)
    found = tabular.run(it.mdp, it.phi, Settings(N=N, T=8, eta=5.0, beta=beta), "exact")
    collected = sum(e.value_bonus - e.value for e in found.rounds)
    gain = found.bonuses[-1].log_det - found.bonuses[0].log_det
    ratios.check("potential argument, 2 I_N/(beta (1-gamma)^2)", collected, 2 * gain / (beta * g**2))


def test_the_potential_argument_as_printed_fails_where_one_pair_stays_unknown_for_two_rounds():
    """Printed: 2 I_N/(beta (1-gamma)). One state, one action, gamma = 0.9: 100 collected against 48.8."""
    mdp = TabularMDP(np.ones((1, 1, 1)), np.zeros((1, 1)), 0.9)
    beta, g = 0.45, 0.1
    found = tabular.run(mdp, np.ones((1, 1, 1)), Settings(N=1, T=1, beta=beta), "exact")
    collected = sum(e.value_bonus - e.value for e in found.rounds)
    gain = found.bonuses[-1].log_det
    assert collected == pytest.approx(100.0) and gain == pytest.approx(np.log(3))
    assert collected > 2 * gain / (beta * g)
    assert collected <= 2 * gain / (beta * g**2)


def forms(phi, weights, ridge):
    return exact.form(phi, exact.covariance(phi, weights) + ridge * np.eye(phi.shape[-1]))


def covariance_violations(it, N, K, ridge, repetitions, rng):
    """Return how often some phi' Sigma^-1 phi of the sampled Sigma_mix is off by more than a factor of two."""
    d = [exact.occupancy(it.mdp, random_policy(it.mdp, i)) for i in range(N)]
    truth, failures = forms(it.phi, sum(d), ridge), 0
    for _ in range(repetitions):
        counts = sum(rng.multinomial(K, p.reshape(-1)).reshape(p.shape) / K for p in d)
        ratio = forms(it.phi, counts, ridge) / truth
        failures += bool(ratio.max() > 2 or ratio.min() < 0.5)
    return failures


def test_covariances_concentrate_at_the_stated_number_of_pairs(scene, ratios):
    it, rng = scene(1, linear=True, states=12), np.random.default_rng(0)
    N, ridge, delta, repetitions = 3, 1.0, 0.2, 200
    d_hat = max(
        intrinsic_dimension(exact.covariance(it.phi, exact.occupancy(it.mdp, random_policy(it.mdp, i))))
        for i in range(N)
    )
    K = int(np.ceil(32 * N**2 * np.log(8 * N * d_hat / delta) / ridge**2))
    failures = covariance_violations(it, N, K, ridge, repetitions, rng)
    assert stats.binomtest(failures, repetitions, delta, alternative="greater").pvalue > 1e-4
    ratios.check("covariance concentration: failures <= delta", failures / repetitions, delta)


def test_covariances_do_not_concentrate_with_far_fewer_pairs_or_without_the_ridge(scene):
    """The companion: the same count of failures does see an error of a factor of two."""
    it, rng = scene(1, linear=True, states=12), np.random.default_rng(0)
    assert covariance_violations(it, 3, 2, 0.01, 100, rng) > 50
    assert covariance_violations(it, 3, 2000, 1e-9, 50, rng) <= covariance_violations(it, 3, 20, 1e-9, 50, rng)


def sgd_excess(W, step, N, repetitions, rng, noise=0.3):
    """Return the excess loss of averaged projected SGD in each repetition, targets in [0, 1]."""
    x = rng.dirichlet(np.full(3, 0.5), size=(repetitions, N))
    mean = lambda z: np.clip(z @ np.array([0.9, 0.1, 0.5]), 0, 1)  # noqa: E731
    y = np.clip(mean(x) + noise * rng.choice([-1, 1], size=x.shape[:2]), 0, 1)
    theta = critic.projected_sgd(x, y, W, step)
    grid = rng.dirichlet(np.full(3, 0.5), size=4000)
    targets = (np.clip(mean(grid) + noise, 0, 1) + np.clip(mean(grid) - noise, 0, 1)) / 2
    factor = critic.factorise(grid[:, None], np.full((4000, 1), 1 / 4000))
    best = critic.least_squares(factor, targets, W)
    least = np.mean((grid @ best - targets) ** 2)
    return np.mean((grid @ theta.T - targets[:, None]) ** 2, axis=0) - least


@pytest.mark.parametrize(("W", "N"), [(0.5, 100), (2.0, 100), (2.0, 1000)])
def test_the_sgd_lemma_fails_no_more_often_than_delta(ratios, W, N):
    delta, repetitions, rng = 0.2, 400, np.random.default_rng(0)
    excess = sgd_excess(W, critic.lemma_step(W, 1.0, N), N, repetitions, rng)
    bound = critic.lemma_excess(W, 1.0, N, delta)
    failures = int((excess > bound).sum())
    assert stats.binomtest(failures, repetitions, delta, alternative="greater").pvalue > 1e-4
    ratios.check("SGD lemma: excess at level 1 - delta", np.quantile(excess, 1 - delta), bound)


def test_the_sgd_lemma_as_printed_fails_for_a_small_W():
    """Printed step W^2/((W+H) sqrt N) and excess 3 W (W+H) sqrt(ln(1/delta)/N): with W = 0.01 it hardly moves."""
    W, H, N, delta = 0.01, 1.0, 100, 0.1
    x, y = np.ones((1, N, 1)), np.ones((1, N))
    printed = critic.projected_sgd(x, y, W, W**2 / ((W + H) * np.sqrt(N)))[0, 0]
    excess = (printed - 1) ** 2 - (W - 1) ** 2
    assert excess > 3 * W * (W + H) * np.sqrt(np.log(1 / delta) / N)
    true = critic.projected_sgd(x, y, W, critic.lemma_step(W, H, N))[0, 0]
    assert (true - 1) ** 2 - (W - 1) ** 2 <= critic.lemma_excess(W, H, N, delta)


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_no_set_of_policies_gains_more_than_the_maximum_and_that_no_more_than_d_log(scene, ratios, seed):
    it = scene(seed, linear=True)
    N, ridge = 10, 0.5
    found = max_information_gain(it.mdp, it.phi, N, ridge, tol=1e-3)
    policies = [random_policy(it.mdp, seed + i) for i in range(N - 1)] + [uniform_policy(it.mdp)]
    sigmas = np.stack([exact.covariance(it.phi, exact.occupancy(it.mdp, pi)) for pi in policies])
    ratios.check("information gain of policies <= I_N", information_gain(sigmas, ridge), found.value + found.gap)
    assert found.gap <= 1e-3
    ratios.check("I_N <= d log(1 + N/lambda)", found.value, finite_dimensional_bound(N, 4, ridge))


def test_the_maximum_information_gain_agrees_with_cvxpy(scene):
    import cvxpy as cp

    it = scene(11, linear=True, states=6)
    N, ridge, gamma = 5, 1.0, it.mdp.gamma
    rho = cp.Variable(18, nonneg=True)
    phi, P = it.phi.reshape(18, -1), it.mdp.P.reshape(18, 6)
    flow = np.kron(np.eye(6), np.ones((1, 3))) @ rho == gamma * (P.T @ rho) + (1 - gamma) * (np.arange(6) == it.mdp.s0)
    M = np.eye(4) + (N / ridge) * sum(rho[i] * np.outer(phi[i], phi[i]) for i in range(18))
    problem = cp.Problem(cp.Maximize(cp.log_det(M)), [flow])
    problem.solve(solver=cp.CLARABEL)
    truth = float(np.asarray(problem.value))
    found = max_information_gain(it.mdp, it.phi, N, ridge, tol=1e-4)
    assert found.value - 1e-5 <= truth <= found.value + found.gap + 1e-5


def test_information_gain_of_one_hot_features_is_a_sum_of_logarithms():
    sigmas = np.stack([np.diag([0.5, 0.5, 0.0]), np.diag([0.0, 0.25, 0.75])])
    assert information_gain(sigmas, 0.5) == pytest.approx(np.log([2.0, 2.5, 2.5]).sum())
    assert intrinsic_dimension(np.diag([0.5, 0.25])) == pytest.approx(1.5)
