"""PSDP, policy search by dynamic programming (Bagnell, Kakade, Ng and Schneider 2003), for episodes from s0.

The paper assumes a baseline distribution mu_h over states for each step; here one has to be made from s0, as
everybody has to: mu_h is where uniform play from s0 is at step h. The guarantee is relative to mu, so it is void where
uniform play does not go.

From the last step to the first, with m episodes each: uniform play up to step h and one uniform action there, then the
policies of the later steps, which are found already;

    pi_h(s) = argmax_a of the mean return from h on over the episodes with s_h = s, a_h = a

States that were not met stay uniform. The paper asks for an eps-best policy of a class at each step, and loses L eps by
it. For all maps from W states to A actions, Hoeffding's inequality for importance-weighted returns in [0, A L] and a
union over the class and the steps give

    m = ceil(scale 2 (A L / eps)^2 (W ln A + ln(2 L / delta)))

a constant by our derivation; the paper states none. A pass over all steps is scored once it is complete, the first
one as it goes; the passes after it start afresh with twice the episodes of the one before.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.mdp import Array


def episodes_of_a_step(layout: Layout, epsilon: float, delta: float) -> float:
    """Return 2 (A L / eps)^2 (W ln A + ln(2 L / delta))."""
    A, L = layout.num_actions, layout.horizon
    policies = layout.width * np.log(A) + np.log(2.0 * L / delta)
    return float(2.0 * (A * L / epsilon) ** 2 * policies)


class PSDP:
    """The policy of each step by search from a baseline distribution, last step first."""

    def __init__(
        self, layout: Layout, streams: Streams, scale: float = 1.0, epsilon: float = 0.1, delta: float = 0.1
    ) -> None:
        tables.check(scale=scale, epsilon=epsilon, delta=delta)
        theory = episodes_of_a_step(layout, epsilon, delta)
        self.layout, self.batch = layout, int(np.ceil(scale * theory))
        self.h, self.first = layout.horizon - 1, True
        self.pi, self.found = (tables.uniform(layout, streams.n) for _ in range(2))

    def policy(self) -> Array:
        """Return the policies of the last complete pass; of the first one as far as it has got."""
        return self.pi if self.first else self.found

    def behaviour(self) -> Array:
        """Return uniform play up to the step in question and the policies found for the later ones after it."""
        return self.pi  # those of earlier steps are still uniform

    def learn(self, episodes: Episodes) -> None:
        """Choose the policies of one step, and go to the step before it."""
        h, shape = self.h, self.pi.shape
        Q = tables.pair_means(shape, episodes.s[..., h], episodes.a[..., h], episodes.r[..., h:].sum(-1))
        self.pi = tables.greedy_where_met(Q, self.pi)
        self.h -= 1
        if self.h < 0:
            self.found, self.pi = self.pi, tables.uniform(self.layout, shape[0])
            self.h, self.first, self.batch = self.layout.horizon - 1, False, 2 * self.batch
