"""Bounds from data alone: on V* by optimism over kept transitions, on V^pi by fresh episodes of pi.

No P, no optimal policy, no reward beyond its declared range. For one pair (s, a) met n times, with X = r + V*(s'):

    u(P^, x) = max { E_Q x : n KL(P^, Q) <= ln(2 sqrt(n + 1) / delta) },   Q on the x that were met and the largest one

is at least E X for all n at once with probability 1 - delta (`upper_mean`). V* is one fixed function, so no union over
values is needed; u grows with x, so what is put in place of V* may be any upper bound of it. Backwards from the last
step, or from the largest value with a discount,

    U_h(s, a) = u(P^, r + max_a' U_{h+1}(s', a')),   U_h of a pair never met: the largest value there is

is at least V*_h everywhere with probability 1 - delta: a union over pairs and steps, in which the k-th state met has
the share 1 / (k (k + 1)), so the number of states need not be known. It holds whatever chose the actions, and whenever
one stopped. It assumes that observations are states, and that only time limits cut episodes.

The threshold is that of a bet: prod (1 - lambda (X - m) / (top - m)), m = E X, has mean 1 for every lambda in [0, 1];
its mixture over the arcsine law is never below the best lambda's by more than the factor 2 sqrt(n + 1) (Cover and
Ordentlich 1996), and by Ville's inequality it ever exceeds 1 / delta with probability delta at most (Orabona and Jun
2021). By duality (Honda and Takemura 2010), E X is above u only then.
"""

from typing import NamedTuple

import numpy as np

from pcpg_theory.mdp import Array, Index

STEPS = 20
"""Bisections; wherever they end, u is an upper bound."""


class Range(NamedTuple):
    """What is declared of rewards: they lie in [low, high], and no sum of them to an episode's end is above `most`."""

    low: float = 0.0
    high: float = 1.0
    most: float = np.inf

    def check(self, rewards: Array | None = None) -> "Range":
        """The range; a ValueError names a bound that is none, or that a reward in the data exceeds."""
        low, high, most = self
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"r_min must be below r_max, both finite, got {low:g} and {high:g}")
        if not most > min(low, 0.0):
            raise ValueError(f"the largest return must be above the least one, got {most:g}")
        if rewards is None or not rewards.size:
            return self
        if rewards.max() > high:
            raise ValueError(
                f"r_max must be at least the largest reward of the data, got {high:g} and {rewards.max():g}"
            )
        if rewards.min() < low:
            raise ValueError(f"r_min must be at most the least reward of the data, got {low:g} and {rewards.min():g}")
        return self

    def check_returns(self, returns: Array, steps: int) -> None:
        """Raise a ValueError if an episode returned what was declared impossible."""
        least, largest = self.least(steps), self.largest(steps)
        if returns.size and not (least - 1e-6 <= returns.min() and returns.max() <= largest + 1e-6):
            given = f"{returns.min():g} to {returns.max():g}"
            raise ValueError(f"returns must lie between {least:g} and {largest:g}, as declared, got {given}")

    def largest(self, weight: float) -> float:
        """The largest value of so many steps, or of discounts that sum to this; an episode may also end at once."""
        return min(max(self.high * weight, 0.0), self.most)

    def least(self, weight: float) -> float:
        return min(self.low * weight, 0.0)


class Data(NamedTuple):
    """Transitions by kind: what followed a pair and how often. States are numbered in the order they were met."""

    state: Index  # [k]
    action: Index  # [k]
    after: Index  # [k] the next state; -1: the episode terminated
    reward: Array  # [k]
    met: Array  # [k] how often
    first: Index  # [starts] states in which episodes began
    began: Array  # [starts] how often
    num_states: int
    num_actions: int


class _Table(NamedTuple):
    """The same, one row for each pair that was met and one column for each kind of outcome."""

    row: Index  # [pairs] state * actions + action
    after: Index  # [pairs, K]
    reward: Array
    met: Array
    slack: Array  # [pairs] ln(1 / share of the pair in the union over pairs)


def data_of(
    state: Index,
    action: Index,
    after: Index,
    reward: Array,
    first: Index,
    num_actions: int,
    count: Array | None = None,
) -> Data:
    """Transitions, their states renamed by the order in which they came, collected by kind."""
    met = np.stack([state, np.where(after < 0, state, after)], axis=1).reshape(-1)
    met = np.concatenate([first[:1], met, first])
    names, at = np.unique(met, return_index=True)
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(at)] = np.arange(len(names))

    def renamed(s: Index) -> Index:
        return rank[np.searchsorted(names, s)]

    ends = after < 0
    rows = np.stack([renamed(state), action, np.where(ends, -1, renamed(np.where(ends, state, after)))], axis=1)
    keys = np.concatenate([rows.astype(np.float64), reward[:, None]], axis=1)
    kinds, which = np.unique(keys, axis=0, return_inverse=True)
    total = np.bincount(which.reshape(-1), count, minlength=len(kinds)).astype(np.float64)
    starts, began = np.unique(renamed(first), return_counts=True)
    s, a, y = kinds[:, :3].astype(np.int64).T
    return Data(s, a, y, kinds[:, 3], total, starts, began.astype(np.float64), len(names), num_actions)


