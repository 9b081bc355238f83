"""Kernel features over landmarks from the data (Nystrom, by a pivoted Cholesky factorisation).

| symbol   | name      | meaning                                                                             |
|----------|-----------|-------------------------------------------------------------------------------------|
| k(u, v)  | kernel    | exp(-|u - v|^2 / 2) of scaled observations, u = s / (scale h)                       |
| Z        | places    | landmarks: observations that the earlier ones leave unexplained by more than `tol`  |
| L        |           | Cholesky factor of k(Z, Z); `root` is L^-1                                          |
| phi(s)   | phi       | L^-1 k(Z, s): k(s, t) = phi(s)' phi(t) + what the landmarks leave out               |
| rest(s)  | rest_of   | 1 - |phi(s)|^2, in [0, 1]: 1 far from all landmarks, 0 at one                       |
| share(s) | shares    | softmax over landmarks of a kernel `SHARP` times narrower: weights of an averager   |

A new landmark adds a coordinate and leaves earlier ones unchanged, so existing counts in these features stay valid.
Arrays have a fixed capacity M, so another landmark causes no compilation; unused coordinates are zero. With learned
features, s is the encoded observation.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.shapes import Array, Bool, Float, Int, Scalar, Shaped

HIGHEST = jax.lax.Precision.HIGHEST
SHARP = 3.0
"""How much narrower the kernel of an averager is: values are then told apart where covariances may still overlap."""
NEAREST = 16
"""Landmarks among which an observation is shared where shares are many. Of evenly spread observations the others would
have less than a thousandth in two dimensions, about a hundredth in three and 7% in four; policies act by all shares."""
UNROLLED = 8
"""Actions up to which a program has a part for each."""
ROWS = 1024
"""Observations whose nearest landmarks are sought together."""


@runtime_checkable
class Encoder(Protocol):
    """What features are learned with: features/inverse_dynamics.py."""

    def features(self, observations: Shaped[Array, "n entries"]) -> Float[jax.Array, "n size"]: ...


def seen_as(x: Array, inverse_scale: Array, encoder: Encoder | None) -> jax.Array:
    """Observation vectors as the kernel sees them: encoded if there is an encoder, then scaled."""
    return jnp.asarray(x if encoder is None else encoder.features(x)) * inverse_scale


class Landmarks(eqx.Module):
    """Landmarks with room for M of them."""

    inverse_scale: Float[Array, " size"]  # 1 / (scale h)
    places: Float[Array, "M size"]  # scaled
    root: Float[Array, "M M"]  # L^-1, zero beyond `count`
    count: Int[Array, ""]
    encoder: Encoder | None = None  # None: observations are seen as they are

    @property
    def capacity(self) -> int:
        return self.places.shape[0]

    @property
    def unscaled(self) -> np.ndarray:
        """The places of the current landmarks, without the scale; ignored entries are zero."""
        by = np.asarray(self.inverse_scale)
        return np.asarray(self.places)[: int(self.count)] / np.where(by > 0, by, 1)

    def seen(self, x: Float[Array, "n entries"]) -> Float[jax.Array, "n size"]:
        """Observation vectors as the kernel sees them."""
        return seen_as(x, self.inverse_scale, self.encoder)

    def phi(self, x: Float[Array, "n entries"]) -> Float[jax.Array, "n M"]:
        """The features of observation vectors."""
        active = jnp.arange(self.capacity) < self.count
        kernel = jnp.where(active, jnp.exp(-0.5 * _distances(self.seen(x), self.places)), 0.0)
        return jnp.matmul(kernel, jnp.asarray(self.root).T, precision=HIGHEST)

    def shares(self, x: Float[Array, "n entries"]) -> Float[jax.Array, "n M"]:
        """The shares of an observation among the landmarks, a distribution; zeros if there is no landmark yet."""
        return shares_of(self.seen(x), self.places, self.count)

    def nearest_shares(self, x: Float[Array, "n entries"]) -> "NearestShares":
        """The same among the nearest landmarks alone: a share of the memory, and of the time of a fit."""
        number = min(NEAREST, self.capacity)

        def of_rows(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits, landmark = jax.lax.top_k(_logits(self.seen(rows), self.places, self.count), number)
            return jax.nn.softmax(logits, axis=-1) * (self.count > 0), landmark

        x, room = jnp.asarray(x), -(-len(x) // ROWS) * ROWS
        blocks = jnp.pad(x, ((0, room - len(x)), (0, 0))).reshape(-1, ROWS, x.shape[1])
        share, landmark = jax.lax.map(of_rows, blocks)
        share, landmark = (both.reshape(room, number)[: len(x)] for both in (share, landmark))
        return NearestShares(share, landmark, self.capacity)


class NearestShares(eqx.Module):
    """Shares of observations among their nearest landmarks."""

    share: Float[jax.Array, "n k"]  # a distribution
    landmark: Int[jax.Array, "n k"]
    capacity: int = eqx.field(static=True)


Shares = Float[Array, "n M"] | NearestShares


def averages(shares: Shares, w: Float[Array, "A M"]) -> Float[jax.Array, "n A"]:
    """At each observation the mean of what its landmarks are worth, by its shares."""
    if isinstance(shares, NearestShares):
        return _each(lambda own: jnp.sum(own[shares.landmark] * shares.share, axis=-1), jnp.asarray(w)).T
    return jnp.matmul(shares, jnp.asarray(w).T, precision=HIGHEST)


def spread(shares: Shares, total: Float[Array, "A n"]) -> Float[jax.Array, "A M"]:
    """What observations have, given to their landmarks by their shares."""
    if isinstance(shares, NearestShares):
        landmark = shares.landmark.reshape(-1)

        def given(own: jax.Array) -> jax.Array:
            return jax.ops.segment_sum((own[:, None] * shares.share).reshape(-1), landmark, shares.capacity)

        return _each(given, jnp.asarray(total))
    return jnp.matmul(total, shares, precision=HIGHEST)


def _each(function: Callable[[jax.Array], jax.Array], rows: jax.Array) -> jax.Array:
    """Of one action after the other: many of them would make a program that compiles for long."""
    return jax.lax.map(function, rows) if len(rows) > UNROLLED else jnp.stack([function(row) for row in rows])


def shares_of(
    u: Float[Array, "n size"], places: Float[Array, "M size"], count: Int[Array, ""]
) -> Float[jax.Array, "n M"]:
    """How each observation, as the kernel sees it, is shared among the first `count` landmarks."""
    return jax.nn.softmax(_logits(u, places, count), axis=-1) * (count > 0)


def _logits(u: Array, places: Array, count: Array) -> jax.Array:
    active = jnp.arange(places.shape[0]) < count
    return jnp.where(active, -0.5 * SHARP**2 * _distances(u, places), -1e9)


def _distances(u: Array, places: Array) -> jax.Array:
    """Squared distances of scaled observations to landmarks, [n, M]."""
    places = jnp.asarray(places)
    inner = jnp.matmul(u, places.T, precision=HIGHEST)
    squares = jnp.sum(u**2, axis=-1)[:, None] + jnp.sum(places**2, axis=-1)
    return jnp.maximum(squares - 2 * inner, 0.0)


def no_landmarks(inverse_scale: Float[np.ndarray, " size"], capacity: int, encoder: Encoder | None = None) -> Landmarks:
    """Room for landmarks, and none yet."""
    return Landmarks(
        np.asarray(inverse_scale, np.float32),
        np.zeros((capacity, len(inverse_scale)), np.float32),
        np.zeros((capacity, capacity), np.float32),
        np.zeros((), np.int32),
        encoder,
    )


def with_capacity(landmarks: Landmarks, capacity: int) -> Landmarks:
    """The same landmarks with room for more; on the host."""
    more = capacity - landmarks.capacity
    places = np.pad(np.asarray(landmarks.places), ((0, more), (0, 0)))
    root = np.pad(np.asarray(landmarks.root), ((0, more), (0, more)))
    return Landmarks(np.asarray(landmarks.inverse_scale), places, root, np.asarray(landmarks.count), landmarks.encoder)


def rest_of(phi: Float[Array, "n M"]) -> Float[jax.Array, " n"]:
    """What the landmarks leave unexplained of each observation."""
    return jnp.clip(1.0 - jnp.sum(jnp.square(phi), axis=-1), 0.0, 1.0)


class _Growing(NamedTuple):
    landmarks: Landmarks
    phi: jax.Array
    rest: jax.Array


def extend_landmarks(
    landmarks: Landmarks, x: Float[Array, "n size"], allowed: Bool[Array, " n"], tol: Scalar
) -> Landmarks:
    """The landmarks with rows of x added, the least explained first, until none is left above `tol` or M is full."""
    u = landmarks.seen(x)

    def more(now: _Growing) -> jax.Array:
        return (jnp.max(now.rest) > tol) & (now.landmarks.count < landmarks.capacity)

    def add(now: _Growing) -> _Growing:
        marks, phi, rest = now
        i, at = jnp.argmax(rest), marks.count
        length = jnp.sqrt(rest[i])
        row = (-jnp.matmul(phi[i], marks.root, precision=HIGHEST)).at[at].add(1.0) / length
        kernel = jnp.exp(-0.5 * jnp.sum(jnp.square(u - u[i]), axis=-1))
        new = (kernel - jnp.matmul(phi, phi[i], precision=HIGHEST)) / length
        places, root = jnp.asarray(marks.places).at[at].set(u[i]), jnp.asarray(marks.root).at[at].set(row)
        larger = Landmarks(marks.inverse_scale, places, root, at + 1, marks.encoder)
        rest = jnp.where(allowed, jnp.clip(rest - new**2, 0.0, 1.0), 0.0).at[i].set(0.0)
        return _Growing(larger, phi.at[:, at].set(new), rest)

    start = jax.tree.map(jnp.asarray, landmarks)
    phi = start.phi(x)
    first = _Growing(start, phi, jnp.where(allowed, rest_of(phi), 0.0))
    return jax.lax.while_loop(more, add, first).landmarks


def spaced_landmarks(empty: Landmarks, x: Float[Array, "n size"], allowed: Bool[Array, " n"], tol: Scalar) -> Landmarks:
    """Landmarks for shares alone: rows of x, the farthest from all others first, until M is full.

    It ends before where each row has a landmark that leaves at most `tol` of it unexplained. No row is explained by
    several landmarks together, so there are more of them than `extend_landmarks` needs; but each costs n instead
    of n M. They have no features: `root` stays zero.
    """
    u, nearest = empty.seen(x), -jnp.log1p(-jnp.asarray(tol))  # 1 - k(u, v)^2 <= tol

    def more(now: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return (jnp.max(now[1]) > nearest) & (now[2] < empty.capacity)

    def add(now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        places, gap, at = now
        i = jnp.argmax(gap)
        gap = jnp.minimum(gap, jnp.sum(jnp.square(u - u[i]), axis=-1)).at[i].set(0.0)
        return places.at[at].set(u[i]), gap, at + 1

    first = jnp.asarray(empty.places), jnp.where(allowed, jnp.inf, 0.0), jnp.asarray(empty.count)
    places, _, count = jax.lax.while_loop(more, add, first)
    return Landmarks(jnp.asarray(empty.inverse_scale), places, jnp.asarray(empty.root), count, empty.encoder)


def as_wide_as_apart(spaced: Landmarks) -> Landmarks:
    """Spaced landmarks whose shares are as wide as the last of them lies from the others: no place is far from all."""
    places, last = np.asarray(spaced.places), int(spaced.count) - 1
    apart = np.sqrt(np.min(np.sum(np.square(places[:last] - places[last]), axis=1)))
    factor = np.float32(1.0 / (SHARP * max(float(apart), 1e-6)))
    return Landmarks(
        spaced.inverse_scale * factor,
        places * factor,
        np.asarray(spaced.root),
        np.asarray(spaced.count),
        spaced.encoder,
    )


def inverse_scale_of(
    x: Shaped[np.ndarray, "n size"],
    places: Shaped[np.ndarray, "m size"],
    ratio: float,
    most: int = 500,
    *,
    by_entry: bool = True,
) -> Float[np.ndarray, " size"]:
    """1 / (scale h) from data: scale is the range of each entry, h `ratio` times the median distance of two places.

    `x` are observations, `places` distinct ones that stand for where one can be. With `by_entry` false, for features
    that have a scale of their own, the scale is 1.
    """
    scale = ranges_of(x) if by_entry else np.ones(np.shape(x)[1])
    rows = np.unique(np.asarray(places, np.float64) / scale, axis=0)
    if len(rows) > most:
        rows = rows[np.random.default_rng(0).choice(len(rows), most, replace=False)]
    squares = np.sum(rows**2, axis=1)
    gaps = np.sqrt(np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0))[np.triu_indices(len(rows), 1)]
    h = ratio * float(np.median(gaps)) if gaps.size else 1.0
    return (1.0 / (scale * h)).astype(np.float32)


def ranges_of(x: Shaped[np.ndarray, "n size"]) -> Float[np.ndarray, " size"]:
    """The range of each entry; one that does not vary has the usual range of the others, so a value it takes later
    is told apart."""
    x = np.asarray(x, np.float64)
    spread = x.max(axis=0) - x.min(axis=0)
    moved = spread > 1e-8
    return np.where(moved, spread, np.median(spread[moved]) if moved.any() else 1.0)
