"""Bounds from data alone: against a convex solver, by simulation, and against the truth."""

import itertools

import cvxpy as cp
import numpy as np
import pytest

from pcpg_theory import exact
from pcpg_theory.mdp import random_mdp
from pcpg_theory.optimism import Range, bernstein, data_of, optimism, upper_mean


def threshold(n, delta):
    return np.log(2.0 * np.sqrt(n + 1.0) / delta)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_a_mean_is_the_largest_in_a_ball_of_the_divergence(seed):
    rng = np.random.default_rng(seed)
    count, x, top = rng.integers(0, 9, 5).astype(float), rng.uniform(-1, 2, 5), rng.choice([2.0, 7.0])
    x[0] = top if seed % 2 else x[0]
    count[0], limit = 3.0, rng.uniform(0.1, 8.0)
    [found] = upper_mean(count[None], x[None], top, np.array([limit]))
    q, n = cp.Variable(6), count.sum()
    values = np.append(np.where(count > 0, x, -1.0), top)
    kl = sum(c / n * (np.log(c / n) - cp.log(q[i])) for i, c in enumerate(count) if c > 0)
    support = [q[i] == 0 for i, c in enumerate(count) if c == 0]
    best = cp.Problem(cp.Maximize(values @ q), [q >= 0, cp.sum(q) == 1, n * kl <= limit, *support]).solve()
    assert found == pytest.approx(best, abs=1e-5)


def test_the_bound_of_a_mean_grows_with_every_value_and_is_the_largest_there_is_without_data():
    rng = np.random.default_rng(0)
    count, x = rng.integers(1, 30, (200, 4)).astype(float), rng.uniform(0, 1, (200, 4))
    limit = rng.uniform(0.5, 9.0, 200)
    low, high = upper_mean(count, x, 1.0, limit), upper_mean(count, x + rng.uniform(0, 1 - x), 1.0, limit)
    assert (high >= low - 1e-9).all() and (low <= 1.0).all() and (low >= (count * x).sum(1) / count.sum(1)).all()
    assert upper_mean(np.zeros((1, 2)), np.zeros((1, 2)), 3.0, np.ones(1)).tolist() == [3.0]


def test_the_bound_of_a_mean_fails_with_the_probability_that_is_allowed_at_whatever_time_one_stops():
    rng, delta, fails = np.random.default_rng(0), 0.2, 0
    for _ in range(400):
        sample = rng.random(256) < 0.1
        hits, n = np.cumsum(sample)[15::8], np.arange(1, 257)[15::8]
        counts = np.stack([hits, n - hits], axis=1).astype(float)
        found = upper_mean(counts, np.broadcast_to([1.0, 0.0], counts.shape), 1.0, threshold(n, delta))
        fails += (found < 0.1).any()
    assert 0 < fails / 400 < delta


def test_the_mixture_of_bets_is_never_below_the_best_one_by_more_than_its_factor():
    """2 sqrt(n + 1), by quadrature: lambda = sin^2(u) with u uniform has the arcsine law."""
    rng, lam = np.random.default_rng(0), np.sin((np.arange(20_000) + 0.5) * np.pi / 40_000) ** 2
    for n in (1, 3, 30, 200):
        for p in (0.0, 0.2, 1.0):
            x = np.where(rng.random(n) < p, 1.0, rng.random(n) < 0.5)
            logs = np.log1p(-lam[:, None] * (x - 0.4) / 0.6).sum(1)
            assert logs.max() - (logs.max() + np.log(np.exp(logs - logs.max()).mean())) <= np.log(2 * np.sqrt(n + 1))


def played(mdp, rng, episodes, steps):
    """Uniform episodes of an MDP: states, actions, what followed, rewards, starts."""
    s, parts = np.full(episodes, mdp.s0), []
    for _ in range(steps):
        a = rng.integers(mdp.num_actions, size=episodes)
        after = (mdp.P[s, a].cumsum(-1) > rng.random(episodes)[:, None]).argmax(-1)
        parts.append((s, a, after, mdp.r[s, a]))
        s = after
    return [np.concatenate(part) for part in zip(*parts, strict=True)], np.full(episodes, mdp.s0)


def best_of(mdp, steps):
    V = np.zeros(mdp.num_states)
    for _ in range(steps):
        V = (mdp.r + mdp.P @ V).max(-1)
    return V[mdp.s0]


def test_values_bound_the_best_ones_and_come_down_to_them():
    mdp, rng = random_mdp(0, 5, 2, 0.8), np.random.default_rng(0)
    best, discounted, widths = best_of(mdp, 4), exact.optimal_policy(mdp).V[mdp.s0], []
    for episodes in (30, 3000, 100_000):
        (s, a, y, r), first = played(mdp, rng, episodes, 4)
        data = data_of(s, a, y, r, first, 2)
        finite, endless = optimism(data, Range(), 0.1, steps=4).start, optimism(data, Range(), 0.1, gamma=0.8).start
        assert best <= finite <= 4.0 and discounted <= endless <= 5.0
        widths.append((finite - best, endless - discounted))
    assert all(b < a for x, y in itertools.pairwise(widths) for a, b in zip(x, y, strict=True))
    assert widths[-1][0] < 0.1 and widths[-1][1] < 0.3


