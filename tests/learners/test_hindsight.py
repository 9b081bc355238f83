"""Hindsight: minibatches with other goals, one transition at a time beside the definition; whose rewards they are."""

import numpy as np
import pytest

from pcpg.envs.protocol import Goals
from pcpg.envs.spaces import Box
from pcpg.learners.hindsight import Rule, goals_in, relabelled
from pcpg.learners.transitions import LARGE, Episodes, Transitions

GAMMA, NEAR = 0.9, 0.15
LENGTHS = (6, 9, 4)


def sparse(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    return (np.abs(achieved - desired)[:, 0] <= NEAR).astype(np.float32)


def costly(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    return sparse(achieved, desired) - 1


def goals(reward=sparse, ends=True) -> Goals:
    """An observation is a place, a number that matters to nobody, and a goal."""
    return Goals(slice(0, 1), slice(2, 3), reward, ends)


def walks(reward=sparse, seed: int = 0) -> Transitions:
    rng, kept = np.random.default_rng(seed), Transitions(Box(-9.0, 9.0, (3,)), Box(-1.0, 1.0, (1,)))
    seen = [rng.normal(size=(n + 1, 3)).astype(np.float32) / 2 for n in LENGTHS]
    for one in seen:
        one[:, 2] = one[0, 2]
    paid = np.concatenate([reward(one[1:, :1], one[1:, 2:]) for one in seen])
    actions, lengths = rng.uniform(-1, 1, (sum(LENGTHS), 1)).astype(np.float32), np.array(LENGTHS, np.int32)
    none = np.zeros(sum(LENGTHS), bool)
    kept.add(Episodes(np.concatenate(seen), actions, paid, none, lengths, np.zeros(len(lengths), np.int8)))
    return kept


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("reward", [sparse, costly])
def test_a_transition_with_another_goal_is_what_the_episode_would_have_been_under_it(reward, ends) -> None:
    kept, n = walks(reward), 3
    places = np.random.default_rng(1).integers(kept.size, size=(40, 8))
    plain = kept.minibatch(places, n, GAMMA, kept.returns(places, n, GAMMA, kept.column("reward")), np.zeros((40, 0)))
    rule = Rule(goals(reward, ends), ends, False, 1.0)
    made = relabelled(kept, plain, places, n, GAMMA, rule, np.random.default_rng(2), first=2)
    assert (made.observations[:, :2] == plain.observations[:, :2]).all(), "the best episodes keep their goal"
    changed = 0
    for at, row in np.ndenumerate(places):
        goal, end = made.observations[at][2], int(kept.column("end")[row])
        ahead = [kept.observations[kept.landing_rows(np.array([step]))[0]] for step in range(row, end)]
        if goal == plain.observations[at][2]:
            continue
        changed += 1
        assert goal in [step[0] for step in ahead], "the goal was reached later in the same episode"
        assert made.later[at][2] == goal and made.later[at][:2].tolist() in [step[:2].tolist() for step in ahead[:n]]
        total, discount = 0.0, 1.0
        for step in ahead[:n]:
            paid = float(reward(step[None, :1], goal[None, None])[0])
            total, discount = total + discount * paid, discount * GAMMA
            if ends and abs(step[0] - goal) <= NEAR:
                discount = 0.0
                break
        assert made.returns[at] == pytest.approx(total, abs=1e-5)
        assert made.discounts[at] == pytest.approx(discount, abs=1e-5)
    assert 0.6 < changed / (40 * 6) < 0.95


def test_what_was_earned_under_the_other_goal_is_no_more_than_the_floor_says() -> None:
    kept = walks()
    places = np.arange(kept.size)[None]
    floors = np.zeros(kept.size, np.float32)
    plain = kept.minibatch(places, 1, GAMMA, np.zeros(places.shape, "f4"), np.zeros((1, 0)), floors)
    made = relabelled(kept, plain, places, 1, GAMMA, Rule(goals(), True, False, 1.0), np.random.default_rng(3))
    for at, row in np.ndenumerate(places):
        goal, end = made.observations[at][2], int(kept.column("end")[row])
        if goal == plain.observations[at][2]:
            continue
        reached = [kept.observations[kept.landing_rows(np.array([step]))[0], 0] for step in range(row, end)]
        assert made.floors[at] == pytest.approx(GAMMA ** reached.index(goal), rel=1e-5)
    without = relabelled(
        kept,
        plain._replace(floors=np.full(places.shape, -LARGE, "f4")),
        places,
        1,
        GAMMA,
        Rule(goals(), True, False, 1.0),
        np.random.default_rng(3),
    )
    assert (without.floors == -LARGE).all()


def test_goals_count_only_where_rewards_are_theirs() -> None:
    kept, other = walks(), walks(lambda achieved, desired: sparse(achieved, desired) - np.abs(achieved)[:, 0])
    assert goals_in(kept, goals()) is not None
    assert goals_in(other, goals()) is None and goals_in(kept, None) is None
