"""Learning a task from kept data: when to try it, at which grain, and when its policy is good enough."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from pcpg.algorithm1 import Explored
from pcpg.algos.on_data import Collect, unvisited
from pcpg.algos.replay_explore import (
    NOT_OF_THE_COVER,
    Explorer,
    Improved,
    Own,
    ReplayPart,
    check_groups,
    groups_of,
)
from pcpg.algos.rounds import after_round, plain
from pcpg.budget import Limits
from pcpg.config import positive
from pcpg.cover.cover import RollIn
from pcpg.data import Draws, Kept, Sample, Stream, table_of_rows
from pcpg.kernel.fitting import FitInputs, Model, PlaceInputs
from pcpg.kernel.inputs import some_of, thinned, transitions
from pcpg.kernel.landmarks import Landmarks, as_wide_as_apart, no_landmarks
from pcpg.kernel.policies import SURE, GreedyPolicy
from pcpg.kernel.views import Fit, Kernel, View
from pcpg.shapes import Array
from pcpg.state import DONE, EXPLORE, Report, SeedState

MOST_TRIED = 300_000
"""Steps allowed for a task without a budget, while no policy reaches the solved return."""
CHANCE = 2.0
"""Standard errors by which the best of some tries is better than it is, about: the largest of ten or twenty draws."""
SAME = 1e-3
"""Returns that differ by less than this share of their range count as equal."""
ROLLED_IN = 0.25
"""Share of a task's episodes with a roll-in, once it has been evaluated."""


@dataclasses.dataclass(frozen=True)
class ReplayExploitConfig:
    """Learning the task from the kept data."""

    backups: int = -1
    """Backups of the fit; 0: no exploitation; -1: 2 * max_steps."""
    refine: float = 4.0
    """The task uses separate landmarks, with a kernel this many times narrower. If its policy falls short of its
    values, other resolutions are tried: kernels 4 and 16 times narrower and, before these, 512 and 2,048 evenly
    spaced landmarks if observations are short and rarely repeat."""
    discount: float = 20.0
    """The discount factor of the reward is 1 - 1 / (this * max_steps): by default the end of an episode counts 5% less
    than its start."""
    smooth_discount: float = 5.0
    """The same for interpolated values."""
    visit_episodes: int = 32
    """Episodes played to evaluate the policy; their steps count. 0: no evaluation."""
    steps: int = -1
    """New steps for the task if its policy earns less than its values predict, or less than the environment's solved
    return: play it (a quarter of the episodes with a roll-in through the cover), keep the data and refit the
    values. 0: use the existing data only; -1: a quarter of the exploration steps, and at least an evaluation of each
    resolution; if the environment has a solved return that no policy reached, the rest of the budget, or 300,000
    without a budget."""
    tolerance: float = 0.1
    """Tolerated gap between a policy's return and its predicted value, as a share of the range of returns so far; -1:
    take all steps allowed."""

    def __post_init__(self) -> None:
        positive(self, "refine", "discount", "smooth_discount")
        if self.steps < -1:
            raise ValueError(f"steps must be -1 (by the formula) or more, got {self.steps}")
        if self.steps > 0 and self.visit_episodes == 0:
            raise ValueError("visit_episodes must be at least 1 if steps are allowed: steps come in episodes")
        check_groups("visit_episodes", self.visit_episodes, "no evaluation")
        if self.backups < -1:
            raise ValueError(f"backups must be -1 (by the formula) or more, got {self.backups}")


