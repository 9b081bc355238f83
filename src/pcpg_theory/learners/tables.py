"""Shared parts of learners: their constructor, counts of a model, greedy policies, backward induction, returns."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pcpg_theory.learners.layout import Episodes, Layout, Mixture, Streams
from pcpg_theory.mdp import Array, Index, Mask

Bonus = Literal["hoeffding", "bernstein"]
POSITIVE = ("scale", "delta", "epsilon", "batch", "step", "psi", "m", "omega")  # options that must be above zero
FEW_ACTIONS = 4


# the constructor


@dataclass(eq=False)
class TabularLearner:
    """The constructor and the interface of a comparator: its options are the fields after these, checked here.

    A subclass makes its tables in `__post_init__` and changes them, and the policies `pi` [n, S, A], in `learn`. The
    scale is one number, or one for each seed: learners multiply by `scales`, [n, 1, 1].
    """

    layout: Layout
    streams: Streams
    scale: float | Array = 1.0
    batch = 1  # not a field, unless a learner makes it one: most learn after each episode

    def __post_init__(self) -> None:
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        check(**{name: options[name] for name in POSITIVE if options.get(name) is not None})
        if options.get("bonus") not in (None, "hoeffding", "bernstein"):
            raise ValueError(f"bonus must be 'hoeffding' or 'bernstein', got {options['bonus']!r}")
        self.scales: Array = np.broadcast_to(np.asarray(self.scale, float), self.n)[:, None, None]
        self.pi, self.steps = uniform(self.layout, self.n), 0
        self.top: Array = self.layout.remaining[: self.layout.num_states, None]  # the most that can remain, [S, 1]
        self._lane: Index = np.arange(self.n)[:, None]

    @property
    def n(self) -> int:
        """The number of seeds."""
        return self.streams.n

    def policy(self) -> Array:
        """The current policies [n, S, A], which are scored."""
        return self.pi

    def behaviour(self) -> Array | Mixture:
        """What plays the next episodes: the current policies, unless a learner explores with others."""
        return self.policy()


@dataclass(eq=False)
class Discounted(TabularLearner):
    """A learner with a discount, by default 1 - 1/L."""

    gamma: float | None = None
    below_one = False  # not a field: whether a discount of one is refused

    def __post_init__(self) -> None:
        super().__post_init__()
        self.discount = discount(self.layout.horizon, self.gamma, self.below_one)


@dataclass(eq=False)
class ModelLearner(TabularLearner):
    """A learner with counts; with `share` its model has states without their time."""

    share = False  # not a field

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts = Counts(self.layout, self.n, self.share)

    def count(self, episodes: Episodes) -> None:
        """Count all steps of the episodes."""
        self.counts.add(episodes)
        self.steps += episodes.a[0].size


@dataclass(eq=False)
class EpochLearner(ModelLearner):
    """A learner that plans again for the seeds of which a pair's visits doubled since their last plan."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.before = np.zeros_like(self.counts.visits)  # visits at the start of the epoch

    def learn(self, episodes: Episodes) -> None:
        """Count an episode, and start a new epoch where it is due."""
        self.count(episodes)
        visits, before = self.counts.visits, self.before
        ended = np.flatnonzero((visits - before >= np.maximum(before, 1.0)).any((1, 2)))
        if ended.size:
            self.pi[ended] = greedy(self.plan(ended))
            before[ended] = visits[ended]

    def plan(self, which: Index) -> Array:
        """The optimistic Q of these seeds."""
        raise NotImplementedError


def check(**numbers: float | Array) -> None:
    """Raise a ValueError unless all numbers are positive, and delta, a probability of failure, is below one too."""
    for name, value in numbers.items():
        if not np.all(value > 0.0) or (name == "delta" and value >= 1.0):
            expected = "a probability, above 0 and below 1" if name == "delta" else "a positive number"
            raise ValueError(f"{name} must be {expected}, got {value}")


def discount(horizon: int, gamma: float | None, below_one: bool = False) -> float:
    """The discount gamma, by default 1 - 1/L; a ValueError unless it is in [0, 1], below one where that is asked."""
    found = 1.0 - 1.0 / horizon if gamma is None else gamma
    if not 0.0 <= found <= 1.0 or (below_one and found == 1.0):
        raise ValueError(f"gamma must be a discount in [0, 1{')' if below_one else ']'}, got {gamma}")
    return found


def features(layout: Layout, phi: ArrayLike | None) -> Array:
    """The features [S, A, d], one-hot on pairs if none are given; a ValueError if they do not fit the layout."""
    shape = (layout.num_states, layout.num_actions)
    if phi is None:
        return np.eye(shape[0] * shape[1]).reshape(*shape, -1)
    phi = np.asarray(phi, dtype=np.float64)
    if phi.ndim != 3 or phi.shape[:2] != shape:
        raise ValueError(f"features must have shape {(*shape, 'd')}, one for each pair, got {phi.shape}")
    if not np.isfinite(phi).all() or np.linalg.norm(phi, axis=-1).max() > 1.0 + 1e-8:
        raise ValueError("features must be finite and of norm at most one")
    return phi


# tables and policies


def zeros(layout: Layout, n: int) -> Array:
    """Zeros [n, S, A]."""
    return np.zeros((n, layout.num_states, layout.num_actions))


def highest(layout: Layout, n: int) -> Array:
    """The number of decisions that remain, [n, S, A]: where optimistic values start."""
    return zeros(layout, n) + layout.remaining[: layout.num_states, None]


def uniform(layout: Layout, n: int) -> Array:
    """Uniform policies [n, S, A]."""
    return zeros(layout, n) + 1.0 / layout.num_actions


