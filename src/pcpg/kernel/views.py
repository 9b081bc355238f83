"""The kernel's view of observations: scaled by the data so far, or through an encoder learned from them.

Features learned from kept data, which predict the action between consecutive observations.

The encoder is that of E3B (features/inverse_dynamics.py), trained on kept transitions. What no action moves does not
help and leaves the features, whether it jumps or drifts; the kernel then tells apart by features what it would else
tell apart entry by entry. The encoder is learned from scratch whenever the data have doubled: it is a function
of the data alone.

How far neighbouring places come to lie apart, beside one place with another noise, is measured in
tests/kernel/test_learned.py. Observations several steps apart made noise stay: which action came first is then hard
to tell, and is remembered by the noise.
"""

import dataclasses
import functools
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.config import positive, within
from pcpg.data import Kept, Listed, Sample, Stream, table_of_rows, vectors_of
from pcpg.engine.program import Programs
from pcpg.engine.together import Shared
from pcpg.envs.spaces import Box, Discrete
from pcpg.features.inverse_dynamics import InverseDynamics, init_inverse_dynamics, inverse_loss
from pcpg.kernel.fitting import (
    CountInputs,
    CountOutputs,
    FitInputs,
    FitOutputs,
    Model,
    PlaceInputs,
    count_pairs,
    fit_values,
    no_model,
    place_landmarks,
    space_landmarks,
)
from pcpg.kernel.inputs import met_in
from pcpg.kernel.landmarks import Encoder, Landmarks, inverse_scale_of, no_landmarks, ranges_of
from pcpg.learners.update import init_adam, minimise
from pcpg.policies.distributions import categorical
from pcpg.shapes import Array

WIDTHS = (128, 32)
"""Units of the encoder; the last are the features."""
DECAY = 3e-3
"""Weight of the squared parameters in the loss: with little of it more of the noise stays."""
DRAWN, EPOCHS, MINIBATCH, RATE = 16_384, 20, 256, 1e-3
"""Transitions that an encoder is trained on, drawn with replacement, so often, in such minibatches, at this rate."""


class LearnInputs(NamedTuple):
    """Transitions to learn from; observations are rows of x."""

    encoder: InverseDynamics
    x: Array  # [U, size]
    row: Array  # [DRAWN]
    next_row: Array  # [DRAWN]
    action: Array  # [DRAWN]
    seed: Array | np.integer


def learn_encoder(inputs: LearnInputs, *, num_actions: int) -> InverseDynamics:
    """The encoder after its training."""
    x, distribution = jnp.asarray(inputs.x), categorical(num_actions)

    def loss(encoder: InverseDynamics, part: tuple[jax.Array, ...]) -> tuple[jax.Array, dict[str, jax.Array]]:
        row, next_row, action = part
        found = inverse_loss(encoder.outputs(x[row], x[next_row]), action, jnp.ones(len(row), bool), distribution)
        large = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(encoder))
        return found + DECAY * large, {"inverse_loss": found}

    drawn = tuple(jnp.asarray(one) for one in (inputs.row, inputs.next_row, inputs.action))
    settings = {"num_epochs": EPOCHS, "minibatch_size": MINIBATCH, "max_grad_norm": 5.0}
    key, adam = jax.random.key(inputs.seed), init_adam(inputs.encoder)
    return minimise(loss, inputs.encoder, adam, drawn, key, RATE, **settings)[0]


def encoded(inputs: tuple[InverseDynamics, Array]) -> jax.Array:
    """Observation vectors [U, size] through an encoder."""
    encoder, x = inputs
    return encoder.features(x)


@functools.cache
def fresh_encoder(size: int, num_actions: int, seed: int) -> InverseDynamics:
    """An encoder of observation vectors before any training."""
    seen, rng = Box(-np.inf, np.inf, (size,)), np.random.default_rng([seed, Stream.WEIGHTS])
    return init_inverse_dynamics(rng, seen, Discrete(num_actions), WIDTHS)


def learn_inputs(kept: Kept, places: np.ndarray, seed: int, num_actions: int) -> LearnInputs:
    """What an encoder is trained on: draws from some kept transitions, each as likely as the others."""
    drawn = np.random.default_rng([seed, kept.size, Stream.LEARN]).choice(places, DRAWN)
    codes = np.concatenate([kept.column("code")[drawn], kept.column("next_code")[drawn]])
    distinct, rows = np.unique(codes, return_inverse=True)
    x = kept.observations[distinct]
    ranges = ranges_of(vectors_of(x)).astype(np.float32)
    ranges[list(kept.ignored)] = np.inf  # zero weights: ignored entries are kept as zeros
    encoder = eqx.tree_at(  # entries of any size begin alike
        lambda made: made.encoder.layers[0].weight,
        fresh_encoder(len(ranges), num_actions, seed),
        replace_fn=lambda weight: weight / ranges[:, None],
    )
    row, next_row = np.split(rows.astype(np.int32), 2)
    return LearnInputs(encoder, table_of_rows(x), row, next_row, kept.column("action")[drawn], np.uint32(seed))


