"""The compiled parts of learning from kept data: count pairs, place landmarks, fit values."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.kernel.averager import Transitions, fit
from pcpg.kernel.landmarks import Encoder, Landmarks, extend_landmarks, no_landmarks, spaced_landmarks, with_capacity
from pcpg.kernel.pairs import Pairs, count, pair_bonuses
from pcpg.kernel.policies import optimistic, values_at
from pcpg.shapes import Array, Scalar

LEAST = -5.0
"""Lower limit on the values of a task. No return is below -1, but values of an averager are: clipping them all to the
same value would leave no way from far states to good ones."""
MOST_SHARES = 2**25
"""Observations times landmarks, above which observations are shared among their nearest landmarks alone."""


class Model(NamedTuple):
    """The model of a seed: landmarks, inverse covariances of pairs, and the last values; room for M landmarks."""

    landmarks: Landmarks
    inverses: Array  # [A, M, M]
    w: Array  # [A, M]
    bonus: Array  # [S, A] at all observations, where they can be listed; else [0, A]

    @property
    def known(self) -> Array:
        """What tells the bonus of a pair: the inverses, or the bonus itself where it is known everywhere."""
        return self.bonus if len(self.bonus) else self.inverses


class CountInputs(NamedTuple):
    """Pairs to count, and how often each observation was met; observations are rows of x."""

    model: Model
    x: Array  # [U, size]
    visits: Array  # [U]
    pairs: Pairs
    tol: Scalar


class CountOutputs(NamedTuple):
    """The model with the pairs counted."""

    met: Array  # [A, C, CHUNK]: the bonus of each pair before
    model: Model
    visits: Array  # [M]: shares of the visits


class PlaceInputs(NamedTuple):
    """Observations that landmarks should explain."""

    landmarks: Landmarks
    x: Array  # [U, size]
    allowed: Array  # [U]
    tol: Scalar


class FitInputs(NamedTuple):
    """The inputs of a fit; transitions are row indices of x."""

    landmarks: Landmarks
    known: Array | None  # inverses [A, M, M], or the bonus [U, A] at the rows of x; None for a task
    x: Array  # [U, size]
    row: Array
    next_row: Array
    action: Array
    reward: Array
    live: Array
    weight: Array
    first_row: Array  # [F]: observations at which episodes begin
    bonus_coef: Scalar
    prior: Scalar  # value of a pair that was never met
    is_smooth: Array | bool  # of a task: whether values are interpolated between spaced landmarks


class FitOutputs(NamedTuple):
    """Values, and their prediction for the start."""

    w: Array
    change: Array
    value: Array


def no_model(
    inverse_scale: np.ndarray, num_actions: int, capacity: int, listed: int = 0, encoder: Encoder | None = None
) -> Model:
    """The model without data: the bonus is 1 everywhere, including the listed observations."""
    square = (num_actions, capacity, capacity)
    eye = np.broadcast_to(np.eye(capacity, dtype=np.float32), square).copy()
    w = np.zeros((num_actions, capacity), np.float32)
    marks, bonus = no_landmarks(inverse_scale, capacity, encoder), np.ones((listed, num_actions), np.float32)
    return Model(marks, eye, w, bonus)


def with_room(model: Model, most: int) -> Model:
    """The model with room for more landmarks where it is nearly full, for at most so many."""
    marks, room = model.landmarks, model.landmarks.capacity
    if len(model.bonus):  # as many as there are observations suffice
        most = min(most, -(-len(model.bonus) // 64) * 64)
    capacity = max(min(2 * room if room < 512 else room + 256, most), room)
    if int(marks.count) <= 0.7 * room or capacity == room:
        return model
    larger = no_model(np.asarray(marks.inverse_scale), len(model.w), capacity, encoder=marks.encoder)
    larger.inverses[:, :room, :room] = model.inverses
    larger.w[:, :room] = model.w
    return larger._replace(landmarks=with_capacity(marks, capacity), bonus=model.bonus)


def count_pairs(inputs: CountInputs) -> CountOutputs:
    """The model after some pairs, with a landmark for every observation that the others leave unexplained."""
    model, x, visits = inputs.model, jnp.asarray(inputs.x), jnp.asarray(inputs.visits)
    landmarks = extend_landmarks(model.landmarks, x, visits > 0, inputs.tol)
    is_listed = len(model.bonus) > 0
    counted = count(landmarks.phi(x), model.inverses, inputs.pairs, everywhere=is_listed)
    bonus = jnp.clip(model.bonus - counted.fall, 0.0, 1.0) if is_listed else jnp.asarray(model.bonus)
    shares = visits @ landmarks.shares(x) / jnp.maximum(jnp.sum(visits), 1.0)
    return CountOutputs(counted.met, Model(landmarks, counted.inverses, jnp.asarray(model.w), bonus), shares)


def place_landmarks(inputs: PlaceInputs) -> Landmarks:
    """Landmarks alone."""
    return extend_landmarks(inputs.landmarks, inputs.x, inputs.allowed, inputs.tol)


def space_landmarks(inputs: PlaceInputs) -> Landmarks:
    """Landmarks for shares alone, where they are many."""
    return spaced_landmarks(inputs.landmarks, inputs.x, inputs.allowed, inputs.tol)


def has_all_shares(observations: int, landmarks: int) -> bool:
    """Whether a fit shares each observation among all landmarks: every backup goes through all shares."""
    return observations * landmarks <= MOST_SHARES


def fit_values(
    inputs: FitInputs, *, num_actions: int, backups: int, gamma: float, smooth_gamma: float, explore: bool
) -> FitOutputs:
    """Values from kept transitions: of the bonus still ahead, or of the task's reward, scaled to at most 1."""
    landmarks, x = inputs.landmarks, jnp.asarray(inputs.x)
    shares = landmarks.shares(x) if has_all_shares(len(x), landmarks.capacity) else landmarks.nearest_shares(x)
    bonus = jnp.zeros((len(x), num_actions), jnp.float32)
    if explore:
        known = jnp.asarray(inputs.known)
        bonus = (known if known.ndim == 2 else pair_bonuses(landmarks.phi(x), known)) * inputs.bonus_coef
    kept = Transitions(
        shares, bonus, inputs.row, inputs.next_row, inputs.action, inputs.reward, inputs.live, inputs.weight
    )
    limits = {"low": 0.0 if explore else LEAST, "high": 1.0}
    found = fit(
        kept,
        num_actions=num_actions,
        backups=backups,
        gamma=gamma if explore else jnp.where(inputs.is_smooth, smooth_gamma, gamma),
        explore=explore,
        prior=inputs.prior,
        is_trusting=~jnp.asarray(inputs.is_smooth),
        **limits,
    )
    first = inputs.first_row
    f = values_at(jax.tree.map(lambda leaf: leaf[first], shares), found.w, **limits)
    value = jnp.mean(jnp.max(optimistic(f, bonus[first]) if explore else f, axis=-1))
    return FitOutputs(found.played, found.change, value)