def test_every_value_and_not_that_of_the_start_alone_is_bounded_at_every_step():
    mdp = random_mdp(1, 4, 3, 0.8)
    (s, a, y, r), first = played(mdp, np.random.default_rng(1), 400, 5)
    data = data_of(s, a, y, r, first, 3)
    found, V = optimism(data, Range(), 0.1, steps=5), np.zeros(4)
    order = [int(x) for x in dict.fromkeys(np.stack([s, y], 1).reshape(-1).tolist())]  # as they were met
    for left in range(1, 6):
        Q = mdp.r + mdp.P @ V
        assert (found.Q[5 - left] >= Q[order] - 1e-9).all() and (found.Q[5 - left] <= left).all()
        V = Q.max(-1)


def test_what_was_never_tried_and_what_ends_an_episode():
    one, none = np.array([0]), np.zeros(1, np.int64)
    ends, half = np.array([-1]), np.array([0.5])
    data = data_of(none, none, ends, half, one, 1, np.array([10**6]))
    assert optimism(data, Range(), 0.1, steps=7).Q[0, 0, 0] == pytest.approx(0.5, abs=0.01), "nothing follows an end"
    other = data_of(none, none, ends, half, one, 2)
    found = optimism(other, Range(high=2.0), 0.1, steps=7)
    assert found.Q[:, 0, 1].tolist() == [14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0]
    assert optimism(other, Range(high=2.0, most=3.0), 0.1, steps=7).Q.max() == 3.0


def test_the_union_is_over_pairs_by_when_their_state_was_met_and_over_steps():
    first, ends = np.array([5]), np.array([-1, -1])
    data = data_of(np.array([5, 4]), np.array([1, 0]), ends, np.array([1.0, 0.0]), first, 3, np.array([40, 60]))
    Q, share = optimism(data, Range(), 0.1, steps=2).Q, {0: 1 / 6, 1: 1 / 12}  # 1 / (k (k + 1)), a half for the starts
    for state, action, reward, n in ((0, 1, 1.0, 40), (1, 0, 0.0, 60)):
        limit = np.log(2 * np.sqrt(n + 1) * 3 * 2 / (0.1 * share[state]))
        [expected] = upper_mean(np.array([[n]]), np.array([[reward]]), 1.0, np.array([limit]))
        assert Q[1, state, action] == pytest.approx(expected)
    top = np.array([[1.0]]), Q[0, :1].max(-1, keepdims=True), 2.0, np.array([np.log(2 * np.sqrt(2) * 2 / 0.1)])
    assert optimism(data, Range(), 0.1, steps=2).start == pytest.approx(upper_mean(*top)[0])


def test_states_are_numbered_as_they_are_met_so_that_their_number_need_not_be_known():
    data = data_of(np.array([7, 2]), np.array([1, 0]), np.array([2, 9]), np.array([0.0, 1.0]), np.array([7]), 2)
    assert data.num_states == 3 and data.first.tolist() == [0]
    assert sorted(zip(data.state.tolist(), data.action.tolist(), data.after.tolist(), strict=True)) == [
        (0, 1, 1),
        (1, 0, 2),
    ]


def test_the_lower_bound_is_that_of_maurer_and_pontil_and_fails_as_rarely_as_it_may():
    values = np.array([0.0, 1.0, 3.0, 4.0])
    radius = np.sqrt(2 * np.var(values, ddof=1) * np.log(20) / 4) + 7 * 10 * np.log(20) / 9
    assert bernstein(values, -100.0, -90.0, 0.1) == pytest.approx(2 - radius)
    assert bernstein(values, 0.0, 10.0, 0.1) == 0.0, "no value is below the least one"
    rng = np.random.default_rng(0)
    assert np.mean([bernstein(rng.random(200) < 0.3, 0.0, 1.0, 0.1) > 0.3 for _ in range(500)]) < 0.1


def test_declared_ranges_are_checked_against_what_was_paid():
    paid = np.array([0.0, 2.5])
    for wrong, message in (
        (Range(high=2.0), "r_max must be at least the largest reward of the data, got 2 and 2.5"),
        (Range(low=0.5, high=3.0), "r_min must be at most the least reward of the data, got 0.5 and 0"),
        (Range(low=1.0, high=1.0), "r_min must be below r_max, both finite, got 1 and 1"),
        (Range(high=np.inf), "r_min must be below r_max"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong.check(paid)
    assert Range(high=2.5).check(paid).largest(4) == 10.0 and Range(low=-1.0).least(3) == -3.0
