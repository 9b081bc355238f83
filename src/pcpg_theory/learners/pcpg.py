"""PC-PG in its place among the comparators: Algorithm 1 with Algorithm 2 (NPG with a linear critic), on samples.

The page is `pcpg.algorithm1`, and Algorithm 2 is `pcpg_theory.npg`; a round here is that of a block of seeds, arrays
with a leading seed axis, and its parts await episodes that the runner plays (`Ask`).

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
counted; the loop continues until the samples run out, so `Settings.N` and `Settings.final_episodes` are not used.

With one-hot features a pair is known once the cover's discounted visits of it sum to m = 1/beta - lambda; `scale`
multiplies m. `practical` has m = 1/(4 L A), for at depth L one of A actions of one of a few states gets about that of a
policy that heads for it. The theorem's own numbers, corrected, are `theorem_settings`: no run can use them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pcpg.algorithm1 import Explored, Parts, explore_round
from pcpg_theory import npg, parameters
from pcpg_theory.critic import fit_samples, partition_labels, regression
from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Ask, Episodes, Layout, Mixture, Streams, Waiting
from pcpg_theory.learners.tables import returns_to_go
from pcpg_theory.mdp import Array, Index
from pcpg_theory.settings import Settings, beta_from_mass
from pcpg_theory.tabular import theory_bonus


class BlockCover(NamedTuple):
    """The covers of a block of seeds, which are of one size."""

    policies: Array  # [n, m, S, A]
    visits: Array  # [n, S, A] the sum of the members' discounted visits


def practical(layout: Layout, dim: int) -> Settings:
    """Settings for features of this dimension that work on problems of tens of states."""
    mass = 1.0 / (4.0 * layout.horizon * layout.num_actions)
    return Settings(T=10, eta=10.0, beta=beta_from_mass(mass), M=max(100, dim // 2), K=500)


def patient(layout: Layout, dim: int) -> Settings:
    """Twice as many steps of NPG, ten times as long, and twice the pairs: for chains and seas of more states."""
    return replace(practical(layout, dim), T=20, eta=100.0, M=max(100, dim))


def theorem_settings(layout: Layout, dim: int, epsilon: float = 0.1, delta: float = 0.1) -> Settings:
    """The main theorem's numbers, corrected, for accuracy 4 epsilon with one-hot features of this dimension."""
    gamma = tables.discount(layout.horizon, None)
    W = parameters.aggregation_W(dim, gamma)
    gain = parameters.gain_bound("finite", dim)
    found = parameters.theorem(
        epsilon, gamma, num_actions=layout.num_actions, W=W, gain=gain, intrinsic_dim=dim, delta=delta
    ).corrected
    episodes = int(np.ceil(found.episodes_choice / (found.N * (found.T + 1.0))))
    T, M, K = (int(np.ceil(number)) for number in (found.T, found.M, found.K))
    eta = float(np.sqrt(np.log(layout.num_actions) / T) / W)
    return Settings(T=T, eta=eta, beta=found.beta, W=W, M=M, K=K, select_episodes=episodes)


