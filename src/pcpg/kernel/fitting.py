"""The compiled parts of learning from kept data: count pairs, place landmarks, fit values.

Values from kept transitions by backups of an averager, with the optimism outside of it.

    f(s, a) = sum over landmarks m of share_m(s) w[a, m]                    shares are a distribution over landmarks
    w[a, m] = weighted mean of the targets of the kept transitions with action a, weights share_m(s)

    explore   target = gamma max over a' of max(f, b)(s', a')               the largest bonus still ahead
    exploit   target = r + gamma max over a' of f(s', a')

The mean of a landmark is over transitions that begin near it, those of one action in other places than those of the
next. Where a step leads less far than landmarks lie apart, that matters more than the action. So the values by which a
task is played (`at_one_place`) are what they would be had all actions been taken at the same places:

    w[a, m] - (mean of V(s) over the transitions with a near m - the same over those with any action)

An averager never expands distances (Gordon 1995), so backups converge whatever the data; least squares in the same
features did not, on MountainCar. Every fit starts from f = 0: values come from below, and nothing stale keeps itself
alive. After as many backups as an episode has steps, the end of an episode has been heard at its start.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.kernel.landmarks import (
    Encoder,
    Landmarks,
    Shares,
    extend_landmarks,
    no_landmarks,
    spaced_landmarks,
    spread,
    with_capacity,
)
from pcpg.kernel.pairs import Pairs, count, pair_bonuses
from pcpg.kernel.policies import optimistic, values_at
from pcpg.shapes import Array, Bool, Float, Int, Scalar

RIDGE = 1e-2
"""Weight of the prior in a mean: a pair that was never met is worth 0 to who explores, and to who exploits the data
alone the least that any step in them led to. Who explores may doubt what was met once or twice, and so may who
interpolates, for whom a little weight is that of something else nearby. A task on places of their own may not: over a
hundred steps a hundredth of doubt at each is more than half of a reward. There (`is_trusting`) the weight falls with
that of the data, as RIDGE^2 over it, so what was met once is believed but for a ten-thousandth."""


class Transitions(NamedTuple):
    """Some kept transitions; observations are rows of a table, so each is looked at once."""

    shares: Shares  # [U, M]
    bonus: Float[Array, "U A"]  # zeros to exploit
    row: Int[Array, " P"]  # of the observation
    next_row: Int[Array, " P"]
    action: Int[Array, " P"]
    reward: Float[Array, " P"]
    live: Float[Array, " P"]  # 0 where the episode terminated there
    weight: Float[Array, " P"]  # 0: the place is empty


class Fitted(NamedTuple):
    """The averager after the last backup."""

    w: Float[jax.Array, "A M"]
    change: Float[jax.Array, ""]  # the largest change of a target in the last backup
    played: Float[jax.Array, "A M"]  # values by which to act: of a task `at_one_place`, else w


def fit(
    kept: Transitions,
    *,
    num_actions: int,
    backups: int,
    gamma: Scalar,
    low: float,
    high: float,
    explore: bool,
    prior: Scalar = 0.0,
    is_trusting: Bool[Array, ""] | bool = True,
) -> Fitted:
    """The averager of the kept transitions after some backups from zero.

    The bounds are constants of the program: with bounds that are arrays, XLA for CPUs (jaxlib 0.10.2) compiled a `clip`
    of some 16,000 rows to wrong numbers, others at each compilation.
    """
    rows = len(kept.bonus)
    pair = jnp.asarray(kept.action) * rows + kept.row

    def by_pair(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, pair, num_actions * rows).reshape(num_actions, rows)

    count = by_pair(jnp.asarray(kept.weight))
    met = spread(kept.shares, count)
    doubt = jnp.full_like(met, RIDGE)
    if not explore:
        doubt = jnp.where(jnp.asarray(is_trusting), RIDGE**2 / jnp.maximum(met, RIDGE**2), doubt)
    mass = met + doubt

    def targets(w: jax.Array) -> jax.Array:
        f = values_at(kept.shares, w, low, high)
        value = jnp.max(optimistic(f, kept.bonus) if explore else f, axis=-1)
        return jnp.asarray(kept.reward) + gamma * kept.live * jnp.clip(value, low, high)[kept.next_row]

    def backup(carry: tuple[jax.Array, jax.Array, jax.Array], _: None) -> tuple[tuple, None]:
        y = carry[1]
        total = by_pair(jnp.asarray(kept.weight) * y)
        w = (spread(kept.shares, total) + doubt * prior) / mass
        new = targets(w)
        return (w, new, jnp.max(jnp.abs(new - y) * (kept.weight > 0))), None

    start = jnp.zeros_like(mass)
    first = (start, targets(start), jnp.float32(0.0))
    (w, _, change), _ = jax.lax.scan(backup, first, None, length=backups)
    if explore:
        return Fitted(w, change, w)
    value = jnp.max(values_at(kept.shares, w, low, high), axis=-1)
    return Fitted(w, change, at_one_place(w, spread(kept.shares, count * value), met, doubt))


def at_one_place(
    w: Float[Array, "A M"], begun: Float[Array, "A M"], met: Float[Array, "A M"], doubt: Float[Array, "A M"]
) -> Float[jax.Array, "A M"]:
    """Values of landmarks less what they owe to where their transitions began.

    Args:
        w: Mean targets.
        begun: Sums of the values at which transitions began.
        met: Weights of the transitions.
        doubt: Weights of the prior.
    """
    begun, met = jnp.asarray(begun), jnp.asarray(met)
    usual = jnp.sum(begun, axis=0) / jnp.maximum(jnp.sum(met, axis=0), 1e-6)
    return jnp.asarray(w) - ((begun + doubt * usual) / (met + doubt) - usual)


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


def fit_values(
    inputs: FitInputs, *, num_actions: int, backups: int, gamma: float, smooth_gamma: float, explore: bool
) -> FitOutputs:
    """Values from kept transitions: of the bonus still ahead, or of the task's reward, scaled to at most 1."""
    landmarks, x = inputs.landmarks, jnp.asarray(inputs.x)
    has_all = len(x) * landmarks.capacity <= MOST_SHARES  # then every backup goes through all shares
    shares = landmarks.shares(x) if has_all else landmarks.nearest_shares(x)
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
