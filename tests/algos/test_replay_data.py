"""Parts of a round on kept data, each against a count or a loop of its own: what was met, what enters a fit, who rolls
in, when a round is quiet."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pcpg.algorithms import World
from pcpg.algos.on_data import NO_ROLL_IN, Episodes
from pcpg.algos.replay import ReplayAgent, ReplayConfig
from pcpg.algos.replay_explore import Members, ReplayExploreConfig
from pcpg.algos.replay_task import CHANCE, ReplayExploitConfig
from pcpg.budget import NO_LIMITS, Limits
from pcpg.data import Draws, Kept
from pcpg.engine.together import stepped, together
from pcpg.envs.lock import CombinationLock
from pcpg.kernel.inputs import explore_inputs, transitions
from pcpg.kernel.views import KeepConfig
from pcpg.state import EXPLORE


def agent_of(**settings: Any) -> ReplayAgent:
    env = CombinationLock(3)
    return ReplayConfig(**settings).sized(env, NO_LIMITS).agent(World(env))


@pytest.fixture(scope="module")
def explored() -> Any:
    """An agent whose start always promises little, its state after exploration, and the data of each round."""
    agent = agent_of(
        replay=KeepConfig(capacity=4000), explore=ReplayExploreConfig(num_episodes=16, patience=3, min_value=2.0)
    )
    state, batches = agent.init(0), []
    while state.phase == EXPLORE:
        [(state, report)] = stepped(agent, [state])
        batches.append(report.part.batch)
    return agent, state, batches


def test_exploration_ends_after_as_many_rounds_in_a_row_as_are_asked_for_that_met_no_new_pair(explored: Any) -> None:
    _, _, batches = explored
    met, is_new = set(), []
    for batch in batches:
        pairs = set(zip(batch.code.tolist(), batch.action.tolist(), strict=True))
        is_new.append(not pairs <= met)
        met |= pairs
    assert is_new[0] and not any(is_new[-3:])
    assert all(any(is_new[i : i + 3]) for i in range(len(is_new) - 3)), "not before"


def test_the_bonus_of_every_pair_is_one_over_one_plus_its_visits_and_none_of_them_is_forgotten(explored: Any) -> None:
    agent, state, _ = explored
    own, kept = state.own, state.own.kept
    counts = np.zeros(own.model.bonus.shape)
    np.add.at(counts, (agent.recorder.listed(0).rows(kept)[kept.column("code")], kept.column("action")), 1)
    assert own.waiting.any()
    found = 1 / np.asarray(own.model.bonus, float) - 1 + own.waiting
    np.testing.assert_allclose(found[counts > 0], counts[counts > 0], atol=0.1, rtol=2e-3)


def test_weights_of_the_sample_estimate_sums_over_all_data(explored: Any) -> None:
    _, state, _ = explored
    kept, (places, weight) = state.own.kept, state.own.sample
    assert len(places) < 0.8 * kept.size
    assert weight.sum() == pytest.approx(kept.size, rel=0.1)
    action = kept.column("action")
    for one in range(3):
        assert weight[action[places] == one].sum() == pytest.approx((action == one).sum(), rel=0.2)


def test_members_roll_in_as_often_as_their_weights_say_and_for_lengths_that_are_uniform(explored: Any) -> None:
    agent, state, _ = explored
    own, shape = state.own, np.shape(state.own.model.w)
    w = np.stack([np.full(shape, value, np.float32) for value in (1.0, 2.0)])
    weights = np.array([0.5, 0.9, 0.1])  # the first is a member in earlier features
    cover = Members(w, np.array([1, 1], np.int32), np.zeros((2, shape[1]), "f4"), weights, np.int32(3))
    drawn, lengths = Counter(), Counter()
    for turn in range(100):
        rolled = agent.explorer.roll_in(state._replace(own=own._replace(cover=cover)).noted(round=turn), own.model, 8)
        drawn.update(np.asarray(rolled.policies.w)[:, 0, 0].tolist())
        lengths.update(np.asarray(rolled.length).tolist())
    assert drawn[1.0] / 800 == pytest.approx(0.9, abs=0.04) and drawn[1.0] + drawn[2.0] == 800
    assert lengths[NO_ROLL_IN] / 1600 == pytest.approx(0.8, abs=0.04)
    assert all(lengths[t] / 1600 == pytest.approx(0.2 / 4, abs=0.02) for t in range(4)), lengths
    nobody = agent.explorer.roll_in(agent.init(0), own.model, 8)
    assert (np.asarray(nobody.length) == NO_ROLL_IN).all()


def test_a_target_is_tried_when_the_data_have_grown_by_the_factor_and_there_is_something_to_learn(
    explored: Any,
) -> None:
    agent, state, _ = explored
    agent.task.limits = Limits(until=3.0)
    size = state.own.kept.size
    assert state.own.kept.has_success
    due = [agent.task.is_due(state._replace(own=state.own.noted(tried_at=at))) for at in (0, int(size / 1.6), size)]
    assert due == [True, True, False]
    agent.task.limits = NO_LIMITS
    assert not agent.task.is_due(state._replace(own=state.own.noted(tried_at=0)))


def test_luck_is_measured_by_the_error_of_the_mean() -> None:
    agent, returns = agent_of(), np.array([4.0, 4.4] * 8)
    solved, error = agent.env.solved_return, float(np.std(returns)) / 4
    assert solved is not None
    for mean, is_doubtful in ((solved + 0.9 * CHANCE * error, True), (solved + 1.1 * CHANCE * error, False)):
        state = agent.init(0).noted(best_return=mean, last_return=mean)
        assert agent.task.is_by_chance(state, returns) is is_doubtful


# Kept data by hand: three episodes of a walk over places 0 to 3; the first terminates, the others are cut.

PATHS = ([0, 1, 2, 3], [0, 1, 1, 2], [0, 0, 3])
REWARDS = ([0.0, -1.0, 2.0], [0.0, -1.0, 0.5], [-1.0, 0.0])
ACTIONS = ([0, 1, 1], [0, 1, 0], [1, 0])


def walks() -> Kept:
    alive = np.arange(3)[:, None] < np.array([3, 3, 2])
    ended = np.arange(3)[:, None] == np.array([3, 3, 2]) - 1
    padded = [[*values, *[values[-1]] * (4 - len(values))] for values in PATHS]
    observations = np.array(padded, np.float32).T[..., None]
    fill = lambda rows, kind: np.array([[*row, *[0] * (3 - len(row))] for row in rows], kind).T  # noqa: E731
    kept, is_end = Kept((1,), np.dtype(np.float32)), np.array([True, False, False])
    columns = fill(ACTIONS, np.int32), fill(REWARDS, np.float32), ended & is_end, ended & ~is_end, alive, None
    kept.add(kept.batch_of(Episodes(observations, *columns)))
    return kept


def in_order(values: Any, kept: Kept) -> list[Any]:
    """What is given by episode, in the order in which it is kept."""
    found = np.zeros(kept.size)
    for places, row in zip(kept.episodes(), values, strict=True):
        found[places] = row
    return found.tolist()


def test_returns_to_go_stop_where_the_reward_of_now_ends_an_episode() -> None:
    kept = walks()
    assert kept.returns_to_go().tolist() == in_order([[1.0, 1.0, 2.0], [-0.5, -0.5, 0.5], [-1.0, 0.0]], kept)
    ends = np.array(in_order([[0, 1, 0], [0, 0, 0], [1, 0]], kept), bool)
    other = kept.relabelled(np.ones(kept.size), ends)
    assert other.returns_to_go().tolist() == in_order([[2.0, 1.0, 1.0], [3.0, 2.0, 1.0], [1.0, 1.0]], kept)
    assert other.column("terminated").tolist() == ends.tolist() and kept.column("reward").min() == -1.0


def test_data_say_where_one_acted_how_episodes_begin_and_what_kinds_of_steps_there_are() -> None:
    kept = walks()
    place = kept.observations[:, 0]
    assert sorted(place[kept.is_acted_in]) == [0.0, 1.0, 2.0]
    assert place[kept.first_codes(5)].tolist() == [0.0] * 5
    one, kind = kept.kinds()
    triples = list(zip(*(kept.column(name).tolist() for name in ("code", "action", "next_code")), strict=True))
    assert len(one) == len(set(triples)) and [triples[one[k]] for k in kind] == triples
    latest = Kept((1,), np.dtype(np.float32))
    for start in range(6):
        path, alive = np.full((2, 1, 1), start, np.float32), np.ones((1, 1), bool)
        none = np.zeros((1, 1), np.float32)
        latest.add(latest.batch_of(Episodes(path, none.astype(int), none, alive, ~alive, alive, None)))
    assert sorted(latest.observations[latest.first_codes(2), 0]) == [4.0, 5.0]


def test_three_rewards_are_a_success_and_two_are_not() -> None:
    for count, is_success in ((2, False), (3, True)):
        kept = walks()
        reward = np.zeros(kept.size)
        reward[:count] = 1.0
        assert kept.relabelled(reward, None).has_success is is_success


def lives_of(given: Any, kept: Kept) -> Counter:
    """How often each kind of transition is in the inputs of a fit: places of both ends, action, whether it lives on."""
    x = np.asarray(given.x)[:, 0]
    columns = x[given.row], given.action, x[given.next_row], given.live
    found: Counter = Counter()
    for *kind, weight in zip(*(np.asarray(c).tolist() for c in columns), given.weight.tolist(), strict=True):
        found[tuple(kind)] += weight
    return +found


def expected(lives: Any) -> Counter:
    found: Counter = Counter()
    for path, actions, alive in zip(PATHS, ACTIONS, lives, strict=True):
        found.update(zip(path, actions, path[1:], alive, strict=False))
    return found


def test_who_explores_sees_no_further_than_a_cut_in_a_place_where_nobody_acted(explored: Any) -> None:
    _, state, _ = explored
    kept, model = walks(), state.own.model
    model = model._replace(bonus=np.zeros((0, len(model.w)), np.float32))
    sample = state.own.sample._replace(places=np.arange(kept.size), weight=np.ones(kept.size, "f4"))
    given = explore_inputs(kept, sample, model, None, Draws(0, 0), most=100, bonus_coef=1.0)
    # The second episode is cut in 2, where the first one acted; the third in 3, where nobody did.
    assert lives_of(given, kept) == expected([[1, 1, 0], [1, 1, 1], [1, 0]])


def test_equal_steps_stay_two_if_one_of_them_ends_the_episode() -> None:
    kept = walks()
    ended = np.array(in_order([[1, 0, 1], [0, 0, 0], [0, 1]], kept), bool)  # both begin by action 0 from 0 to 1
    given = SimpleNamespace(**transitions(kept, np.arange(kept.size), 2, ended))
    assert lives_of(given, kept) == expected([[0, 1, 0], [1, 1, 1], [1, 0]])


def test_a_task_ends_where_episodes_terminate_and_an_action_never_taken_is_worth_the_least_that_was_earned() -> None:
    agent = agent_of(exploit=ReplayExploitConfig())
    kept, state = walks(), agent.init(0)
    scale = np.ones(1, np.float32)
    marks = state.own.model.landmarks
    marks = type(marks)(scale, np.zeros((marks.capacity, 1), "f4"), marks.root, marks.count)
    sample = state.own.sample._replace(places=np.arange(kept.size), weight=np.ones(kept.size, "f4"))
    own = state.own._replace(kept=kept, sample=sample, model=state.own.model._replace(landmarks=marks))
    [given] = together([agent.task.inputs(state._replace(own=own), 0)], agent.programs)
    assert lives_of(given, kept) == expected([[1, 1, 0], [1, 1, 1], [1, 1]])
    largest = 2.0 * agent.env.max_steps
    assert float(given.prior) == pytest.approx(-1.0 / largest)
    rewards = (np.asarray(given.reward) * largest)[np.asarray(given.weight) > 0]
    # Two steps of action 0 lead from 0 to 1 and pay nothing: they are one row. All others differ.
    assert sorted(rewards) == pytest.approx([-1.0, -1.0, -1.0, 0.0, 0.0, 0.5, 2.0])
