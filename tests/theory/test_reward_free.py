"""Exploration without reward that has a theorem: bonuses by hand, bounds against exact values, and a lock explored."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from numpy import e, log

from pcpg.envs.maze import MOVES, Maze
from pcpg_theory.cli.compare import CompareCommand
from pcpg_theory.learners import mazes, problem, runner
from pcpg_theory.learners.layout import Streams
from pcpg_theory.learners.linear import RewardFreeLSVI
from pcpg_theory.learners.q_learning import EpsilonGreedyQ
from pcpg_theory.learners.reward_free import RFExpress, episodes_bound, threshold
from tests.theory.test_learners_updates import left, made, tiny_layout


def values(layout, P, r, pi):
    """The exact value at s0 of a policy, by summing over the layers from the last one."""
    V = np.zeros(layout.first[-1] - layout.first[-2])
    for here, _ in layout.backward():
        Q = r[here] + P[here][..., : len(V)] @ V
        V = (pi[here] * Q).sum(-1)
    return V[0]


def test_the_bonus_of_rf_express_by_hand():
    learner = made(RFExpress, scale=0.0001)
    learner.learn(left())
    b = 0.0001 * 15 * 4 * (log(3 * 3 * 2 / 0.1) + 2 * log(8 * e * 2))
    # x: its other action was not tried and one decision remains; s0: one and a half times that, and at most two.
    assert learner.W[0] == pytest.approx(np.array([[b + 1.5, 2], [1, b], [1, 1]]))
    assert learner.behaviour()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]
    assert learner.policy()[0].tolist() == [[1, 0], [0, 1], [0.5, 0.5]], "the reward decides what is returned"
    assert learner.error_bound()[0] == pytest.approx(3 * e * 2**0.5 + 2)


def errors_of(number, rng, river):
    """The error bound after so many samples of every pair, and the errors for many policies and rewards."""
    layout, P = river.layout, river.P[0]
    learner = RFExpress(layout, Streams([0], 1))
    learner.counts.visits[:] = number
    learner.counts.successors[0] = np.array([[rng.multinomial(number, p) for p in row] for row in P])
    learner.learn(runner.EpisodeSource(river, Streams([0], 0)).roll_out(learner.behaviour()))
    there, errors = learner.counts.transitions()[0], []
    for _ in range(200):
        pi, r = rng.dirichlet(np.ones(2), layout.num_states), rng.random((layout.num_states, 2))
        errors.append(abs(values(layout, there, r, pi) - values(layout, P, r, pi)))
    return learner.error_bound()[0], max(errors)


def test_its_bound_holds_for_every_policy_and_reward_and_is_not_trivial_after_many_episodes():
    rng, river = np.random.default_rng(0), problem.riverswim(1, length=3, decisions=3)
    few, many = errors_of(5, rng, river), errors_of(400_000_000, rng, river)
    assert few[1] <= few[0] and many[1] <= many[0]
    assert few[0] > 3.0 > 0.5 > many[0], "at first it says nothing, in the end something"
    assert few[1] > many[0], "with few samples the last bound would not hold"


def test_the_theorems_samples_are_its_formula():
    layout = tiny_layout()
    assert threshold(np.array(3.0), layout, 0.1) == pytest.approx(log(180) + 2 * log(32 * e))
    inner = log(3 * 2 * 2 * 2 / 0.1) + 2
    C = 5587 * e**6 * log(e**18 * inner * 8 * 4 / 0.5) ** 2
    assert episodes_bound(layout, 0.5, 0.1) == pytest.approx(8 * 4 / 0.25 * inner * C + 1)


def test_rf_express_covers_a_lock_and_returns_its_best_policy_where_epsilon_greedy_does_not():
    made_locks, seeds = problem.lock(3, [100, 101, 102]), [100, 101, 102]
    assert (runner.run(made_locks, partial(RFExpress, scale=1e-4), seeds, 8_000).returns[:, -1] > 3.99).all()
    even = runner.run(made_locks, EpsilonGreedyQ, seeds, 8_000).returns[:, -1]
    assert (even < 1.5).all()


def test_constants_are_checked():
    with pytest.raises(ValueError, match="scale must be a positive number, got 0"):
        made(RFExpress, scale=0.0)


# LSVI-UCB


def test_the_values_of_reward_free_lsvi_by_hand():
    learner = made(RewardFreeLSVI, scale=0.01)
    learner.learn(left())
    beta = 0.01 * 4 * 2 * np.sqrt(log(2 * 4 * 2 / 0.1))  # d = W A = 4, L = 2, two samples
    u = beta / np.sqrt(1 + 1e-4)
    # What was tried once: u and half of it, as the paper's reward u / L; s0 adds the largest value ahead, 1 of x.
    assert learner.W[0] == pytest.approx(np.array([[1 / (1 + 1e-4) + 1.5 * u, 2], [1, 1.5 * u], [1, 1]]))
    assert learner.behaviour()[0].tolist() == [[0, 1], [1, 0], [0.5, 0.5]]


def gaussian(layout, width):
    """A kernel of states within their layer and of actions."""
    place = np.concatenate([np.arange(b - a) for a, b in pairwise(layout.first[:-1])])
    x = np.stack(np.meshgrid(place, np.arange(layout.num_actions), indexing="ij"), -1).reshape(-1, 2) / width
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)


def test_with_a_kernel_the_deviation_is_the_posterior_one_and_the_mean_that_of_kernel_ridge_regression():
    river = problem.riverswim(1, length=4, decisions=3)
    layout, kernel = river.layout, gaussian(river.layout, 1.5)
    learner = RewardFreeLSVI(layout, Streams([0], 1), scale=0.3, kernel=kernel)
    for _ in range(12):
        learner.learn(runner.EpisodeSource(river, Streams([learner.steps], 0)).roll_out(learner.behaviour()))
    here, ridge = slice(layout.first[2], layout.first[3]), 0.3**2
    V = np.random.default_rng(0).random((1, layout.first[4] - layout.first[3]))
    mean, deviation = learner.regressed(here, V, learner.counts.rewards)
    rows = slice(here.start * 2, here.stop * 2)
    k, N = kernel[rows, rows], learner.counts.visits[0, here].reshape(-1)
    sums = learner.counts.rewards[0, here] + learner.counts.successors[0, here][..., : V.shape[1]] @ V[0]
    met = np.flatnonzero(N)
    gram = np.linalg.inv(k[np.ix_(met, met)] + ridge * np.diag(1 / N[met]))
    expected = k[:, met] @ gram @ (sums.reshape(-1)[met] / N[met])
    variance = (np.diag(k) - np.einsum("im,mn,in->i", k[:, met], gram, k[:, met])) / ridge
    assert 0 < len(met) < len(N)
    np.testing.assert_allclose(mean[0].reshape(-1), expected, atol=1e-8)
    np.testing.assert_allclose(deviation[0].reshape(-1), np.sqrt(variance), rtol=1e-6)


def test_reward_free_lsvi_covers_a_lock_whatever_is_paid_and_returns_its_best_policy():
    made_locks, seeds = problem.lock(3, [100, 101, 102]), [100, 101, 102]
    make = partial(RewardFreeLSVI, scale=3e-4)
    assert (runner.run(made_locks, make, seeds, 8_000).returns[:, -1] > 3.99).all()
    played = []
    for paid in (made_locks, replace(made_locks, r=0 * made_locks.r)):
        learner = make(made_locks.layout, Streams([1, 2, 3], 1))
        source = runner.EpisodeSource(paid, Streams([1, 2, 3], 0))
        for _ in range(40):
            learner.learn(source.roll_out(learner.behaviour()))
        played.append(learner.behaviour())
    np.testing.assert_array_equal(*played)


def test_a_kernel_that_is_none_is_refused():
    layout = tiny_layout()
    for kernel, message in ((np.eye(5), "symmetric over the 6 pairs"), (-np.eye(6), "positive semi-definite")):
        with pytest.raises(ValueError, match=message):
            RewardFreeLSVI(layout, Streams([0], 1), kernel=kernel)
    with pytest.raises(ValueError, match="features or a kernel"):
        RewardFreeLSVI(layout, Streams([0], 1), phi=np.ones((3, 2, 1)), kernel=np.eye(6))


# the maze


def test_a_maze_is_that_of_the_environment_and_its_goals_are_within_the_decisions():
    made, env, seeds = mazes.maze(8, range(10, 20)), Maze(8, goals=10), range(10, 20)
    far = np.array([env.distances(p)[p.goal] for p in map(env.instance, seeds)])
    assert len(set(far)) > 3 and made.horizon == int(1.5 * env.distances(env.instance(10)).max())
    # The value of going straight there is 1 from `far` decisions on, and 0 before.
    assert made.optimal() == pytest.approx(1.0)
    short = problem.build("short", *_cut(made, env, 10, far.max() - 1), 0.0, 1.0)
    assert short.optimal().tolist() == (far < far.max()).astype(float).tolist()
    with pytest.raises(ValueError, match="seeds must be of one maze, 10 that begin at a multiple of 10, got"):
        mazes.maze(6, [9, 10])


def _cut(made, env, seed, decisions):
    """The layers, moves and rewards of a maze that ends earlier."""
    cells = np.flatnonzero(env.open_cells(env.instance(seed)))
    start = int(np.searchsorted(cells, int(env.instance(seed).start)))
    inside = slice(made.first[1], made.first[2])
    return [np.array([start]), *[np.arange(len(cells))] * decisions], made.P[:, inside], made.r[:, inside]


def test_pairs_of_the_maze_resemble_each_other_by_how_near_their_cells_are():
    made, k, env = mazes.maze(6, [0]), mazes.kernel(6, 0, 2.0), Maze(6)
    params = env.instance(0)
    cells = np.flatnonzero(env.open_cells(params))
    here = 5 * (made.first[1] + np.arange(len(cells)))
    for i, cell in enumerate(cells):
        for a, (row, column) in enumerate(MOVES):
            near = np.flatnonzero(cells == cell + 6 * row + column)
            for j in near:
                assert k[here[i] + a, here[j] + a] == pytest.approx(1.0 if a == 4 else np.exp(-1 / 8))
                assert k[here[i] + a, here[j] + (a + 1) % 5] == 0.0
    at = int(np.flatnonzero(cells == int(params.start))[0])
    np.testing.assert_allclose(k[:5], k[here[at] : here[at] + 5], atol=1e-12)


def test_reward_free_lsvi_finds_the_goals_of_a_maze_in_the_kernel_of_its_cells_and_others_are_refused():
    asked = {"mdp": "maze", "horizon": 6, "algos": ("rf-lsvi",), "scales": (1e-5,), "seeds": 2, "epsilon": 0.1}
    near, alone = (
        CompareCommand(**asked, seed=4, lengthscale=one, budget=3_000)()["algos"]["rf-lsvi"] for one in (1.5, None)
    )
    assert near["solved"] == alone["solved"] == 2
    assert near["samples_to_epsilon"] != alone["samples_to_epsilon"], "the kernel changes what is played"
    for wrong in ({"mdp": "lock"}, {"algos": ("ucbvi",)}):
        with pytest.raises(ValueError, match="lengthscale needs --mdp maze and rf-lsvi among --algos"):
            CompareCommand(**asked | wrong, lengthscale=1.0)()
    with pytest.raises(ValueError, match="lengthscale must be a positive number, got 0"):
        CompareCommand(**asked, lengthscale=0.0)()
