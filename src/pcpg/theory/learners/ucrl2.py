"""UCRL2 (Jaksch, Ortner and Auer 2010), its extended value iteration run backward over the layers of an episode.

At the start of an epoch it takes the best policy in the best MDP that the counts allow:

    abs(r - r^) <= scale sqrt(7 ln(2 S A t / delta) / (2 max(1, N)))
    norm_1(P - P^) <= scale sqrt(14 W ln(2 A t / delta) / max(1, N))

and plays it until some pair's visits have doubled (looked at after each episode). The paper maximises the average
reward of an endless MDP; with resets every L steps that is the return of an episode, so one backward pass over the
layers takes the place of its iteration. W states of the next layer, where the paper has all S. With the paper's radii
a pair that was not tried can be anything; it stays so whatever the scale.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Index, Layout, Streams
from pcpg.theory.mdp import Array


def optimistic_mean(P: Array, radius: Array, V: Array) -> Array:
    """Return max of P' V over distributions P' within `radius` of P in norm 1: P [n, s, A, w], V [n, w].

    Half the radius is put on the best successor and taken from the worst ones, as in the paper's Figure 2.
    """
    order = np.argsort(-V, axis=-1, kind="stable")
    V = np.take_along_axis(V, order, axis=-1)
    p = np.take_along_axis(P, order[:, None, None, :], axis=-1)
    first = np.minimum(1.0, p[..., 0] + radius / 2.0)
    p = np.concatenate([first[..., None], p[..., 1:]], axis=-1)
    excess = np.maximum(p.sum(-1, keepdims=True) - 1.0, 0.0)
    worse = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1] - p  # mass on successors worse than each
    p = p - np.clip(excess - worse, 0.0, p)
    return np.einsum("nsaw,nw->nsa", p, V)


def reward_radius(N: Array, states: int, actions: int, t: int, delta: float) -> Array:
    """Return sqrt(7 ln(2 S A t / delta) / (2 max(1, N)))."""
    return np.sqrt(3.5 * np.log(2.0 * states * actions * t / delta) / np.maximum(N, 1.0))


def transition_radius(N: Array, width: int, actions: int, t: int, delta: float) -> Array:
    """Return sqrt(14 W ln(2 A t / delta) / max(1, N))."""
    return np.sqrt(14.0 * width * np.log(2.0 * actions * t / delta) / np.maximum(N, 1.0))


class UCRL2:
    """Optimal play in the best MDP that the counts allow, for epochs that end when visits double."""

    batch = 1

    def __init__(self, layout: Layout, streams: Streams, scale: float = 1.0, delta: float = 0.1) -> None:
        tables.check(scale=scale, delta=delta)
        self.layout, self.scale, self.delta = layout, scale, delta
        self.counts = tables.Counts(layout, streams.n, share=False)
        self.before = np.zeros_like(self.counts.visits)  # visits at the start of the epoch
        self.steps, self.pi = 0, tables.uniform(layout, streams.n)

    def policy(self) -> Array:
        """Return the policies of the current epoch."""
        return self.pi

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Count an episode; begin a new epoch with the seeds of which a pair's visits doubled."""
        self.counts.add(episodes)
        self.steps += episodes.a[0].size
        inside = self.counts.visits - self.before
        ended = np.flatnonzero((inside >= np.maximum(self.before, 1.0)).any((1, 2)))
        if ended.size:
            self.pi[ended] = tables.greedy(self._plan(ended))
            self.before[ended] = self.counts.visits[ended]

    def _plan(self, which: Index) -> Array:
        layout, N = self.layout, self.counts.visits[which]
        P, r = self.counts.transitions()[which], self.counts.mean_reward()[which]
        r = r + self.scale * reward_radius(N, layout.num_states, layout.num_actions, self.steps, self.delta)
        Q, top = np.empty_like(r), layout.remaining[: layout.num_states, None]
        V = np.zeros((len(which), layout.first[-1] - layout.num_states))
        for here, after in layout.backward():
            wide = after.stop - after.start
            radius = self.scale * transition_radius(N[:, here], wide, layout.num_actions, self.steps, self.delta)
            found = np.minimum(r[:, here] + optimistic_mean(P[:, here, :, :wide], radius, V), top[here])
            Q[:, here] = np.where(N[:, here] > 0.0, found, top[here])
            V = Q[:, here].max(-1)
        return Q
