"""What several learners share: counts of a model, greedy policies, backward induction over layers."""

from collections.abc import Callable

import numpy as np

from pcpg.theory.comparators.layout import Episodes, Index, Layout
from pcpg.theory.mdp import Array, Mask


def greedy(Q: Array) -> Array:
    """Return the policies that are uniform over the best actions of Q [..., A]: ties break at random."""
    best = Q.max(-1, keepdims=True) - 1e-12 <= Q
    return best / best.sum(-1, keepdims=True)


def uniform(layout: Layout, n: int) -> Array:
    """Return uniform policies [n, S, A]."""
    return np.full((n, layout.num_states, layout.num_actions), 1.0 / layout.num_actions)


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


def discount(horizon: int, gamma: float | None) -> float:
    """Return gamma, by default 1 - 1/L, or raise a ValueError."""
    found = 1.0 - 1.0 / horizon if gamma is None else gamma
    if not 0.0 <= found <= 1.0:
        raise ValueError(f"gamma is {gamma}; expected a discount in [0, 1]")
    return found


def check_scale(scale: float) -> float:
    """Return the scale factor, or raise a ValueError unless it is positive."""
    if not scale > 0.0:
        raise ValueError(f"scale is {scale}; expected a positive number")
    return scale
