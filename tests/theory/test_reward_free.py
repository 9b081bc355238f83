"""Exploration without reward that has a theorem: bonuses by hand, bounds against exact values, and a lock explored."""

from functools import partial

import numpy as np
import pytest
from numpy import e, log

from pcpg_theory.learners import problem, runner
from pcpg_theory.learners.layout import Streams
from pcpg_theory.learners.q_learning import EpsilonGreedyQ
from pcpg_theory.learners.rf_express import RFExpress, episodes_bound, threshold
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