class Task:
    """Rounds of learning the task."""

    def __init__(
        self, settings: ReplayExploitConfig, explorer: Explorer, limits: Limits, *, capacity: int, is_given: bool
    ) -> None:
        """`capacity` is that of the data; they may be given, those of another run."""
        self.settings, self.explorer, self.limits = settings, explorer, limits
        self.env, self.capacity, self.is_given = explorer.env, capacity, is_given
        self.evaluation = settings.visit_episodes * self.env.max_steps  # steps, if no episode ends early
        discounts = settings.discount, settings.smooth_discount
        self.solve: Fit = explorer.kernel.fit(settings.backups, discounts, self.env.max_steps, explore=False)
        self.collect: Collect = explorer.recorder.collector(settings.visit_episodes)

    async def round(self, state: SeedState[Own]) -> tuple[SeedState[Own], Report]:
        """One fit and its evaluation; or the best policy once more, in fresh episodes."""
        own, turn = state.own, int(state.ledger.phase_round)
        if turn == 0 or own.tries:
            state = state.noted(best_return=-np.inf)
        best, grain = state.ledger.best_return, self.grain_of(state)
        improved = again(state) if own.confirms else await self._improve(state, grain)
        if not self.settings.visit_episodes:
            seen = Explored(improved.policy, None, improved=improved, seen=unvisited(self.env.num_cells))
            state, metrics = after_round(self.env, state, seen)
            return state.noted(phase=DONE), Report(plain(metrics))
        sure = np.float32(SURE) * np.eye(len(improved.policy.w), dtype=np.float32)
        policy = GreedyPolicy(improved.policy.landmarks, improved.policy.w, sure)
        played, visits = await self.explorer.recorder.played(self.collect, state, policy, self._roll_in(state, policy))
        batch, size, nothing = own.kept.batch_of(played), own.kept.size, np.zeros(0, np.float32)
        own.kept.add(batch)
        state, metrics = after_round(self.env, state, Explored(improved.policy, None, improved=improved, seen=visits))
        sample = own.sample.joined(size + np.arange(len(batch.code)), np.ones(len(batch.code)))
        own = own.noted(batches=int(own.batches) + 1)._replace(sample=sample)
        none = np.zeros((), np.int32)
        part = ReplayPart(nothing, none, none + NOT_OF_THE_COVER, nothing, visits.cells, visits.returns, batch)
        report = Report(plain(metrics), part)
        if own.tries:
            tried = own.noted(tries=False, explored=own.kept.size)
            return state._replace(own=tried).noted(phase=EXPLORE), report
        if own.confirms:  # fresh episodes of the best policy: what they earned is what it earns
            state = state.noted(best_return=state.ledger.last_return, phase_round=turn)
            own, is_done = own.noted(confirms=False), self.is_solved(state)
        else:
            own = own.noted(best_grain=grain) if state.ledger.best_return > best else own
            is_done = self._is_fine(state, improved.value, visits.returns)
            own = own.noted(confirms=is_done and self.is_by_chance(state, visits.returns))
        state = state._replace(own=own)
        if not self.left(state) or (is_done and not own.confirms):
            state = state._replace(policy=state.best_policy, own=own.noted(confirms=False))
            state = state.noted(phase=DONE, last_return=state.ledger.best_return)
        return state, report

    def is_due(self, state: SeedState[Own]) -> bool:
        """Whether to try the task before exploration continues: only if the target is known."""
        kept, factor = state.own.kept, self.explorer.settings.attempts
        asked = self.limits.until is not None and factor > 0 and self.settings.visit_episodes > 0
        has_room = kept.size + self.evaluation <= self.capacity
        return asked and has_room and kept.size >= factor * int(state.own.tried_at) and kept.has_success

    def left(self, state: SeedState[Own]) -> int:
        """The number of remaining tries of a task, in whole episodes.

        Where nothing is said of it: with a quarter of the steps that exploration took, at least once with each grain;
        with all of a budget, or MOST_TRIED, where it is known what return is enough and none was, or has to be
        confirmed.
        """
        if not self.evaluation:
            return 0
        own, size, steps = state.own, state.own.kept.size, self.settings.steps
        if steps < 0:
            steps = max(int(own.explored) // 4, (len(grains_for(own.kept)) - 1) * self.evaluation)
            if self.env.solved_return is not None and (own.confirms or not self.is_solved(state)):
                steps = max(steps, self.capacity if self.limits.steps else MOST_TRIED)
        # Where it was explored too, the first evaluation is none of the steps that learning is allowed.
        free = 0 if self.is_given else self.evaluation
        spent = max(size - int(own.explored) - free, 0)
        room = steps if self.is_given else self.capacity + free - size
        return max(0, min(steps - spent, room) // self.evaluation)

    def grain_of(self, state: SeedState[Own]) -> int:
        """The index of the grain for the next try."""
        turn = 0 if state.own.tries else int(state.ledger.phase_round)
        return grain_at(turn, int(state.own.best_grain), len(grains_for(state.own.kept)))

    async def inputs(self, state: SeedState[Own], number: int) -> FitInputs:
        """The inputs of a fit at this grain."""
        own, draws = state.own, Draws(state.seed, state.round)
        grain = grains_for(own.kept)[number]
        grain = grain._replace(finer=self.settings.refine * grain.finer)
        scale = self._value_scale(own.kept)
        return await task_inputs(self.explorer.kernel, own.kept, own.sample, own.model, grain, draws, scale=scale)

    async def _improve(self, state: SeedState[Own], grain: int) -> Improved:
        given, scale = await self.inputs(state, grain), self._value_scale(state.own.kept)
        found = await self.solve(given)
        value, change = float(found.value) * scale, float(found.change) * scale
        policy = self.explorer.greedy(given.landmarks, np.asarray(found.w) * np.float32(scale))
        return Improved(policy, value, 0, {"change": change, "value": value})

    def _value_scale(self, kept: Kept) -> float:
        """The bound on returns of a task: the largest reward so far at every step; 1 without rewards."""
        return float(np.max(np.abs(kept.column("reward")), initial=0.0)) * self.env.max_steps or 1.0

    def _roll_in(self, state: SeedState[Own], policy: GreedyPolicy) -> RollIn:
        """None where the task is evaluated: in its first round, in a try, and where a policy is played again.

        Else a quarter of the episodes, by the cover. Where the cover's policies are not at hand, in a run on the data
        of another, the policy itself rolls in.
        """
        own = state.own
        share = ROLLED_IN if state.ledger.phase_round > 0 and not (own.tries or own.confirms) else 0.0
        _, length = self.explorer.lengths(state, self.settings.visit_episodes, share)
        groups = groups_of(self.settings.visit_episodes)
        if len(own.cover.w):
            return self.explorer.roll_in(state, own.model, groups)._replace(length=length)
        return RollIn(jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * groups), policy), length)

    def _is_fine(self, state: SeedState[Own], value: float, returns: Array) -> bool:
        """Whether the policy of a task need not be learned further: it earns what is known to be possible.

        That is what its values promise and what the environment calls solved; and where a policy earns the same in
        every episode, what the best episode in the data did. Without a word of the environment, values between spaced
        landmarks are heard when each grain was tried: those that promise little are easily kept.
        """
        kept = state.own.kept
        found = kept.returns_to_go()
        scope, best = found.max() - found.min(), found[kept.column("first")].max()
        is_beaten = np.ptp(returns) <= SAME * scope and best > returns.max() + SAME * scope
        if is_beaten or value - float(state.ledger.last_return) > self.settings.tolerance * scope:
            return False
        if self.env.solved_return is not None:
            return self.is_solved(state)
        is_smooth = grains_for(kept) is SMOOTH_GRAINS and not self.is_given
        return not is_smooth or int(state.ledger.phase_round) >= len(SMOOTH_GRAINS)

    def is_by_chance(self, state: SeedState[Own], returns: Array) -> bool:
        """Whether the best mean return is enough, but may be so by chance: its policy is then played again.

        The best of many tries is also the luckiest.
        """
        if self.env.solved_return is None:
            return False
        if state.ledger.last_return < state.ledger.best_return:  # of an earlier round, whose episodes are not at hand
            return True
        error = float(np.std(returns)) / np.sqrt(len(returns))
        return bool(float(state.ledger.best_return) - CHANCE * error < self.env.solved_return)

    def is_solved(self, state: SeedState[Own]) -> bool:
        """Whether the best policy reaches the solved return."""
        return self.env.solved_return is not None and bool(state.ledger.best_return >= self.env.solved_return)