FIRST_LANDMARKS = 64
MANY_LANDMARKS, MOST_PLACED = 1024, 2**35
"""So many landmarks, or more, are taken from some of the rows: as many as there are of these over landmarks squared,
which is the time, but four for each landmark."""
Fit = Shared[FitInputs, FitOutputs]
MOST_RECOUNTED = 16_384
RESCALED = 0.2
"""Features are recomputed if the scale of some entry has changed by more than this, as a logarithm."""


@dataclasses.dataclass(frozen=True)
class KeepConfig:
    """The data that PC-PG keeps, and their features."""

    capacity: int = 0
    """Maximum number of transitions kept per seed; exploration ends when it is reached. 0: 40 * max_steps^2 *
    (actions + 10), between 200,000 and 40 million, up to 4 GB."""
    pool: int = 0
    """Transitions per fit, drawn from the sample; four times as many for the task. 0: 8 * actions * landmarks,
    between 4096 and 65536."""
    sample_rate: float = 8.0
    """A transition is sampled for fits with probability this times its bonus at the time it was collected."""
    features: Literal["observation", "inverse-dynamics"] = "observation"
    """Input of the kernel: observations, entry by entry, or features learned from the data to predict the action
    between consecutive observations, which ignore anything that actions do not affect."""
    bandwidth: float = 0.35
    """Bandwidth of the kernel."""
    bandwidth_scale: Literal["median", "raw"] = "median"
    """median: relative to the median distance between observations, each entry divided by its range; raw: absolute."""
    tolerance: float = 0.1
    """An observation becomes a landmark if the others leave more than this of it unexplained."""
    max_landmarks: int = 2048
    """Maximum number of landmarks; covariances take 8 * actions * landmarks^2 bytes."""
    num_actions: int = 5
    """Continuous actions are chosen from a grid of about this size."""
    ignored: tuple[int, ...] = ()
    """Indices of observation entries that are noise: they are stored as zeros and ignored."""

    def __post_init__(self) -> None:
        if self.ignored and min(self.ignored) < 0:
            raise ValueError(f"ignored must list entry numbers, counted from 0, got {list(self.ignored)}")
        positive(self, "sample_rate", "bandwidth", "num_actions", "max_landmarks")
        within(self, "tolerance", 1e-4, 1.0)
        for name in ("capacity", "pool"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 (by the formula) or more, got {getattr(self, name)}")
        if self.max_landmarks < 64 or self.max_landmarks & (self.max_landmarks - 1):
            raise ValueError(f"max_landmarks must be a power of two of at least 64, got {self.max_landmarks}")

    def pool_of(self, model: Model) -> int:
        """The maximum number of transitions of one fit."""
        pairs = len(model.w) * model.landmarks.capacity
        return self.pool or min(max(8 * pairs, 4096), 65_536)


class View(NamedTuple):
    """The kernel's view of observations."""

    scale: np.ndarray  # inverse
    encoder: Encoder | None = None

    def differs(self, marks: Landmarks) -> bool:
        """Whether some entry's scale differs from the landmarks', or features are relearned."""
        seen, old = self.scale > 0, np.asarray(marks.inverse_scale)
        change = np.max(np.abs(np.log(self.scale[seen] / old[seen])), initial=0.0)
        return self.encoder is not None or bool(change > RESCALED)


def scale_of(keep: KeepConfig, kept: Kept, marks: Landmarks | None, closer: int = 0) -> np.ndarray:
    """The inverse scale of features by the data so far; landmarks, once there are any, stand for distinct places.

    The kernel is half as wide for every closer look.
    """
    x, ratio = kept.some_vectors(), keep.bandwidth * 0.5**closer
    if keep.bandwidth_scale == "raw":
        scale = np.full(x.shape[1], 1 / ratio, np.float32)
    else:
        scale = inverse_scale_of(x, x if marks is None else marks.unscaled, ratio)
    scale[list(kept.ignored)] = 0  # distances do not depend on ignored entries
    return scale


class Kernel:
    """The kernel's settings, with the programs that all seeds share."""

    def __init__(self, keep: KeepConfig, num_actions: int, lanes: int) -> None:
        self.keep, self.num_actions, self.lanes = keep, num_actions, lanes
        self.place: Shared[PlaceInputs, Landmarks] = Shared(Programs(place_landmarks, lanes))
        self.space: Shared[PlaceInputs, Landmarks] = Shared(Programs(space_landmarks, lanes))
        self.count: Shared[CountInputs, CountOutputs] = Shared(Programs(count_pairs, lanes))
        learn = functools.partial(learn_encoder, num_actions=num_actions)
        self.learn: Shared = Shared(Programs(learn, lanes))
        self.encode: Shared = Shared(Programs(encoded, lanes))

    def fit(self, backups: int, discounts: tuple[float, float], max_steps: int, *, explore: bool) -> Fit:
        """The program that fits values. Both discounts (the second: of interpolated values) are over max_steps."""
        gamma, smooth_gamma = (1 - 1 / (discount * max_steps) for discount in discounts)
        constants = {"num_actions": self.num_actions, "backups": backups, "gamma": gamma, "smooth_gamma": smooth_gamma}
        return Shared(Programs(functools.partial(fit_values, **constants, explore=explore), self.lanes))

    async def view_of(self, kept: Kept, sample: Sample, marks: Landmarks | None, seed: int, closer: int) -> View:
        """The kernel's view of observations, given the data so far."""
        if self.keep.features == "observation":
            return View(scale_of(self.keep, kept, marks, closer))
        codes = np.unique(kept.column("code")[sample.places])
        return await self.settled_view(kept, sample.places, codes, seed, closer)

    async def settled_view(self, kept: Kept, places: np.ndarray, codes: np.ndarray, seed: int, closer: int = 0) -> View:
        """The same from all data at once: landmarks in one scale tell the next, as they did round by round.

        Args:
            kept: The data.
            places: Transitions that features are learned from, where they are.
            codes: Observations among which landmarks are placed.
            seed: Whose features they are.
            closer: How often the kernel was made narrower.
        """
        rng, u, encoder = np.random.default_rng(len(codes)), np.zeros(0), None
        codes = rng.choice(codes, MOST_RECOUNTED, replace=False) if len(codes) > MOST_RECOUNTED else codes
        x = table_of_rows(kept.observations[codes])
        if self.keep.features != "observation":
            encoder = jax.tree.map(np.asarray, await self.learn(learn_inputs(kept, places, seed, self.num_actions)))
            u = np.asarray(await self.encode((encoder, x)))[: len(codes)]

        def scaled(marks: Landmarks | None) -> View:
            if encoder is None:
                return View(scale_of(self.keep, kept, marks, closer))
            apart, ratio = u if marks is None else marks.unscaled, self.keep.bandwidth * 0.5**closer
            return View(inverse_scale_of(u, apart, ratio, by_entry=False), encoder)

        view = scaled(None)
        for _ in range(3):
            view = scaled(await self.placed(view, x, len(codes), self.keep.tolerance))
        return view

    async def placed(self, view: View, x: np.ndarray, number: int, tol: float) -> Landmarks:
        """Landmarks for the first rows of x, with as much room as they need; many of them are taken from some rows."""
        allowed, room = np.arange(len(x)) < number, FIRST_LANDMARKS
        while True:
            room = 2 * room
            most = max(MOST_PLACED // room**2, 4 * room)
            if room >= MANY_LANDMARKS and number > most:
                some = np.random.default_rng(number).choice(number, most, replace=False)
                x, allowed, number = x[some], np.ones(most, bool), most
            empty = no_landmarks(view.scale, room, view.encoder)
            found = await self.place(PlaceInputs(empty, x, allowed, np.float32(tol)))
            if int(found.count) < room or room >= self.keep.max_landmarks:
                return found

    async def recounted(self, kept: Kept, sample: Sample, listed: Listed | None, view: View, old: Model) -> Model:
        """The model in another view, from the sample: its weighted sums stand for those over all data."""
        index, weight = sample
        if len(index) > MOST_RECOUNTED:
            some = np.random.default_rng(len(index)).choice(len(index), MOST_RECOUNTED, replace=False)
            index, weight = index[some], weight[some] * (len(index) / MOST_RECOUNTED)
        pairs, tol = (kept.column("code")[index], kept.column("action")[index]), np.float32(self.keep.tolerance)
        met, capacity = met_in(kept, listed, old, np.zeros(0), *pairs, weight), old.landmarks.capacity
        while True:  # as much room as the new features need
            model = no_model(view.scale, self.num_actions, capacity, len(old.bonus), view.encoder)
            counted = await self.count(CountInputs(model, met.x, met.visits, met.pairs, tol))
            if int(counted.model.landmarks.count) < capacity or capacity >= self.keep.max_landmarks:
                return counted.model
            capacity *= 2
