"""The bonus over pairs (s, a) from kept data: one covariance for each action, in the features of the state.

    b(s, a) = phi(s)' (I + sum over kept pairs with action a of phi phi')^-1 phi(s) + rest(s)

lies in (0, 1]: 1 / (1 + n) if observations are distinguished and the pair was met n times, 1 far from all data. It is
the posterior variance of the kernel, and the ridge leverage of the pair. The inverses are carried, and new pairs enter
them by Woodbury's identity: a round costs M^2 for each pair that it met, instead of M^3 for a new factorisation.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.design import Design
from pcpg.cover.simplex import simplex_maximiser
from pcpg.kernel.landmarks import HIGHEST, rest_of
from pcpg.shapes import Array, Float, Int

CHUNK = 64
"""Pairs that enter an inverse together."""
FLOOR = 1e-3
"""A pair whose bonus is below this is counted no more: float32 would lose what is left of it."""
COLD_GAP = 1e-7
"""Nats within which a design without weights to start from is optimal."""


class Pairs(NamedTuple):
    """Visited pairs: for each action rows of a table of observations, in zero-padded chunks."""

    row: Int[Array, "A C CHUNK"]
    number: Float[Array, "A C CHUNK"]  # how often each was met


class Counted(NamedTuple):
    """The inverses with some pairs counted."""

    inverses: Float[jax.Array, "A M M"]
    met: Float[jax.Array, "A C CHUNK"]  # the bonus of each pair before
    fall: Float[jax.Array, "n A"]  # by how much the bonus fell at each row of the table; zeros where not asked for


def pair_bonuses(phi: Float[Array, "n M"], inverses: Float[Array, "A M M"]) -> Float[jax.Array, "n A"]:
    """b(s, a) of each observation for all actions."""
    forms = _for_each(lambda inverse: _form(phi, inverse), inverses)
    return jnp.clip(forms.T, 0.0, 1.0) + rest_of(phi)[:, None]


def count(phi: Float[Array, "n M"], inverses: Float[Array, "A M M"], pairs: Pairs, *, everywhere: bool) -> Counted:
    """Pairs enter the inverses; `everywhere`: with the fall of the bonus at every row of phi, else at none."""
    phi, rest = jnp.asarray(phi), rest_of(phi)

    def enter(now: tuple[jax.Array, jax.Array], pairs: Pairs) -> tuple[tuple[jax.Array, jax.Array], None]:
        inverse, fall = now
        own, root = phi[pairs.row], jnp.sqrt(pairs.number)[:, None]
        seen = jnp.matmul(own, inverse, precision=HIGHEST)
        gram = jnp.matmul(seen, own.T, precision=HIGHEST) * root * root.T
        lower = jnp.linalg.cholesky((gram + gram.T) / 2 + jnp.eye(CHUNK, dtype=phi.dtype))
        step = jax.scipy.linalg.solve_triangular(lower, seen * root, lower=True)
        if everywhere:
            fall = fall + jnp.sum(jnp.square(jnp.matmul(step, phi.T, precision=HIGHEST)), axis=0)
        return (inverse - jnp.matmul(step.T, step, precision=HIGHEST), fall), None

    def of_action(now: tuple[jax.Array, Pairs]) -> tuple[jax.Array, jax.Array, jax.Array]:
        inverse, pairs = now
        met = jax.lax.map(lambda row: jnp.clip(_form(phi[row], inverse), 0.0, 1.0) + rest[row], pairs.row)
        counted = jnp.where(met > FLOOR, jnp.minimum(pairs.number, 1 / FLOOR), 0.0)
        first = (inverse, jnp.zeros(len(phi), phi.dtype))
        (inverse, fall), _ = jax.lax.scan(enter, first, pairs._replace(number=counted))
        return inverse, met, fall

    found, met, fall = _for_each(of_action, (inverses, pairs))
    return Counted(found, met, fall.T)


def _form(phi: Array, inverse: Array) -> jax.Array:
    """phi' P phi for each row."""
    return jnp.sum(jnp.matmul(phi, inverse, precision=HIGHEST) * phi, axis=-1)


