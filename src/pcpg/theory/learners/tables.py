"""What several learners share: counts of a model, greedy policies, backward induction over layers."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pcpg.theory.learners.layout import Episodes, Index, Layout
from pcpg.theory.mdp import Array, Mask

Bonus = Literal["hoeffding", "bernstein"]


def greedy(Q: Array) -> Array:
    """Return the policies that are uniform over the best actions of Q [..., A]: ties break at random."""
    best = Q.max(-1, keepdims=True) - 1e-12 <= Q
    return best / best.sum(-1, keepdims=True)


def zeros(layout: Layout, n: int) -> Array:
    """Return zeros [n, S, A]."""
    return np.zeros((n, layout.num_states, layout.num_actions))


def highest(layout: Layout, n: int) -> Array:
    """Return the number of decisions that remain, [n, S, A]: where optimistic values start."""
    return zeros(layout, n) + layout.remaining[: layout.num_states, None]


def uniform(layout: Layout, n: int) -> Array:
    """Return uniform policies [n, S, A]."""
    return zeros(layout, n) + 1.0 / layout.num_actions


def pair_means(shape: tuple[int, ...], s: Index, a: Index, x: Array) -> Array:
    """Return the mean of x over the visits of each pair, all [n, B], as [n, S, A]; -inf where there was none."""
    sums, visits = np.zeros(shape), np.zeros(shape)
    at = (np.arange(shape[0])[:, None], s, a)
    np.add.at(sums, at, x)
    np.add.at(visits, at, 1.0)
    return np.where(visits > 0.0, sums / np.maximum(visits, 1.0), -np.inf)


def greedy_where_met(Q: Array, otherwise: Array) -> Array:
    """Return the greedy policies of Q, and the other ones in states whose Q is -inf for all actions."""
    met = np.isfinite(Q).any(-1, keepdims=True)
    return np.where(met, greedy(np.where(met, Q, 0.0)), otherwise)


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

    def mean_reward(self, ridge: float = 0.0) -> Array:
        """Return sum of rewards / (visits + ridge), 0 where nothing was seen."""
        return self.rewards / np.maximum(self.visits + ridge, 1.0)

    def transitions(self, ridge: float = 0.0) -> Array:
        """Return successors / (visits + ridge), rows of zeros where nothing was seen."""
        return self.successors / np.maximum(self.visits + ridge, 1.0)[..., None]


def features(layout: Layout, phi: ArrayLike | None) -> Array:
    """Return the features [S, A, d], one-hot on pairs if none are given, or raise a ValueError."""
    shape = (layout.num_states, layout.num_actions)
    if phi is None:
        return np.eye(shape[0] * shape[1]).reshape(*shape, -1)
    phi = np.asarray(phi, dtype=np.float64)
    if phi.ndim != 3 or phi.shape[:2] != shape:
        raise ValueError(f"features have shape {phi.shape}; expected {(*shape, 'd')}, one for each pair")
    if not np.isfinite(phi).all() or np.linalg.norm(phi, axis=-1).max() > 1.0 + 1e-8:
        raise ValueError("features must be finite and of norm at most one")
    return phi


def induct(
    layout: Layout, r: Array, P: Array, finish: Callable[[slice, Array], Array], value: Callable[[slice, Array], Array]
) -> Array:
    """Return Q [n, S, A] by backward induction over r [n, S, A] and P [n, S, A, W].

    At each layer Q = finish(states, r + P V'), and V = value(states, Q) is passed on to the layer before.
    """
    Q = np.empty_like(r)
    V = np.zeros((len(r), layout.first[-1] - layout.first[-2]))
    for here, after in layout.backward():
        wide = after.stop - after.start
        Q[:, here] = finish(here, r[:, here] + np.einsum("nsaw,nw->nsa", P[:, here, :, :wide], V))
        V = value(here, Q[:, here])
    return Q


def plain(_: slice, Q: Array) -> Array:
    """Return Q itself: nothing to finish."""
    return Q


def best(_: slice, Q: Array) -> Array:
    """Return max_a Q."""
    return Q.max(-1)


def discount(horizon: int, gamma: float | None, below_one: bool = False) -> float:
    """Return gamma, by default 1 - 1/L, or raise a ValueError; below one where a learner divides by 1 - gamma."""
    found = 1.0 - 1.0 / horizon if gamma is None else gamma
    if not 0.0 <= found <= 1.0 or (below_one and found == 1.0):
        raise ValueError(f"gamma is {gamma}; expected a discount in [0, 1{')' if below_one else ']'}")
    return found


def geometric_steps(u: Array, gamma: float, horizon: int) -> Index:
    """Return steps h < L with Pr(h) ~ gamma^h from uniform numbers: times of d^pi at which the episode is not over."""
    mass = gamma ** np.arange(horizon)
    return np.searchsorted(np.cumsum(mass[:-1]) / mass.sum(), u, side="right").astype(np.int64)


def check(**numbers: float) -> None:
    """Raise a ValueError unless all numbers are positive, and delta, a probability of failure, is below one too."""
    for name, value in numbers.items():
        if not value > 0.0 or (name == "delta" and value >= 1.0):
            expected = "a probability, above 0 and below 1" if name == "delta" else "a positive number"
            raise ValueError(f"{name} is {value}; expected {expected}")


def check_bonus(bonus: Bonus) -> None:
    """Raise a ValueError unless the bonus is one of the two."""
    if bonus not in ("hoeffding", "bernstein"):
        raise ValueError(f"bonus is {bonus!r}; expected 'hoeffding' or 'bernstein'")