def again(state: SeedState[Own]) -> Improved:
    """The best policy again, in place of a fit."""
    value = float(state.ledger.best_return)
    return Improved(state.best_policy, value, 0, {"change": 0.0, "value": value})


MOST_SEARCHED = 2**21
"""Transitions up to which those of a fit are taken from all, instead of the sample."""
COARSE = 0.25
"""Tolerance of the landmarks of a task: values need fewer of them than covariances, for so narrow a kernel."""


class Grain(NamedTuple):
    """The resolution of a task's values."""

    finer: float = 1.0  # how much narrower the kernel is than `exploit.refine` makes it
    spaced: int = 0  # landmarks, evenly spaced, with shares as wide as they lie apart; 0: those that the kernel needs


GRAINS = (Grain(), Grain(4.0), Grain(16.0))
"""If a policy earns less than its values predict, they may have been too coarse: each grain is tried in order, then the
best one and the others in turns. The best policy is kept.
"""
SMOOTH_GRAINS = (Grain(spaced=512), Grain(spaced=2048), Grain(), Grain(4.0))
"""The same for short observations that rarely repeat: values are interpolated between evenly spaced landmarks."""
SHORT, NEW_ONES = 16, 0.5
"""Entries of such an observation at most, and how many distinct ones there are at least, as a share of all steps."""


