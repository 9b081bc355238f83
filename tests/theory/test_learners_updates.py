"""Golden values: one update of each comparator on a problem of two decisions, worked out by hand.

s0 leads to x by action 0 and to y by action 1; x and y lead to the end. States are numbered s0 0, x 1, y 2, end 3.
The episode played is s0, 0, x, 1, end, with rewards 0 and 1/2; two decisions, so gamma = 1/2.
"""

import numpy as np
import pytest
from numpy import log, sqrt

from pcpg_theory.critic import ridge_regression
from pcpg_theory.learners import model_based, problem, q_learning, tables
from pcpg_theory.learners.kwik import KWIK, known_by_regression
from pcpg_theory.learners.layout import Episodes, Mixture, Streams
from pcpg_theory.learners.linear import LSVIUCB
from pcpg_theory.learners.model_based import E3, UCBVI, UCRL2, RMax
from pcpg_theory.learners.optimistic_policy import OPPO, POMD
from pcpg_theory.learners.pcpg import PCPG
from pcpg_theory.learners.policy_optimisation import (
    CPI,
    MDMPI,
    NPG,
    PSDP,
    Reinforce,
    episodes_of_a_step,
    partial_returns,
)
from pcpg_theory.learners.q_learning import UCBQ, AggregatedQ, DelayedQ, EpsilonGreedyQ, attempt_after
from pcpg_theory.learners.thompson import PSRL, RLSVI, OptimisticPSRL, dirichlet, shrunk
from pcpg_theory.settings import Settings, beta_from_mass


def tiny_layout():
    P, r = np.zeros((1, 4, 2, 4)), np.zeros((1, 4, 2))
    P[0, 0, 0, 1] = P[0, 0, 1, 2] = 1.0
    P[0, 1:, :, 3] = 1.0
    return problem.layered("two decisions", P, r, 0, 2, 0.0, 1.0).layout


def made(kind, seeds=1, **options):
    return kind(tiny_layout(), Streams(range(seeds), 1), **options)


def left(seeds=1):
    """The episode of the module, once for each seed."""
    one = Episodes(np.array([[[0, 1, 3]]]), np.array([[[0, 1]]]), np.array([[[0.0, 0.5]]]))
    return Episodes(*(np.repeat(part, seeds, axis=0) for part in one))


def both():
    """That episode, and s0, 1, y, 0, end with rewards 0 and 1, as one batch."""
    return Episodes(np.array([[[0, 1, 3], [0, 2, 3]]]), np.array([[[0, 1], [1, 0]]]), np.array([[[0, 0.5], [0, 1.0]]]))


def test_greedy_policies_are_uniform_over_ties():
    assert tables.greedy(np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])).tolist() == [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]


def test_counts_are_of_pairs_and_of_successors_in_the_next_layer():
    counts = tables.Counts(tiny_layout(), 1, share=True)
    counts.add(both())
    assert counts.visits[0].tolist() == [[1, 1], [0, 1], [1, 0]]
    assert counts.rewards[0].tolist() == [[0, 0], [0, 0.5], [1, 0]]
    assert counts.successors[0, 0].tolist() == [[1, 0], [0, 1]]
    assert counts.transitions(ridge=1.0)[0, 0, 1].tolist() == [0, 0.5]


def test_ucbvi_with_the_hoeffding_bonus():
    learner = made(UCBVI, scale=0.001)
    learner.learn(left())
    b = 0.001 * 7 * 2 * log(5 * 3 * 2 * 2 / 0.1)
    # V(x) = 1: its other action was not tried, and one decision remains.
    assert learner.Q[0] == pytest.approx(np.array([[1 + b, 2], [1, 0.5 + b], [1, 1]]))