class PCPG(Waiting):
    """A cover of policies, each trained by NPG from the states of those before it on the reward plus a bonus."""

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        scale: float = 1.0,
        gamma: float | None = None,
        settings: Settings | Callable[[Layout, int], Settings] = practical,
        phi: ArrayLike | None = None,
    ) -> None:
        tables.check(scale=scale)
        self.layout, self.streams = layout, streams
        self.gamma = tables.discount(layout.horizon, gamma, below_one=True)
        self.phi = tables.features(layout, phi)
        chosen = settings(layout, self.phi.shape[-1]) if callable(settings) else settings
        mass = scale * (1.0 / chosen.beta - chosen.ridge)
        self.settings = replace(chosen, beta=beta_from_mass(mass, chosen.ridge))
        self.settings.check(self.phi, self.gamma)
        if self.settings.weights != "uniform":
            raise ValueError(f"weights must be 'uniform': PC-PG rolls in uniformly here, got {self.settings.weights!r}")
        self.labels = partition_labels(self.phi)
        self.regress = regression(self.phi, self.labels, self.settings.W)
        self.best, self.value = tables.uniform(layout, streams.n), np.full(streams.n, -np.inf)
        empty = BlockCover(np.zeros((streams.n, 0, *self.phi.shape[:2])), np.zeros_like(self.best))
        self.now = Explored(self.best, empty)
        self._lane = np.arange(streams.n)
        self.begin(self._algorithm1())

    def policy(self) -> Array:
        """The best policies of the covers so far."""
        return self.best

    async def _algorithm1(self) -> None:
        """Rounds without end; `now` is where the last whole one left the block."""
        parts = Parts(self._improve, self._visit, self._extend, self._design, self._bonus)
        while True:
            self.now = await explore_round(self.now, parts)

    async def _visit(self, policy: Array) -> Episodes:
        """K episodes of the policies (line 4)."""
        seen = await Ask(policy, self.settings.K)
        self._keep_best(policy, seen)
        return seen

    async def _improve(self, now: Explored) -> npg.Improved:
        """The next policies by Algorithm 2 (line 7)."""
        s, everywhere = self.settings, np.ones(self.phi.shape[:2], bool)
        score = partial(np.einsum, "sad,nd->nsa", self.phi)
        answers = partial(self._fit, now), partial(self._select, now)
        return await npg.algorithm2(now.bonus, everywhere, score, *answers, T=s.T, eta=s.eta)

    async def _design(self, cover: BlockCover) -> Array:
        members = cover.policies.shape[1]
        return np.full(members, 1.0 / members)

    async def _fit(self, now: Explored, pi: Array, t: int) -> Array:
        """A critic from M episodes."""
        h, mixture = self._roll_in(now, pi)
        return self._critic(await Ask(mixture, self.settings.M), h, now.bonus)

    async def _select(self, now: Explored, iterates: Array) -> Array:
        """Values from `select_episodes` episodes of each iterate."""
        s, n = self.settings, self.streams.n
        which = np.repeat(np.arange(s.T), s.select_episodes)[None, :, None]
        which = np.broadcast_to(which, (n, which.size, self.layout.horizon))
        seen = await Ask(Mixture(iterates, which), which.shape[1])
        return self._returns(seen, now.bonus)[..., 0].reshape(n, s.T, s.select_episodes).mean(-1)

    def _extend(self, cover: BlockCover, policy: Array, seen: Episodes) -> BlockCover:
        """The covers with the policies and the visits of their episodes (line 5)."""
        weight = (1.0 - self.gamma) * self.gamma ** np.arange(self.layout.horizon) / seen.a.shape[1]
        at = (self._lane[:, None, None], seen.s[..., :-1], seen.a)
        visits = cover.visits.copy()
        np.add.at(visits, at, np.broadcast_to(weight, seen.a.shape))
        return BlockCover(np.concatenate([cover.policies, policy[:, None]], axis=1), visits)

    def _keep_best(self, policy: Array, seen: Episodes) -> None:
        """Put the policies in force whose returns are the best so far."""
        found = returns_to_go(seen.r, self.gamma)[..., 0].mean(1)
        better = found > self.value
        self.best = np.where(better[:, None, None], policy, self.best)
        self.value = np.where(better, found, self.value)

    def _bonus(self, cover: BlockCover) -> Array:
        """b^n of each seed's cover, [n, S, A] (line 6)."""
        numbers = {"ridge": self.settings.ridge, "beta": self.settings.beta, "gamma": self.gamma}
        return np.stack([theory_bonus(self.phi, visits, self.labels, **numbers).b for visits in cover.visits])

    def _roll_in(self, now: Explored, pi: Array) -> tuple[Index, Mixture]:
        """The steps h [n, M] of the pairs, and episodes that follow a policy of the cover up to h, then pi."""
        members, L = len(now.design), self.layout.horizon  # the design is uniform
        u = self.streams.uniform(2, self.settings.M)
        h = tables.geometric_steps(u[:, 0], self.gamma, L)
        member = np.minimum((u[:, 1] * members).astype(np.int64), members - 1)
        which = np.where(np.arange(L) <= h[..., None], member[..., None], members)
        return h, Mixture(np.concatenate([now.cover.policies, pi[:, None]], axis=1), which)

    def _critic(self, seen: Episodes, h: Index, b: Array) -> Array:
        """theta [n, d], fitted to Q - b at step h of each episode."""
        at = h[..., None]
        s, a = (np.take_along_axis(part, at, -1)[..., 0] for part in (seen.s, seen.a))
        y = np.take_along_axis(self._returns(seen, b), at, -1)[..., 0] - b[self._lane[:, None], s, a]
        parts = zip(s, a, y, strict=True)
        return np.stack([fit_samples(self.phi, self.regress, self.settings, *part) for part in parts])

    def _returns(self, seen: Episodes, b: Array) -> Array:
        """The discounted sums of r + b from each step on, [n, B, L]."""
        bonus = b[self._lane[:, None, None], seen.s[..., :-1], seen.a]
        return returns_to_go(seen.r + bonus, self.gamma)