def grains_for(kept: Kept) -> tuple[Grain, ...]:
    """The grains with which to try a task, given the observations."""
    seen, steps = kept.observations, kept.size
    is_smooth = np.prod(seen.shape[1:]) <= SHORT and len(seen) > max(SMOOTH_GRAINS[0].spaced, NEW_ONES * steps)
    return SMOOTH_GRAINS if is_smooth else GRAINS


def grain_at(turn: int, best: int, grains: int) -> int:
    """The number of the grain with which a task is tried for the turn-th time; `best` is that of its best policy."""
    if turn < grains:
        return turn
    return min(best, grains - 1) if (turn - grains) % 2 == 0 else (turn - grains) // 2 % grains


async def task_inputs(
    kernel: Kernel, kept: Kept, sample: Sample, old: Model, grain: Grain, draws: Draws, *, scale: float
) -> FitInputs:
    """The inputs of a fit to the task, in landmarks of this grain, with rewards divided by `scale`."""
    is_smooth, index = grains_for(kept) is SMOOTH_GRAINS, np.arange(kept.size)
    # The sample is of what was new when it came; interpolated values are told apart by all that was done at a place.
    if not is_smooth or kept.size > MOST_SEARCHED:
        index = some_of(sample.places, 4 * kernel.keep.pool_of(old), draws, Stream.POOL)
    marks = await refined_landmarks(kernel, kept, index, old.landmarks, grain)
    index = thinned(kept, index, marks.capacity, draws)
    ended, reward = kept.column("terminated")[index], kept.column("reward")[index] / scale
    return FitInputs(
        landmarks=marks,
        known=None,
        **transitions(kept, index, kernel.num_actions, ended, reward=reward),
        bonus_coef=np.float32(0.0),  # no bonus is asked for
        prior=np.float32(kept.returns_to_go().min() / scale),
        is_smooth=np.asarray(is_smooth),
    )


async def refined_landmarks(kernel: Kernel, kept: Kept, index: np.ndarray, old: Landmarks, grain: Grain) -> Landmarks:
    """Landmarks for the values of a task on some transitions, of a narrower kernel than the old ones of the cover.

    `grain.finer` is by how much; where the grain is spaced, or they would be too many, they are spread out evenly.
    """
    codes, most = np.unique(kept.column("code")[index]), kernel.keep.max_landmarks
    scale, x = np.asarray(old.inverse_scale) * np.float32(grain.finer), table_of_rows(kept.observations[codes])
    wanted = min(grain.spaced or most, most)
    if len(codes) > wanted:
        empty, allowed = no_landmarks(scale, wanted, old.encoder), np.arange(len(x)) < len(codes)
        spaced = await kernel.space(PlaceInputs(empty, x, allowed, np.float32(0.0 if grain.spaced else COARSE)))
        if grain.spaced:
            return as_wide_as_apart(spaced)
        if int(spaced.count) == most:  # so many that it does not matter how well they are chosen
            return spaced
    return await kernel.placed(View(scale, old.encoder), x, len(codes), COARSE)