def test_ucbvi_with_the_bernstein_bonus():
    learner = made(UCBVI, scale=0.001, bonus="bernstein")
    learner.learn(left())
    ell = log(600)
    b = 0.001 * (14 * 2 * ell / 3 + sqrt(8 * 4))  # no variance; N' = 1 is far too few, so L^2 = 4
    assert learner.Q[0] == pytest.approx(np.array([[1 + b, 2], [1, 0.5 + b], [1, 1]]))


def test_the_bernstein_bonus_sums_its_three_parts():
    N, P, V = np.full((1, 1, 1), 4.0), np.full((1, 1, 1, 2), 0.5), np.array([[0.0, 1.0]])
    found = model_based.bernstein_bonus(N, P, V, np.array([[1.0, 1e9]]), 2, 3.0, 18.0)
    second = 1e4 * 8 * 18 * 9 / 1e9
    by_hand = sqrt(8 * 3 * 0.25 / 4) + 14 * 2 * 3 / (3 * 4) + sqrt(8 * (0.5 * 4 + 0.5 * second) / 4)
    assert found[0, 0, 0] == pytest.approx(by_hand)


def test_psrl_draws_from_the_posterior():
    learner = made(PSRL, seeds=4000)
    learner.learn(left(4000))
    # After one visit: Beta(1.5, 1.5) at (x, 1), Beta(1, 2) at (s0, 0), whose mean is 1/3.
    assert learner.Q[:, 1, 1].mean() == pytest.approx(0.5, abs=0.02)
    assert learner.Q[:, 1, 1].var() == pytest.approx(1 / 16, abs=0.005)
    assert learner.Q[:, 2, 0].var() == pytest.approx(1 / 12, abs=0.005)
    weights = learner.prior + learner.counts.successors
    assert weights[0, 0].tolist() == [[1.5, 0.5], [0.5, 0.5]]
    assert dirichlet(learner.streams, weights)[:, 0, 0, 0].mean() == pytest.approx(0.75, abs=0.02)


def test_psrl_of_tiny_scale_plans_in_the_empirical_model():
    learner = made(PSRL, scale=1e-6)
    learner.learn(left())
    assert learner.Q[0, 1, 1] == pytest.approx(0.5, abs=1e-4)
    assert learner.Q[0, 0, 0] == pytest.approx(learner.Q[0, 1].max(), abs=1e-4)


def test_ucb_q_learning_with_the_hoeffding_bonus():
    learner = made(UCBQ, scale=0.01)
    learner.learn(left())
    b = 0.01 * sqrt(8 * log(3 * 2 * 2 / 0.1))
    assert learner.Q[0] == pytest.approx(np.array([[1 + b, 2], [1, 0.5 + b], [1, 1]]))
    learner.learn(left())  # alpha_2 = 3/4
    again = 0.01 * sqrt(8 * log(3 * 2 * 4 / 0.1) / 2)
    assert learner.Q[0, 1, 1] == pytest.approx((0.5 + b) / 4 + 0.75 * (0.5 + again))
    assert learner.policy()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]


def test_ucb_q_learning_with_the_bernstein_bonus():
    learner = made(UCBQ, scale=0.01, bonus="bernstein")
    learner.learn(left())
    first = 0.01 * sqrt(8 * log(120))  # the Hoeffding part is the least; b_1 = beta_1 / 2
    assert learner.Q[0, 1, 1] == pytest.approx(0.5 + first / 2)
    learner.learn(left())
    second = 0.01 * sqrt(8 * log(240) / 2)
    b = (second - first / 4) / (2 * 0.75)
    assert learner.Q[0, 1, 1] == pytest.approx((0.5 + first / 2) / 4 + 0.75 * (0.5 + b))
    late = q_learning.bernstein_beta(np.array(1e9), np.array(0.25), 2, 3.0, 6)
    assert late == pytest.approx(sqrt(2 * 2.25 * 3 / 1e9) + sqrt(128 * 6) * 3 / 1e9)


