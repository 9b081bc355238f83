"""What the data say of a task: successes, bounds, scores and the best episodes, against loops over episodes."""

import numpy as np
import pytest

from pcpg.algos.deep_learn import FEWEST_BEST, LONG_TARGETS, SHORT_TARGETS, Task, best_places, scores, task_of
from pcpg.envs.spaces import Box, Discrete
from pcpg.learners.transitions import Episodes, Transitions

GAMMA = 0.9


def kept_of(rewards: list[list[float]], terminates: list[bool], starts: list[float] | None = None) -> Transitions:
    kept, lengths = Transitions(Box(-9.0, 9.0, (1,)), Discrete(2)), np.array([len(one) for one in rewards], np.int32)
    seen = [np.full((n + 1, 1), start, "f4") for n, start in zip(lengths, starts or [0.0] * len(lengths), strict=True)]
    ends = np.zeros(lengths.sum(), bool)
    ends[np.cumsum(lengths) - 1] = terminates
    actions = np.arange(lengths.sum(), dtype=np.int32) % 2
    flat = np.concatenate(rewards).astype(np.float32)
    kept.add(Episodes(np.concatenate(seen), actions, flat, ends, lengths, np.zeros(len(lengths), np.int8)))
    return kept


def found(rewards: list[list[float]], terminates: list[bool]) -> Task:
    return task_of(kept_of(rewards, terminates), GAMMA)


def test_where_every_step_costs_an_end_is_a_success_and_what_is_learned_from() -> None:
    task = found([[-2.0] * 3, [-2.0] * 5], [True, False])
    assert task.success.tolist() == [True, False] and task.ends and task.is_met and not task.is_dense
    assert task.reward.tolist() == [0, 0, 1, 0, 0, 0, 0, 0] and task.scale == 1.0
    assert (task.low, task.high) == (0.0, 1.0) and task.steps_ahead(0) == LONG_TARGETS


def test_where_every_step_pays_lasting_longer_than_the_shortest_is_a_success() -> None:
    task = found([[2.0] * 3, [2.0] * 5, [2.0] * 3], [True, False, True])
    assert task.success.tolist() == [False, True, False] and not task.ends
    assert task.reward.tolist() == [1.0] * 11 and task.scale == 2.0
    assert task.low == 0.0 and task.high == pytest.approx(1 / (1 - GAMMA))


def test_among_few_rewards_one_above_zero_and_above_the_usual_is_a_success() -> None:
    task = found([[0.0, 0.0, 4.0], [0.0, 0.0], [0.0, -8.0]], [True, False, True])
    assert task.success.tolist() == [True, False, False] and task.ends
    np.testing.assert_allclose(task.reward, [0, 0, 0.5, 0, 0, 0, -1])
    assert task.low == pytest.approx(-1 / (1 - GAMMA)) and task.high == 0.5, "a success ends the episode"
    usual = found([[1.0] * 4, [1.0, 1.0, 1.0, 3.0]], [False, False])
    assert usual.success.tolist() == [False, True], "what is paid most often says nothing"
    assert not usual.ends and usual.high == pytest.approx(1 / (1 - GAMMA)) and usual.steps_ahead(0) == SHORT_TARGETS


def test_nothing_is_met_where_nothing_is_paid() -> None:
    task = found([[0.0] * 3, [0.0] * 2], [True, True])
    assert not task.is_met and task.scale == 1.0 and not task.reward.any()
    assert found([[-1.0] * 3], [False]).is_met is False


def test_rewards_of_many_values_are_dense_unless_actions_explain_them() -> None:
    rng = np.random.default_rng(0)
    dense = found([list(rng.random(60))], [False])
    assert dense.is_dense and dense.success.all() and dense.steps_ahead(7) == 7
    by_action = np.where(np.arange(60) % 2, -1.0, -0.1) + 1e-4 * rng.random(60)
    assert not found([list(by_action)], [False]).is_dense


def test_an_episode_is_scored_by_what_it_earned_beyond_what_its_start_promises() -> None:
    rng = np.random.default_rng(0)
    starts, luck = rng.normal(size=40), rng.normal(size=40)
    paid = [[3.0 * x + x**2 + 0.1 * y, 0.0] for x, y in zip(starts, luck, strict=True)]
    kept = kept_of(paid, [True] * 40, list(starts))
    score = scores(kept, kept.column("reward"), GAMMA, kept.first_observations)
    y = kept.column("reward")[::2].astype(float)
    x = np.stack([starts, starts**2], axis=1)
    x, y = x - x.mean(0), y - y.mean()
    np.testing.assert_allclose(score, y - x @ np.linalg.solve(x.T @ x + np.eye(2), x.T @ y), atol=1e-4)
    assert score.var() < 0.6 * y.var()


def test_of_few_episodes_or_of_one_start_the_score_is_the_discounted_return_less_the_mean() -> None:
    kept = kept_of([[0.0, 1.0], [1.0], [0.0]], [True] * 3, [1.0, 2.0, 3.0])
    returns = np.array([GAMMA, 1.0, 0.0])
    found = scores(kept, kept.column("reward"), GAMMA, kept.first_observations)
    np.testing.assert_allclose(found, returns - returns.mean(), rtol=1e-6)


def test_the_best_steps_are_those_of_episodes_above_average_in_order_and_of_others_only_while_they_are_few() -> None:
    kept = kept_of([[0.0] * 400] * 6, [False] * 6)
    score = np.array([-1.0, 2.0, -0.5, 1.0, -0.2, 3.0])
    whole = [list(range(400 * episode, 400 * episode + 400)) for episode in range(6)]
    assert best_places(kept, score, 700).tolist() == whole[5] + whole[1]
    assert FEWEST_BEST == 1000
    assert best_places(kept, score, 5000).tolist() == whole[5] + whole[1] + whole[3], "those below average are not"
    few = best_places(kept, np.array([-1.0, 2.0, -0.5, -3.0, -0.2, -2.0]), 5000)
    assert few.tolist() == whole[1] + whole[4] + whole[2], "they fill up to FEWEST_BEST"
