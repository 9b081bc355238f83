"""Ranked episodes: keep the best whole episodes, and imitate them beside PPO's own loss.

    score = return + novelty_coef * volume
    volume = log det(I + sum phi phi' / ridge) / (length * log(1 + 1 / ridge))

The sum runs over the distinct views of the episode, in fixed random features phi, centred by their running mean and of
norm 1. The volume is 1 if all views differ as much as they can, and 0 if nothing changes. Returns are in units of the
range seen so far, so the score does not depend on the scale of rewards. Where levels are new at every reset, a bonus
for places ages before it is learned from; an episode that went far is worth copying in any level.

Of an episode that was rewarded only those steps are kept that led to a view new in it or were paid, and each counts by
how far it exceeds what the critic expects: turning in circles is not imitated, nor what the policy can do already.
"""

import dataclasses
import math
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.bonuses.protocol import At, Bonus, Metrics, Samples
from pcpg.config import positive
from pcpg.engine.rollout import Rollout, discounted_sums
from pcpg.envs.spaces import Cells, Image, Space
from pcpg.policies.networks import ActorCritic, Body, Linear, init_body
from pcpg.policies.normaliser import Moments, init_moments
from pcpg.shapes import Array

LARGEST = 2**27
"""Most bytes of observations kept: of large pictures fewer steps are."""
CODE = 16
"""The features of a large picture are those of its squares, which have so many numbers each."""
NONE = -np.inf
"""The return of a place in which nothing is kept."""


class Ranked(NamedTuple):
    """Steps of the best episodes, best first, and what ranks them."""

    observations: Array  # [capacity, ...]
    actions: Array  # [capacity, ...]
    returns: Array  # [capacity] of the step's episode; NONE: nothing here
    volumes: Array  # [capacity] likewise
    levels: Array  # [capacity] uint32, a number made of the episode's first view
    ahead: Array  # [capacity] discounted rewards from the step to the end of its episode
    kept: Array  # int32, how many steps there are
    low: Array  # the least return so far
    high: Array  # the largest
    body: Body  # the random features
    moments: Moments  # of the features


