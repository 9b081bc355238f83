"""Values from kept transitions by backups of an averager, with the optimism outside of it.

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

from pcpg.kernel.landmarks import Shares, spread
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
