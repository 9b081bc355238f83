"""E3, explicit explore or exploit (Kearns and Singh 2002), for episodes from s0.

A state is known when each of its actions was tried m times. In unknown states the least tried action is played
(balanced wandering). In known ones, on the empirical model of the known states:

    explore   the policy that is most likely to reach an unknown state, if that is likelier than eps / (2 L)
    exploit   the policy of the largest return, unknown states being worth nothing, else

By the explore-or-exploit lemma the second is near-optimal when the first cannot leave the known states. The paper has
m of order (S T G / eps)^4 Var ln(1 / delta), with T steps, returns of at most G and Var the variance of rewards. Here T
and G are L and Var is at most one: m = ceil(scale (S L^2 / eps)^4 ln(1 / delta)). The paper leaves the constant open;
it is taken as one. S counts states with their time in them. The exploiting policy is what is scored, as what E3 returns
when it halts.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Layout, Streams
from pcpg.theory.mdp import Array, Mask


class E3:
    """Balanced wandering, planned exploration of the unknown, exploitation when nothing unknown is in reach."""

    batch = 1

    def __init__(
        self, layout: Layout, streams: Streams, scale: float = 1.0, epsilon: float = 0.1, delta: float = 0.1
    ) -> None:
        tables.check(scale=scale, epsilon=epsilon, delta=delta)
        theory = (layout.num_states * layout.horizon**2 / epsilon) ** 4 * np.log(1.0 / delta)
        self.m = float(np.ceil(scale * theory))
        self.layout, self.threshold = layout, epsilon / (2.0 * layout.horizon)
        self.counts, self._lane = tables.Counts(layout, streams.n, share=False), np.arange(streams.n)[:, None, None]
        self.exploit = tables.uniform(layout, streams.n)
        self.play = self.exploit

    def policy(self) -> Array:
        """Return the exploiting policies."""
        return self.exploit

    def behaviour(self) -> Array:
        """Return the exploring policies where something unknown is in reach, the exploiting ones elsewhere."""
        return self.play

    def learn(self, episodes: Episodes) -> None:
        """Count the visits to unknown states and plan again; models of known states are not changed."""
        counts, s = self.counts, episodes.s[..., :-1]
        fresh = ~self.known()[self._lane, s]
        if not fresh.any():
            return
        counts.add(episodes, keep=fresh)
        known, P = self.known(), counts.transitions()
        wander = tables.greedy(-counts.visits)
        escape = self._plan(np.zeros_like(counts.rewards), P, known, worth=1.0)
        returns = self._plan(counts.mean_reward(), P, known, worth=0.0)
        at_known = known[..., None]
        explore = np.where(at_known, tables.greedy(escape), wander)
        self.exploit = np.where(at_known, tables.greedy(returns), wander)
        reach = escape[:, 0].max(-1) >= self.threshold
        self.play = np.where(reach[:, None, None], explore, self.exploit)

    def known(self) -> Mask:
        """Return which states are known, [n, S]."""
        return self.counts.visits.min(-1) >= self.m

    def _plan(self, r: Array, P: Array, known: Mask, worth: float) -> Array:
        def finish(here: slice, Q: Array) -> Array:
            return np.where(known[:, here, None], Q, worth)

        return tables.induct(self.layout, r, P, finish, tables.best)
