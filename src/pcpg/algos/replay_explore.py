"""Exploration on kept data: a round of Algorithm 1 for one seed, and the seed's state."""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from pcpg.algorithm1 import Explored, Parts, explore_round
from pcpg.algos.on_data import NO_ROLL_IN, Collect, Recorder
from pcpg.algos.rounds import after_round, plain
from pcpg.config import positive, within
from pcpg.cover.cover import RollIn
from pcpg.cover.design import Design
from pcpg.data import Batch, Draws, Kept, Sample, Stream
from pcpg.engine.play import Visits
from pcpg.engine.program import in_threads
from pcpg.engine.together import Shared
from pcpg.kernel.fitting import CountInputs, Model, with_room
from pcpg.kernel.inputs import explore_inputs, met_in
from pcpg.kernel.landmarks import Landmarks
from pcpg.kernel.pairs import diagonal_design
from pcpg.kernel.policies import ExploringPolicy, GreedyPolicy, MemberPolicy, sure_choices
from pcpg.kernel.views import Fit, Kernel
from pcpg.shapes import Array
from pcpg.state import Report, SeedState

GROUPS = 8
"""Groups of episodes that share a member for their roll-in."""
NEW = 0.5
"""Bonus of a pair met at most once: a round with such a pair is not quiet."""
NOT_OF_THE_COVER = -1
"""Number of features in the part of a round that learned the task."""


def whole_groups(most: int) -> int:
    """The largest number of episodes up to this one that groups divide, or that divides them; at least 1."""
    return most // GROUPS * GROUPS if most >= GROUPS else max(n for n in (1, 2, 4) if n <= max(most, 1))


def groups_of(episodes: int) -> int:
    """The number of groups of so many episodes."""
    return min(GROUPS, episodes)


def check_groups(name: str, episodes: int, zero: str) -> None:
    """Refuse a number of episodes that cannot be divided into groups."""
    if episodes != 0 and (episodes < 0 or whole_groups(episodes) != episodes):
        raise ValueError(f"{name} must be 0 ({zero}), 1, 2, 4 or a multiple of {GROUPS}, got {episodes}")


@dataclasses.dataclass(frozen=True)
class ReplayExploreConfig:
    """The outer loop: Algorithm 1 on kept data."""

    num_episodes: int = 0
    """Episodes per round; 0: 32, or 16 if episodes are longer than 128 steps."""
    roll_in_share: float = 0.2
    """Share of the episodes with a roll-in through the cover."""
    sharpness: float = 10.0
    """Actions are drawn in proportion to the larger of value and bonus, raised to this power."""
    bonus_coef: float = 1.0
    """Weight of the bonus; 0: uniformly random actions."""
    backups: int = 0
    """Backups per fit; 0: max_steps."""
    discount: float = 5.0
    """The discount factor of future bonuses is 1 - 1 / (this * max_steps)."""
    min_value: float = 0.2
    """Exploration ends once the largest predicted bonus from the start stays below this ..."""
    patience: int = 5
    """... for this many consecutive rounds without anything new."""
    closer_looks: int = 3
    """How often exploration may continue with half the kernel width instead of ending, while anything good (a reward
    above 0, or an early end if every step costs) was met fewer than three times. It ends as soon as that is met."""
    attempts: float = 1.5
    """With a target (`--until`), try the task during exploration whenever the data have grown by this factor since the
    last try and something good was met; exploration ends when a try reaches the target. 0: never."""
    weights: Literal["d-optimal", "uniform"] = "d-optimal"
    """How the policies of the cover are weighted for roll-ins."""
    ridge: float = 1e-3
    """lambda for the D-optimal weights."""

    def __post_init__(self) -> None:
        positive(self, "sharpness", "discount", "patience", "ridge")
        within(self, "roll_in_share", 0.0, 1.0)
        check_groups("num_episodes", self.num_episodes, "by the formula")
        for name in ("backups", "closer_looks"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.attempts != 0 and self.attempts <= 1:
            raise ValueError(f"attempts must be 0 (never) or more than 1, got {self.attempts}")


class Members(NamedTuple):
    """The cover. Members with earlier features are on disk with weight 0 and take no part in roll-ins."""

    w: np.ndarray  # [n, A, M] values of the members in the features of now
    landmarks: np.ndarray  # [n] int32: how many there were
    visits: np.ndarray  # [n, M] shares of the landmarks that each visited
    weights: np.ndarray  # [all members] float64
    size: np.ndarray  # int32: all members

    def joined(self, w: Array, landmarks: Array, visits: np.ndarray) -> "Members":
        """The cover with one more member in the features of now."""
        room = max(self.w.shape[-1], len(visits))
        return self._replace(
            w=np.concatenate([_padded(self.w, room), _padded(w, room)[None]]),
            landmarks=np.append(self.landmarks, np.asarray(landmarks, np.int32)),
            visits=np.concatenate([_padded(self.visits, room), _padded(visits, room)[None]]),
        )


def _padded(values: Array, room: int) -> np.ndarray:
    values = np.asarray(values)
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, room - values.shape[-1])])


