"""The explorer's policies as a cover: those whose visits together span most, in which episodes may roll in.

    sigma_i    mean of phi phi' over the transitions of policy i
    w          argmax of log det(sum_i w_i sigma_i + ridge I)     cover/design.py

A member is the explorer of a round with the places of its data; its covariance is computed from them whenever it is
needed, so it is always in the features of now. The member of least weight leaves a full cover.
"""

from typing import NamedTuple

import jax
import numpy as np

from pcpg.cover.design import d_optimal
from pcpg.learners.novelty import Novelty
from pcpg.learners.transitions import Transitions
from pcpg.policies.off_policy import DeepPolicy

FEATURES = 128
"""Of those of the bonus, for the weights."""
RIDGE = 1e-3
SHARE = 0.5
"""Of the explorer's episodes, those that roll in."""


class Members(NamedTuple):
    """The policies of the cover."""

    policies: DeepPolicy  # stacked [capacity, ...]
    spans: np.ndarray  # [capacity, 2] int64: their transitions
    weights: np.ndarray  # [capacity] float64, 0 beyond the last one
    size: np.ndarray  # int32

    def sigmas(self, kept: Transitions, novelty: Novelty) -> np.ndarray:
        """The covariance of each member."""
        short = novelty._replace(weights=novelty.weights[:, :FEATURES], offsets=novelty.offsets[:FEATURES])
        found = []
        for start, end in self.spans[: int(self.size)].tolist():
            phi = short.features(kept.observations[kept.landing_rows(np.arange(start, end))]).astype(np.float64)
            found.append(phi.T @ phi / len(phi))
        return np.stack(found)

    def weighed(self, kept: Transitions, novelty: Novelty) -> "Members":
        """The members with their D-optimal weights."""
        weights = np.zeros(len(self.weights))
        weights[: int(self.size)] = d_optimal(self.sigmas(kept, novelty), ridge=RIDGE, tol=1e-3).weights
        return self._replace(weights=weights)

    def with_member(self, policy: DeepPolicy, start: int, end: int, kept: Transitions, novelty: Novelty) -> "Members":
        """The cover with one more policy, in the place of the member of least weight if it is full."""
        size = int(self.size)
        at = size if size < len(self.weights) else int(np.argmin(self.weights))
        policies = jax.tree.map(lambda all_, one: _with(all_, at, one), self.policies, policy)
        spans, known = _with(self.spans, at, np.array([start, end])), max(size, at + 1)
        return Members(policies, spans, self.weights, np.asarray(known, np.int32)).weighed(kept, novelty)

    def draw(self, rng: np.random.Generator, horizon: int) -> tuple[DeepPolicy, int]:
        """A policy by the weights, and for how many steps it rolls in; 0: not at all."""
        at = int(rng.choice(len(self.weights), p=self.weights / self.weights.sum()))
        length = int(rng.integers(horizon)) if rng.random() < SHARE else 0
        return jax.tree.map(lambda leaf: np.asarray(leaf[at]), self.policies), length


def no_members(policy: DeepPolicy, capacity: int) -> Members:
    """A cover of nothing."""
    policies = jax.tree.map(lambda leaf: np.zeros((capacity, *np.shape(leaf)), np.float32), policy)
    return Members(policies, np.zeros((capacity, 2), np.int64), np.zeros(capacity), np.zeros((), np.int32))


def _with(array: np.ndarray, at: int, value: np.ndarray) -> np.ndarray:
    changed = np.array(array)
    changed[at] = value
    return changed