def test_epsilon_greedy_q_learning():
    learner = made(EpsilonGreedyQ, scale=0.2)
    learner.learn(left())
    assert learner.Q[0].tolist() == [[0, 0], [0, 0.5], [0, 0]]
    learner.learn(left())
    assert learner.Q[0, 0, 0] == pytest.approx(2**-0.6 * 0.5 * 0.5)
    assert learner.policy()[0].tolist() == [[1, 0], [0, 1], [0.5, 0.5]]
    assert learner.behaviour()[0] == pytest.approx(np.array([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]]))


def test_r_max():
    assert model_based.known_after(2, 2, 3, 1.0, 0.1) == 24**3 + 1
    learner = made(RMax, scale=1e-12)
    assert learner.m == 1.0 and learner.top[:, 0].tolist() == [1.5, 1, 1]
    learner.learn(left())  # Q(x, .) = (1, 1/2), so Q(s0, .) = (1/2, 3/2)
    assert learner.policy()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]
    learner.learn(left())
    assert learner.counts.visits.max() == 1.0  # a known pair's model is not changed


def test_the_best_transitions_in_a_ball_of_norm_1():
    def mean(P, V, radius):
        return model_based.optimistic_mean(np.array([[[P]]]), np.array([[[radius]]]), np.array([V]))[0, 0, 0]

    assert mean([0.5, 0.5], [0.0, 1.0], 0.4) == pytest.approx(0.7)
    assert mean([0.5, 0.5], [0.0, 1.0], 2.0) == pytest.approx(1.0)
    assert mean([0.2, 0.3, 0.5], [3.0, 1.0, 2.0], 0.6) == pytest.approx(0.5 * 3 + 0.5 * 2)
    assert mean([0.2, 0.3, 0.5], [3.0, 1.0, 2.0], 0.8) == pytest.approx(0.6 * 3 + 0.4 * 2)


def test_ucrl2():
    learner = made(UCRL2, scale=0.01)
    learner.learn(left())
    b, wide = 0.01 * sqrt(3.5 * log(2 * 3 * 2 * 2 / 0.1)), 0.01 * sqrt(28 * log(2 * 2 * 2 / 0.1))
    found = learner.plan(np.array([0]))[0]
    assert found == pytest.approx(np.array([[b + 1, 2], [1, 0.5 + b], [1, 1]]))  # what was not tried can be anything
    assert learner.policy()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]
    learner.learn(left())  # visits of (s0, 0) have doubled
    assert learner.before[0].tolist() == [[2, 0], [0, 2], [0, 0]]
    learner.learn(left())
    assert learner.before[0].tolist() == [[2, 0], [0, 2], [0, 0]]
    learner.counts.visits[:], learner.counts.rewards[0] = 1.0, [[0, 0], [0, 0.5], [0, 0]]
    learner.counts.successors[0, 0] = [[1, 0], [0.5, 0.5]]
    learner.counts.successors[0, 1:, :, 0], learner.steps = 1.0, 2
    Q, V_x, V_y = learner.plan(np.array([0]))[0], 0.5 + b, b
    chance = 0.5 + wide / 2  # of x, by action 1
    assert Q[0].tolist() == pytest.approx([b + V_x, b + chance * V_x + (1 - chance) * V_y])


def test_rlsvi():
    learner = made(RLSVI, seeds=4000, scale=0.1)
    learner.learn(left(4000))
    sd = 0.1 * sqrt(0.5 * 2 * 8 * log(2 * 2 * 2 * 2 * 2) / 1.01)  # episode 2, one visit, lambda = 0.1^2
    assert learner.Q[:, 1, 1].mean() == pytest.approx(0.5 / 1.01, abs=4 * sd / sqrt(4000))
    assert learner.Q[:, 1, 1].std() == pytest.approx(sd, rel=0.05)
    assert learner.Q[:, 1, 0].std() == pytest.approx(sd * sqrt(101), rel=0.05)