def upper_mean(count: Array, x: Array, top: Array | float, threshold: Array) -> Array:
    """u of each row: the largest mean with count.sum() KL(P^, Q) <= threshold, Q on the row's x and on `top`.

    By duality min over nu >= top of nu - exp(E log(nu - x) - threshold / n), an upper bound at every nu.
    """
    n = count.sum(-1)
    count = np.where(n[:, None] > 0, count, 1.0)  # where nothing was met, whatever: the answer is `top`
    total = count.sum(-1)
    p, c, top = count / total[:, None], threshold / total, np.broadcast_to(top, n.shape)
    scale = np.maximum(top - np.where(count > 0, x, np.inf).min(-1), 1e-12)
    gap = np.where(count > 0, (top[:, None] - x) / scale[:, None], 1.0)  # in units of the range, from 0 to 1

    def above(t: Array) -> Array:
        """The objective at nu = top + t, in units of the range, from the top."""
        return t - np.exp((p * np.log(gap + t[:, None])).sum(-1) - c)

    low, high = np.full(n.shape, np.log(1e-12)), np.full(n.shape, np.log(1e9))
    for _ in range(STEPS):  # its slope is 0 where KL(P^, Q) = threshold / n, and KL falls with t
        apart = gap + np.exp((low + high) / 2)[:, None]
        is_left = (p * np.log(apart)).sum(-1) + np.log((p / apart).sum(-1)) > c
        low, high = np.where(is_left, (low + high) / 2, low), np.where(is_left, high, (low + high) / 2)
    with np.errstate(divide="ignore"):  # at nu = top, where an x is the largest there is
        least = np.minimum(above(np.exp((low + high) / 2)), above(np.zeros(n.shape)))
    return np.where(n > 0, top + scale * np.minimum(least, 0.0), top)


class Optimism(NamedTuple):
    """Upper bounds on V*."""

    start: float  # of the value at the start of an episode
    Q: Array  # [steps, S, A] from each pair met, with all steps left first; [1, S, A] with a discount


def optimism(
    data: Data, declared: Range, delta: float, *, steps: int | None = None, gamma: float | None = None
) -> Optimism:
    """Bounds that hold together with probability 1 - delta: of sums over so many steps, or discounted ones."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be a probability above 0 and below 1, got {delta}")
    if (steps is None) == (gamma is None):
        raise ValueError("there must be steps or a discount, and not both")
    table = _tabled(data)
    threshold = table.slack + np.log(2.0 * np.sqrt(table.met.sum(-1) + 1.0) * (steps or 1) / delta)

    def backed_up(V: Array, discount: float, top: float) -> Array:
        ahead = np.where(table.after < 0, 0.0, V[table.after])
        Q = np.full(data.num_states * data.num_actions, top)
        Q[table.row] = upper_mean(table.met, np.minimum(table.reward + discount * ahead, top), top, threshold)
        return Q.reshape(data.num_states, data.num_actions)

    found: list[Array] = []
    if gamma is None:
        V, top = np.zeros(data.num_states), declared.largest(steps or 0)
        for left in range(1, (steps or 0) + 1):
            found.append(backed_up(V, 1.0, declared.largest(left)))
            V = found[-1].max(-1)
    else:
        top = declared.largest(1.0 / (1.0 - gamma))
        V, old = np.full(data.num_states, top), np.full(data.num_states, np.inf)
        while np.abs(V - old).max() > 1e-9 * top:  # from above: every iterate is a bound
            found = [backed_up(V, gamma, top)]
            V, old = found[0].max(-1), V
    starts = np.log(2.0 * np.sqrt(data.began.sum() + 1.0) * 2.0 / delta)
    start = upper_mean(data.began[None], V[data.first][None], top, np.array([starts]))
    return Optimism(float(start[0]), np.stack(found[::-1]))


def _tabled(data: Data) -> _Table:
    row = data.state * data.num_actions + data.action
    order = np.argsort(row, kind="stable")
    pairs, begin, number = np.unique(row[order], return_index=True, return_counts=True)
    place = np.repeat(np.arange(len(pairs)), number), np.arange(len(row)) - np.repeat(begin, number)
    after, reward, count = (np.zeros((len(pairs), int(number.max(initial=1)))) for _ in range(3))
    after[place], reward[place], count[place] = data.after[order], data.reward[order], data.met[order]
    k = pairs // data.num_actions + 2.0  # the first share, a half, is that of the starts
    return _Table(pairs, after.astype(np.int64), reward, count, np.log(k * (k + 1.0) * data.num_actions))


def bernstein(values: Array, least: float, largest: float, delta: float) -> float:
    """A lower bound on the mean of what lies in a range, with probability 1 - delta (Maurer and Pontil 2009)."""
    if len(values) < 2:
        raise ValueError(f"episodes must be at least 2, got {len(values)}")
    n, log = len(values), np.log(2.0 / delta)
    radius = np.sqrt(2.0 * values.var(ddof=1) * log / n) + 7.0 * (largest - least) * log / (3.0 * (n - 1))
    return max(float(values.mean()) - float(radius), least)
