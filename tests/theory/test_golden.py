"""Golden values of Algorithms 1 and 2, worked out by hand on an MDP where Q is not linear and W can bind.

gamma = 1/2. s0 leads to s1, which is absorbing; (s0, 1) pays 1 and (s1, 1) pays 1/2. One feature:

    pair        (s0, 0)  (s0, 1)  (s1, 0)  (s1, 1)
    phi           1/2      1/4       1       1/2
    d, uniform    1/4      1/4      1/4      1/4      Sigma = E phi^2 = 25/64, and 1 with lambda = 39/64
    form          1/4      1/16      1       1/4      so with beta = 1/2 the bonus is 1/(1-gamma) = 2 at (s1, 0) alone
    Q             2        3         4       5/2      of r + b, of any policy that plays 0 in s1, which is unknown
    Q - b         2        3         2       5/2      theta = E phi (Q - b) / E phi^2 = (5/4) (64/25) = 16/5

The critic believes (s0, 0) to be better, and (s0, 1) is: every step of NPG makes things worse, so the first iterate is
the best, worth 5/2 at s0 under r + b. Under r alone it is worth 1/2, and the uniform policy before it 3/4.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from pcpg.algorithm1 import Explored
from pcpg_theory import analysis, critic, exact, npg, parameters, samplers, tabular
from pcpg_theory.learners import problem
from pcpg_theory.learners.layout import Episodes, Streams
from pcpg_theory.learners.pcpg import PCPG, theorem_settings
from pcpg_theory.mdp import TabularMDP
from pcpg_theory.settings import Settings, beta_from_mass

PHI = np.array([[0.5, 0.25], [1.0, 0.5]])[..., None]
P = np.zeros((2, 2, 2))
P[:, :, 1] = 1.0
MDP = TabularMDP(P, np.array([[0.0, 1.0], [0.0, 0.5]]), 0.5)
ONE = Settings(
    N=1, T=2, eta=1.0, beta=0.5, ridge=39 / 64, M=4, K=4, select_episodes=4, final_episodes=4, estimate="discounted"
)
FINE = {"tail": 1e-13}


class Scripted:
    """A generator whose numbers are spread evenly, two halves of a batch at times 0 and 1, so all can be followed."""

    def random(self, n):
        bits = int(np.log2(n))
        assert 2**bits == n
        return np.array([(int(f"{i:0{bits}b}"[::-1], 2) if bits else 0) + 0.5 for i in range(n)]) / n

    def geometric(self, p, size):
        return np.resize([1, 1, 2, 2], size)  # the pairs are (s0, 0), (s0, 1), (s1, 0), (s1, 1)

    def choice(self, n, size, p):
        return np.zeros(size, np.int64)


def played(settings, mode, monkeypatch):
    if mode == "sampled":
        monkeypatch.setattr(tabular.np, "random", SimpleNamespace(default_rng=lambda seed: Scripted()))
    return tabular.run(MDP, PHI, settings, mode, keep_iterates=True)


def tiny_layout():
    """s0 leads to x by action 0 and to y by action 1; both lead to the end."""
    after = np.zeros((1, 4, 2, 4))
    after[0, 0, 0, 1] = after[0, 0, 1, 2] = 1.0
    after[0, 1:, :, 3] = 1.0
    return problem.layered("two decisions", after, np.zeros((1, 4, 2)), 0, 2, 0.0, 1.0).layout


def with_(**changes):
    return Settings(**(vars(ONE) | changes))


@pytest.mark.parametrize("mode", ["exact", "sampled"])
def test_one_round_of_algorithm_1_by_hand(mode, monkeypatch):
    found = played(with_(**FINE), mode, monkeypatch)
    assert found.bonuses[0].form == pytest.approx(PHI[..., 0] ** 2)
    assert found.bonuses[0].b.tolist() == [[0, 0], [2, 0]]
    assert found.bonuses[0].log_det == pytest.approx(np.log(64 / 39))
    [made] = found.improvements
    assert made.thetas[:, 0] == pytest.approx([3.2, 3.2])
    assert made.iterates[0].tolist() == [[0.5, 0.5], [1, 0]]
    assert made.iterates[1, 0] == pytest.approx([1 / (1 + np.exp(-0.8)), 1 / (1 + np.exp(0.8))])  # 3.2 (1/2 - 1/4)
    assert made.iterates[1, 1].tolist() == [1, 0]
    assert made.chosen == 0 and made.policy.tolist() == [[0.5, 0.5], [1, 0]]
    assert made.values[0] == pytest.approx(2.5)
    assert found.chosen == 0 and found.pi.tolist() == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("W", [2.0, 0.4])
def test_the_critic_is_cut_where_W_binds(mode, W, monkeypatch):
    [made] = played(with_(W=W), mode, monkeypatch).improvements
    assert made.thetas[:, 0] == pytest.approx([W, W])
    assert made.iterates[1, 0, 0] == pytest.approx(1 / (1 + np.exp(-W / 4)))


def test_the_values_of_iterates_are_exact_in_exact_mode(monkeypatch):
    [made] = played(with_(T=3), "exact", monkeypatch).improvements
    right = [1 / (1 + np.exp(0.8 * t)) for t in range(3)]
    assert made.values == pytest.approx([2 + p for p in right])


def test_a_geometric_stop_sums_rewards_without_a_discount(monkeypatch):
    """Times 0, 0, 1, 1: sums 0, 1, 2 + 2 and 1/2 + 2, less b = 2 at (s1, 0): theta = (1/4 + 2 + 5/4) / (25/16)."""
    [made] = played(with_(estimate="geometric"), "sampled", monkeypatch).improvements
    assert made.thetas[:, 0] == pytest.approx([2.24, 2.24])


def test_a_discounted_sum_is_cut_at_its_tail(monkeypatch):
    """gamma^t > 1/4 for t = 0 and 1: sums 1, 2, 3 and 3/2, less b = 2 at (s1, 0)."""
    [made] = played(with_(tail=0.25), "sampled", monkeypatch).improvements
    y = np.array([1, 2, 1, 1.5])
    assert made.thetas[0, 0] == pytest.approx(PHI.ravel() @ y / (25 / 16))


def test_two_rounds_use_the_mean_of_the_visits_for_the_critic_and_their_sum_for_the_bonus(monkeypatch):
    """pi^1 visits (1/4, 1/4, 1/2, 0): the sum is (1/2, 1/2, 3/4, 1/4), with E phi^2 = 31/32."""
    found = played(with_(N=2), "exact", monkeypatch)
    sigma = 31 / 32 + 39 / 64
    assert found.bonuses[1].form == pytest.approx(PHI[..., 0] ** 2 / sigma)
    assert found.bonuses[1].log_det == pytest.approx(np.log(sigma * 64 / 39))
    assert found.improvements[1].thetas[0, 0] == pytest.approx((0.25 + 0.1875 + 0.75 + 0.15625) / (31 / 64))
    first = found.rounds[0]
    assert (first.n, first.known_pairs, first.chosen) == (0, 3, 0)
    assert first.value == pytest.approx(0.5) and first.escape == pytest.approx(0.5)
    assert first.value_bonus == pytest.approx(2.5)  # escape / (1-gamma)^2 more


def test_weights_of_the_cover_weigh_what_it_visits():
    cover = tabular.TabularCover(np.zeros((2, 1, 2)), np.array([[[1.0, 0.0]], [[0.0, 1.0]]]))
    assert tabular.weighted_rho(cover.visits, np.array([0.25, 0.75])).tolist() == [[0.25, 0.75]]


def test_the_steps_of_a_round_are_counted_by_kind(monkeypatch):
    """Two policies with 4 pairs, half of them after one move; 2 critics with as many and sums of 2; 8 episodes of 2."""
    found = played(with_(tail=0.25), "sampled", monkeypatch)
    assert found.samples == {"covariance": 4, "critic": 4 + 2 * 4 * 2, "select": 2 * 4 * 2, "final": 2 * 4 * 2}
    assert found.steps == sum(found.samples.values())


def test_a_run_ends_after_rounds_in_a_row_that_meet_too_little_that_is_unknown(monkeypatch):
    """Every new policy meets (s1, 0), unknown until its visits sum to 89/64, half of the time."""
    assert len(played(with_(N=6, stop=0.4), "exact", monkeypatch).rounds) == 3
    assert len(played(with_(N=6, stop=0.4, patience=2), "exact", monkeypatch).rounds) == 4
    assert len(played(with_(N=6, stop=0.6), "exact", monkeypatch).rounds) == 1
    assert len(played(with_(N=6), "exact", monkeypatch).rounds) == 6


def test_the_record_of_a_round_has_the_probability_of_unknown_pairs():
    """The policy plays 0 or 1 evenly in s0 and 0 in s1; (s0, 0), (s0, 1), (s1, 0) weigh 1/4, 1/4 and 1/2."""
    oracle = tabular.Oracle(MDP, tabular.primal_features(MDP, PHI, ONE), ONE, "exact", 0)
    b = np.array([[2.0, 0.0], [0.0, 0.0]])
    made = npg.Improved(np.zeros((2, 2)), np.array(1), *(np.zeros(1) for _ in range(3)))
    now = Explored(np.array([[0.5, 0.5], [1.0, 0.0]]), None, improved=made)
    record = tabular._record(oracle, 3, now, tabular.Bonus(b, b, 0.0))
    assert record.escape == pytest.approx(0.25) and record.value_bonus == pytest.approx(0.5 + 0.25 / 0.25)
    assert (record.n, record.known_pairs, record.chosen) == (3, 3, 1)


def test_samples_of_one_pair_count_by_their_mean():
    """Three samples of (s0, 0) with mean 2 and one of (s1, 0) at 4: (3/8 * 2 + 1/4 * 4) / (3/16 + 1/4)."""
    s, a, y = np.array([0, 0, 1, 0]), np.zeros(4, np.int64), np.array([1.0, 2.0, 4.0, 3.0])
    theta = critic.fit_samples(PHI, critic.regression(PHI, None, np.inf), ONE, s, a, y)
    assert theta[0] == pytest.approx(1.75 / (7 / 16))


def test_a_critic_of_two_features_shrinks_both_by_one_multiplier():
    """Weights 4/5 and 1/5 on one-hot features with targets 2 and 4: with mu = 1/5, theta = (8/5, 2)."""
    weights, target = np.array([[0.8, 0.2]]), np.array([[2.0, 4.0]])
    W = np.hypot(1.6, 2.0)
    for phi in (np.eye(2)[None], np.array([[[0.6, 0.8], [-0.8, 0.6]]])):  # the same, turned: the dense way
        theta = critic.least_squares(critic.factorise(phi, weights, critic.partition_labels(phi)), target, W)
        assert phi[0] @ theta == pytest.approx([1.6, 2.0], rel=1e-9)


def test_the_sgd_critic_by_hand():
    """x = 1, y = 2, step 1/2: iterates 0, 1, 3/2, cut at W; the mean of those before each step is returned."""
    x, y = np.ones((1, 3, 1)), np.full((1, 3), 2.0)
    assert critic.projected_sgd(x, y, 9.0, 0.5)[0, 0] == pytest.approx((0 + 1 + 1.5) / 3)
    assert critic.projected_sgd(x, y, 1.25, 0.5)[0, 0] == pytest.approx((0 + 1 + 1.25) / 3)
    settings = Settings(critic="sgd", W=1.25, sgd_step=0.5)
    zeros = np.zeros(3, np.int64)
    found = critic.fit_samples(np.ones((1, 1, 1)), lambda w: pytest.fail("least squares"), settings, zeros, zeros, y[0])
    assert found[0] == pytest.approx(0.75)
    assert critic.lemma_step(2.0, 3.0, 16) == pytest.approx(0.1)
    assert critic.lemma_excess(2.0, 3.0, 16, np.exp(-2.0)) == pytest.approx((2 + 8) * 10 / 4)


def test_npg_by_hand_in_a_known_and_an_unknown_state():
    pi = npg.exponential_update(np.array([[0.2, 0.8], [0.5, 0.5]]), np.log([[4.0, 1.0], [9, 1]]), 1.0, np.array([1, 0]))
    assert pi == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5]]))
    twice = npg.exponential_update(np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]]), 2.0, np.array([True]))
    assert twice[0, 0] == pytest.approx(np.exp(2) / (np.exp(2) + 1))


def test_start_values_of_a_scripted_simulator():
    sim = samplers.Simulator(MDP, Scripted())
    stack = np.array([[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]])
    found = samplers.start_values(sim, stack, 2, MDP.r, tail=0.25)
    assert found.tolist() == [1.25, 0.0] and sim.steps == 8
    assert samplers.visit_frequencies(sim, stack[0], 4).tolist() == [[0, 0.5], [0, 0.5]]


def test_the_critic_of_table_1s_pc_pg_fits_Q_less_b_and_is_cut_at_W():
    """An episode s0, 0, x, 0 with rewards 0 and 1/2 and b(x, 0) = 2; gamma = 1/2: Q - b is 1/2 at x and 5/4 at s0."""
    settings = Settings(T=2, eta=0.5, M=2, K=2, beta=beta_from_mass(0.1))
    b = np.array([[[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]])
    seen = Episodes(np.array([[[0, 1, 3]] * 2]), np.array([[[0, 0]] * 2]), np.array([[[0.0, 0.5]] * 2]))
    learner = PCPG(tiny_layout(), Streams([0], 1), settings=settings)
    assert learner._critic(seen, np.array([[0, 1]]), b)[0].tolist() == [1.25, 0, 0.5, 0, 0, 0]
    cut = PCPG(tiny_layout(), Streams([0], 1), settings=Settings(**(vars(settings) | {"W": 1.0})))
    theta = cut._critic(seen, np.array([[0, 1]]), b)[0]
    assert np.linalg.norm(theta) == pytest.approx(1.0) and theta[0] / theta[2] == pytest.approx(2.5)


# the bounds and the theorem's numbers


def test_every_term_of_the_agnostic_bound_by_hand():
    """gamma = 1/2, A = 2, T = 4, N = 3, W = 5, beta = 1/4, lambda = 1, I = 6, eps_stat = 1/3, eps_bias = 1/8."""
    found = analysis.agnostic_bound(
        MDP, T=4, N=3, W=5.0, beta=0.25, ridge=1.0, gain=6.0, eps_stat=1 / 3, eps_bias=1 / 8
    )
    assert found.npg == pytest.approx(2 * 5 * np.sqrt(np.log(2)) / 2 * 2)
    assert found.ridge == pytest.approx(4 * 0.5 * 5 * 2)
    assert found.statistics == pytest.approx(2 * 0.5 * 2)
    assert found.potential == pytest.approx(6 / np.log(2) / (3 * 0.25 * 0.25))
    assert found.bias == pytest.approx(2 * 0.5 * 2)
    assert found.total == pytest.approx(sum(found))
    less = analysis.agnostic_bound(MDP, T=4, N=3, W=5.0, beta=0.25, ridge=0.01, gain=6.0)
    assert less.potential == pytest.approx(100 / np.log(101) * 6 / (3 * 0.25 * 0.25)) and less.ridge == pytest.approx(2)


def test_the_aggregation_bias_by_hand():
    """Both actions of s0 share a label; they differ by 1 in reward. (1-gamma) of d* is at s0: 2 (1/2) 1 / (1/8)."""
    labels = np.array([[0, 0], [1, 2]])
    comparator = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert analysis.aggregation_bias(MDP, labels, comparator) == pytest.approx(8.0)


def test_the_theorems_numbers_by_hand():
    """eps = 1/10, gamma = 1/2, A = 2, W = 2, gain(N) = 1/4, d_hat = 3, delta = 1/10; x = eps (1-gamma) = 1/20."""
    found = parameters.theorem(0.1, 0.5, num_actions=2, W=2.0, gain=lambda N: 0.25, intrinsic_dim=3.0)
    paper, true = found.paper, found.corrected
    assert paper.T == true.T == pytest.approx(6400 * np.log(2))
    assert (paper.beta, true.beta) == (pytest.approx(1 / 6400), pytest.approx(1 / 51200))
    assert paper.N == 4 * 8000 and true.N == 128 * 1000 * 16
    assert paper.eps_stat == pytest.approx(1 / 8000) and true.eps_stat == pytest.approx(16 / true.N)
    assert pytest.approx(32 * paper.N**2 * np.log(paper.N * 3 * 10)) == paper.K
    assert pytest.approx(32 * true.N**2 * np.log(8 * true.N * 3 * 10)) == true.K
    assert pytest.approx(144 * np.log(paper.N * paper.T * 10) * 1e6 * 2**10) == paper.M
    assert true.pairs_critic == pytest.approx(true.N * true.T * true.M)
    assert true.pairs_covariance == pytest.approx(true.N * true.K)
    assert true.steps_total == pytest.approx(true.pairs_critic * 3 + true.pairs_covariance)
    inner = (6 / 0.1) ** 2 / 2 * np.log(2 * true.N * true.T * 10)
    assert true.episodes_choice == pytest.approx(true.N * (true.T * inner + (2 / 0.1) ** 2 / 2 * np.log(20 * true.N)))


def test_the_samples_of_the_sgd_critic_by_hand():
    """gamma = 1/2, W = 1, eps_stat = 1/2, 20 failures: values to 3 a step, span 4, bias e = 1/88 of the cut."""
    M, H = parameters.sgd_samples(0.5, 1.0, 0.5, 20.0)
    e = 0.5 / 4 / (2 * 5 + 1)
    assert pytest.approx(3 * np.log(6 / e) / np.log(2)) == H
    assert pytest.approx(((2 + 4 * np.sqrt(2 * np.log(20))) * (1 + H) / 0.25) ** 2) == M
    assert parameters.sgd_samples(0.5, 1.0, 0.0, 20.0)[1] == 2.0  # one step, of reward and bonus


def test_the_theorems_settings_of_table_1_are_the_corrected_numbers():
    made = theorem_settings(tiny_layout(), 6, epsilon=0.5)
    W = np.sqrt(6) * 4
    assert pytest.approx(W) == made.W and made.beta == pytest.approx(0.25**2 / (32 * W**2))
    assert made.eta == pytest.approx(np.sqrt(np.log(2) / made.T) / W)
    asked = {"num_actions": 2, "W": W, "gain": parameters.gain_bound("finite", 6), "intrinsic_dim": 6.0}
    found = parameters.theorem(0.5, 0.5, **asked).corrected
    assert tuple(int(np.ceil(x)) for x in (found.T, found.M, found.K)) == (made.T, made.M, made.K)


def test_W_of_linear_MDPs_and_of_aggregations():
    assert parameters.linear_W(2.0, 3.0, 0.5) == 14.0 and parameters.aggregation_W(9, 0.5) == 12.0
    assert parameters.paper_N_finite(10.0, 3) == pytest.approx(60 * np.log(30))


def test_the_occupancy_from_a_start_distribution_by_hand():
    nu = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert exact.occupancy(MDP, np.array([[1.0, 0.0], [1.0, 0.0]]), nu) == pytest.approx(np.array([[0, 0.5], [0.5, 0]]))
