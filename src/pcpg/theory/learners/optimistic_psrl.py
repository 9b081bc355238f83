"""Optimistic posterior sampling (Agrawal and Jia 2017), run backward over the layers of an episode.

At the start of an epoch psi transition vectors are drawn for each pair and the best of them is used:

    n >= eta   P ~ Dirichlet((n(y) + omega) / kappa),   kappa = omega = ln(T / delta)
    n <  eta   P = P^ - min(P^, sqrt(3 P^ ln(4 W) / n) + 3 ln(4 W) / n), what is left on a successor drawn at random

and that policy is played until some pair's visits have doubled. n are the visits over scale^2, so `scale` multiplies
the spread of these draws, about. W states of the next layer, T samples so far. In the paper

    psi = W ln(W A / delta),   eta = sqrt(T W / A) + 12 omega W^4

where psi, kappa and omega are orders whose constants it leaves open, taken as one here. psi=None and eta=None stand for
these; small runs never reach that eta, and are slow with that psi, so the defaults are small numbers.
Rewards are known in the paper; here their mean is used, and a pair not yet tried is worth the most that can remain.
"""

import numpy as np

from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Index, Layout, Streams
from pcpg.theory.learners.psrl import dirichlet
from pcpg.theory.mdp import Array


def shrunk(P: Array, N: Array, width: int) -> Array:
    """Return P^ less its deviation, never below zero: the sure part of the simple optimistic draw."""
    log, n = np.log(4.0 * width), np.where(N > 0.0, N, 1.0)[..., None]
    return P - np.minimum(P, np.sqrt(3.0 * P * log / n) + 3.0 * log / n)


class OptimisticPSRL:
    """Optimal play in the best of psi posterior draws of each pair, for epochs that end when visits double."""

    batch = 1

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        delta: float = 0.1,
        psi: int | None = 5,
        eta: float | None = 5.0,
    ) -> None:
        tables.check(scale=scale, delta=delta)
        if psi is None:
            psi = int(np.ceil(layout.width * np.log(layout.width * layout.num_actions / delta)))
        tables.check(psi=psi)
        self.layout, self.streams, self.scale, self.delta = layout, streams, scale, delta
        self.psi, self.eta, self.steps = psi, eta, 0
        self.counts = tables.Counts(layout, streams.n, share=False)
        self.before = np.zeros_like(self.counts.visits)
        self.pi = tables.uniform(layout, streams.n)
        wide = np.diff(layout.first)[1:][layout.layer]
        self.inside = np.arange(layout.width) < wide[:, None, None]  # [S, 1, W] the slots of the next layer

    def policy(self) -> Array:
        """Return the policies of the current epoch."""
        return self.pi

    behaviour = policy

    def learn(self, episodes: Episodes) -> None:
        """Count an episode; begin a new epoch with the seeds of which a pair's visits doubled."""
        self.counts.add(episodes)
        self.steps += episodes.a[0].size
        doubled = self.counts.visits - self.before >= np.maximum(self.before, 1.0)
        ended = np.flatnonzero(doubled.any((1, 2)))
        if ended.size:
            self.pi[ended] = tables.greedy(self._plan(ended))
            self.before[ended] = self.counts.visits[ended]

    def enough(self) -> float:
        """Return eta, the visits from which on the posterior is drawn from."""
        if self.eta is not None:
            return self.eta
        width, omega = self.layout.width, np.log(self.steps / self.delta)
        return float(np.sqrt(self.steps * width / self.layout.num_actions) + 12.0 * omega * width**4)

    def _draw(self, streams: Streams, N: Array, successors: Array) -> Array:
        """Return one transition vector for each pair, [n, S, A, W]."""
        width, omega = self.layout.width, float(np.log(self.steps / self.delta))
        posterior = dirichlet(streams, np.where(self.inside, successors + omega, 0.0) / omega)
        sure = shrunk(successors / np.where(N > 0.0, N, 1.0)[..., None], N, width)
        slot = np.floor(streams.uniform(*N.shape[1:]) * self.inside.sum(-1)).astype(np.int64)
        rest = (1.0 - sure.sum(-1))[..., None] * (np.arange(width) == slot[..., None])
        return np.where((self.enough() <= N)[..., None], posterior, sure + rest)

    def _plan(self, which: Index) -> Array:
        layout, streams = self.layout, self.streams.take(which)
        N, successors = self.counts.visits[which], self.counts.successors[which]
        over = 1.0 / self.scale**2
        draws = np.stack([self._draw(streams, N * over, successors * over) for _ in range(self.psi)], axis=-2)
        r, top = self.counts.mean_reward()[which], layout.remaining[: layout.num_states, None]
        Q, V = np.empty_like(r), np.zeros((len(r), layout.first[-1] - layout.num_states))
        for here, after in layout.backward():
            wide = after.stop - after.start
            means = np.einsum("nsapw,nw->nsap", draws[:, here, ..., :wide], V).max(-1)
            Q[:, here] = np.where(N[:, here] > 0.0, r[:, here] + means, top[here])
            V = Q[:, here].max(-1)
        return Q