def test_delayed_q_learning():
    assert attempt_after(6, 0.5, 0.5, 0.1) == pytest.approx(log(3 * 6 * 25 / 0.1) / (2 / 16))
    learner = made(DelayedQ, scale=1e-9, epsilon=1.0)
    eps_1 = 0.5 / 9
    assert learner.m == 1.0 and learner.eps_1 == pytest.approx(eps_1)
    learner.learn(left())  # both targets are 1/2, far below 3/2 and 1
    assert learner.Q[0] == pytest.approx(np.array([[0.5 + eps_1, 1.5], [1, 0.5 + eps_1], [1, 1]]))
    learner.learn(left())  # both attempts fail; only x's last attempt is as late as the last change
    assert learner.learning[0].tolist() == [[True, True], [True, False], [True, True]]
    learner.learn(left())
    assert learner.learning[0].tolist() == [[False, True], [True, False], [True, True]]


def test_q_learning_with_aggregated_pairs():
    learner = made(AggregatedQ, scale=0.01, labels=[[0, 1], [2, 2], [3, 4]], error=0.05)
    learner.learn(left())
    b = 0.02 * sqrt(8 * log(2 * 1 / 0.1)) + 0.05
    assert learner.Q[:, learner.cells][0] == pytest.approx(np.array([[1 + b, 2], [0.5 + b, 0.5 + b], [1, 1]]))
    learner.learn(left())  # alpha_2 = 3/4; the value of x is now that of its one cell
    again = 0.02 * sqrt(8 * log(2 * 2 / 0.1) / 2) + 0.05
    assert learner.Q[0, learner.cells[0, 0]] == pytest.approx((1 + b) / 4 + 0.75 * (0.5 + b + again))


def test_reinforce():
    learner = made(Reinforce, scale=2.0, batch=2)
    learner.learn(both())  # G = (1/4, 1/2) and (1/2, 1); baselines 3/8 and 3/4
    assert learner.theta[0].tolist() == [[-0.125, 0.125], [0.125, -0.125], [0.125, -0.125]]


def test_natural_policy_gradient():
    learner = made(NPG, scale=2.0, batch=2)
    learner.learn(both())  # Q = (1/4, 1/2) and V = 3/8 at s0; one action only at x and at y; eta / (1 - gamma) = 4
    assert learner.theta[0].tolist() == [[-0.5, 0.5], [0, 0], [0, 0]]


def test_md_mpi():
    one, two = made(MDMPI, scale=2.0, batch=2, m=1), made(MDMPI, scale=2.0, batch=2, m=2)
    for learner, start in ((one, [0, 0]), (two, [0.25, 0.5])):
        learner.learn(both())
        assert learner.q[0].tolist() == [start, [0, 0.5], [1, 0]]
        assert learner.theta[0].tolist() == [[2 * start[0], 2 * start[1]], [0, 1], [2, 0]]
    one.learn(both())  # V(x) = 1/2 e / (1 + e), V(y) = e^2 / (1 + e^2)
    e = np.e
    assert one.q[0, 0] == pytest.approx([0.25 * e / (1 + e), 0.5 * e**2 / (1 + e**2)])
    assert partial_returns(np.array([1.0, 1, 1]), np.array([8.0, 8, 8, 0]), 2, 0.5).tolist() == [3.5, 1.5, 1]


def test_oppo():
    learner = made(OPPO, scale=0.001, step=2.0)
    learner.learn(left())  # evaluated before its own data: what was not tried is worth what remains
    alpha = sqrt(2 * log(2)) / 2
    assert learner.theta[0] == pytest.approx(2 * alpha * np.array([[2, 2], [1, 1], [1, 1]]))
    # The next layer's values were v = (1, 1) at step 0 and (0, .) at step 1, and the successor of (s0, 0) was x.
    assert learner.inverse[0, 0, 0] == pytest.approx(np.eye(2) - np.ones((2, 2)) / 3)
    assert learner.moments[0, 0, 0].tolist() == [1, 1] and learner.moments[0, 1, 1].tolist() == [0, 0]
    before = learner.theta.copy()
    learner.learn(left())
    factor = 0.001 * sqrt(8 * 4 * log(8 * 4 / 0.1))
    V_x, V_y = 0.75, 1.0  # r(x, 1) = 1/2, and no values lie ahead; pi was uniform
    u, square = V_x + V_y, V_x**2 + V_y**2
    found = u - 2 * u / 3 + factor * sqrt(square - u**2 / 3)  # v' Lambda^-1 (1, 1) + Gamma
    new = np.array([[found, 2], [1, 0.5], [1, 1]])
    assert learner.theta - before == pytest.approx(2 * alpha / sqrt(2) * new[None])


