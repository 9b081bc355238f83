"""Backups on kept transitions: exact values on a chain, the bonus ahead, and no hope in what was never met."""

import jax
import numpy as np

from pcpg.kernel.fitting import RIDGE, Transitions, fit

LENGTH, ON, BACK = 5, 0, 1
STATES = LENGTH + 1


def chain(bonus=None, count=1000.0):
    """Transitions of a corridor: on leads to the next place and out of the last one with reward 1; back stays."""
    place = np.arange(LENGTH, dtype=np.int32)
    last = place == LENGTH - 1
    return Transitions(
        shares=np.eye(STATES, dtype=np.float32),
        bonus=np.asarray(np.zeros((STATES, 2)) if bonus is None else bonus, np.float32),
        row=np.concatenate([place, place]),
        next_row=np.concatenate([place + 1, place]).astype(np.int32),
        action=np.repeat(np.array([ON, BACK], np.int32), LENGTH),
        reward=np.concatenate([last, np.zeros(LENGTH)]).astype(np.float32),
        live=np.concatenate([~last, np.ones(LENGTH, bool)]).astype(np.float32),
        weight=np.full(2 * LENGTH, count, np.float32),
    )


def values(kept, **settings):
    common = {"num_actions": 2, "backups": 40, "gamma": 0.9, "low": 0.0, "high": 1.0, "explore": False}
    return np.asarray(fit(kept, **(common | settings)).w)


def test_values_of_a_task_are_those_of_value_iteration():
    w = values(chain())
    best = 0.9 ** np.arange(LENGTH)[::-1]
    np.testing.assert_allclose(w[ON, :LENGTH], best, rtol=1e-3)
    np.testing.assert_allclose(w[BACK, :LENGTH], 0.9 * best, rtol=1e-3)


def line(offset):
    """A line with 5 landmarks: right leads 0.02 on, left back, and further right pays more. Left was taken there."""
    places = np.linspace(0.0, 1.0, 5)
    begun = np.concatenate([places[:-1] - offset, places[1:] + offset]).clip(0.0, 0.99)
    action = np.repeat(np.array([ON, BACK], np.int32), 4)
    moved = begun + np.where(action == ON, 0.02, -0.02)
    x = np.concatenate([begun, moved.clip(0.0, 1.0)])
    shares = np.maximum(0.0, 1 - np.abs(x[:, None] - places) / 0.25)  # linear between neighbours
    return Transitions(
        shares=shares.astype(np.float32),
        bonus=np.zeros((16, 2), np.float32),
        row=np.arange(8, dtype=np.int32),
        next_row=np.arange(8, 16, dtype=np.int32),
        action=action,
        reward=x[8:].astype(np.float32) * 0.1,
        live=np.ones(8, np.float32),
        weight=np.full(8, 100.0, np.float32),
    )


def test_values_to_act_by_compare_actions_as_if_they_had_been_taken_at_the_same_places():
    found = fit(line(0.1), num_actions=2, backups=40, gamma=0.9, low=0.0, high=1.0, explore=False)
    w, played = np.asarray(found.w), np.asarray(found.played)
    assert np.all(w[BACK, [1, 3]] > w[ON, [1, 3]])  # left looks better, for it was taken where all is better
    assert np.all(played[ON, 1:4] > played[BACK, 1:4])


def test_values_to_act_by_are_the_mean_targets_where_every_landmark_is_a_place_of_its_own():
    found = fit(chain(), num_actions=2, backups=40, gamma=0.9, low=0.0, high=1.0, explore=False)
    np.testing.assert_allclose(found.played, found.w, atol=1e-6)


def test_fewer_backups_than_the_way_is_long_do_not_hear_of_its_end():
    assert values(chain(), backups=LENGTH - 1)[ON, 0] == 0.0
    assert values(chain(), backups=LENGTH + 1)[ON, 0] > 0.5


def test_the_value_of_exploring_is_the_largest_bonus_ahead_discounted_by_the_way_there():
    bonus = np.full((STATES, 2), 0.01)
    bonus[3, BACK] = 0.8
    kept = chain(bonus)._replace(reward=np.zeros(2 * LENGTH, np.float32))
    w = values(kept, explore=True)
    np.testing.assert_allclose(w[ON, :3], 0.8 * 0.9 ** np.array([3, 2, 1]), rtol=1e-3)


