"""What kept data say about a task: what counts as a success, how far targets look, and which episodes are the best."""

import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
import pytest

from pcpg.algos import deep_confirm, deep_learn
from pcpg.algos.deep import DeepAgent
from pcpg.algos.deep_play import no_members
from pcpg.algos.deep_settings import DeepConfig, DeepExploreConfig
from pcpg.algos.deep_task import FEWEST_BEST, LONG_TARGETS, SHORT_TARGETS, Task, best_places, scores, task_of
from pcpg.envs.spaces import Box, Discrete
from pcpg.learners.novelty import fitted
from pcpg.learners.off_policy import init_learner, init_params, policy_of
from pcpg.learners.transitions import CHANCE, EXPLORER, SURE, TASK, Episodes, Transitions
from pcpg.policies.off_policy import Scale
from pcpg.state import DONE

RNG = np.random.default_rng(0)


def kept(rewards, terminated, starts=None, actions=None):
    """Data of episodes with these rewards; `terminated` says which ended by themselves."""
    lengths, data = [len(one) for one in rewards], Transitions(Box(-1, 1, (1,)), Box(-1.0, 1.0, (1,)))
    seen = np.zeros((sum(lengths) + len(lengths), 1), np.float32)
    seen[np.concatenate([[0], np.cumsum(np.array(lengths) + 1)[:-1]]), 0] = 0 if starts is None else starts
    ends = np.zeros(sum(lengths), bool)
    ends[np.cumsum(lengths) - 1] = terminated
    acted = RNG.uniform(-1, 1, (sum(lengths), 1)) if actions is None else actions
    numbers = np.concatenate(rewards).astype(np.float32)
    data.add(
        Episodes(
            seen, acted.astype(np.float32), numbers, ends, np.array(lengths, np.int32), np.zeros(len(lengths), np.int8)
        )
    )
    return data