def test_pomd():
    learner = made(POMD, scale=0.01)
    learner.learn(left())
    inside = 2 * 2 * 2 * 2 / (0.1 / 3)
    b = 0.01 * (sqrt(2 * log(2 * inside)) + 2 * sqrt(8 * log(3 * inside)))
    alpha, V_x = sqrt(2 * log(2)) / 2, (1 + 0.5 + b) / 2
    assert learner.theta[0] == pytest.approx(alpha * np.array([[V_x + b, 2], [1, 0.5 + b], [1, 1]]))


def test_optimistic_posterior_sampling():
    learner = made(OptimisticPSRL, psi=2)
    paper = made(OptimisticPSRL, psi=None, eta=None)
    assert paper.draws == np.ceil(2 * log(2 * 2 / 0.1))
    paper.steps = 100
    assert paper.enough() == pytest.approx(sqrt(100 * 2 / 2) + 12 * log(1000) * 16)
    learner.learn(left())
    # (s0, 0) leads to x or y, both worth 1 for their untried actions; (s0, 1) was not tried and is worth 2.
    assert learner.plan(np.array([0]))[0] == pytest.approx(np.array([[1, 2], [1, 0.5], [1, 1]]))
    assert learner.policy()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]
    ell = log(8)
    by_hand = [0.9 - sqrt(3 * 0.9 * ell / 1e3) - 3 * ell / 1e3, 0.1 - sqrt(3 * 0.1 * ell / 1e3) - 3 * ell / 1e3]
    assert shrunk(np.array([0.9, 0.1]), np.array(1e3), 2) == pytest.approx(np.array(by_hand))
    assert shrunk(np.array([1.0, 0.0]), np.array(1.0), 2).tolist() == [0, 0]


def test_e3():
    learner = made(E3, scale=1e-30)
    assert learner.m == 1.0
    learner.learn(left())  # nothing is known: balanced wandering
    assert learner.behaviour()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]
    learner.learn(both())  # s0 is known, and both of its actions reach the unknown
    assert learner.known()[0].tolist() == [True, False, False]
    assert learner.behaviour()[0].tolist() == [[0.5, 0.5], [1, 0], [0, 1]]
    rest = Episodes(np.array([[[0, 1, 3], [0, 2, 3]]]), np.array([[[0, 0], [1, 1]]]), np.zeros((1, 2, 2)))
    learner.learn(rest)  # all is known: exploit. The three visits of (x, 1) paid 1/2, (y, 0) paid 1
    assert learner.behaviour()[0].tolist() == [[0, 1], [0, 1], [1, 0]] == learner.policy()[0].tolist()


def test_lsvi_ucb():
    learner = made(LSVIUCB, scale=0.01)
    learner.learn(left())
    beta = 0.01 * 4 * 2 * sqrt(log(2 * 4 * 2 / 0.1))  # d = W A = 4
    one = 1.0001  # a visit and lambda = 0.01^2
    new = np.array([[1 / one + beta / sqrt(one), 2], [1, 0.5 / one + beta / sqrt(one)], [1, 1]])
    assert learner.Q[0] == pytest.approx(new)
    assert learner.policy()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]


