"""REINFORCE (Williams 1992): stochastic gradient ascent on the logits of a tabular softmax policy.

    theta(s, .) += scale (1/B) sum over visits of (s, a) in a batch of (G - b_h) (e_a - pi(. | s))

G is the discounted return from the visit on (gamma = 1 - 1/L), b_h the mean of G at step h over the batch. `scale` is
the step. The policy starts uniform. Nothing here explores: where uniform play never meets a reward, nothing is learnt.
"""

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.learners.sampled_q import pair_sums, returns_to_go, softmax
from pcpg.theory.mdp import Array


class Reinforce:
    """The policy gradient with a baseline for each step."""

    def __init__(
        self, layout: Layout, streams: Streams, scale: float = 1.0, gamma: float | None = None, batch: int = 20
    ) -> None:
        tables.check(scale=scale, batch=batch)
        self.scale, self.batch, self.gamma = scale, batch, tables.discount(layout.horizon, gamma)
        self.theta = tables.zeros(layout, streams.n)

    def policy(self) -> Array:
        """Return the softmax policies."""
        return softmax(self.theta)

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Take one gradient step."""
        G = returns_to_go(episodes.r, self.gamma)
        sums, _ = pair_sums(episodes, G - G.mean(1, keepdims=True), self.theta.shape)
        # sum_a sums(s, a) (e_a - pi) = sums(s, .) - pi(s, .) sum_a sums(s, a)
        gradient = sums - softmax(self.theta) * sums.sum(-1, keepdims=True)
        self.theta += self.scale / self.batch * gradient
