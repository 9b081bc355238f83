"""PC-PG in its place among the comparators: Algorithm 1 with Algorithm 2 (NPG with a linear critic), on samples.

It sees episodes from s0 and nothing else, as all do. gamma = 1 - 1/L; phi is one-hot on observed pairs unless given.

    line 4   d^n: the discounted visits of K episodes of pi^n, step h with weight (1-gamma) gamma^h
    line 6   b^n = 1{phi' Sigma_mix^-1 phi >= beta} / (1-gamma), Sigma_mix = sum of the covariances + lambda I
    line 7   T steps of NPG from the restricted uniform policy: each critic fits M pairs (s_h, a_h), an episode each,
             which follows a policy of the cover, drawn uniformly, up to step h, Pr(h) ~ gamma^h, and pi^t after it;
             the target is the discounted sum of r + b from h on, less b(s_h, a_h). The best iterate by
             `select_episodes` episodes under r + b is pi^{n+1}

Episodes are always played to their end, so sums are discounted where the paper stops at a geometric time: the
expectation of its estimates given the episode. Steps h >= L would sit at the end of the episode, which has nothing to
learn; they are not drawn. The policy in force is the best of pi^0 .. pi^n by the returns of their K episodes, which are
counted; the loop goes on for as long as there are samples, so `Settings.N` and `Settings.final_episodes` are not used.

With one-hot features a pair is known once the cover's discounted visits of it sum to m = 1/beta - lambda; `scale`
multiplies m. `practical` has m = 1/(4 L A), for at depth L one of A actions of one of a few states gets about that of a
policy that heads for it. The theorem's own numbers, corrected, are `theorem_settings`: no run can use them.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pcpg.theory import npg, parameters
from pcpg.theory.critic import partition_labels
from pcpg.theory.learners import tables
from pcpg.theory.learners.layout import Episodes, Index, Layout, Mixture, Streams
from pcpg.theory.learners.tables import returns_to_go
from pcpg.theory.mdp import Array
from pcpg.theory.settings import Settings, beta_from_mass
from pcpg.theory.tabular import fit_samples, theory_bonus


class Ask(NamedTuple):
    """Episodes that the algorithm waits for."""

    behaviour: Array | Mixture
    batch: int


def practical(layout: Layout, dim: int) -> Settings:
    """Return settings for features of this dimension that work on problems of tens of states."""
    mass = 1.0 / (4.0 * layout.horizon * layout.num_actions)
    return Settings(T=10, eta=10.0, beta=beta_from_mass(mass), M=max(100, dim // 2), K=500)


def theorem_settings(layout: Layout, dim: int, epsilon: float = 0.1, delta: float = 0.1) -> Settings:
    """Return the main theorem's numbers, corrected, for accuracy 4 epsilon with one-hot features of this dimension."""
    gamma = tables.discount(layout.horizon, None)
    W = parameters.aggregation_W(dim, gamma)
    gain = parameters.gain_bound("finite", dim)
    found = parameters.theorem(epsilon, gamma, layout.num_actions, W, gain, dim, delta).corrected
    episodes = int(np.ceil(found.episodes_choice / (found.N * (found.T + 1.0))))
    T, M, K = (int(np.ceil(number)) for number in (found.T, found.M, found.K))
    eta = float(np.sqrt(np.log(layout.num_actions) / T) / W)
    return Settings(T=T, eta=eta, beta=found.beta, W=W, M=M, K=K, select_episodes=episodes)