def highest_action(Q: Array) -> Array:
    """The largest of Q [..., A] over the last axis, quickly also where that is short."""
    if Q.shape[-1] > FEW_ACTIONS:
        return Q.max(-1)
    found = Q[..., 0]
    for k in range(1, Q.shape[-1]):
        found = np.maximum(found, Q[..., k])
    return found


def greedy(Q: Array) -> Array:
    """The policies that are uniform over the best actions of Q [..., A]: ties break at random."""
    best = highest_action(Q)[..., None] - 1e-12 <= Q
    return best / best.sum(-1, keepdims=True)


def greedy_where_met(Q: Array, otherwise: Array) -> Array:
    """The greedy policies of Q, and the other ones in states whose Q is -inf for all actions."""
    met = np.isfinite(Q).any(-1, keepdims=True)
    return np.where(met, greedy(np.where(met, Q, 0.0)), otherwise)


def softmax(logits: Array) -> Array:
    """The softmax over the last axis."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


# models


class Counts:
    """Visits [n, M, A], sums of rewards [n, M, A] and successors [n, M, A, W] of the pairs of a model.

    With `share`, states that differ only in time are one (M = num_shared); else each is its own (M = S).
    """

    def __init__(self, layout: Layout, n: int, share: bool) -> None:
        self.layout = layout
        self.model_state: Index = layout.shared if share else np.arange(layout.num_states)
        shape = (n, int(self.model_state.max()) + 1, layout.num_actions)
        self.visits, self.rewards = np.zeros(shape), np.zeros(shape)
        self.successors = np.zeros((*shape, layout.width))
        self._after = np.array(layout.first[1:-1])
        self._lane = np.arange(n)[:, None, None]

    def add(self, episodes: Episodes, keep: Mask | None = None) -> None:
        """Count the steps of the episodes, or only those in the mask [n, B, L]."""
        s, weight = self.model_state[episodes.s[..., :-1]], 1.0 if keep is None else keep.astype(np.float64)
        at = (self._lane, s, episodes.a)
        np.add.at(self.visits, at, weight)
        np.add.at(self.rewards, at, weight * episodes.r)
        np.add.at(self.successors, (*at, episodes.s[..., 1:] - self._after), weight)

    def mean_reward(self, ridge: float | Array = 0.0) -> Array:
        """The sum of rewards / (visits + ridge), 0 if nothing was seen."""
        return self.rewards / np.maximum(self.visits + ridge, 1.0)

    def transitions(self, ridge: float | Array = 0.0) -> Array:
        """The successors / (visits + ridge), rows of zeros if nothing was seen."""
        return self.successors / np.maximum(self.visits + ridge, 1.0)[..., None]


def plain(_: slice, Q: Array) -> Array:
    """Q itself: nothing to finish."""
    return Q


def best(_: slice, Q: Array) -> Array:
    """The largest Q of each state."""
    return highest_action(Q)


def backward(
    layout: Layout,
    shape: tuple[int, ...],
    q: Callable[[slice, slice, Array], Array],
    value: Callable[[slice, Array], Array] = best,
) -> Array:
    """Q of this shape, [n, S, A], by backward induction over the layers.

    At each layer Q = q(states, next states, V), and V = value(states, Q) is passed on to the layer before.
    """
    Q = np.empty(shape)
    V = np.zeros((shape[0], layout.first[-1] - layout.first[-2]))
    for here, after in layout.backward():
        Q[:, here] = q(here, after, V)
        V = value(here, Q[:, here])
    return Q


def expected(P: Array, here: slice, V: Array) -> Array:
    """P V for the pairs of a layer, from P [n, S, A, W] and the values V [n, w] of the next layer."""
    return np.einsum("nsaw,nw->nsa", P[:, here, :, : V.shape[1]], V)


def induct(
    layout: Layout,
    r: Array,
    P: Array,
    finish: Callable[[slice, Array], Array] = plain,
    value: Callable[[slice, Array], Array] = best,
) -> Array:
    """Q [n, S, A] by backward induction with Q = finish(states, r + P V')."""
    return backward(layout, r.shape, lambda here, _, V: finish(here, r[:, here] + expected(P, here, V)), value)


# returns and means over batches of episodes


def returns_to_go(r: Array, gamma: float) -> Array:
    """The sums over k >= h of gamma^(k-h) r_k, for rewards [..., L]."""
    G = np.zeros_like(r)
    total = np.zeros(r.shape[:-1])
    for h in range(r.shape[-1] - 1, -1, -1):
        total = r[..., h] + gamma * total
        G[..., h] = total
    return G


def pair_sums(shape: tuple[int, ...], s: Index, a: Index, x: Array) -> tuple[Array, Array]:
    """The sums of x over the visits of each pair, all [n, ...], and the visits, both of shape [n, S, A]."""
    sums, visits = np.zeros(shape), np.zeros(shape)
    at = (np.arange(shape[0]).reshape(-1, *(1,) * (s.ndim - 1)), s, a)
    np.add.at(sums, at, x)
    np.add.at(visits, at, 1.0)
    return sums, visits


def pair_means(shape: tuple[int, ...], s: Index, a: Index, x: Array) -> Array:
    """The mean of x over the visits of each pair, as [n, S, A]; -inf where there was none."""
    sums, visits = pair_sums(shape, s, a, x)
    return np.where(visits > 0.0, sums / np.maximum(visits, 1.0), -np.inf)


def geometric_steps(u: Array, gamma: float, horizon: int) -> Index:
    """Steps h < L with Pr(h) ~ gamma^h from uniform numbers: times of d^pi at which the episode is not over."""
    mass = gamma ** np.arange(horizon)
    return np.searchsorted(np.cumsum(mass[:-1]) / mass.sum(), u, side="right").astype(np.int64)