def no_members(num_actions: int, room: int) -> Members:
    """An empty cover."""
    w, visits = np.zeros((0, num_actions, room), np.float32), np.zeros((0, room), np.float32)
    return Members(w, np.zeros(0, np.int32), visits, np.zeros(0), np.zeros((), np.int32))


class ReplayPart(NamedTuple):
    """The output of a round, written once: its policy and all of its data."""

    w: np.ndarray
    landmarks: np.ndarray  # int32
    features: np.ndarray  # int32: number of the features in which w is
    visits: np.ndarray  # [M]
    cells: Array
    returns: Array
    batch: Batch


class Own(NamedTuple):
    """State of a seed in addition to the ledger; data and members lie in the parts of its rounds."""

    model: Model
    waiting: np.ndarray  # [S, A] visits of listed pairs that are not counted yet
    sample: Sample
    features: np.ndarray  # int32: how often the features were recomputed
    scaled_at: np.ndarray  # int64: transitions there were when their scale was last looked at
    quiet: np.ndarray  # int32: rounds in a row in which the start promised little
    closer: np.ndarray  # int32: how often the kernel was made narrower because nothing good had been met
    tried_at: np.ndarray  # int64: transitions there were when the task was last tried
    tries: np.ndarray  # bool: the next round tries the task, then exploration continues
    best_grain: np.ndarray  # int32: that of the task's best policy (`grains_for`)
    confirms: np.ndarray  # bool: the next round plays the task's best policy again, in fresh episodes
    batches: np.ndarray  # int32: rounds whose data were written in this run
    explored: np.ndarray  # int64: transitions there were when exploration ended
    cover: Members
    kept: Kept  # None inside a checkpoint

    def noted(self, **numbers: object) -> "Own":
        """The same with other numbers, in their types."""
        made = {name: np.asarray(value, getattr(self, name).dtype) for name, value in numbers.items()}
        return self._replace(**made)


class Improved(NamedTuple):
    """A fit, in the shape of an improvement."""

    policy: Any  # the model with its new values, or the policy of the task
    value: float  # of the first observations
    env_steps: int
    metrics: dict[str, object]


class Seen(NamedTuple):
    """The data of a round's episodes, kept and counted."""

    visits: Visits
    batch: Batch
    own: Own
    shares: np.ndarray  # [M] of the visits, by landmark
    largest: float  # bonus met