def _for_each(function: Callable[[Any], Any], values: object) -> Any:
    """Over actions: one after the other on a CPU, together on an accelerator."""
    values = jax.tree.map(jnp.asarray, values)
    return jax.lax.map(function, values) if jax.default_backend() == "cpu" else jax.vmap(function)(values)


def pairs_of(rows: np.ndarray, actions: np.ndarray, counts: np.ndarray, num_actions: int) -> tuple[Pairs, np.ndarray]:
    """Distinct pairs (row, action) with their counts, in chunks; and where each is found there, as three indices.

    The number of chunks is a power of two, so few programs are compiled.
    """
    order = np.argsort(actions, kind="stable")
    each = np.bincount(actions, minlength=num_actions)
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - np.repeat(np.cumsum(each) - each, each)
    chunks = 1 << (max(-(-int(each.max(initial=1)) // CHUNK), 1) - 1).bit_length()
    row = np.zeros((num_actions, chunks, CHUNK), np.int32)
    count = np.zeros(row.shape, np.float32)
    place = np.stack([actions, rank // CHUNK, rank % CHUNK])
    row[tuple(place)], count[tuple(place)] = rows, counts
    return Pairs(row, count), place


def diagonal_design(
    visits: Float[np.ndarray, "n M"],
    ridge: float,
    kind: Literal["d-optimal", "uniform"],
    *,
    first: Float[np.ndarray, " n"] | None = None,
    iterations: int = 30,
) -> Design:
    """Weights of members by what share of their visits fell on each landmark: covariances that are diagonal.

    Maximises sum_j log(sum_i weights_i visits_ij + ridge) over the simplex; the gap bounds what is missing, as in
    `d_optimal`. From `first`, the weights of the round before, a few multiplicative updates are enough: they never
    lower the sum (they are those of expectation-maximisation). Without it there is no telling how many it would take,
    so Newton steps finish what the updates begin.
    """
    number = len(visits)
    if number == 0:
        return Design(np.zeros(0), 0.0, 0.0, 0, 0)
    used = np.asarray(visits, np.float64)[:, np.any(visits > 0, axis=0)]
    uniform, count = np.full(number, 1.0 / number), 0
    is_cold = first is None or kind == "uniform"
    weights = uniform if first is None or kind == "uniform" else 0.99 * first / first.sum() + 0.01 * uniform
    enough, most = (COLD_GAP, 3 * iterations) if is_cold else (1e-3, iterations)
    while True:
        mixed = weights @ used + ridge
        gradient = (used / mixed).sum(axis=1)
        mean = float(weights @ gradient)
        gap = float(gradient.max() - mean)
        is_done = kind == "uniform" or gap < enough or count == most
        following = None if is_done else weights * gradient / mean
        if following is not None and is_cold and gap < 0.15 * used.shape[1]:  # near enough for a quadratic model
            following = _newton(used, ridge, weights, used / mixed, gradient)
        if following is None:
            return Design(weights, float(np.log(mixed).sum()), max(gap, 0.0), used.shape[1], count)
        weights, count = following, count + 1


def _newton(
    used: np.ndarray, ridge: float, weights: np.ndarray, scaled: np.ndarray, gradient: np.ndarray
) -> np.ndarray | None:
    """The weights after a Newton step on the simplex that raises the sum of logs; None where rounding hides it."""
    active = np.flatnonzero((weights > 0.0) | (gradient > weights @ gradient))
    target = np.zeros(len(weights))
    target[active] = simplex_maximiser(scaled[active] @ scaled[active].T, gradient[active], weights[active])
    move = np.maximum(target, 0.0) / np.maximum(target, 0.0).sum() - weights
    slope, before = float(gradient @ move), float(np.log(weights @ used + ridge).sum())
    for fraction in 0.5 ** np.arange(30.0):
        found = weights + fraction * move
        gained = float(np.log(found @ used + ridge).sum()) - before
        if gained >= 0.01 * fraction * slope - 1e-13 * used.shape[1]:
            return found
    return None