def test_lsvi_ucb_with_features_that_two_pairs_share():
    phi = np.eye(2)[[[0, 1], [0, 0], [0, 1]]]  # both actions of x share a feature, and (y, 0) has it too
    learner = made(LSVIUCB, scale=0.01, phi=phi)
    learner.learn(left())
    beta = 0.01 * 2 * 2 * sqrt(log(2 * 2 * 2 / 0.1))
    one = 1.0001  # what was not met is at the cut: beta / 0.01 is more than what remains
    seen = 0.5 / one + beta / sqrt(one)
    assert learner.Q[0, 1:] == pytest.approx(np.array([[seen, seen], [seen, 1]]))
    assert learner.Q[0, 0] == pytest.approx([seen / one + beta / sqrt(one), 2])


def test_the_regression_of_lsvi_ucb_is_ridge_regression_on_every_sample():
    rng = np.random.default_rng(0)
    phi, counts = rng.normal(size=(3, 2, 4)) / 4, rng.integers(0, 4, size=(3, 2))
    rows = np.repeat(phi.reshape(-1, 4), counts.reshape(-1), axis=0)
    y = rng.random(len(rows))
    sums = np.add.reduceat(np.append(y, 0.0), np.cumsum(counts.reshape(-1)) - counts.reshape(-1))
    sums = np.where(counts > 0, sums.reshape(3, 2), 0.0)
    found = ridge_regression(phi, counts.astype(float), 1.0)
    inverse = np.linalg.inv(rows.T @ rows + np.eye(4))
    assert found.mean(sums) == pytest.approx(phi @ (inverse @ rows.T @ y))
    assert found.form == pytest.approx(np.einsum("sad,de,sae->sa", phi, inverse, phi))


def test_conservative_policy_iteration():
    learner = made(CPI, scale=4.0, batch=4, epsilon=0.03)
    learner.h = np.zeros((1, 4), np.int64)
    twice = Episodes(*(np.concatenate([part, part], axis=1) for part in both()))
    learner.learn(twice)  # (1 - gamma) Q = (1/8, 1/4) at s0; x and y are met at no step h
    advantage = 0.75 * 2 * (0.5 * 0.25 - 0.5 * 0.125) / 2  # mass 1 - gamma^2, two actions, mean of two episodes
    alpha = 4.0 * 0.5 * (advantage - 0.01) / 4
    assert learner.policy()[0] == pytest.approx(np.array([[(1 - alpha) / 2, (1 + alpha) / 2], [0.5, 0.5], [0.5, 0.5]]))
    before = learner.policy()
    learner.epsilon = 1.5 * advantage * 1.01  # the estimate is below 2 eps / 3 now: nothing changes
    learner.h = np.zeros((1, 4), np.int64)
    learner.learn(twice)
    assert (learner.policy() == before).all()


def test_policy_search_by_dynamic_programming():
    learner = made(PSDP, scale=1e-9, epsilon=0.5)
    assert learner.batch == 1
    assert episodes_of_a_step(tiny_layout(), 0.5, 0.1) == pytest.approx(2 * 8**2 * (2 * log(2) + log(4 / 0.1)))
    learner.learn(both())
    assert learner.behaviour()[0].tolist() == [[0.5, 0.5], [0, 1], [1, 0]]
    learner.learn(both())  # returns from s0: 1/2 by action 0, 1 by action 1
    assert learner.policy()[0].tolist() == [[0, 1], [0, 1], [1, 0]]
    assert learner.batch == 2 and (learner.behaviour() == 0.5).all()  # the next pass starts afresh


class Zeros:
    """Streams of one seed that are zero: PC-PG then draws step 0 and the first policy of the cover."""

    n = 1

    def uniform(self, *shape):
        return np.zeros((1, *shape))


