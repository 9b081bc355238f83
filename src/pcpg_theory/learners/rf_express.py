"""RF-Express: exploration without reward, by a bonus of order 1/n, that bounds the error of every later plan."""

from dataclasses import dataclass

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
