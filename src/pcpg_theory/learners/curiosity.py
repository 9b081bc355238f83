"""Three bonuses without a guarantee, beside the table: counts, ICM's prediction error, RND's, on the same planner.

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
from pcpg_theory.learners.layout import Episodes
from pcpg_theory.mdp import Array


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
