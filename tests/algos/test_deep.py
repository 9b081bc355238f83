"""What kept data say about a task: what counts as a success, how far targets look, and which episodes are the best."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from pcpg.algos import deep_learn
from pcpg.algos.deep_learn import FEWEST_BEST, best_places, scores, task_of
from pcpg.algos.deep_play import no_members
from pcpg.algos.deep_settings import DeepConfig, DeepExploreConfig
from pcpg.envs.spaces import Box
from pcpg.learners.novelty import fitted
from pcpg.learners.off_policy import init_learner, init_params, policy_of
from pcpg.learners.transitions import Episodes, Transitions
from pcpg.policies.off_policy import Scale

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


def test_a_cost_until_the_goal_is_learned_as_a_reward_at_it_whose_values_lie_between_0_and_1():
    task = task_of(kept([np.full(9, -1), np.full(4, -1)], [0, 1]), 0.9)
    assert task.reward.tolist() == [0.0] * 12 + [1.0] and task.high == 1.0 and task.scale == 1.0
    dense = task_of(kept(list(np.arange(400).reshape(4, 100) > 350), [0] * 4), 0.9)
    assert dense.high == pytest.approx(10) and dense.low == 0


def test_episodes_are_ranked_by_what_they_earned_beyond_what_their_start_promises():
    starts = np.linspace(-1, 1, 200)
    promised = 3 * starts + starts**2
    gained = np.where(np.arange(200) == 3, 0.5, 0.0)
    data = kept([np.array([0.0, one]) for one in promised + gained], np.ones(200), starts)
    found = scores(data, data.column("reward"), 1.0, starts[:, None])
    assert found.argmax() == 3 and np.abs(np.delete(found, 3)).max() < 0.3 * found[3]
    few = kept([np.array([one]) for one in promised[-8:]], np.ones(8), starts[-8:])
    assert scores(few, few.column("reward"), 1.0, starts[-8:, None]).argmax() == 7, "too few to tell"


def test_the_best_places_are_whole_episodes_above_average_and_few_of_the_others():
    score = np.concatenate([np.arange(10, 0, -1.0), np.full(90, -1.0)])
    data = kept([np.zeros(100)] * 100, np.zeros(100))
    assert best_places(data, score, 4_000).tolist() == list(range(FEWEST_BEST)), "ten are above average"
    better = np.concatenate([np.arange(60, 0, -1.0), np.full(40, -1.0)])
    assert len(best_places(data, better, 4_000)) == 4_000
    assert len(best_places(data, better, 500)) == 500


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