ACTED = RNG.uniform(-1, 1, (400, 1))
COST = -0.1 * ACTED[:, 0] ** 2
GOAL = COST + (np.arange(400) == 399)
STEPS = np.eye(4, 100)[:, ::-1] * [[0], [0], [0], [1]] - 1.0
STAYS = -1.0 * (np.arange(400).reshape(4, 100) < 380)
PUSHED = -0.1 * np.round(10 * ACTED**2).reshape(4, 100) / 10
CASES = {
    "nothing is ever paid": (np.zeros((4, 100)), [0, 0, 0, 0], [0, 0, 0, 0], False, False),
    "a goal ends the episode": (
        np.eye(4, 100)[:, ::-1] * [[0], [0], [0], [1]],
        [0, 0, 0, 1],
        [0, 0, 0, 1],
        True,
        False,
    ),
    "a place pays every step": (np.arange(400).reshape(4, 100) > 350, [0, 0, 0, 0], [0, 0, 0, 1], False, False),
    "every step costs and no goal is met": ([np.full(n, -1) for n in (9, 9, 9, 9)], [0] * 4, [0] * 4, False, False),
    "every step costs until the goal": (
        [np.full(n, -1) for n in (9, 9, 5, 9)],
        [0, 0, 1, 0],
        [0, 0, 1, 0],
        True,
        False,
    ),
    "who lasts longer earns more": ([np.ones(n) for n in (9, 5, 5, 5)], [0, 1, 1, 1], [1, 0, 0, 0], False, False),
    "every step costs but the one at the goal": (STEPS, [0, 0, 0, 1], [0, 0, 0, 1], True, False),
    "every step costs but those at the goal": (STAYS, [0, 0, 0, 0], [0, 0, 0, 1], False, False),
    "pushing costs and nothing is met": (PUSHED, [0, 0, 0, 0], [0, 0, 0, 0], False, False),
    "every step says something": (RNG.normal(size=(4, 100)), [0, 0, 0, 0], [1, 1, 1, 1], False, True),
    "acting costs and nothing is met": (COST.reshape(4, 100), [0, 0, 0, 0], [0, 0, 0, 0], False, False),
    "acting costs and a goal is met": (GOAL.reshape(4, 100), [0, 0, 0, 1], [0, 0, 0, 1], True, False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_success_is(case):
    rewards, terminated, success, ends, is_dense = CASES[case]
    task = task_of(kept(list(rewards), terminated, actions=ACTED if "ing costs" in case else None), 0.99)
    assert task.success.tolist() == [bool(one) for one in success]
    assert (task.ends, task.is_dense, task.is_met) == (ends, is_dense, is_dense or any(success))
    assert task.steps_ahead(0) == (10 if ends else 3) and task.steps_ahead(7) == 7
    assert np.abs(task.reward).max() <= 1 + 1e-6


# Bounds, scores and the best episodes, exactly.

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


@pytest.mark.parametrize(
    ("rewards", "ends", "expected"),
    [
        ([[0.0, 0.0]] + 16 * [[0.0, 1.0]], True, True),
        ([[0.0, 0.0]] + 17 * [[0.0, 1.0]], True, False),  # enough successes to learn from
        ([[0.0, 0.0]] + 3 * [[0.0, 1.0]], False, False),  # the best so far may be far from the best
        (4 * [[0.0, 0.0]], False, False),
        ([[-1.0, 0.0, 0.0]] + 3 * [[-1.0, 0.0, 2.0]], True, False),  # costs may follow
    ],
)
def test_what_was_earned_is_a_floor_with_the_first_successes_that_end_an_episode(rewards, ends, expected) -> None:
    succeeded = [max(one) > 0 and ends for one in rewards]
    assert found(rewards, succeeded).has_floor is expected


def test_once_the_task_is_learned_a_success_is_what_is_common_and_still_one() -> None:
    rewards, players = [[-1.0, -1.0]] + 9 * [[-1.0, 0.0, 0.0, 0.0]], [CHANCE] + 9 * [TASK]
    kept = kept_of(rewards, 10 * [False])
    kept._columns["players"][:10] = players
    task = task_of(kept, GAMMA)
    assert task.success.tolist() == [False] + 9 * [True] and task.is_met


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


# The explorers as a cover.


def test_a_full_cover_gives_up_the_policy_whose_visits_the_others_have_made():
    rng = np.random.default_rng(0)
    middles = np.array([[-2.0, 0.0], [2.0, 0.0], [2.0, 0.1], [0.0, 2.0]])
    lengths, data = np.full(4, 50, np.int32), Transitions(Box(-9, 9, (2,)), Box(-1.0, 1.0, (1,)))
    seen = np.repeat(middles, 51, axis=0) + rng.normal(size=(204, 2)) * [[0.1, 0.1]]
    zeros = np.zeros(200, np.float32)
    data.add(Episodes(seen.astype(np.float32), zeros[:, None], zeros, zeros > 0, lengths, np.zeros(4, np.int8)))
    novelty = fitted(rng, data.observations, 256, 0.5)
    like = policy_of(
        init_learner(made := init_params(rng, Box(-9, 9, (2,)), Box(-1.0, 1.0, (1,)), hidden=(4,), critics=1)).params,
        *(made, Scale(np.zeros(2, np.float32), np.ones(2, np.float32)), Box(-1.0, 1.0, (1,)), 0.1, 0.0),
    )
    members = no_members(like, 3)
    for i in range(4):
        policy = dataclasses.replace(like, temperature=np.array(i, np.float32))
        members = members.with_member(policy, 50 * i, 50 * i + 50, data, novelty)
        assert members.weights[: int(members.size)].sum() == pytest.approx(1)
        assert np.ptp(members.weights[:2]) < 0.05 or i != 1, "two that never meet count the same"
    assert sorted(members.policies.temperature.tolist()) in ([0, 1, 3], [0, 2, 3])
    drawn = [members.draw(rng, 100) for _ in range(400)]
    assert np.mean([length == 0 for _, length in drawn]) == pytest.approx(0.5, abs=0.1)
    assert max(length for _, length in drawn) <= 99
    assert {float(policy.temperature) for policy, _ in drawn} == set(members.policies.temperature.tolist())


# The pool of the explorer.


@pytest.mark.parametrize("ahead", [1, 5])
def test_the_pool_has_what_is_new_and_all_steps_of_a_target_that_is_drawn(ahead, monkeypatch):
    monkeypatch.setattr(deep_learn, "POOL", 400)
    data = kept([np.zeros(n) for n in (3, 90, 250, 7, 500, 40)] * 2, np.zeros(12))
    settings = DeepConfig(num_episodes=2, explore=DeepExploreConfig(steps_ahead=ahead))
    learning = SimpleNamespace(config=settings)
    places, is_whole = deep_learn.Learning._pool(learning, data, np.random.default_rng(0))
    assert places[:400].tolist() == list(range(data.size - 400, data.size)) and is_whole[:400].all()
    assert is_whole.sum() > 0.8 * len(places)
    known = set(places.tolist())
    for place in places[is_whole].tolist():
        assert set(range(place, place + int(data.ahead(np.array(place), ahead)))) <= known


@pytest.mark.parametrize(("successes", "ahead"), [(1, 10), (16, 10), (32, 5), (53, 3), (80, 2), (160, 1), (1000, 1)])
def test_the_more_successes_are_known_the_shorter_are_the_targets(successes, ahead):
    ended = found([[0.0, 1.0]] * successes + [[0.0, 0.0]], [True] * successes + [False])
    assert ended.steps_ahead(0) == ahead and ended.steps_ahead(7) == 7
    lasting = found([[0.0, 1.0]] * successes + [[0.0, 0.0]], [False] * (successes + 1))
    assert lasting.steps_ahead(0) == SHORT_TARGETS


# Fresh episodes of the best policy.


@pytest.mark.parametrize(
    ("returns", "target", "is_spent", "tries", "ends"),
    [
        ([-105.0] * 20, -110.0, False, 1, True),
        ([-99.0, -119.0] * 10, -110.0, False, 1, False),  # -109, and a standard error of 2.3
        ([-94.0, -114.0] * 10, -110.0, False, 1, True),  # -104: 2.6 standard errors
        ([-94.0, -114.0] * 10, -110.0, False, 5, False),  # by the fifth try 3.1 are needed
        ([-104.0], -110.0, False, 1, True),
        ([-500.0, -99.0], None, False, 1, False),
        ([-500.0, -99.0], None, True, 1, True),
    ],
)
def test_a_target_is_reached_by_the_fresh_episodes_alone_and_later_tries_need_more(
    returns, target, is_spent, tries, ends
):
    data = kept([np.array([1000.0])] * 3 + [np.array([one]) for one in returns], np.zeros(3 + len(returns)))
    agent = SimpleNamespace(
        target=target, _is_spent=lambda state: is_spent, _over=lambda state: True, _resumed=lambda state: False
    )
    state = SimpleNamespace(own=SimpleNamespace(data=data, tries=np.int32(tries)))
    assert DeepAgent._confirmed(agent, state, len(returns)) is ends


@pytest.mark.parametrize(("length", "first", "tenth"), [(10, 20, 47), (100, 20, 47), (150, 14, 32), (1000, 5, 12)])
def test_a_try_has_2000_steps_of_5_to_20_episodes_and_a_later_one_more(length, first, tenth):
    for tries, expected in ((1, first), (10, tenth)):
        enough = [n for n in range(1, 99) if deep_confirm.is_enough(np.full(n, length), tries)]
        assert enough[0] == expected


def confirmed_at(draw, target: float, most: int, length: int = 100) -> int:
    """The try by which a policy with such returns is confirmed, given up as in a run where its mean falls below."""
    for tries in range(1, most + 1):
        returns: list[float] = []
        while not deep_confirm.is_enough(np.full(len(returns), length), tries):
            returns.append(draw())
            if len(returns) >= 3 and np.mean(returns) < target:
                break
        else:
            if deep_confirm.is_reached(np.array(returns), target, tries):
                return tries
    return 0


POLICIES = {  # returns, target
    "just below": (lambda rng: rng.normal(-100.5, 20.0), -100.0),
    "fails now and then": (lambda rng: float(rng.random() < 0.8), 0.9),
    "seldom good": (lambda rng: rng.exponential(600.0), 750.0),
}


@pytest.mark.parametrize("case", POLICIES)
def test_a_policy_below_its_target_is_hardly_ever_confirmed_however_often_it_is_tried(case):
    draw, target = POLICIES[case]
    rngs = [np.random.default_rng(seed) for seed in range(200)]
    found = [confirmed_at(functools.partial(draw, rng), target, 30) for rng in rngs]
    assert np.mean(np.array(found) > 0) <= deep_confirm.RISK


def test_a_good_policy_is_confirmed_soon():
    rngs = [np.random.default_rng(seed) for seed in range(100)]
    found = [confirmed_at(functools.partial(rng.normal, -85.0, 20.0), -100.0, 10) for rng in rngs]
    assert min(found) > 0 and np.mean(np.array(found) == 1) > 0.8


# The end of a run.


@pytest.mark.parametrize(("met", "is_last", "ends"), [(1, True, True), (1, False, False), (0, True, False)])
def test_what_is_left_of_a_budget_judges_the_newest_policies_once_a_reward_was_met(met, is_last, ends):
    settings = DeepConfig(num_episodes=64)
    learning = SimpleNamespace(goals=lambda data: None)
    agent = SimpleNamespace(config=settings, _is_last=lambda state: is_last, learning=learning)
    own = SimpleNamespace(confirms=False, data=kept([np.zeros(9)], [0]), explorer="one", met=met)
    players = DeepAgent._players(agent, SimpleNamespace(own=own, seed=0, round=3))
    assert (players == SURE).all() == ends and ((players == EXPLORER).all() == (met == 0))


@pytest.mark.parametrize(
    ("best_return", "met", "policy"), [(-np.inf, 1, "newest"), (-np.inf, 0, "best"), (-1.0, 1, "best")]
)
def test_where_no_policy_was_judged_a_run_ends_with_the_newest_that_learned(best_return, met, policy):
    noted = []

    class State(SimpleNamespace):
        def _replace(self, **changes):
            return State(**(self.__dict__ | changes))

        def noted(self, **changes):
            noted.append(changes)
            return self

    ledger = SimpleNamespace(best_return=best_return)
    own = SimpleNamespace(data=kept([np.ones(3), np.ones(5)], [0, 0]), met=met)
    state = State(own=own, ledger=ledger, policy="newest", best_policy="best")
    assert DeepAgent._over(SimpleNamespace(config=DeepConfig(num_episodes=1)), state).policy == policy
    assert noted[-1]["phase"] == DONE and (best_return == -1.0 or noted[0] == {"best_return": 5.0})
