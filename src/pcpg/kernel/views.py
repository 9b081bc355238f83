"""The kernel's view of observations: scaled by the data so far, or through an encoder learned from them."""

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import numpy as np

from pcpg.config import positive, within
from pcpg.data import Kept, Listed, Sample, table_of_rows
from pcpg.engine.program import Programs
from pcpg.engine.together import Shared
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
from pcpg.kernel.landmarks import Encoder, Landmarks, inverse_scale_of, no_landmarks
from pcpg.kernel.learned import encoded, learn_encoder, learn_inputs

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
