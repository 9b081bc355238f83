"""Q-learning with upper confidence bounds (Jin, Allen-Zhu, Bubeck and Jordan 2018), both bonuses.

    Q_h(s, a) <- (1 - alpha_t) Q_h(s, a) + alpha_t (r + V_{h+1}(s') + b_t),   alpha_t = (L + 1) / (L + t)
    V_h(s) = min(L - h, max_a Q_h(s, a)),   t the visits of (h, s, a), Q starts at L - h

    Hoeffding  b_t = scale sqrt(L^3 iota / t)
    Bernstein  b_t = (beta_t - (1 - alpha_t) beta_{t-1}) / (2 alpha_t), beta_0 = 0,
               beta_t = scale min(sqrt(L (W_t + L) iota / t) + sqrt(L^7 S A) iota / t, sqrt(L^3 iota / t))

iota = ln(S A T / delta) with T the samples so far; W_t is the variance of the t values V_{h+1}(s') met so far. The
paper leaves its absolute constants open (c, c_1, c_2): scale = 1 sets them to one.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.mdp import Array


def rate(t: Array, horizon: int) -> Array:
    """Return alpha_t = (L + 1) / (L + t)."""
    return (horizon + 1.0) / (horizon + t)


def hoeffding_bonus(t: Array, horizon: int, iota: float) -> Array:
    """Return sqrt(L^3 iota / t)."""
    return np.sqrt(horizon**3 * iota / t)


def bernstein_beta(t: Array, variance: Array, horizon: int, iota: float, pairs: int) -> Array:
    """Return beta_t for scale 1 and pairs = S A."""
    first = np.sqrt(horizon * (variance + horizon) * iota / t)
    second = np.sqrt(float(horizon) ** 7 * pairs) * iota / t
    return np.minimum(first + second, hoeffding_bonus(t, horizon, iota))


class UCBQ:
    """Optimistic Q-learning, without a model."""

    batch = 1

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        delta: float = 0.1,
        bonus: tables.Bonus = "hoeffding",
    ) -> None:
        tables.check(scale=scale, delta=delta)
        tables.check_bonus(bonus)
        self.layout, self.scale, self.delta, self.bonus = layout, scale, delta, bonus
        n, self.top = streams.n, layout.remaining
        self.Q, self.V = tables.highest(layout, n), np.zeros((n, len(self.top))) + self.top
        self.visits, self.beta = tables.zeros(layout, n), tables.zeros(layout, n)
        self.sums, self.squares = tables.zeros(layout, n), tables.zeros(layout, n)  # of the values V(s') met
        self.pi, self.steps, self._lane = tables.greedy(self.Q), 0, np.arange(n)[:, None]

    def policy(self) -> Array:
        """Return the greedy policies of the optimistic Q."""
        return self.pi

    behaviour = policy

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
            b = self.scale * hoeffding_bonus(t, horizon, iota)
        else:
            self.sums[at] += after
            self.squares[at] += after**2
            variance = np.maximum(self.squares[at] / t - (self.sums[at] / t) ** 2, 0.0)
            beta = self.scale * bernstein_beta(t, variance, horizon, iota, pairs)
            b = (beta - (1.0 - alpha) * self.beta[at]) / (2.0 * alpha)
            self.beta[at] = beta
        self.Q[at] = (1.0 - alpha) * self.Q[at] + alpha * (r + after + b)
        rows = (self._lane, s[:, :-1])
        self.V[rows] = np.minimum(self.top[s[:, :-1]], self.Q[rows].max(-1))
        self.pi[rows] = tables.greedy(self.Q[rows])
