"""POMD, policy optimisation by mirror descent with bandit feedback (Efroni, Shani, Rosenberg and Mannor 2020).

    b = scale (sqrt(2 ln(2 W A L T / delta') / n) + L sqrt(4 W ln(3 W A L T / delta') / n)),   n = max(N, 1)

for rewards and transitions, with delta' = delta / 3, W states in a layer and T the samples so far (the paper: all).
The rest is `optimistic_policy`, with alpha_k times `step`; play follows pi_k.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.learners.optimistic_policy import optimistic_evaluation, step_size
from pcpg.theory.learners.sampled_q import softmax
from pcpg.theory.mdp import Array


def bandit_bonus(N: Array, layout: Layout, steps: int, delta: float) -> Array:
    """Return the bonus of rewards plus that of transitions."""
    L, W, n = layout.horizon, layout.width, np.maximum(N, 1.0)
    inside = W * layout.num_actions * L * steps / (delta / 3.0)
    return np.sqrt(2.0 * np.log(2.0 * inside) / n) + L * np.sqrt(4.0 * W * np.log(3.0 * inside) / n)


class POMD:
    """Mirror descent on optimistic evaluations in the empirical model."""

    batch = 1

    def __init__(
        self, layout: Layout, streams: Streams, scale: float = 1.0, delta: float = 0.1, step: float = 1.0
    ) -> None:
        tables.check(scale=scale, delta=delta, step=step)
        self.layout, self.scale, self.delta = layout, scale, delta
        self.step, self.episode, self.steps = step, 0, 0
        self.counts, self.theta = tables.Counts(layout, streams.n, share=False), tables.zeros(layout, streams.n)

    def policy(self) -> Array:
        """Return the policies of the last mirror step."""
        return softmax(self.theta)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Count an episode, evaluate its policy optimistically, take a mirror step."""
        self.counts.add(episodes)
        self.episode, self.steps = self.episode + 1, self.steps + episodes.a[0].size
        bonus = self.scale * bandit_bonus(self.counts.visits, self.layout, self.steps, self.delta)
        r, P = self.counts.mean_reward(), self.counts.transitions()
        Q = optimistic_evaluation(self.layout, self.policy(), r, P, bonus, self.counts.visits)
        self.theta += self.step * step_size(self.layout, self.episode) * Q