class PCPG:
    """A cover of policies, each trained by NPG from the states of those before it on the reward plus a bonus."""

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        gamma: float | None = None,
        settings: Settings | None = None,
        phi: ArrayLike | None = None,
    ) -> None:
        tables.check(scale=scale)
        self.layout, self.streams = layout, streams
        self.gamma = tables.discount(layout.horizon, gamma, below_one=True)
        self.phi = tables.features(layout, phi)
        chosen = practical(layout, self.phi.shape[-1]) if settings is None else settings
        mass = scale * (1.0 / chosen.beta - chosen.lam)
        self.settings = replace(chosen, beta=beta_from_mass(mass, chosen.lam))
        self.settings.check(self.phi, self.gamma)
        if self.settings.weights != "uniform":
            raise ValueError("PC-PG rolls in from its cover uniformly here; other weights need a design for each seed")
        self.labels = partition_labels(self.phi)
        self.best, self.value = tables.uniform(layout, streams.n), np.full(streams.n, -np.inf)
        self.cover = np.zeros((streams.n, 0, *self.phi.shape[:2]))  # policies [n, m, S, A]
        self.visits = np.zeros_like(self.best)  # the sum of the cover's discounted visits
        self._lane = np.arange(streams.n)
        self._loop = self._algorithm1()
        self._ask = next(self._loop)

    @property
    def batch(self) -> int:
        """The number of episodes that the algorithm waits for."""
        return self._ask.batch

    def policy(self) -> Array:
        """Return the best policies of the covers so far."""
        return self.best

    def behaviour(self) -> Array | Mixture:
        """Return the policies of the episodes that the algorithm waits for."""
        return self._ask.behaviour

    def learn(self, episodes: Episodes) -> None:
        """Go on with these episodes to the next place where some are needed."""
        self._ask = self._loop.send(episodes)

    def _algorithm1(self) -> Generator[Ask, Episodes, None]:
        pi = self.best
        while True:
            seen = yield Ask(pi, self.settings.K)
            self._extend(pi, seen)
            pi = yield from self._algorithm2(self.bonus())

    def _extend(self, pi: Array, seen: Episodes) -> None:
        """Add the policies to the covers with what their episodes visited; keep them if their returns are the best."""
        self.cover = np.concatenate([self.cover, pi[:, None]], axis=1)
        weight = (1.0 - self.gamma) * self.gamma ** np.arange(self.layout.horizon) / seen.a.shape[1]
        at = (self._lane[:, None, None], seen.s[..., :-1], seen.a)
        np.add.at(self.visits, at, np.broadcast_to(weight, seen.a.shape))
        found = returns_to_go(seen.r, self.gamma)[..., 0].mean(1)
        better = found > self.value
        self.best = np.where(better[:, None, None], pi, self.best)
        self.value = np.where(better, found, self.value)

    def bonus(self) -> Array:
        """Return b^n of each seed's cover, [n, S, A]."""
        s = self.settings
        return np.stack(
            [theory_bonus(self.phi, visits, self.labels, s.lam, s.beta, self.gamma).b for visits in self.visits]
        )

    def _algorithm2(self, b: Array) -> Generator[Ask, Episodes, Array]:
        settings, everywhere = self.settings, np.ones(self.phi.shape[:2], bool)
        known, start = npg.known_states(b, everywhere), npg.restricted_uniform(b, everywhere)
        pi, scores, iterates = start, np.zeros_like(b), []
        for _ in range(settings.T):
            iterates.append(pi)
            h, mixture = self._roll_in(pi)
            seen = yield Ask(mixture, settings.M)
            scores += b + np.einsum("sad,nd->nsa", self.phi, self._critic(seen, h, b))
            pi = npg.exponential_update(start, scores, settings.eta, known)
        stack, each = np.stack(iterates, axis=1), settings.select_episodes
        which = np.repeat(np.arange(settings.T), each)[None, :, None]
        seen = yield Ask(Mixture(stack, np.broadcast_to(which, (len(b), which.size, self.layout.horizon))), which.size)
        values = self._returns(seen, b)[..., 0].reshape(len(b), settings.T, each).mean(-1)
        return stack[self._lane, values.argmax(-1)]

    def _roll_in(self, pi: Array) -> tuple[Index, Mixture]:
        """Return the steps h [n, M] of the pairs, and episodes that follow a policy of the cover up to h, then pi."""
        members, L = self.cover.shape[1], self.layout.horizon
        u = self.streams.uniform(2, self.settings.M)
        h = tables.geometric_steps(u[:, 0], self.gamma, L)
        member = np.minimum((u[:, 1] * members).astype(np.int64), members - 1)
        which = np.where(np.arange(L) <= h[..., None], member[..., None], members)
        return h, Mixture(np.concatenate([self.cover, pi[:, None]], axis=1), which)

    def _critic(self, seen: Episodes, h: Index, b: Array) -> Array:
        """Return theta [n, d], fitted to Q - b at step h of each episode."""
        at = h[..., None]
        s, a = (np.take_along_axis(part, at, -1)[..., 0] for part in (seen.s, seen.a))
        y = np.take_along_axis(self._returns(seen, b), at, -1)[..., 0] - b[self._lane[:, None], s, a]
        parts = zip(s, a, y, strict=True)
        return np.stack([fit_samples(self.phi, self.labels, self.settings, *part) for part in parts])

    def _returns(self, seen: Episodes, b: Array) -> Array:
        """Return the discounted sums of r + b from each step on, [n, B, L]."""
        bonus = b[self._lane[:, None, None], seen.s[..., :-1], seen.a]
        return returns_to_go(seen.r + bonus, self.gamma)
