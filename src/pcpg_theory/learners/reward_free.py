"""RF-Express explores without reward, by a bonus of order 1/n, and bounds the error of every later plan. Three bonuses
without a guarantee stand beside the table: counts, ICM's prediction error, RND's, on the same planner.

    intrinsic(s, a)   count   1 / sqrt(N(s, a))                                   (pseudo-counts, Bellemare et al. 2016)
                      icm     E_y norm^2(e_y - P^(. | s, a)) / 2 over next states (Pathak et al. 2017)
                      rnd     E_y (1 - rate)^(2 N(y))                             (Burda et al. 2018)

Each plans with its empirical model for r^ + scale intrinsic, untried pairs at what remains. The prediction error of ICM
is that of a forward model of the next state, which noise keeps at 1 - sum P^2 forever; RND's target is a random vector
for each state, learnt at a fixed rate with its visits, so noise in transitions does not matter to it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout
from pcpg_theory.mdp import Array


def threshold(N: Array, layout: Layout, delta: float) -> Array:
    """beta(n, delta) = ln(3 S A / delta) + W ln(8 e (n + 1)), S the states of all steps, W the most of one step."""
    pairs = layout.num_states * layout.num_actions
    return np.log(3.0 * pairs / delta) + layout.width * np.log(8.0 * np.e * (N + 1.0))


def episodes_bound(layout: Layout, epsilon: float, delta: float) -> float:
    """The theorem's episodes: (L^3 W A / eps^2) (ln(3 W A L / delta) + W) C + 1, with probability 1 - delta.

    C = 5587 e^6 ln(e^18 (ln(3 W A L / delta) + W) L^3 W A / eps)^2.
    """
    L, W, A = layout.horizon, layout.width, layout.num_actions
    log = np.log(3.0 * W * A * L / delta) + W
    factor = 5587.0 * np.e**6 * (18.0 + np.log(log * L**3 * W * A / epsilon)) ** 2
    return float(L**3 * W * A / epsilon**2 * log * factor + 1.0)


@dataclass(eq=False)
class RFExpress(tables.ModelLearner):
    """RF-Express (Menard, Domingues, Jonsson, Kaufmann, Leurent and Valko 2021), for models that depend on time.

        W_h(s, a) = min(L - h, 15 scale L^2 beta(n, delta) / n + (1 + 1/L) sum_y P^(y) max_a' W_{h+1}(y, a'))

    in the notation of `threshold`; W of a pair that was not tried is L - h (the paper's cut is L, which is never less).
    The greedy policy of W plays. No reward enters: with probability 1 - delta, after every number of episodes the value
    of any policy under any known reward in [0, 1] differs in P^ from the truth by at most 3 e sqrt(w) + w, w = max_a W
    at s0 (`error_bound`); the theorem's algorithm stops once that is below eps / 2. The policy in force is the best one
    of P^ and the mean rewards; where rewards are noisy the theorem does not cover their estimates.
    """

    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.W = tables.highest(self.layout, self.n)
        self.play = self.pi

    def behaviour(self) -> Array:
        """The policies that go where P^ is uncertain."""
        return self.play

    def learn(self, episodes: Episodes) -> None:
        """Count episodes and plan again, for exploration and for the reward."""
        self.count(episodes)
        layout, N, P, L = self.layout, self.counts.visits, self.counts.transitions(), self.layout.horizon
        bonus = 15.0 * self.scales * L**2 * threshold(N, layout, self.delta) / np.maximum(N, 1.0)
        bonus = np.where(N > 0.0, bonus, np.inf)

        def finish(here: slice, W: Array) -> Array:
            return np.minimum(W, self.top[here])

        self.W = tables.induct(layout, bonus, (1.0 + 1.0 / L) * P, finish)
        self.play = tables.greedy(self.W)
        self.pi = tables.greedy(tables.induct(layout, self.counts.mean_reward(), P))

    def error_bound(self) -> Array:
        """The bound on the error of values at s0, [n]."""
        w = self.W[:, 0].max(-1)
        return 3.0 * np.e * np.sqrt(w) + w


@dataclass(eq=False)
class Curious(tables.ModelLearner):
    """A planner with an intrinsic reward."""

    kind: Literal["count", "icm", "rnd"] = "count"
    rate: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arrivals = np.zeros((self.n, self.layout.first[-1]))

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and plan again."""
        self.count(episodes)
        np.add.at(self.arrivals, (self._lane[..., None], episodes.s), 1.0)
        r = np.where(self.counts.visits > 0.0, self.counts.mean_reward() + self.scales * self.intrinsic(), np.inf)

        def finish(here: slice, Q: Array) -> Array:
            return np.minimum(Q, (1.0 + self.scales) * self.top[here])

        self.pi = tables.greedy(tables.induct(self.layout, r, self.counts.transitions(), finish))

    def intrinsic(self) -> Array:
        """The intrinsic reward of each pair, [n, S, A]."""
        N, P = np.maximum(self.counts.visits, 1.0), self.counts.transitions()
        if self.kind == "count":
            return 1.0 / np.sqrt(N)
        if self.kind == "icm":
            return (1.0 - (P**2).sum(-1) + 1.0 / N) / 2.0
        error = (1.0 - self.rate) ** (2.0 * self.arrivals)
        out = np.zeros_like(N)
        for here, after in self.layout.backward():
            out[:, here] = tables.expected(P, here, error[:, after])
        return out
