"""Theory as oracle for practice: the deep agent with one-hot features against exact answers and the linear agent.

Two small environments, trained once. What is sampled by the deep agent must agree with what is exact for the very
policies it found: covariances within 0.03, bonuses within 15%, values within four standard errors. What the deep and
the linear agent reach by different ways must agree: both cover every state that can be reached, and both come within
5% of the best return.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import pcpg
from pcpg_theory import exact, problems, tabular
from tests import values as env_values

pytestmark = pytest.mark.slow

COVARIANCE_TOLERANCE, BONUS_TOLERANCE, VALUE_TOLERANCE = 0.03, 0.15, 0.05
EXPLORE = {"max_policies": 10, "visit_episodes": 1024}
RIDGE = 0.05  # of the comparison: large against the noise of a covariance, small against a visited pair


class Trained(NamedTuple):
    """A deep run with the exact model of its environment, and the problem of the theory for the same instance."""

    run: Any
    model: env_values.TabularModel
    decisions: int
    problem: problems.Problem


def chain(out) -> Trained:
    config = {"ppo": {"num_updates": 15}, "explore": EXPLORE, "exploit": {"num_rounds": 4}}
    run = pcpg.train("Chain-v0", seed=0, features="one-hot", length=6, horizon=12, config=config, out=out)
    return Trained(run, run.env.tabular(run.env.instance(0)), 12, problems.chain(6))


def lock(out) -> Trained:
    from pcpg.envs.lock import CombinationLock

    env = CombinationLock(2)
    codes = (
        env.tabular(env.instance(0)).observations[:-1].tolist()
    )  # the end shows what s0 shows, and is never acted in
    config = {"ppo": {"num_updates": 20}, "explore": EXPLORE, "exploit": {"num_rounds": 6}}
    options = {"codes": codes}
    run = pcpg.train(
        "CombinationLock-v0", seed=0, features="one-hot", feature_options=options, horizon=2, config=config, out=out
    )
    return Trained(run, run.env.tabular(run.env.instance(0)), 3, problems.lock(2, 0))


@pytest.fixture(scope="module", params=[chain, lock], ids=["chain", "lock"])
def trained(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("oracle") / "run")


def policy_table(trained, network):
    """Return pi[S, A] of a network, by showing it every state of the model."""
    logits = network.outputs(np.asarray(trained.model.observations, np.float32))
    return np.asarray(jax.nn.softmax(logits, axis=-1), np.float64)


def exact_visits(trained, network):
    """Return the share of an episode's decisions at each pair, exactly."""
    visits = env_values.occupancy(trained.model, policy_table(trained, network), trained.decisions)
    return visits / visits.sum()


def deep_visits(trained, index):
    """Return the diagonal of a member's covariance as [S, A]; it holds no terminal states for the lock."""
    S, A = trained.model.shape
    found = np.zeros((S, A))
    diagonal = np.diag(trained.run.cover.used[index]).reshape(-1, A)
    found[: len(diagonal)] = diagonal
    return found


def test_covariances_of_the_deep_cover_are_the_occupancies_of_its_policies(trained):
    cover = trained.run.cover
    for index in range(int(cover.size)):
        sampled, truth = deep_visits(trained, index), exact_visits(trained, cover.member(index))
        assert np.abs(sampled - truth).max() < COVARIANCE_TOLERANCE
        off_diagonal = cover.used[index] - np.diag(np.diag(cover.used[index]))
        assert np.abs(off_diagonal).max() < 1e-6  # one-hot features of different pairs never meet


def test_covariances_do_not_agree_with_the_occupancy_of_another_policy(trained):
    """The companion."""
    cover = trained.run.cover
    first = exact_visits(trained, cover.member(0))
    others = [np.abs(deep_visits(trained, i) - first).max() for i in range(1, int(cover.size))]
    assert max(others) > 3 * COVARIANCE_TOLERANCE


def deep_form(trained, members):
    """Return phi' Sigma_mix^-1 phi of one-hot pairs with the sampled covariances of the first members."""
    S, A = trained.model.shape
    sigma = np.zeros((S * A, S * A))
    found = trained.run.cover.used[:members].sum(0)
    sigma[: len(found), : len(found)] = found
    return exact.form(np.eye(S * A).reshape(S, A, -1), sigma + RIDGE * np.eye(S * A))


def theory_form(trained, members):
    """Return the same from the exact occupancies of the members' policies."""
    S, A = trained.model.shape
    total = np.sum([exact_visits(trained, trained.run.cover.member(i)) for i in range(members)], axis=0)
    phi = np.eye(S * A).reshape(S, A, -1)
    return tabular.theory_bonus(phi, total, np.arange(S * A), ridge=RIDGE, beta=1.0, gamma=0.9).form


def test_bonuses_of_the_deep_cover_are_those_of_the_theory(trained):
    size = int(trained.run.cover.size)
    assert np.abs(deep_form(trained, size) / theory_form(trained, size) - 1).max() < BONUS_TOLERANCE


def test_bonuses_of_a_smaller_cover_are_not(trained):
    """The companion."""
    size = int(trained.run.cover.size)
    assert np.abs(deep_form(trained, size) / theory_form(trained, size // 2) - 1).max() > 2 * BONUS_TOLERANCE


def test_the_deep_agents_evaluation_is_the_exact_value_of_its_policy(trained):
    evaluation = trained.run.evaluate(2000)
    truth = env_values.policy_value(trained.model, policy_table(trained, trained.run.policy.network), trained.decisions)
    assert abs(evaluation.mean_return[0] - truth) <= 4 * evaluation.standard_error[0] + 1e-3


def test_deep_and_linear_agents_cover_the_same_states_and_reach_the_same_value(trained):
    problem, model = trained.problem, trained.model
    settings = problems.lock_settings(4, "exact")
    linear = tabular.run(problem.mdp, problem.phi, settings, "exact")
    best = env_values.optimal_value(model, trained.decisions)
    deep_value = env_values.policy_value(model, policy_table(trained, trained.run.policy.network), trained.decisions)
    assert problem.raw_return is not None
    assert deep_value == pytest.approx(best, rel=VALUE_TOLERANCE)
    assert problem.raw_return(linear.pi) == pytest.approx(best, rel=VALUE_TOLERANCE)
    reachable = ~model.terminal & (env_values.occupancy(model, np.full(model.shape, 1 / model.shape[1]), 99).sum(1) > 0)
    deep_mass = sum(deep_visits(trained, i).sum(1) for i in range(int(trained.run.cover.size)))
    linear_mass = linear.cover.visits.sum((0, 2))
    assert (np.asarray(deep_mass)[reachable] > 0.02).all() and (linear_mass[reachable] > 0.02).all()
