"""HOMER (Misra, Henaff, Krishnamurthy and Langford 2020) on block MDPs of finitely many observations.

In a block MDP each observation comes from one latent state. Layer by layer HOMER learns which observations are of one
state, by telling what followed from what did not, and a policy for each state that reaches it as often as can be.

    line 1   pairs (x, a, x'): a policy of the cover of layer h-1, drawn uniformly, then a uniform action
    line 2   y = 1 for a pair as it was, y = 0 with x' from another episode; least squares of y on
             p(forward_{h-1}(x), a, backward_h(x')), over all maps from observations to N labels
    line 3   for each label i the policy that PSDP finds for the reward 1{backward_h(x_h) = i}: the cover of layer h
    line 4   at last PSDP for the reward itself, rolled in by the covers

Backward labels say where an observation came from, which is what a cover has to tell apart; forward labels say where
its actions lead, which is what a policy has to see: PSDP chooses the action of the largest mean at each forward label.
The minimum of line 2 is sought by turns, best p for labels and best labels for p, one side after the other, from
several starts. The paper's numbers of episodes are polynomials with large constants; here they are arguments, both
times `scale`. Each pass has twice the episodes of the previous one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Ask, Episodes, Layout, Mixture, Streams, Waiting
from pcpg_theory.learners.problem import Episodic, layered
from pcpg_theory.mdp import Array, Index

Reward = Callable[[Episodes, Index], Array]
"""From episodes and the target of each to their rewards [n, B]."""


class HOMER(Waiting):
    """Labels of observations by contrast, and a policy that reaches each label, one layer after the other."""

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        states: int = 3,
        pairs: int = 4000,
        episodes: int = 200,
        starts: int = 10,
    ) -> None:
        tables.check(scale=scale, states=states, pairs=pairs, episodes=episodes, starts=starts)
        self.layout, self.streams, self.states, self.starts = layout, streams, states, starts
        self.pairs, self.episodes = int(np.ceil(scale * pairs)), int(np.ceil(scale * episodes))
        self.pi = self.even = tables.uniform(layout, streams.n)
        self.backward, self.forward = np.zeros((2, streams.n, layout.num_states), np.int64)
        self.covers = [self.even[:, None]]
        self._lane = np.arange(streams.n)[:, None]
        self.begin(self._passes())

    def policy(self) -> Array:
        """The policies of the last complete pass, uniform before the first."""
        return self.pi

    async def _passes(self) -> None:
        while True:
            self.covers = [self.even[:, None]]
            for h in range(1, self.layout.horizon):
                await self._label(h)
                self.covers.append(await self._reach(h))
            found = await self._psdp(self.layout.horizon, 1, lambda seen, _: seen.r.sum(-1))
            self.pi = found[:, 0]
            self.pairs, self.episodes = 2 * self.pairs, 2 * self.episodes

    def _roll_in(self, t: int, then: Array, target: Index) -> Mixture:
        """Episodes by a member of the cover of layer t up to it, a uniform action there, then[:, target] after it."""
        cover, n, batch = self.covers[t], self.streams.n, len(target)
        drawn = self.streams.uniform(batch) * cover.shape[1]
        steps, even = np.arange(self.layout.horizon), cover.shape[1]
        after = np.broadcast_to((even + 1 + target)[:, None], (n, batch, 1))
        which = np.where(steps < t, np.floor(drawn).astype(np.int64)[..., None], np.where(steps == t, even, after))
        return Mixture(np.concatenate([cover, self.even[:, None], then], axis=1), which)

    async def _label(self, h: int) -> None:
        """Learn the backward labels of layer h and the forward labels of the layer before (lines 1 and 2)."""
        before, after, end = self.layout.first[h - 1 : h + 2]
        batch = 2 * self.pairs
        seen = await Ask(self._roll_in(h - 1, self.even[:, None], np.zeros(batch, np.int64)), batch)
        x, a = (part[:, : self.pairs, h - 1] for part in seen[:2])
        real, other = np.split(seen.s[..., h] - after, 2, axis=1)
        y = self.streams.uniform(self.pairs) < 0.5
        starts = self.streams.uniform(4, self.starts, max(end - after, after - before))
        for i in range(self.streams.n):
            counts = np.zeros((2, after - before, self.layout.num_actions, end - after))
            np.add.at(counts, (y[i].astype(np.int64), x[i] - before, a[i], np.where(y[i], real[i], other[i])), 1.0)
            found = self.backward[i, before:after]
            for turn in range(4):  # labels of x' given those of x, then of x given those of x'
                columns = counts if turn % 2 == 0 else np.swapaxes(counts, 1, 3)
                rows = np.einsum("xu,yxac->yuac", np.eye(self.states)[found], columns)
                found = fit_labels(*rows.reshape(2, -1, rows.shape[-1]), self.states, starts[i, turn])
                if turn % 2 == 0:
                    self.backward[i, after:end] = found
                else:
                    self.forward[i, before:after] = found

    async def _reach(self, h: int) -> Array:
        """The policies that reach each label of layer h (line 3), [n, N, S, A]."""

        def reward(seen: Episodes, target: Index) -> Array:
            return (self.backward[self._lane, seen.s[..., h]] == target).astype(np.float64)

        return await self._psdp(h, self.states, reward)

    async def _psdp(self, h: int, count: int, reward: Reward) -> Array:
        """PSDP over the decisions before layer h for `count` rewards of an episode, [n, count, S, A]."""
        layout, n = self.layout, self.streams.n
        found = np.repeat(self.even[:, None], count, axis=1)
        target = np.repeat(np.arange(count), self.episodes)
        lane = np.broadcast_to(self._lane, (n, len(target)))
        for t in range(h - 1, -1, -1):
            seen = await Ask(self._roll_in(t, found, target), len(target))
            label, shape = self.forward[lane, seen.s[..., t]], (n, count, self.states, layout.num_actions)
            sums, visits = np.zeros(shape), np.zeros(shape)
            at = (lane, np.broadcast_to(target, lane.shape), label, seen.a[..., t])
            np.add.at(sums, at, reward(seen, target))
            np.add.at(visits, at, 1.0)
            means = np.where(visits > 0.0, sums / np.maximum(visits, 1.0), 0.0)
            here = slice(layout.first[t], layout.first[t + 1])
            by_label = tables.greedy(means)  # [n, count, N, A]
            found[:, :, here] = by_label[self._lane[..., None], np.arange(count)[:, None], self.forward[:, None, here]]
        return found


def fit_labels(fake: Array, real: Array, labels: int, starts: Array) -> Index:
    """The labels [X] of observations that tell real pairs from fake ones best, from counts [pairs, X] of both.

    `starts` [k, X] are uniform numbers: each start takes the observations of the smallest as its first prototypes.
    """
    total = fake + real
    best, least = np.zeros(fake.shape[1], np.int64), np.inf
    for order in np.argsort(np.where(total.sum(0) > 0.0, starts[:, : total.shape[1]], 2.0), axis=1):
        p = (real[:, order[:labels]] + 0.5) / (total[:, order[:labels]] + 1.0)
        if p.shape[1] < labels:
            p = np.concatenate([p, np.repeat(p[:, -1:], labels - p.shape[1], axis=1)], axis=1)
        chosen, loss = best, np.zeros((total.shape[1], labels))
        for _ in range(50):
            before = chosen
            loss = real.T @ (1.0 - p) ** 2 + fake.T @ p**2  # [X, labels]
            chosen = loss.argmin(1)
            member = np.eye(labels)[chosen]
            p = (real @ member + 0.5) / (total @ member + 1.0)
            if (chosen == before).all():
                break
        if (found := float(loss.min(1).sum())) < least:
            best, least = chosen, found
    return best


def block_lock(horizon: int, seeds: Sequence[int], observations: int = 8, actions: int = 4) -> Episodic:
    """A lock seen through observations: two good states and a dead end at each step, each seen as one of many.

    In a good state one action leads to a good state of the next step, either with probability one half, the others to
    the dead end; after `horizon` right actions the last decision, whatever it is, pays 1. Every state is seen as one of
    `observations`, redrawn at each step.
    """
    if horizon < 1 or observations < 1:
        raise ValueError(f"horizon and observations must be 1 or more, got {horizon} and {observations}")
    m, each = observations, 3 * observations
    S = 1 + horizon * each + 1
    P, raw = np.zeros((len(seeds), S, actions, S)), np.zeros((len(seeds), S, actions))
    P[:, S - 1 - each :, :, S - 1] = 1.0
    raw[:, S - 1 - each : S - 1 - m] = 1.0
    for i, seed in enumerate(seeds):
        right = np.random.default_rng([5, seed]).integers(0, actions, (horizon, 2))
        for h in range(horizon):
            after = 1 + h * each
            blocks = [slice(0, 1)] if h == 0 else [slice(s, s + m) for s in range(after - each, after, m)]
            for z, block in enumerate(blocks):
                P[i, block, :, after + 2 * m : after + each] = 1.0 / m
                if z < 2:
                    P[i, block, right[h, z]] = 0.0
                    P[i, block, right[h, z], after : after + 2 * m] = 0.5 / m
    return layered(f"block lock H={horizon}, {m} observations a state", P, raw, 0, horizon + 1, 0.0, 1.0)