class Explorer:
    """Rounds of exploration."""

    def __init__(self, settings: ReplayExploreConfig, recorder: Recorder, kernel: Kernel) -> None:
        self.settings, self.recorder, self.kernel, self.env = settings, recorder, kernel, recorder.env
        discounts = settings.discount, settings.discount
        self.improve: Fit = kernel.fit(settings.backups, discounts, self.env.max_steps, explore=True)
        self.collect: Collect = recorder.collector(settings.num_episodes)
        self.design: Shared[Members, Design] = Shared(functools.partial(in_threads, self._design))
        self.round_steps = settings.num_episodes * self.env.max_steps

    async def round(self, state: SeedState[Own]) -> tuple[SeedState[Own], Report]:
        """One round of Algorithm 1; it does not decide whether exploration ends."""
        own = state.own
        now = Explored(own.model, own.cover, None if state.round == 0 else own.cover.weights)
        parts = Parts(
            improve=lambda _: self._improve(state),
            visit=functools.partial(self._visit, state),
            extend=functools.partial(self._extend, state),
            design=self.design,
            bonus=lambda _: None,  # the model has it
        )
        done = await explore_round(now, parts)
        seen, played = done.seen, done.policy
        value = 1.0 if done.improved is None else done.improved.value
        quiet = int(own.quiet) + 1 if value < self.settings.min_value and seen.largest < NEW else 0
        cover, marks = done.cover, seen.own.model.landmarks
        gone = np.zeros(int(cover.size) - len(cover.w))  # those of earlier features
        part = ReplayPart(
            *(np.asarray(played.w), np.asarray(played.landmarks.count), own.features),
            *(seen.shares, seen.visits.cells, seen.visits.returns, seen.batch),
        )
        own = seen.own.noted(batches=int(own.batches) + 1, explored=own.kept.size, quiet=quiet)
        own = own._replace(cover=cover._replace(weights=np.concatenate([gone, done.design.weights])))
        greedy = self.greedy(marks, own.model.w)
        state, metrics = after_round(self.env, state, done._replace(policy=greedy, seen=seen.visits))
        metrics |= {
            "policies": int(cover.size),
            "policies_with_weight": int(np.count_nonzero(done.design.weights)),
            "log_det": done.design.log_det,
            "design_gap": done.design.gap,
            "bonus_ahead": value,
            "closer_looks": int(own.closer),
            "largest_bonus": seen.largest,
            "landmarks": int(marks.count),
            "observations": len(own.kept.observations),
            "sample": len(own.sample.places),
        }
        return state._replace(own=own), Report(plain(metrics), part)

    async def _improve(self, state: SeedState[Own]) -> Improved:
        """Values of future bonuses, fitted to the kept data."""
        own, draws = state.own, Draws(state.seed, state.round)
        most, listed = self.kernel.keep.pool_of(own.model), self.recorder.listed(state.seed)
        drawn = {"most": most, "bonus_coef": self.settings.bonus_coef}
        found = await self.improve(explore_inputs(own.kept, own.sample, own.model, listed, draws, **drawn))
        value, change = float(found.value), float(found.change)
        return Improved(own.model._replace(w=found.w), value, 0, {"change": change, "value": value})

    async def _visit(self, state: SeedState[Own], model: Model) -> Seen:
        """The data of a round: kept and counted, with features recomputed if their scale has changed."""
        own, listed = state.own, self.recorder.listed(state.seed)
        odds = np.asarray(self.settings.sharpness, np.float32), np.asarray(self.settings.bonus_coef, np.float32)
        policy = ExploringPolicy(model.landmarks, model.w, model.known, *odds)
        roll_in = self.roll_in(state, model, groups_of(self.settings.num_episodes))
        played, visits = await self.recorder.played(self.collect, state, policy, roll_in)
        kept, keep = own.kept, self.kernel.keep
        batch = kept.batch_of(played)
        met = met_in(kept, listed, model, own.waiting, batch.code, batch.action)
        larger = with_room(model, keep.max_landmarks)
        counted = await self.kernel.count(CountInputs(larger, met.x, met.visits, met.pairs, np.float32(keep.tolerance)))
        bonus = met.bonus if met.place is None else np.asarray(counted.met)[tuple(met.place)]
        chance = np.minimum(1.0, keep.sample_rate * bonus)
        chosen = np.flatnonzero(Draws(state.seed, state.round).of(Stream.SAMPLE).random(len(bonus)) < chance)
        sample = own.sample.joined(kept.size + chosen, 1.0 / chance[chosen])
        kept.add(batch)
        own = own._replace(model=counted.model, waiting=met.waiting, sample=sample)
        if kept.size >= 2 * own.scaled_at:
            own = await self._rescaled(own, state.seed)
        return Seen(visits, batch, own, np.asarray(counted.visits), float(bonus.max()))

    async def _rescaled(self, own: Own, seed: int) -> Own:
        """Features, recomputed if their scale has changed."""
        kept, marks = own.kept, None if own.features == 0 else own.model.landmarks
        view = await self.kernel.view_of(kept, own.sample, marks, seed, int(own.closer))
        own = own.noted(scaled_at=kept.size)
        if marks is not None and not view.differs(marks):
            return own
        model = await self.kernel.recounted(kept, own.sample, self.recorder.listed(seed), view, own.model)
        return own.noted(features=own.features + 1)._replace(model=model, waiting=np.zeros_like(own.waiting))

    def _extend(self, state: SeedState[Own], cover: Members, played: Model, seen: Seen) -> Members:
        """The cover with the new policy; if features are new, earlier members take no part in roll-ins."""
        size = np.asarray(int(cover.size) + 1, np.int32)
        if seen.own.features != state.own.features:
            w = seen.own.model.w
            return no_members(len(w), w.shape[-1])._replace(size=size)
        return cover.joined(played.w, played.landmarks.count, seen.shares)._replace(size=size)

    def _design(self, cover: Members) -> Design:
        """Weights of the members for roll-ins; the newest starts with an equal share."""
        number = len(cover.visits)
        old = cover.weights[len(cover.weights) - max(number - 1, 0) :]
        first = np.append(old * (number - 1) / number, 1 / number) if number else old
        return diagonal_design(cover.visits, self.settings.ridge, self.settings.weights, first=first)

    def roll_in(self, state: SeedState[Own], model: Model, groups: int) -> RollIn:
        """Members drawn by their weights, and uniform lengths for a share of the episodes."""
        cover, marks = state.own.cover, model.landmarks
        share = self.settings.roll_in_share if len(cover.w) else 0.0
        rng, length = self.lengths(state, self.settings.num_episodes, share)
        w, counts = np.zeros((groups, *np.shape(model.w)), np.float32), np.zeros(groups, np.int32)
        if len(cover.w):
            weights = cover.weights[len(cover.weights) - len(cover.w) :]
            which = rng.choice(len(cover.w), groups, p=weights / weights.sum())
            w, counts = _padded(cover.w[which], np.shape(model.w)[-1]), cover.landmarks[which].astype(np.int32)
        scale, places = np.asarray(marks.inverse_scale), np.asarray(marks.places)
        members = [
            MemberPolicy(scale, places, np.asarray(n), np.asarray(own), marks.encoder)
            for n, own in zip(counts, w, strict=True)
        ]
        return RollIn(jax.tree.map(lambda *leaves: np.stack(leaves), *members), length)

    def lengths(self, state: SeedState[Own], number: int, share: float) -> tuple[np.random.Generator, np.ndarray]:
        """Uniform lengths for a share of some episodes, and the generator that drew them."""
        rng = Draws(state.seed, state.round).of(Stream.ROLL_IN)
        chance, steps = rng.random(number), rng.integers(self.env.max_steps, size=number)
        return rng, np.where(chance < share, steps, NO_ROLL_IN).astype(np.int32)

    def greedy(self, landmarks: Landmarks, w: Array) -> GreedyPolicy:
        """The policy that is handed back: it speaks for the environment's own actions."""
        return GreedyPolicy(landmarks, w, sure_choices(self.env.action_space, self.recorder.candidates))
