"""The lock at H = 8: PC-PG opens it; learners that do not explore fail in a budget several times as large.

Uniform play opens it in one episode of 10^8; the budget has 667,000. For ten seeds and all of the budget:

    pcpg theory compare --mdp lock --horizon 8 --budget 6000000 --seeds 10
        --algos pcpg epsilon-greedy-q reinforce npg md-mpi --scales 1 0.3 10 1 0.3
"""

from functools import partial

import numpy as np
import pytest

from pcpg_theory.learners import problem, runner
from pcpg_theory.learners.pcpg import PCPG
from pcpg_theory.learners.policy_optimisation import MDMPI, NPG, Reinforce
from pcpg_theory.learners.q_learning import EpsilonGreedyQ

pytestmark = pytest.mark.slow

SEEDS = [100, 101]
BUDGET = 6_000_000


@pytest.fixture(scope="module")
def lock():
    return problem.lock(8, SEEDS)


def test_pc_pg_opens_the_lock_within_a_third_of_the_budget(lock):
    history = runner.run(lock, PCPG, SEEDS, BUDGET // 3)
    assert (runner.samples_to(history, 0.05 * (history.optimal - history.uniform)) < BUDGET // 3).all()
    assert (history.returns[:, -1] > 3.9).all()


BLIND = {
    "REINFORCE": (partial(Reinforce, scale=10.0, batch=500), BUDGET),
    "NPG": (partial(NPG, scale=1.0, batch=500), BUDGET),
    "MD-MPI": (partial(MDMPI, scale=0.3, batch=500), BUDGET),
    # It learns from episode to episode, and takes minutes for the whole budget: that is for the command above.
    "epsilon-greedy Q-learning": (partial(EpsilonGreedyQ, scale=0.3), BUDGET // 60),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_learner_without_exploration_never_meets_the_reward(lock, name):
    make, budget = BLIND[name]
    history = runner.run(lock, make, SEEDS, budget)
    assert history.steps > 0.99 * budget
    assert history.returns.max() < 0.0  # entering costs 1/8; any reward met is 2 or 5
    assert np.isinf(runner.samples_to(history, 0.05 * (history.optimal - history.uniform))).all()
    assert history.returns[:, -1] == pytest.approx(-1.0 / 8.0, abs=0.01)  # it learns to leave at once
