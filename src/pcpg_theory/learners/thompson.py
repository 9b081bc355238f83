"""The Thompson sampling row of the table: PSRL, RLSVI and optimistic posterior sampling."""

from dataclasses import dataclass

import numpy as np

from pcpg_theory.learners import tables
from pcpg_theory.learners.layout import Episodes, Layout, Streams
from pcpg_theory.mdp import Array, Index

TINY = 1e-300  # a Gamma number of a small shape can round to zero in a whole row


def dirichlet(streams: Streams, weights: Array) -> Array:
    """Dirichlet draws over the last axis; entries of weight zero stay zero."""
    return normalised(streams.gamma(weights), weights)


def normalised(drawn: Array, weights: Array) -> Array:
    """Dirichlet draws from Gamma numbers of these weights."""
    drawn = np.where(weights > 0.0, np.maximum(drawn, TINY), 0.0)
    return drawn / np.maximum(drawn.sum(-1, keepdims=True), TINY)


def prior(layout: Layout, model_state: Index) -> Array:
    """PSRL's prior: 1/w on the w states of the next layer and 0 beyond them, [M, 1, W]."""
    widths = np.diff(layout.first)[1:][layout.layer]
    wide = np.zeros(int(model_state.max()) + 1)
    wide[model_state] = widths
    return ((np.arange(layout.width) < wide[:, None]) / wide[:, None])[:, None]


@dataclass(eq=False)
class PSRL(tables.ModelLearner):
    """PSRL, posterior sampling (Strens 2000; Osband, Russo and Van Roy 2013), for episodes of a stationary model.

    Before each episode an MDP is drawn from the posterior and its optimal policy is played.

        P(. | s, a) ~ Dirichlet(1/w + N(s, a, .) / scale^2)           w states in the next layer
        r(s, a)     ~ Beta(1 + R / scale^2, 1 + (N - R) / scale^2)    R the sum of rewards, N the visits

    scale = 1 is the posterior (of Bernoulli rewards); scale multiplies its standard deviations, about.
    """

    share = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prior = prior(self.layout, self.counts.model_state)
        self._draw()

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and draw again."""
        self.counts.add(episodes)
        self._draw()

    def _draw(self) -> None:
        counts, over = self.counts, 1.0 / self.scales**2
        beta = 1.0 + np.stack([counts.rewards, counts.visits - counts.rewards], axis=-1) * over[..., None]
        weights = self.prior + counts.successors * over[..., None]
        drawn = self.streams.gamma(np.concatenate([beta, weights], axis=-1))  # all that is needed, at once
        r, which = drawn[..., 0] / (drawn[..., 0] + drawn[..., 1]), counts.model_state
        P = normalised(drawn[..., 2:], weights)
        self.Q = tables.induct(self.layout, r[:, which], P[:, which])
        self.pi = tables.greedy(self.Q)


def noise_variance(N: Array, layout: Layout, episode: int, ridge: float | Array = 1.0) -> Array:
    """RLSVI's variance beta_k / (N + lambda)."""
    L, W, A = layout.horizon, layout.width, layout.num_actions
    return 0.5 * W * L**3 * np.log(2.0 * L * W * A * episode) / (N + ridge)