def test_pc_pg():
    settings = Settings(T=2, eta=0.5, M=2, K=2, select_episodes=1, beta=beta_from_mass(0.1))
    learner = PCPG(tiny_layout(), Zeros(), settings=settings)
    assert learner.batch == 2 and (learner.behaviour() == 0.5).all()
    learner.learn(both())
    assert learner.now.cover.visits[0].tolist() == [[0.25, 0.25], [0, 0.125], [0.125, 0]]  # (1 - gamma) gamma^h / 2
    assert learner.value.tolist() == [0.375]
    assert learner.now.bonus[0].tolist() == [[0, 0], [2, 0], [0, 2]]  # 1 / (1 - gamma) on what was not met
    # Critics: the uniform policy up to step 0, then the restricted uniform one, which plays what is unknown.
    asked = learner.behaviour()
    assert isinstance(asked, Mixture) and asked.which.tolist() == [[[0, 1], [0, 1]]] and learner.batch == 2
    assert asked.policies[0, 1].tolist() == [[0.5, 0.5], [1, 0], [0, 1]]
    seen = Episodes(np.array([[[0, 1, 3], [0, 2, 3]]]), np.array([[[0, 0], [1, 1]]]), np.array([[[0, 0.5], [0, 1.0]]]))
    learner.learn(seen)  # Q - b at s0: (1/2 + 2) / 2 and (1 + 2) / 2
    chance = np.exp(0.5 * 1.5) / (np.exp(0.5 * 1.25) + np.exp(0.5 * 1.5))
    improved = np.array([[1 - chance, chance], [1, 0], [0, 1]])
    assert learner.behaviour().policies[0, 1] == pytest.approx(improved)
    learner.learn(seen)
    assert learner.batch == 2 and learner.behaviour().which.tolist() == [[[0, 0], [1, 1]]]  # to choose an iterate
    learner.learn(seen)  # returns under r + b: 5/4 and 3/2, so the second iterate
    assert learner.batch == 2 and learner.behaviour()[0] == pytest.approx(improved)
    learner.learn(Episodes(seen.s, seen.a, np.full((1, 2, 2), 0.4)))  # 0.6 is the best return so far
    assert learner.policy()[0] == pytest.approx(improved) and learner.now.cover.policies.shape == (1, 2, 3, 2)
    learner._keep_best(np.full((1, 3, 2), 0.5), Episodes(seen.s, seen.a, np.full((1, 2, 2), 0.3)))
    assert learner.policy()[0] == pytest.approx(improved)  # 0.45 is less
    assert learner.now.bonus[0].tolist() == [[0, 0], [0, 0], [0, 0]]


def test_kwik_linear_regression():
    learner = made(KWIK, scale=1e-9)
    assert learner.m == 1.0
    learner.learn(both())
    assert learner.sure[0].tolist() == [[True, True], [False, True], [True, False]]
    assert learner.policy()[0].tolist() == [[0.5, 0.5], [1, 0], [0.5, 0.5]]  # (y, 0) pays 1, what (y, 1) may pay too
    assert made(KWIK, epsilon=0.5, scale=0.1).m == np.ceil(0.1 * 2 * (4 / 0.5) ** 2 * log(2 * 3 * 2 / 0.1))


def test_kwik_regression_knows_what_lies_in_the_directions_it_has_seen():
    phi = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    assert known_by_regression(phi, np.diag([4.0, 0.0]), 0.5).tolist() == [True, False, False]
    assert known_by_regression(phi, np.diag([4.0, 4.0]), 0.5).tolist() == [True, True, True]
    assert known_by_regression(phi, np.diag([4.0, 1.0]), 0.5).tolist() == [True, False, False]


def test_kwik_with_features_that_two_pairs_share():
    phi = np.eye(2)[[[0, 1], [0, 0], [0, 1]]]  # both actions of x share a feature, and (y, 0) has it too
    learner = made(KWIK, scale=1e-9, phi=phi)
    learner.learn(left())  # at the second step only (x, 1) was met: what has its feature is known, and pays 1/2
    assert learner.sure[0].tolist() == [[True, False], [True, True], [True, False]]
    assert learner.policy()[0].tolist() == [[0, 1], [0.5, 0.5], [0, 1]]