@dataclasses.dataclass(frozen=True)
class RankedEpisodes(Bonus[Ranked]):
    """Imitation of the best episodes so far."""

    whole_episodes: ClassVar[bool] = True

    name: str = dataclasses.field(default="ranked", init=False)
    coef: float = 1.0
    """Weight of the imitation loss beside PPO's."""
    keep: int = 2_000
    """Steps kept of the best episodes; more once successes fill them."""
    keep_most: int = 10_000
    """Most steps kept: successes, with a return in the upper half of its range, are all kept up to here."""
    level_share: float = 0.25
    """Largest share of the steps kept that episodes with the same first view may have."""
    per_sample: int = 2
    """Kept steps imitated beside each sample of PPO."""
    return_coef: float = 1.0
    """Weight of the return in an episode's score."""
    novelty_coef: float = 0.1
    """Weight of an episode's novelty in its score."""
    novelty: Literal["volume", "counts"] = "volume"
    """volume: log-determinant in random features; counts: share of views that differ."""
    success_share: float = 0.5
    """Share of the imitated steps drawn from rewarded episodes alone, once there are any."""
    success_coef: float = 3.0
    """Weight of a rewarded episode's step, times how far its discounted return exceeds the critic's value."""
    view_bonus: float = 0.01
    """Bonus for a view that is new in its episode, in units of the range of returns; fades with success."""
    num_features: int = 128
    """Random features of a view."""
    ridge: float = 0.1
    """Added to the features' covariance."""

    def __post_init__(self) -> None:
        positive(self, "keep", "keep_most", "per_sample", "num_features", "ridge", "level_share")

    def init(
        self, rng: np.random.Generator, observation_space: Space, action_space: Space, hidden: tuple[int, ...]
    ) -> Ranked:
        """Nothing kept, and fresh features."""
        code = CODE if isinstance(observation_space, Image) else 0
        body = init_body(rng, observation_space, (self.num_features,), code)
        if isinstance(layer := body.layers[-1], Linear):  # without a bias, x and 2 x would have the same features
            body = Body((*body.layers[:-1], Linear(layer.weight, rng.uniform(-1, 1, layer.bias.shape).astype("f4"))))
        # Zeros and ones are kept as bits: a view of a grid is a thousand of them.
        width, kind = observation_space.shape, observation_space.dtype
        width, kind = ((-(-width[0] // 8),), np.uint8) if isinstance(observation_space, Cells) else (width, kind)
        size = max(1, min(max(self.keep, self.keep_most), LARGEST // (math.prod(width) * np.dtype(kind).itemsize)))
        return Ranked(
            np.zeros((size, *width), kind),
            np.zeros((size, *action_space.shape), action_space.dtype),
            np.full(size, NONE, np.float32),
            np.zeros(size, np.float32),
            np.zeros(size, np.uint32),
            np.zeros(size, np.float32),
            np.zeros((), np.int32),
            np.asarray(np.inf, np.float32),
            np.asarray(-np.inf, np.float32),
            body,
            init_moments((self.num_features,)),
        )

    def weight(self, spent: float) -> float:
        return 1.0

    def pay(self, state: Ranked, data: Rollout, at: At) -> tuple[jax.Array, Ranked]:
        """The bonus for new views, and the state with the episodes of this rollout ranked among those kept."""
        views = at.observations(data.observations)
        codes, shown = coded(views), jnp.concatenate([data.alive[:1], data.alive])
        is_new = jax.vmap(first_of_each, (1, 1), 1)(codes, shown)
        views, leads_on = views[:-1], is_new[1:] | (data.rewards != 0)
        returns = jnp.sum(data.rewards, axis=0)
        volumes, moments = self.judged(state, views, data.alive, is_new[:-1] & data.alive)
        low = jnp.minimum(state.low, jnp.min(returns))
        high = jnp.maximum(state.high, jnp.max(returns))
        state = state._replace(low=low, high=high, moments=moments)

        def each_step(values: jax.Array) -> jax.Array:
            return jnp.broadcast_to(values, data.alive.shape).T.reshape(-1)

        def in_order(values: jax.Array) -> jax.Array:  # an episode's steps one after the other
            return jnp.swapaxes(values, 0, 1).reshape(-1, *values.shape[2:])

        # What did not lead on in a rewarded episode is not worth imitating.
        is_worth = data.alive & (leads_on | ~is_rewarded(state, returns))
        new = (
            in_order(views if views.shape[2:] == state.observations.shape[1:] else packed(views)),
            in_order(data.actions),
            jnp.where(in_order(is_worth), each_step(returns), NONE),
            each_step(volumes),
            each_step(codes[0]),
            in_order(discounted_sums(data.rewards[::-1], at.gamma)[::-1]),
        )
        both = [jnp.concatenate([old, found]) for old, found in zip(state[:6], new, strict=True)]
        order, kept = self.best(both[2], self.scores(state, both[2], both[3]), both[4], state)
        chosen = [values[order] for values in both]
        chosen[2] = jnp.where(jnp.arange(len(state.returns)) < kept, chosen[2], NONE)
        return self.bonus_of(state, returns) * is_new[1:], state._replace(
            **dict(zip(Ranked._fields, chosen, strict=False)), kept=kept.astype(jnp.int32)
        )

    def bonus_of(self, state: Ranked, returns: jax.Array) -> jax.Array:
        """The bonus of a new view: none once the mean return of these episodes is a tenth of the range of returns."""
        left = jnp.maximum(0.0, 1 - 10 * jnp.mean(in_range(state, returns)))
        return self.view_bonus * left * jnp.where(state.high > state.low, state.high - state.low, 1.0)

    def judged(self, state: Ranked, views: jax.Array, alive: jax.Array, is_new: jax.Array) -> tuple[jax.Array, Moments]:
        """The volume of each episode [E], and the moments of the features moved on."""
        length = jnp.maximum(jnp.sum(alive, axis=0), 1)
        if self.novelty == "counts":
            return jnp.sum(is_new, axis=0) / length, state.moments
        units = state.body(views)
        moments = Moments(*state.moments).update(units.reshape(-1, units.shape[-1]), alive.reshape(-1))
        centred = units - moments.mean
        phi = centred / jnp.sqrt(jnp.sum(centred**2, axis=-1, keepdims=True) + 1e-12)
        phi = jnp.where(is_new[..., None], phi, 0.0)
        size = phi.shape[-1]
        covariances = jnp.einsum("tei,tej->eij", phi, phi) / self.ridge + jnp.eye(size)
        return log_determinants(covariances) / (length * math.log(1 + 1 / self.ridge)), moments

    def scores(self, state: Ranked, returns: jax.Array, volumes: jax.Array) -> jax.Array:
        """Scores of steps by their episodes."""
        return self.return_coef * in_range(state, returns) + self.novelty_coef * volumes

    def best(
        self, returns: jax.Array, scores: jax.Array, levels: jax.Array, state: Ranked
    ) -> tuple[jax.Array, jax.Array]:
        """The steps to keep, best first [capacity], and how many of them count."""
        known = returns > NONE
        worst_first = jnp.where(known, -scores, jnp.inf)
        successes = jnp.sum(known & (in_range(state, returns) > 0.5))
        capacity = len(state.returns)
        size = jnp.clip(successes, min(self.keep, capacity), capacity)
        # Of each level the best steps up to its share, then the best of all levels.
        by_level = jnp.lexsort((worst_first, levels))
        begins = jnp.concatenate([jnp.ones(1, bool), jnp.diff(levels[by_level]) != 0])
        place = jnp.arange(len(levels))
        within = place - jax.lax.cummax(jnp.where(begins, place, 0))
        is_over = jnp.zeros(len(levels), bool).at[by_level].set(within >= self.level_share * size)
        order = jnp.argsort(jnp.where(is_over, jnp.inf, worst_first))[:capacity]
        return order, jnp.minimum(size, jnp.sum(known & ~is_over))

    def beside(self, state: Ranked, key: jax.Array, count: int) -> jax.Array:
        """Numbers of kept steps for each sample: a share of rewarded episodes, which are first, the others of all."""
        key_share, key_place = jax.random.split(key)
        rewarded = jnp.sum(is_rewarded(state, state.returns))
        is_rewarding = jax.random.bernoulli(key_share, self.success_share, (count, self.per_sample)) & (rewarded > 0)
        places = jnp.where(is_rewarding, rewarded, jnp.maximum(state.kept, 1))
        return jax.random.randint(key_place, places.shape, 0, places)

    def loss(
        self, policy: ActorCritic, trained: None, state: Ranked, samples: Samples, at: At
    ) -> tuple[jax.Array, Metrics]:
        """Minus the mean weighted log-density of kept actions."""
        chosen = samples.beside.reshape(-1)
        seen = jnp.asarray(state.observations)[chosen]
        shape = at.observations(samples.observations).shape[1:]
        seen = seen if seen.shape[1:] == shape else unpacked(seen, shape[0])
        outputs, values = policy.outputs_and_value(seen)
        log_probs = at.distribution.log_prob(outputs, jnp.asarray(state.actions)[chosen])
        weights = self.weights(policy, state, chosen, jax.lax.stop_gradient(values))
        loss = -jnp.mean(jnp.where(state.kept > 0, weights * log_probs, 0.0))
        return self.coef * loss, {"imitation_loss": loss, "kept": jnp.asarray(state.kept, jnp.float32)}

    def weights(self, policy: ActorCritic, state: Ranked, chosen: jax.Array, values: jax.Array) -> jax.Array:
        """Of kept steps, from the critic's values: 1 in an episode without reward."""
        ahead, width = jnp.asarray(state.ahead)[chosen], jnp.maximum(state.high - state.low, 1e-6)
        if policy.normaliser is not None:
            ahead, width = policy.normaliser.earned(ahead), policy.normaliser.earned(width)
        over = jnp.maximum(ahead - values, 0.0) / width
        return jnp.where(is_rewarded(state, jnp.asarray(state.returns)[chosen]), self.success_coef * over, 1.0)


def is_rewarded(state: Ranked, returns: Array) -> jax.Array:
    """Whether episodes returned more than the least so far."""
    return in_range(state, returns) > 0


def in_range(state: Ranked, returns: Array) -> jax.Array:
    """Returns from 0, the least so far, to 1, the largest; 0 where all are equal."""
    width = state.high - state.low
    return jnp.where(width > 0, (returns - state.low) / jnp.where(width > 0, width, 1.0), 0.0)


def log_determinants(matrices: jax.Array, block: int = 16) -> jax.Array:
    """Of positive definite matrices [n, d, d], by elimination, a block of rows at a time.

    LAPACK's factorisations wait for XLA's threads, and two seeds side by side can wait for each other for ever.
    """
    total = jnp.zeros(len(matrices))
    while size := matrices.shape[1]:
        rows = jnp.arange(min(block, size))

        def eliminate(panel: jax.Array, row: jax.Array, rows: jax.Array = rows) -> tuple[jax.Array, jax.Array]:
            here, column = panel[:, row], panel[:, :, row]
            factors = jnp.where(rows > row, column / here[:, row, None], 0.0)
            return panel - factors[:, :, None] * here[:, None], here[:, row]

        panel, pivots = jax.lax.scan(eliminate, matrices[:, : len(rows)], rows)
        right = panel[:, :, len(rows) :]
        taken = jnp.einsum("nij,nik->njk", right / pivots.T[:, :, None], right)
        matrices = matrices[:, len(rows) :, len(rows) :] - taken
        total += jnp.sum(jnp.log(pivots), axis=0)
    return total


def coded(views: jax.Array) -> jax.Array:
    """A uint32 for each view [T, E, ...]: equal views have equal numbers, others nearly never."""
    flat = views.reshape(*views.shape[:2], -1)
    bits = flat.astype(jnp.uint32) if flat.dtype == jnp.uint8 else jax.lax.bitcast_convert_type(flat, jnp.uint32)
    weights = np.random.default_rng(0).integers(2**32, size=flat.shape[-1], dtype=np.uint32) | np.uint32(1)
    mixed = bits * weights
    return jnp.sum(mixed ^ (mixed >> 15), axis=-1, dtype=jnp.uint32)


def packed(views: jax.Array) -> jax.Array:
    """Zeros and ones as bits."""
    return jnp.packbits(views > 0.5, axis=-1)


def unpacked(bits: jax.Array, size: int) -> jax.Array:
    """The zeros and ones that were packed."""
    return jnp.unpackbits(bits, axis=-1, count=size).astype(jnp.float32)


def first_of_each(codes: jax.Array, alive: jax.Array) -> jax.Array:
    """Which steps of an episode [T] show a view for the first time."""
    order = jnp.lexsort((~alive, codes))
    begins = jnp.concatenate([jnp.ones(1, bool), jnp.diff(codes[order]) != 0])
    return jnp.zeros(len(codes), bool).at[order].set(begins) & alive
