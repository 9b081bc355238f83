"""UCBVI (Azar, Osband and Munos 2017), with Hoeffding (UCBVI-CH) and Bernstein-Freedman (UCBVI-BF) bonuses.

    Q_h(s, a) = min(Q_h of the last episode, L - h, r^ + P^ V_{h+1} + scale b),  greedy play

    Hoeffding  b = 7 L ell / sqrt(N)
    Bernstein  b = sqrt(8 ell Var_{P^}(V_{h+1}) / N) + 14 L ell / (3 N)
                   + sqrt(8 sum_y P^(y) min(100^2 L^3 S^2 A ell^2 / N'_{h+1}(y), L^2) / N)

N counts visits of (s, a) at all times (the model is stationary), N'_{h+1}(y) visits of y at step h+1;
ell = ln(5 S A t / delta) with t the samples so far, where the paper knows the total T.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.mdp import Array


def hoeffding_bonus(N: Array, horizon: int, ell: float) -> Array:
    """Return 7 L ell / sqrt(N), for N of at least one."""
    return 7.0 * horizon * ell / np.sqrt(N)


def bernstein_bonus(N: Array, P: Array, V: Array, arrivals: Array, horizon: int, ell: float, pairs: float) -> Array:
    """Return the bonus of UCBVI-BF for N [n, s, A], P [n, s, A, w], V [n, w], arrivals [n, w]; pairs = S^2 A."""
    mean = np.einsum("nsaw,nw->nsa", P, V)
    variance = np.maximum(np.einsum("nsaw,nw->nsa", P, V**2) - mean**2, 0.0)
    worst = np.minimum(1e4 * horizon**3 * pairs * ell**2 / np.maximum(arrivals, 1.0), horizon**2)
    spread = np.einsum("nsaw,nw->nsa", P, worst)
    return np.sqrt(8.0 * ell * variance / N) + 14.0 * horizon * ell / (3.0 * N) + np.sqrt(8.0 * spread / N)


class UCBVI:
    """Optimistic value iteration in the empirical model."""

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
        self.counts = tables.Counts(layout, streams.n, share=True)
        self.arrivals = np.zeros((streams.n, layout.first[-1]))  # N'_h(y): states hold their time
        self.steps, self._lane = 0, np.arange(streams.n)[:, None, None]
        self.Q = tables.highest(layout, streams.n)

    def policy(self) -> Array:
        """Return the greedy policies of the optimistic Q."""
        return tables.greedy(self.Q)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and plan again."""
        self.counts.add(episodes)
        np.add.at(self.arrivals, (self._lane, episodes.s), 1.0)
        self.steps += episodes.a[0].size
        layout, which = self.layout, self.counts.model_state
        ell = float(np.log(5.0 * layout.num_shared * layout.num_actions * self.steps / self.delta))
        N, r = np.maximum(self.counts.visits, 1.0), self.counts.mean_reward()
        if self.bonus == "hoeffding":
            r = r + self.scale * hoeffding_bonus(N, layout.horizon, ell)
        r = np.where(self.counts.visits > 0.0, r, np.inf)[:, which]  # not tried: the cut alone holds
        P, N = self.counts.transitions()[:, which], N[:, which]
        V = np.zeros((len(P), layout.first[-1] - layout.num_states))
        for here, after in layout.backward():
            rows = P[:, here, :, : after.stop - after.start]
            new = r[:, here] + np.einsum("nsaw,nw->nsa", rows, V)
            if self.bonus == "bernstein":
                pairs = float(layout.num_shared**2 * layout.num_actions)
                arrivals = self.arrivals[:, after]
                new += self.scale * bernstein_bonus(N[:, here], rows, V, arrivals, layout.horizon, ell, pairs)
            self.Q[:, here] = np.minimum(self.Q[:, here], new)
            V = self.Q[:, here].max(-1)