def test_a_pair_that_was_never_met_is_worth_the_least_to_who_exploits_and_nothing_to_who_explores():
    kept = chain()
    without = kept._replace(weight=np.where(kept.action == BACK, 0.0, kept.weight).astype(np.float32))
    np.testing.assert_allclose(values(without, low=-5.0, prior=-3.0)[BACK], -3.0)
    np.testing.assert_allclose(values(without, explore=True)[BACK], 0.0)


def test_a_place_without_weight_counts_for_nothing():
    kept = chain()
    wrong = kept._replace(reward=np.where(kept.action == BACK, 99.0, kept.reward).astype(np.float32))
    wrong = wrong._replace(weight=np.where(kept.action == BACK, 0.0, kept.weight).astype(np.float32))
    assert values(wrong, high=100.0)[ON].max() <= 1.0


def test_one_transition_is_believed_but_for_the_ridge_and_by_a_task_for_its_square():
    one, new = chain(count=1.0), np.zeros((STATES, 2))
    new[LENGTH] = 1.0  # the bonus of what the last step leads to
    one = one._replace(bonus=np.asarray(new, np.float32), reward=np.zeros(2 * LENGTH, np.float32))
    one = one._replace(live=np.ones(2 * LENGTH, np.float32))
    found = values(one, backups=1, explore=True)[ON, LENGTH - 1]
    np.testing.assert_allclose(found, 0.9 / (1 + RIDGE), rtol=1e-5)
    found = values(chain(count=1.0), backups=1)[ON, LENGTH - 1]
    np.testing.assert_allclose(found, 1 / (1 + RIDGE**2), rtol=1e-6)


def test_a_reward_met_once_at_the_end_of_a_long_way_that_was_walked_once_is_not_drowned_by_doubts():
    place = np.arange(100, dtype=np.int32)
    way = Transitions(
        shares=np.eye(101, dtype=np.float32),
        bonus=np.zeros((101, 2), np.float32),
        row=place,
        next_row=place + 1,
        action=np.zeros(100, np.int32),
        reward=(place == 99).astype(np.float32),
        live=(place < 99).astype(np.float32),
        weight=np.ones(100, np.float32),
    )
    assert values(way, backups=200, gamma=1.0)[0, 0] > 0.98


def test_the_change_of_the_last_backup_vanishes_once_all_is_heard():
    settings = {"num_actions": 2, "gamma": 0.9, "low": 0.0, "high": 1.0, "explore": False}
    assert float(fit(chain(), backups=60, **settings).change) < 1e-3 < float(fit(chain(), backups=2, **settings).change)


def test_many_rows_are_computed_as_in_double_precision_whatever_the_compiler_makes_of_them():
    rng, rows, places, actions, size = np.random.default_rng(0), 16_384, 64, 9, 8192
    shares = rng.dirichlet(np.full(places, 0.05), rows).astype(np.float32)
    row, nexts = (rng.integers(0, rows, size).astype(np.int32) for _ in range(2))
    action = rng.integers(0, actions, size).astype(np.int32)
    reward = np.where(np.arange(size) < 20, 1.0, 0.0).astype(np.float32)
    live, weight = (reward == 0).astype(np.float32), np.ones(size, np.float32)
    kept = Transitions(shares, np.zeros((rows, actions), np.float32), row, nexts, action, reward, live, weight)
    settings = {"num_actions": actions, "backups": 5, "gamma": 0.999, "low": -1.0, "high": 1.0, "explore": False}
    settings |= {"prior": -1.0}
    count, total, y = np.zeros((actions, rows)), np.zeros((actions, rows)), reward.astype(float)
    w = np.zeros((actions, places))
    np.add.at(count, (action, row), weight)
    for _ in range(5):
        total[:] = 0.0
        np.add.at(total, (action, row), y)
        doubt = RIDGE**2 / np.maximum(count @ shares, RIDGE**2)
        w = (total @ shares - doubt) / (count @ shares + doubt)
        y = reward + 0.999 * live * np.clip(shares @ w.T, -1, 1).max(1)[nexts]
    for _ in range(2):
        found = jax.jit(lambda kept: fit(kept, **settings))(kept)
        np.testing.assert_allclose(found.w, w, atol=1e-4)
