"""Optimistic policy optimisation in the empirical model: what OPPO and POMD share (OPPO fits P^ V in its own way).

    Q_h = clip(r^ + P^ V_{h+1} + b, 0, L - h),   V_h = sum_a pi_k Q_h       evaluation of pi_k, optimistic
    pi_{k+1} ~ pi_k exp(alpha_k Q_h)                                         mirror step

alpha_k = sqrt(2 ln A / (L^2 k)) in episode k, where the papers know the number of episodes K and use it for k. Both
papers' bonuses put a pair that was not tried at the upper cut; it stays there whatever the scale.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Layout
from pcpg.theory.mdp import Array


def step_size(layout: Layout, episode: int) -> float:
    """Return alpha_k = sqrt(2 ln A / (L^2 k))."""
    return float(np.sqrt(2.0 * np.log(layout.num_actions) / episode) / layout.horizon)


def optimistic_evaluation(layout: Layout, pi: Array, r: Array, P: Array, bonus: Array, visits: Array) -> Array:
    """Return the optimistic Q [n, S, A] of the policies in the model (r, P) with this bonus, the cut where untried."""
    top = layout.remaining[: layout.num_states, None]

    def finish(here: slice, Q: Array) -> Array:
        return np.clip(Q, 0.0, top[here])

    def value(here: slice, Q: Array) -> Array:
        return (pi[:, here] * Q).sum(-1)

    return tables.induct(layout, np.where(visits > 0.0, r + bonus, np.inf), P, finish, value)