@dataclass(eq=False)
class RLSVI(tables.ModelLearner):
    """RLSVI, randomised least-squares value iteration (Osband, Van Roy and Wen 2014; Russo 2019).

        Q_h(s, a) = R / (N + lambda) + sum_y N(y) / (N + lambda) V_{h+1}(y) + w
        w ~ Normal(0, scale^2 beta_k / (N + lambda)),   beta_k = W L^3 ln(2 L W A k) / 2,   lambda = scale^2

    in episode k, as in Russo's Algorithm 1 (the model may depend on time, and values are not cut); W states in a
    layer. R is the sum of rewards of (h, s, a), N its visits. Greedy play. Russo's lambda is 1: the posterior of values
    with noise beta_k and a prior of variance beta_k; with noise scale^2 beta_k and that prior lambda is scale^2. With
    less noise and lambda = 1 a pair tried once is shrunk below its worth, and not tried again.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.episode = 1
        self._draw()

    def learn(self, episodes: Episodes) -> None:
        """Count an episode and draw the noise of the next one."""
        self.counts.add(episodes)
        self.episode += 1
        self._draw()

    def _draw(self) -> None:
        ridge = self.scales**2
        sd = self.scales * np.sqrt(noise_variance(self.counts.visits, self.layout, self.episode, ridge))
        r = self.counts.mean_reward(ridge) + sd * self.streams.normal(*sd.shape[1:])
        self.Q = tables.induct(self.layout, r, self.counts.transitions(ridge))
        self.pi = tables.greedy(self.Q)


def shrunk(P: Array, N: Array, width: int) -> Array:
    """P^ less its deviation, never below zero: the sure part of the simple optimistic draw."""
    log, n = np.log(4.0 * width), np.where(N > 0.0, N, 1.0)[..., None]
    return P - np.minimum(P, np.sqrt(3.0 * P * log / n) + 3.0 * log / n)


@dataclass(eq=False)
class OptimisticPSRL(tables.EpochLearner):
    """Optimistic posterior sampling (Agrawal and Jia 2017), run backward over the layers of an episode.

    At the start of an epoch psi transition vectors are drawn for each pair and the best of them is used:

        n >= eta   P ~ Dirichlet((n(y) + omega) / kappa),   kappa = omega = ln(T / delta)
        n <  eta   P = P^ - min(P^, sqrt(3 P^ ln(4 W) / n) + 3 ln(4 W) / n), what is left on a successor drawn at random

    and that policy is played until some pair's visits have doubled. n are the visits over scale^2, so `scale`
    multiplies the spread of these draws, about. W states of the next layer, T samples so far. In the paper

        psi = W ln(W A / delta),   eta = sqrt(T W / A) + 12 omega W^4

    where psi, kappa and omega are orders whose constants it leaves open, taken as one here. psi=None and eta=None stand
    for these; small runs never reach that eta, and are slow with that psi, so the defaults are small numbers. Rewards
    are known in the paper; here their mean is used, and a pair not yet tried is worth the most that can remain.
    """

    delta: float = 0.1
    psi: int | None = 5
    eta: float | None = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        layout = self.layout
        theory = int(np.ceil(layout.width * np.log(layout.width * layout.num_actions / self.delta)))
        self.draws = theory if self.psi is None else self.psi
        wide = np.diff(layout.first)[1:][layout.layer]
        self.inside = np.arange(layout.width) < wide[:, None, None]  # [S, 1, W] the slots of the next layer

    def enough(self) -> float:
        """Eta, the visits from which on the posterior is drawn from."""
        if self.eta is not None:
            return self.eta
        width, omega = self.layout.width, np.log(self.steps / self.delta)
        return float(np.sqrt(self.steps * width / self.layout.num_actions) + 12.0 * omega * width**4)

    def _draw(self, streams: Streams, N: Array, successors: Array) -> Array:
        """One transition vector for each pair, [n, S, A, W]."""
        width, omega = self.layout.width, float(np.log(self.steps / self.delta))
        posterior = dirichlet(streams, np.where(self.inside, successors + omega, 0.0) / omega)
        sure = shrunk(successors / np.where(N > 0.0, N, 1.0)[..., None], N, width)
        slot = np.floor(streams.uniform(*N.shape[1:]) * self.inside.sum(-1)).astype(np.int64)
        rest = (1.0 - sure.sum(-1))[..., None] * (np.arange(width) == slot[..., None])
        return np.where((self.enough() <= N)[..., None], posterior, sure + rest)

    def plan(self, which: Index) -> Array:
        """The Q of the best draw for each pair."""
        streams = self.streams.take(which)
        N, successors = self.counts.visits[which], self.counts.successors[which]
        over = 1.0 / self.scales[which] ** 2
        draws = np.stack(
            [self._draw(streams, N * over, successors * over[..., None]) for _ in range(self.draws)], axis=-2
        )
        r = self.counts.mean_reward()[which]

        def q(here: slice, _: slice, V: Array) -> Array:
            means = np.einsum("nsapw,nw->nsap", draws[:, here, ..., : V.shape[1]], V).max(-1)
            return np.where(N[:, here] > 0.0, r[:, here] + means, self.top[here])

        return tables.backward(self.layout, r.shape, q)
