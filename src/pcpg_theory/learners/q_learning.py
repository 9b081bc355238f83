"""Q-learning without a model: epsilon-greedy, delayed, with upper confidence bounds, and with aggregated states."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout
from pcpg_theory.learners.model_based import heaven
from pcpg_theory.mdp import Array, Index


@dataclass(eq=False)
class EpsilonGreedyQ(tables.Discounted):
    """Epsilon-greedy Q-learning (Watkins 1989): the table's example of a learner that does not explore on purpose.

        Q(s, a) <- (1 - alpha_t) Q(s, a) + alpha_t (r + gamma max_a' Q(s', a')),   alpha_t = t^-0.6, Q starts at 0

    With probability epsilon an action is uniform, else it is greedy, ties at random. The greedy policy is what is
    scored. `scale` is epsilon itself, the only thing there is to scale. gamma = 1 - 1/L by default. A rate t^-omega
    converges for omega in (1/2, 1] (Even-Dar and Mansour 2003); omega = 1 is exponentially slow in 1/(1-gamma).
    """

    scale: float | Array = 0.1
    omega: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.any(self.scales > 1.0):
            raise ValueError(f"scale must be at most 1, since epsilon is a probability, got {self.scale}")
        self.Q, self.visits = (tables.zeros(self.layout, self.n) for _ in range(2))
        self.V = np.zeros((self.n, self.layout.first[-1]))
        self.pi = tables.greedy(self.Q)

    def behaviour(self) -> Array:
        """The greedy policies mixed with uniform play."""
        return (1.0 - self.scales) * self.pi + self.scales / self.pi.shape[-1]

    def learn(self, episodes: Episodes) -> None:
        """Update the pairs of an episode; each uses values from before it."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        at, rows = (self._lane, s[:, :-1], a), (self._lane, s[:, :-1])
        self.visits[at] += 1.0
        alpha = self.visits[at] ** -self.omega
        self.Q[at] += alpha * (r + self.discount * self.V[self._lane, s[:, 1:]] - self.Q[at])
        self.V[rows] = self.Q[rows].max(-1)
        self.pi[rows] = tables.greedy(self.Q[rows])


def attempt_after(pairs: int, gamma: float, eps_1: float, delta: float) -> float:
    """Delayed Q-learning's number m of targets of an attempt, for pairs = S A."""
    kappa = 1.0 + pairs / (eps_1 * (1.0 - gamma))
    return float(np.log(3.0 * pairs * kappa / delta) / (2.0 * (eps_1 * (1.0 - gamma)) ** 2))


@dataclass(eq=False)
class DelayedQ(tables.Discounted):
    """Delayed Q-learning (Strehl, Li, Wiewiora, Langford and Littman 2006): from above, in steps of at least eps_1.

    A pair collects m targets r + gamma max Q(s') and then attempts an update: if their mean lies 2 eps_1 below Q(s, a),
    Q(s, a) becomes the mean plus eps_1. A pair whose attempt failed, with no Q changed since its attempt before, stops
    learning until some Q changes. Greedy play; Q starts at the most that can remain, sum_{k < L-h} gamma^k.

        eps_1 = eps (1 - gamma) / 9
        m     = ceil(scale ln(3 S A (1 + S A / (eps_1 (1 - gamma))) / delta) / (2 eps_1^2 (1 - gamma)^2))

    gamma = 1 - 1/L by default. `epsilon` is the accuracy of the discounted value.
    """

    epsilon: float = 1.0
    delta: float = 0.1
    below_one = True

    def __post_init__(self) -> None:
        super().__post_init__()
        layout, n = self.layout, self.n
        self.eps_1 = self.epsilon * (1.0 - self.discount) / 9.0
        pairs = layout.num_states * layout.num_actions
        self.m = np.ceil(self.scales[..., 0] * attempt_after(pairs, self.discount, self.eps_1, self.delta))
        top = heaven(layout, self.discount)
        self.Q, self.V = tables.zeros(layout, n) + top[:, None], np.zeros((n, layout.first[-1]))
        self.V[:, : layout.num_states] = top
        self.sums, self.collected, self.attempted = (tables.zeros(layout, n) for _ in range(3))
        self.learning = np.ones_like(self.Q, bool)
        self.changed = np.zeros(n)  # the time of the last change of any Q; `attempted` has attempts
        self.pi = tables.greedy(self.Q)

    def learn(self, episodes: Episodes) -> None:
        """Take in the steps of an episode; whether a mean is low enough depends on values from before it only."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        at, rows = (self._lane, s[:, :-1], a), (self._lane, s[:, :-1])
        time = self.steps + 1.0 + np.arange(a.shape[1])
        self.steps += a.shape[1]
        active = self.learning[at]
        self.sums[at] += active * (r + self.discount * self.V[self._lane, s[:, 1:]])
        self.collected[at] += active
        attempt = active & (self.collected[at] >= self.m)
        mean = self.sums[at] / self.m
        success = attempt & (self.Q[at] - mean >= 2.0 * self.eps_1)
        # changed[h]: the last change of any Q before step h, those of this episode included.
        latest = np.maximum.accumulate(np.where(success, time, 0.0), axis=1)
        changed = np.maximum(self.changed[:, None], np.concatenate([np.zeros_like(latest[:, :1]), latest[:, :-1]], 1))
        stop = attempt & ~success & (self.attempted[at] >= changed)
        wake = ~active & (self.attempted[at] < changed)
        self.learning[at] = (active & ~stop) | wake
        self.Q[at] = np.where(success, mean + self.eps_1, self.Q[at])
        self.attempted[at] = np.where(attempt, time, self.attempted[at])
        self.sums[at] = np.where(attempt, 0.0, self.sums[at])
        self.collected[at] = np.where(attempt, 0.0, self.collected[at])
        self.changed = np.maximum(self.changed, latest[:, -1])
        self.V[rows] = self.Q[rows].max(-1)
        self.pi[rows] = tables.greedy(self.Q[rows])


def rate(t: Array, horizon: int) -> Array:
    """The rate alpha_t = (L + 1) / (L + t) of the t-th update."""
    return (horizon + 1.0) / (horizon + t)


def hoeffding_bonus(t: Array, horizon: int, iota: float) -> Array:
    """The bonus sqrt(L^3 iota / t)."""
    return np.sqrt(horizon**3 * iota / t)


def bernstein_beta(t: Array, variance: Array, horizon: int, iota: float, pairs: int) -> Array:
    """UCB Q-learning's beta_t for scale 1 and pairs = S A."""
    first = np.sqrt(horizon * (variance + horizon) * iota / t)
    second = np.sqrt(float(horizon) ** 7 * pairs) * iota / t
    return np.minimum(first + second, hoeffding_bonus(t, horizon, iota))


@dataclass(eq=False)
class UCBQ(tables.TabularLearner):
    """Q-learning with upper confidence bounds (Jin, Allen-Zhu, Bubeck and Jordan 2018), both bonuses.

        Q_h(s, a) <- (1 - alpha_t) Q_h(s, a) + alpha_t (r + V_{h+1}(s') + b_t),   alpha_t = (L + 1) / (L + t)
        V_h(s) = min(L - h, max_a Q_h(s, a)),   t the visits of (h, s, a), Q starts at L - h

        Hoeffding  b_t = scale sqrt(L^3 iota / t)
        Bernstein  b_t = (beta_t - (1 - alpha_t) beta_{t-1}) / (2 alpha_t), beta_0 = 0,
                   beta_t = scale min(sqrt(L (W_t + L) iota / t) + sqrt(L^7 S A) iota / t, sqrt(L^3 iota / t))

    iota = ln(S A T / delta) with T the samples so far; W_t is the variance of the t values V_{h+1}(s') met so far. The
    paper leaves its absolute constants open (c, c_1, c_2): scale = 1 sets them to one.
    """

    delta: float = 0.1
    bonus: tables.Bonus = "hoeffding"

    def __post_init__(self) -> None:
        super().__post_init__()
        layout, n, self.top = self.layout, self.n, self.layout.remaining
        self.Q, self.V = tables.highest(layout, n), np.zeros((n, len(self.top))) + self.top
        self.visits, self.beta = (tables.zeros(layout, n) for _ in range(2))
        self.sums, self.squares = (tables.zeros(layout, n) for _ in range(2))  # of the values V(s') met
        self.pi = tables.greedy(self.Q)

    def learn(self, episodes: Episodes) -> None:
        """Update the pairs of an episode; each uses values from before it."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        at, self.steps = (self._lane, s[:, :-1], a), self.steps + a.shape[1]
        horizon, pairs = self.layout.horizon, self.layout.num_shared * self.layout.num_actions
        iota = float(np.log(pairs * self.steps / self.delta))
        self.visits[at] += 1.0
        t, after = self.visits[at], self.V[self._lane, s[:, 1:]]
        alpha = rate(t, horizon)
        if self.bonus == "hoeffding":
            b = self.scales[..., 0] * hoeffding_bonus(t, horizon, iota)
        else:
            self.sums[at] += after
            self.squares[at] += after**2
            variance = np.maximum(self.squares[at] / t - (self.sums[at] / t) ** 2, 0.0)
            beta = self.scales[..., 0] * bernstein_beta(t, variance, horizon, iota, pairs)
            b = (beta - (1.0 - alpha) * self.beta[at]) / (2.0 * alpha)
            self.beta[at] = beta
        self.Q[at] = (1.0 - alpha) * self.Q[at] + alpha * (r + after + b)
        rows = (self._lane, s[:, :-1])
        self.V[rows] = np.minimum(self.top[s[:, :-1]], self.Q[rows].max(-1))
        self.pi[rows] = tables.greedy(self.Q[rows])


def cells_of(layout: Layout, labels: ArrayLike | None) -> Index:
    """The number of the cell of each pair, [S, A]: pairs of one layer and one label share a cell."""
    shape = (layout.num_states, layout.num_actions)
    if labels is None:
        return np.arange(shape[0] * shape[1]).reshape(shape)
    labels = np.asarray(labels)
    if labels.shape != shape:
        raise ValueError(f"labels must have shape {shape}, one for each pair, got {labels.shape}")
    both = np.stack([np.broadcast_to(layout.layer[:, None], shape).reshape(-1), labels.reshape(-1)])
    return np.unique(both, axis=1, return_inverse=True)[1].reshape(shape).astype(np.int64)


@dataclass(eq=False)
class AggregatedQ(tables.TabularLearner):
    """Optimistic Q-learning with aggregated states, AQ-UCB (Dong, Van Roy and Zhou 2019).

    One value for each cell of a partition of the pairs (h, s, a), with V cut at L - h:

        Q(cell) <- (1 - alpha_t) Q(cell) + alpha_t (r + V_{h+1}(s') + b_t),   alpha_t = (L + 1) / (L + t)
        b_t = scale 2 sqrt(L^3 ln(L k / delta) / t) + error

    t the visits of the cell, k the episodes so far, where the paper knows their number K; `error` is the aggregation
    known error, the largest difference of optimal values within a cell. The constant by our derivation:
    the weights of t updates have squares that sum to 2 L / t or less, so Azuma's inequality with values in [0, L] gives
    2 sqrt(L^3 ln(.) / t); the logarithm is a union over steps and episodes. Without `labels` each observed pair is a
    cell: states that a problem aggregates already look the same.
    """

    delta: float = 0.1
    labels: ArrayLike | None = None
    error: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.error >= 0.0:
            raise ValueError(f"error must be an aggregation error of zero or more, got {self.error}")
        self.cells, self.top, self.episodes = cells_of(self.layout, self.labels), self.layout.remaining, 0
        self.Q, self.visits = (np.zeros((self.n, int(self.cells.max()) + 1)) for _ in range(2))
        self.Q[:, self.cells] = self.top[: self.layout.num_states, None]
        self.pi = tables.greedy(self.Q[:, self.cells])

    def learn(self, episodes: Episodes) -> None:
        """Update the cells of an episode; each uses values from before it."""
        s, a, r = episodes.s[:, 0], episodes.a[:, 0], episodes.r[:, 0]
        horizon, self.episodes = self.layout.horizon, self.episodes + 1
        iota = float(np.log(horizon * self.episodes / self.delta))
        at = (self._lane, self.cells[s[:, :-1], a])
        self.visits[at] += 1.0
        alpha = rate(self.visits[at], horizon)
        b = 2.0 * self.scales[..., 0] * hoeffding_bonus(self.visits[at], horizon, iota) + self.error
        after = np.zeros_like(r)  # zero at the end of the episode
        nexts = self.cells[s[:, 1:-1]]
        after[:, :-1] = np.minimum(self.top[s[:, 1:-1]], self.Q[self._lane[..., None], nexts].max(-1))
        self.Q[at] = (1.0 - alpha) * self.Q[at] + alpha * (r + after + b)
        self.pi = tables.greedy(self.Q[:, self.cells])
