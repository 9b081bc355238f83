"""Policies over landmarks speak for every kind of actions."""

import jax
import numpy as np
import pytest

from pcpg.envs.spaces import Box, Discrete, MultiDiscrete
from pcpg.kernel.landmarks import extend_landmarks, no_landmarks
from pcpg.kernel.policies import (
    ExploringPolicy,
    GreedyPolicy,
    MemberPolicy,
    among,
    candidate_actions,
    sure_choices,
)
from pcpg.policies import host
from pcpg.policies.distributions import for_space

PLACES = 20.0 * np.eye(3, dtype=np.float32)
MARKS = extend_landmarks(no_landmarks(np.ones(3), 4), PLACES, np.ones(3, bool), tol=0.1)
ORDER = np.argmax(np.asarray(MARKS.shares(PLACES)), axis=1)  # the landmark of each place
SPACES = [Discrete(4), MultiDiscrete((2, 3)), Box(-1.0, 1.0, (2,))]


def weights(candidates, best):
    """Values under which candidate best[i] is the best at place i."""
    w = np.zeros((len(candidates), 4), np.float32)
    for place, action in enumerate(best):
        w[action, ORDER[place]] = 1.0
    return w


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_greedy_policy_takes_the_best_candidate_for_sure_in_any_space_compiled_and_on_the_host(space):
    candidates = candidate_actions(space, 9)
    best = [1, 3, 2]
    policy = GreedyPolicy(MARKS, weights(candidates, best), sure_choices(space, candidates))
    outputs = policy.outputs(PLACES)
    distribution = for_space(space)
    for key in range(5):
        actions = np.asarray(distribution.to_env(distribution.sample(jax.random.key(key), outputs)))
        np.testing.assert_allclose(actions, candidates[best], atol=1e-3)
    rng = np.random.default_rng(0)
    noise = host.draw(rng, space, 1, 3).noise[0]
    chosen = host.choose(space, host.Actor(policy)(PLACES), noise)
    np.testing.assert_allclose(chosen, candidates[best], atol=1e-3)


def test_candidates_are_all_actions_or_a_grid_with_its_ends():
    assert candidate_actions(Discrete(3), 9).tolist() == [0, 1, 2]
    assert candidate_actions(MultiDiscrete((2, 2)), 9).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    grid = candidate_actions(Box(-2.0, 2.0, (1,)), 5)
    np.testing.assert_allclose(grid[:, 0], [-2, -1, 0, 1, 2])
    assert candidate_actions(Box(-1.0, 1.0, (2,)), 9).shape == (9, 2)


def test_actions_that_cannot_be_listed_are_refused_with_their_number():
    with pytest.raises(ValueError, match="at most 1024 distinct actions, got 4096"):
        candidate_actions(MultiDiscrete((16, 16, 16)), 9)
    with pytest.raises(ValueError, match=r"at most 1024 actions on a grid, got 3\^12"):
        candidate_actions(Box(-1.0, 1.0, (12,)), 9)


def test_a_member_plays_at_random_where_it_knows_nothing_and_for_sure_where_it_does():
    w = weights(np.arange(4), [2])
    member = MemberPolicy(MARKS.inverse_scale, MARKS.places, MARKS.count, w)
    logits = np.asarray(member.outputs(PLACES))
    assert logits[0].argmax() == 2 and logits[0].max() - np.sort(logits[0])[-2] > 30
    np.testing.assert_array_equal(logits[1], logits[1][0])


def test_who_explores_prefers_the_larger_of_value_and_bonus():
    inverses = np.eye(4, dtype=np.float32) / np.array([1, 2, 5, 10], np.float32)[:, None, None]
    w = weights(np.arange(4), [3])
    sharp, coef = np.asarray(10.0, np.float32), np.asarray(1.0, np.float32)
    worth = np.asarray(ExploringPolicy(MARKS, w, inverses, sharp, coef).worth(PLACES))
    np.testing.assert_allclose(worth[0], [1.0, 0.5, 0.2, 1.0], atol=1e-3)  # 3 is known, and leads to a bonus of 1
    np.testing.assert_allclose(worth[1], [1.0, 0.5, 0.2, 0.1], atol=1e-3)
    blind = ExploringPolicy(MARKS, w * 0, inverses, sharp, np.asarray(0.0, np.float32))
    np.testing.assert_allclose(np.ptp(np.asarray(blind.outputs(PLACES)), axis=1), 0.0)  # by chance alone


def test_numbers_of_candidates_are_what_the_environment_sees():
    candidates = candidate_actions(Box(-1.0, 1.0, (1,)), 3)
    np.testing.assert_allclose(among(candidates).to_env(np.array([2, 0])), [[1.0], [-1.0]])
