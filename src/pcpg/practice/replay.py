"""PC-PG that keeps its data: Algorithm 1 with values fitted off-policy to all transitions so far.

    Visit     play episodes that choose by the larger of value and bonus, a part of them rolled in through the cover and
              then one random action; keep all transitions; count the pairs, with new landmarks where needed
    Improve   fit values to the kept data, the bonus outside of them: no step in the environment
    Design    D-optimal weights of the members, by the landmarks that each of them visits

Exploration ends when the optimistic value of the start has been small for some rounds: nothing that can be reached
promises a bonus any more. Exploitation is one fit with the task's reward and no bonus, on the same data.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithm1 import Explored, Improve, Parts, Request, Visit, explore_round, lockstep, task_round
from pcpg.config import ReplayConfig
from pcpg.cover.pairs import diagonal_design
from pcpg.cover.rollin import RollIn
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.features.landmarks import Landmarks, inverse_scale_of
from pcpg.policies.kernel import ExploringPolicy, GreedyPolicy, MemberPolicy, among, candidate_actions, sure_choices
from pcpg.practice.agent import after_round, check_visits, plain
from pcpg.practice.episodes import play
from pcpg.practice.fitting import (
    NO_ROLL_IN,
    CollectInputs,
    Counted,
    CountInputs,
    Episodes,
    FitInputs,
    Model,
    collect_episodes,
    count_pairs,
    fit_values,
    grown,
    no_model,
    place_landmarks,
)
from pcpg.practice.host import visit_program
from pcpg.practice.kept import Batch, Kept
from pcpg.practice.program import Programs
from pcpg.practice.visit import VisitInputs, Visitor
from pcpg.presets import sized
from pcpg.state import DONE, EXPLOIT, EXPLORE, Report, int32

FIRST_LANDMARKS = 64
GROUPS = 8
"""Groups of episodes that share a member for their roll-in."""
RESCALED = 0.2
"""Features are made anew where the scale of some entry has changed by more than this, as a logarithm."""
MOST_RECOUNTED = 16_384
COARSE = 0.25
"""Tolerance of the landmarks of a task: values need fewer of them than covariances, for so narrow a kernel."""


class Sample(NamedTuple):
    """Transitions that fits draw from, by their place among the kept ones, and the inverse of their chance."""

    places: np.ndarray  # int64 [k]
    weight: np.ndarray  # float32 [k]


class Members(NamedTuple):
    """The cover. Those of earlier features lie on disk and have weight 0: they are rolled in no more."""

    w: np.ndarray  # [n, A, M] values of the members in the features of now
    landmarks: np.ndarray  # [n] int32: how many there were
    visits: np.ndarray  # [n, M] shares of the landmarks that each visited
    weights: np.ndarray  # [all members] float64
    size: np.ndarray  # int32: all members


class ReplayMember(NamedTuple):
    """What is written of a round, once: the policy that played it, and all that it met."""

    w: np.ndarray
    landmarks: np.ndarray  # int32
    features: np.ndarray  # int32: number of the features in which w is
    visits: np.ndarray  # [M]
    cells: np.ndarray
    returns: np.ndarray
    batch: Batch


class ReplayState(NamedTuple):
    """Everything that moves in the training of one seed; data and members lie in the files of the rounds."""

    seed: np.ndarray
    round: np.ndarray
    phase: np.ndarray
    phase_round: np.ndarray
    env_steps: np.ndarray
    policy: GreedyPolicy
    last_return: np.ndarray
    best_policy: GreedyPolicy
    best_return: np.ndarray
    seen: np.ndarray
    model: Model
    sample: Sample
    features: np.ndarray  # int32: how often the features were made anew
    scaled_at: np.ndarray  # int64: transitions there were when their scale was last looked at
    quiet: np.ndarray  # int32: rounds in a row in which the start promised little
    cover: Members
    kept: Kept | None  # None inside a checkpoint


class Improved(NamedTuple):
    """A fit, in the shape of an improvement."""

    policy: Any  # the model with its new values; the policy of the task
    value: float  # of the first observations
    env_steps: int
    metrics: dict[str, Any]


class Seen(NamedTuple):
    """What the episodes of a round showed, in the shape of visits."""

    returns: np.ndarray  # of the episodes without roll-in
    cells: np.ndarray
    env_steps: int
    finite: bool
    batch: Batch
    model: Model
    sample: Sample
    features: int
    scaled_at: int
    visits: np.ndarray  # [M]
    largest: float  # bonus met


@dataclasses.dataclass(frozen=True)
class ReplayAgent:
    """The algorithm bound to an environment and compiled programs."""

    env: Environment
    config: ReplayConfig
    lanes: int
    phi: None = None  # its features are made from its data
    covers: None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", sized(self.config, self.env))

    @functools.cached_property
    def candidates(self) -> np.ndarray:
        """The actions among which the largest value is sought."""
        return candidate_actions(self.env.action_space, self.config.replay.num_actions)

    @functools.cached_property
    def collect(self) -> Programs:
        constants = {"env": self.env, "distribution": among(self.candidates)}
        number = self.config.explore.num_episodes
        return Programs(functools.partial(collect_episodes, num_episodes=number, **constants), self.lanes)

    @functools.cached_property
    def count(self) -> Programs:
        return Programs(count_pairs, self.lanes)

    @functools.cached_property
    def refine(self) -> Programs:
        return Programs(place_landmarks, self.lanes)

    @functools.cached_property
    def improve(self) -> Programs:
        return Programs(functools.partial(fit_values, backups=self.config.explore.backups, explore=True), self.lanes)

    @functools.cached_property
    def solve(self) -> Programs:
        return Programs(functools.partial(fit_values, backups=self.config.exploit.backups, explore=False), self.lanes)

    @functools.cached_property
    def visit(self) -> Any:
        """The program that plays the policy of the task."""
        return visit_program(Visitor(self.env, self.config.exploit.visit_episodes), self.lanes)

    @property
    def programs(self) -> tuple[Any, ...]:
        """All programs, for their compilations."""
        return self.collect, self.count, self.improve, self.refine, self.solve, self.visit

    def init(self, seed: int) -> ReplayState:
        """A seed before its first round: no data, no landmark, and a policy that plays at random."""
        space, actions, room = self.env.observation_space, len(self.candidates), FIRST_LANDMARKS
        size = int(np.prod(space.shape, dtype=int))
        model = no_model(np.ones(size, np.float32), actions, room)
        policy = self._greedy(model.landmarks, model.w)
        return ReplayState(
            seed=np.asarray(seed, np.uint32),
            round=int32(0),
            phase=int32(EXPLORE),
            phase_round=int32(0),
            env_steps=np.asarray(0, np.int64),
            policy=policy,
            last_return=np.asarray(-np.inf),
            best_policy=policy,
            best_return=np.asarray(-np.inf),
            seen=np.zeros(self.env.num_cells, bool),
            model=model,
            sample=Sample(np.zeros(0, np.int64), np.zeros(0, np.float32)),
            features=int32(0),
            scaled_at=np.asarray(0, np.int64),
            quiet=int32(0),
            cover=no_members(actions, room),
            kept=Kept(space.shape, np.dtype(space.dtype)),
        )

    def step(self, states: Sequence[ReplayState]) -> list[tuple[ReplayState, Report]]:
        """One round for each seed, in the phase it is in."""
        turns = [self._explore(state) if state.phase == EXPLORE else self._exploit(state) for state in states]
        return lockstep(turns, functools.partial(self._answer, states))

    def rounds_left(self, state: ReplayState) -> int:
        """The most rounds that a seed has before it."""
        if state.phase != EXPLORE:
            return int(state.phase == EXPLOIT)
        each = self.config.explore.num_episodes * self.env.max_steps
        return (self.config.replay.capacity - int(state.env_steps)) // each + 1

    # The rounds of one seed.

    def _explore(self, state: ReplayState) -> Any:
        explore, kept = self.config.explore, _kept(state)
        now = Explored(state.model, state.cover, None if state.round == 0 else state.cover.weights)
        done = yield from explore_round(now, Parts(functools.partial(self._extend, state), lambda cover: None))
        seen, value = done.seen, 1.0 if done.improved is None else done.improved.value
        quiet = int(state.quiet) + 1 if value < explore.min_value else 0
        gone = np.zeros(int(done.cover.size) - len(done.cover.w))  # those of earlier features
        played = done.policy
        member = ReplayMember(
            np.asarray(played.w),
            np.asarray(played.landmarks.count),
            int32(int(state.features)),
            *(seen.visits, seen.cells, seen.returns, seen.batch),
        )
        state, metrics = after_round(
            self.env, state, done._replace(policy=self._greedy(seen.model.landmarks, seen.model.w))
        )
        state = state._replace(
            model=seen.model,
            sample=seen.sample,
            features=int32(seen.features),
            scaled_at=np.asarray(seen.scaled_at, np.int64),
            quiet=int32(quiet),
            cover=done.cover._replace(weights=np.concatenate([gone, done.design.weights])),
        )
        metrics |= {
            "policies": int(done.cover.size),
            "policies_with_weight": int(np.count_nonzero(done.design.weights)),
            "log_det": done.design.log_det,
            "design_gap": done.design.gap,
            "bonus_ahead": value,
            "largest_bonus": seen.largest,
            "landmarks": int(seen.model.landmarks.count),
            "observations": len(kept.observations),
            "sample": len(seen.sample.places),
        }
        is_full = kept.size + explore.num_episodes * self.env.max_steps > self.config.replay.capacity
        if quiet >= explore.patience or is_full:
            has_task = not self.env.is_reward_free and self.config.exploit.backups > 0
            state = state._replace(phase=int32(EXPLOIT if has_task else DONE), phase_round=int32(0))
        return state, Report(plain(metrics), member)

    def _exploit(self, state: ReplayState) -> Any:
        done = yield from task_round(Explored(state.model, state.cover, state.cover.weights))
        state, metrics = after_round(self.env, state._replace(best_return=np.asarray(-np.inf)), done)
        return state._replace(phase=int32(DONE)), Report(plain(metrics), None)

    def _extend(self, state: ReplayState, cover: Members, played: Model, seen: Seen) -> Members:
        """The cover with the policy that played; where features are new, those before it are rolled in no more."""
        room, size = seen.model.landmarks.capacity, int32(int(cover.size) + 1)
        if seen.features != state.features:
            return no_members(len(self.candidates), room)._replace(size=size)
        more = room - cover.w.shape[-1]
        own = np.pad(played.w, ((0, 0), (0, room - np.shape(played.w)[-1])))
        return Members(
            np.concatenate([np.pad(cover.w, ((0, 0), (0, 0), (0, more))), own[None]]),
            np.append(cover.landmarks, np.asarray(played.landmarks.count, np.int32)),
            np.concatenate([np.pad(cover.visits, ((0, 0), (0, more))), seen.visits[None]]),
            cover.weights,
            size,
        )

    def _greedy(self, landmarks: Landmarks, w: np.ndarray) -> GreedyPolicy:
        return GreedyPolicy(landmarks, w, sure_choices(self.env.action_space, self.candidates))

    # The answers.

    def _answer(self, states: Sequence[ReplayState], kind: type[Request], asked: list[tuple[int, Any]]) -> list[Any]:
        who, requests = [states[number] for number, _ in asked], [request for _, request in asked]
        if kind is Improve:
            return self._improve(who)
        if kind is Visit:
            return self._visit(who, [request.policy for request in requests])
        explore = self.config.explore
        return [diagonal_design(request.cover.visits, explore.ridge, explore.weights) for request in requests]

    def _improve(self, states: list[ReplayState]) -> list[Improved]:
        """A fit for each seed: of the bonus ahead while it explores, of the task's reward after it."""
        explores = [state.phase == EXPLORE for state in states]
        inputs = [self._fit_inputs(state) for state in states]
        outputs = _split(explores, inputs, self.improve, self.solve)
        found = []
        for state, exploring, given, output in zip(states, explores, inputs, outputs, strict=True):
            metrics = {"change": output.change, "value": output.value}
            model = state.model._replace(w=output.w)
            policy = model if exploring else self._greedy(given.landmarks, output.w)
            found.append(Improved(policy, float(output.value), 0, metrics))
        return found

    def _fit_inputs(self, state: ReplayState) -> FitInputs:
        kept, exploring, steps = _kept(state), state.phase == EXPLORE, self.env.max_steps
        room = self.config.replay.pool * (1 if exploring else 4)
        index = state.sample.places
        if len(index) > room:
            rng = np.random.default_rng([int(state.seed), int(state.round), 1])
            index = np.sort(rng.choice(index, room, replace=False))
        room = room // 8 if len(index) <= room // 8 else room
        code, next_code = kept.column("code")[index], kept.column("next_code")[index]
        first = kept.first_codes(64)
        codes, rows = np.unique(np.concatenate([code, next_code, first]), return_inverse=True)
        k, rewards = len(index), kept.column("reward")
        ended = kept.column("terminated")[index] | (kept.column("truncated")[index] & exploring)

        def fill(values: np.ndarray, kind: Any) -> np.ndarray:
            return np.concatenate([values.astype(kind), np.zeros(room - k, kind)])

        return FitInputs(
            landmarks=state.model.landmarks if exploring else self._refined(kept, index, state.model),
            whitenings=state.model.whitenings if exploring else np.zeros((len(self.candidates), 0, 0), np.float32),
            x=table_of_rows(kept.observations[codes]),
            row=fill(rows[:k], np.int32),
            next_row=fill(rows[k : 2 * k], np.int32),
            action=fill(kept.column("action")[index], np.int32),
            reward=fill(np.zeros(k) if exploring else rewards[index], np.float32),
            live=fill(~ended, np.float32),
            weight=fill(np.ones(k), np.float32),
            first_row=rows[2 * k :].astype(np.int32),
            gamma=np.float32(1 - 1 / (self.config.explore.discount * steps)),
            low=np.float32(0.0 if exploring else min(float(rewards.min()), 0.0) * steps),
            high=np.float32(1.0 if exploring else max(float(rewards.max()), 0.0) * steps),
            bonus_coef=np.float32(self.config.explore.bonus_coef),
        )

    def _visit(self, states: list[ReplayState], policies: list[Any]) -> list[Any]:
        """What each seed's policy met: kept and counted while it explores, an evaluation of the task's after it."""
        found: dict[int, Any] = {}
        done = [i for i, state in enumerate(states) if state.phase != EXPLORE]
        inputs = [self._visit_inputs(states[i], policies[i]) for i in done]
        found |= dict(zip(done, self.visit(inputs), strict=True))
        exploring = [i for i, state in enumerate(states) if state.phase == EXPLORE]
        episodes = self._play([states[i] for i in exploring], [policies[i] for i in exploring])
        batches = [_kept(states[i]).batch_of(played) for i, played in zip(exploring, episodes, strict=True)]
        pairs = [self._pairs(_kept(states[i]), batch) for i, batch in zip(exploring, batches, strict=True)]
        models = [self._with_room(policies[i]) for i in exploring]
        tol = np.float32(self.config.replay.tolerance)
        counted = self.count([CountInputs(model, *pair, tol) for model, pair in zip(models, pairs, strict=True)])
        for i, played, batch, output in zip(exploring, episodes, batches, counted, strict=True):
            found[i] = self._seen(states[i], played, batch, output)
        for state, visits in zip(states, (found[i] for i in range(len(states))), strict=True):
            check_visits(state, visits)  # pyright: ignore[reportArgumentType]
        return [found[i] for i in range(len(states))]

    def _visit_inputs(self, state: ReplayState, policy: GreedyPolicy) -> VisitInputs:
        params = self.env.instance(int(state.seed))
        return VisitInputs(state.seed, state.round, params, policy, None)  # pyright: ignore[reportArgumentType]

    def _play(self, states: list[ReplayState], models: list[Model]) -> list[Episodes]:
        """The episodes of a round of each seed."""
        explore, found = self.config.explore, []
        for state, model in zip(states, models, strict=True):
            sharpness, coef = np.asarray(explore.sharpness, np.float32), np.asarray(explore.bonus_coef, np.float32)
            policy = ExploringPolicy(model.landmarks, model.w, model.whitenings, sharpness, coef)
            roll_in = self._roll_in(state, model)
            params = self.env.instance(int(state.seed))
            found.append(CollectInputs(state.seed, state.round, params, policy, roll_in))
        if not isinstance(self.env, HostEnvironment):
            return self.collect(found)
        return [self._play_on_host(inputs) for inputs in found]

    def _play_on_host(self, inputs: CollectInputs) -> Episodes:
        rng = np.random.default_rng([int(inputs.seed), int(inputs.round), 4])
        assert isinstance(self.env, HostEnvironment)
        played = play(
            self.env,
            inputs.policy,
            rng,
            self.config.explore.num_episodes,
            roll_in=inputs.roll_in,
            epsilon=1.0,
            candidates=self.candidates,
        )
        nowhere = np.full(played.alive.shape, -1, np.int32)
        arrays = played.observations, played.actions, played.rewards, played.terminated, played.truncated
        return Episodes(*arrays, played.alive, nowhere)

    def _roll_in(self, state: ReplayState, model: Model) -> RollIn:
        """Members drawn by their weights, and uniform lengths for a share of the episodes."""
        explore, cover, marks = self.config.explore, state.cover, model.landmarks
        rng = np.random.default_rng([int(state.seed), int(state.round), 3])
        chance, steps = rng.random(explore.num_episodes), rng.integers(self.env.max_steps, size=explore.num_episodes)
        length = np.where((chance < explore.roll_in_share) & (len(cover.w) > 0), steps, NO_ROLL_IN)
        weights = cover.weights[len(cover.weights) - len(cover.w) :]
        which = rng.choice(len(cover.w), GROUPS, p=weights / weights.sum()) if len(cover.w) else np.zeros(GROUPS, int)
        shape = (GROUPS, *np.shape(model.w))
        w = cover.w[which] if len(cover.w) else np.zeros(shape, np.float32)
        w = np.pad(w, ((0, 0), (0, 0), (0, shape[-1] - w.shape[-1])))
        count = cover.landmarks[which] if len(cover.w) else np.zeros(GROUPS, np.int32)
        repeat = lambda leaf: np.broadcast_to(leaf, (GROUPS, *np.shape(leaf))).copy()  # noqa: E731
        policies = MemberPolicy(repeat(marks.inverse_scale), repeat(marks.places), count.astype(np.int32), w)
        return RollIn(policies, length.astype(np.int32))

    def _with_room(self, model: Model) -> Model:
        """The model with room for more landmarks where it is nearly full."""
        room, most = model.landmarks.capacity, self.config.replay.max_landmarks
        return grown(model, min(2 * room, most)) if int(model.landmarks.count) > 0.7 * room else model

    def _pairs(self, kept: Kept, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The observations of a batch [U, size], and how often each action was taken there [A, U]."""
        codes, rows = np.unique(batch.code, return_inverse=True)
        x = table_of_rows(kept.observations[codes])
        counts = np.zeros((len(self.candidates), len(x)), np.float32)
        np.add.at(counts, (batch.action, rows), 1.0)
        return x, counts

    def _seen(self, state: ReplayState, played: Episodes, batch: Batch, counted: Counted) -> Seen:
        """The batch kept, a part of it in the sample, and features made anew where their scale has changed."""
        kept = _kept(state)
        _, rows = np.unique(batch.code, return_inverse=True)
        met = np.asarray(counted.met)[rows, batch.action]
        chance = np.minimum(1.0, self.config.replay.sample_rate * met)
        rng = np.random.default_rng([int(state.seed), int(state.round), 2])
        chosen = np.flatnonzero(rng.random(len(met)) < chance)
        index = np.concatenate([state.sample.places, kept.size + chosen])
        weight = np.concatenate([state.sample.weight, (1.0 / chance[chosen]).astype(np.float32)])
        kept.add(batch)
        sample, model = Sample(index, weight), counted.model
        features, scaled_at = int(state.features), int(state.scaled_at)
        if kept.size >= 2 * scaled_at:
            scaled_at, scale = kept.size, inverse_scale_of(kept.some_vectors(), self.config.replay.bandwidth)
            if features == 0 or np.max(np.abs(np.log(scale / np.asarray(model.landmarks.inverse_scale)))) > RESCALED:
                features, model = features + 1, self._recounted(kept, sample, scale, model.landmarks.capacity)
        own = np.asarray(played.alive) & (self._roll_in(state, counted.model).length == NO_ROLL_IN)
        whole = own.any(axis=0)
        returns = np.where(played.alive, played.rewards, 0.0).sum(axis=0)
        cells = np.bincount(played.cells[played.cells >= 0], minlength=self.env.num_cells)
        finite = bool(np.isfinite(batch.reward).all() and np.isfinite(batch.observations.astype(np.float32)).all())
        return Seen(
            returns=returns[whole] if whole.any() else returns,
            cells=cells.astype(np.int32),
            env_steps=len(batch.code),
            finite=finite,
            batch=batch,
            model=model,
            sample=sample,
            features=features,
            scaled_at=scaled_at,
            visits=np.asarray(counted.visits),
            largest=float(met.max()),
        )

    def _refined(self, kept: Kept, index: np.ndarray, model: Model) -> Landmarks:
        """Landmarks of a narrower kernel, for the values of a task."""
        codes = np.unique(kept.column("code")[index])
        x = table_of_rows(kept.observations[codes])
        counts = np.zeros((1, len(x)), np.float32)
        counts[0, : len(codes)] = 1.0
        scale, room = np.asarray(model.landmarks.inverse_scale) * self.config.exploit.refine, FIRST_LANDMARKS
        while True:  # as much room as they need
            room = 2 * room
            empty = no_model(scale, 1, room)
            (found,) = self.refine([CountInputs(empty, x, counts, np.float32(COARSE))])
            if int(found.count) < room or room >= self.config.replay.max_landmarks:
                return found

    def _recounted(self, kept: Kept, sample: Sample, scale: np.ndarray, room: int) -> Model:
        """The model in features of another scale, from the sample: its weighted sums stand for those over all data."""
        index, weight = sample
        if len(index) > MOST_RECOUNTED:
            some = np.random.default_rng(len(index)).choice(len(index), MOST_RECOUNTED, replace=False)
            index, weight = index[some], weight[some] * (len(index) / MOST_RECOUNTED)
        codes, rows = np.unique(kept.column("code")[index], return_inverse=True)
        x = table_of_rows(kept.observations[codes])
        counts = np.zeros((len(self.candidates), len(x)), np.float32)
        np.add.at(counts, (kept.column("action")[index], rows), weight)
        model = no_model(scale, len(self.candidates), room)
        while True:  # as much room as the new features need
            (counted,) = self.count([CountInputs(model, x, counts, np.float32(self.config.replay.tolerance))])
            full = int(counted.model.landmarks.count) == model.landmarks.capacity
            if not full or model.landmarks.capacity >= self.config.replay.max_landmarks:
                return counted.model
            model = no_model(scale, len(self.candidates), 2 * model.landmarks.capacity)


def kernel_template(config: ReplayConfig, env: Environment) -> GreedyPolicy:
    """A policy of the kind that a run hands back; its landmarks are as many as it needed."""
    return ReplayAgent(env, config, 1).init(0).policy


def no_members(num_actions: int, room: int) -> Members:
    """An empty cover."""
    w, visits = np.zeros((0, num_actions, room), np.float32), np.zeros((0, room), np.float32)
    return Members(w, np.zeros(0, np.int32), visits, np.zeros(0), int32(0))


def table_of_rows(observations: np.ndarray) -> np.ndarray:
    """Observations as vectors [U, size], with rows of zeros up to a power of two: few programs are compiled."""
    x = observations.reshape(len(observations), -1).astype(np.float32)
    x = x / np.float32(255.0) if observations.dtype == np.uint8 else x
    room = max(64, 1 << (len(x) - 1).bit_length())
    return np.concatenate([x, np.zeros((room - len(x), x.shape[1]), np.float32)])


def _split(first: list[bool], inputs: list[Any], one: Programs, other: Programs) -> list[Any]:
    """The outputs of two programs, each for its own of the inputs, in their order."""
    ones = iter(one([given for given, is_first in zip(inputs, first, strict=True) if is_first]))
    others = iter(other([given for given, is_first in zip(inputs, first, strict=True) if not is_first]))
    return [next(ones) if is_first else next(others) for is_first in first]


def _kept(state: ReplayState) -> Kept:
    assert state.kept is not None
    return state.kept
