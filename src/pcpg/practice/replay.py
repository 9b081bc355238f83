"""PC-PG that keeps its data: Algorithm 1 with values fitted off-policy to all transitions so far.

    Visit     play episodes that choose by the larger of value and bonus, a part of them rolled in through the cover and
              then one random action; keep all transitions; count the pairs, with new landmarks where needed
    Improve   fit values to the kept data, the bonus outside of them: no step in the environment
    Design    D-optimal weights of the members, by the landmarks that each of them visits

Exploration ends when the optimistic value of the start has been small for some rounds: nothing that can be reached
promises a bonus any more. Exploitation is a fit with the task's reward and no bonus on the same data, and where its
policy does not earn what its values promise, some more of them with what it met.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcpg.algorithm1 import Explored, Improve, Parts, Request, Visit, explore_round, lockstep, task_round
from pcpg.config import ReplayConfig
from pcpg.cover.landmarks import Landmarks
from pcpg.cover.pairs import diagonal_design
from pcpg.envs.protocol import Environment
from pcpg.machine import free_memory
from pcpg.policies.kernel import (
    GreedyPolicy,
    among,
    candidate_actions,
    sure_choices,
)
from pcpg.practice.agent import after_round, all_finite, check_visits, finite_or_error, plain
from pcpg.practice.fitting import (
    CountInputs,
    Model,
    collect_episodes,
    count_pairs,
    fit_values,
    no_model,
    place_landmarks,
    space_landmarks,
)
from pcpg.practice.grains import FIRST_LANDMARKS, View, grain_of
from pcpg.practice.kept import Kept, without
from pcpg.practice.learned import WIDTHS, encoded, fresh_encoder, learn_encoder
from pcpg.practice.program import Programs, in_threads
from pcpg.practice.replay_data import (
    fit_inputs,
    met_in,
    seen_in,
    settled_view,
    value_scale,
    with_room,
)
from pcpg.practice.replay_play import explored_by, tried_by
from pcpg.practice.replay_state import (
    NOT_OF_THE_COVER,
    Improved,
    Listed,
    Members,
    ReplayMember,
    ReplayState,
    Sample,
    Seen,
    kept_of,
    no_members,
)
from pcpg.practice.tries import confirming, is_by_chance, is_fine, is_solved, tries_left, tries_task
from pcpg.presets import bytes_of_transition, sized
from pcpg.state import DONE, EXPLOIT, EXPLORE, NonFinite, Report, int32

NEW = 0.5
"""Bonus of a pair that was met once at most: a round that met such a pair is not quiet."""
MOST_OF_A_PAIR = 64
"""Transitions of one pair from which a task is learned on the data of another run."""


@dataclasses.dataclass(frozen=True)
class ReplayAgent:
    """The algorithm bound to an environment and compiled programs."""

    env: Environment
    config: ReplayConfig
    lanes: int
    checkpoint_share = 0.1  # of the time at most: its covariances are large, and rounds are short

    phi: None = None  # its features are made from its data
    covers: dict[int, Kept] | None = None  # data of another run, by the seed that explored: they are exploited alone
    until: float | None = None  # the return at which the task is solved, where the user says so
    has_budget: bool = False  # whether the capacity is what the user's number of steps leaves

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", sized(self.config, self.env))
        needed, free = self.config.replay.capacity * bytes_of_transition(self.env), free_memory()
        if free is not None and needed > free:
            raise ValueError(
                f"replay.capacity of {self.config.replay.capacity:,} transitions may take {needed / 1e9:.1f} GB "
                f"per seed, {free / 1e9:.1f} GB are free: choose a smaller one"
            )

    @functools.cached_property
    def candidates(self) -> np.ndarray:
        """The actions among which the largest value is sought."""
        return candidate_actions(self.env.action_space, self.config.replay.num_actions)

    @functools.cached_property
    def _settled(self) -> dict[int, tuple[np.ndarray, View, tuple[np.ndarray, np.ndarray]]]:
        return {}

    @functools.cached_property
    def _tables(self) -> dict[int, Listed | None]:
        return {}

    @functools.cached_property
    def collect(self) -> Programs:
        return self._collector(self.config.explore.num_episodes)

    @functools.cached_property
    def try_out(self) -> Programs:
        """The same for the policy of a task."""
        return self._collector(self.config.exploit.visit_episodes)

    def _collector(self, number: int) -> Programs:
        constants = {"env": self.env, "distribution": among(self.candidates), "num_episodes": number}
        return Programs(functools.partial(collect_episodes, **constants), self.lanes)

    @functools.cached_property
    def count(self) -> Programs:
        return Programs(count_pairs, self.lanes)

    @functools.cached_property
    def refine(self) -> Programs:
        return Programs(place_landmarks, self.lanes)

    @functools.cached_property
    def space(self) -> Programs:
        return Programs(space_landmarks, self.lanes)

    @functools.cached_property
    def learn(self) -> Programs:
        """Features, where they are learned."""
        return Programs(functools.partial(learn_encoder, num_actions=len(self.candidates)), self.lanes)

    @functools.cached_property
    def encode(self) -> Programs:
        """Observations through an encoder."""
        return Programs(encoded, self.lanes)

    @functools.cached_property
    def improve(self) -> Programs:
        gamma = self._gamma(self.config.explore.discount)
        constants = {"backups": self.config.explore.backups, "gamma": gamma, "smooth_gamma": gamma, "explore": True}
        return Programs(functools.partial(fit_values, **constants), self.lanes)

    @functools.cached_property
    def solve(self) -> Programs:
        exploit = self.config.exploit
        gammas = {"gamma": self._gamma(exploit.discount), "smooth_gamma": self._gamma(exploit.smooth_discount)}
        constants = {"backups": exploit.backups, **gammas, "explore": False}
        return Programs(functools.partial(fit_values, **constants), self.lanes)

    def _gamma(self, discount: float) -> float:
        """The discount factor: what is met at the end of an episode still counts at its start."""
        return 1 - 1 / (discount * self.env.max_steps)

    @property
    def programs(self) -> tuple[Any, ...]:
        """All programs, for their compilations."""
        both = self.learn, self.encode
        return *both, self.collect, self.count, self.improve, self.refine, self.solve, self.space, self.try_out

    def init(self, seed: int) -> ReplayState:
        """A seed before its first round: no data, no landmark, and a policy that plays at random."""
        space, actions, room = self.env.observation_space, len(self.candidates), FIRST_LANDMARKS
        size, encoder = int(np.prod(space.shape, dtype=int)), None
        if self.config.replay.features != "observation":
            size, encoder = WIDTHS[-1], fresh_encoder(size, actions, seed)
        listed = self.listed(seed)
        number = 0 if listed is None else len(listed.x)
        model = no_model(np.ones(size, np.float32), actions, room, number, encoder)
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
            waiting=np.zeros(model.bonus.shape, np.float32),
            sample=Sample(np.zeros(0, np.int64), np.zeros(0, np.float32)),
            features=int32(0),
            scaled_at=np.asarray(0, np.int64),
            quiet=int32(0),
            closer=int32(0),
            tried_at=np.asarray(0, np.int64),
            tries=np.asarray(False),
            best_grain=int32(0),
            confirms=np.asarray(False),
            batches=int32(0),
            explored=np.asarray(0, np.int64),
            cover=no_members(actions, room),
            kept=Kept(space.shape, np.dtype(space.dtype), self.config.replay.ignored),
        )._replace(**self._given_data(seed))

    def _given_data(self, seed: int) -> dict[str, Any]:
        """The entries of a state that begins with the data of another run, under the reward of now."""
        if self.covers is None:
            return {}
        explored, params = self.env.dynamics_seed(seed), self.env.instance(seed)
        kept = self.covers[explored]
        if explored not in self._settled:  # the same for every task on these data
            places = kept.of_every_pair(MOST_OF_A_PAIR)
            view = settled_view(self, kept, places, np.unique(kept.column("code")[places]), explored)
            self._settled[explored] = places, view, kept.kinds()
        places, view, (one, kind) = self._settled[explored]
        seen, chosen = kept.observations, self.candidates[kept.column("action")[one]]
        here, after = seen[kept.column("code")[one]], seen[kept.column("next_code")[one]]
        found = self.env.rewards_of(params, here, chosen, after)
        reward, ends = (kept.column("reward"), None) if found is None else (np.asarray(found[0])[kind], found[1])
        return {
            "kept": kept.relabelled(reward, None if ends is None else np.asarray(ends)[kind]),
            "phase": int32(EXPLOIT),
            "explored": np.asarray(kept.size, np.int64),
            "sample": Sample(places, np.ones(len(places), np.float32)),
            # No bonus is asked for.
            "model": no_model(view.scale, len(self.candidates), FIRST_LANDMARKS, encoder=view.encoder),
        }

    def step(self, states: Sequence[ReplayState]) -> list[tuple[ReplayState, Report]]:
        """One round for each seed, in the phase it is in; an error where a number was not finite."""
        return all_finite(self.try_step(states))

    def try_step(self, states: Sequence[ReplayState]) -> list[tuple[ReplayState, Report] | NonFinite]:
        """One round for each seed; for one in which a number was not finite, the error in its place."""
        turns = [self._explore(state) if state.phase == EXPLORE else self._exploit(state) for state in states]
        return lockstep(turns, functools.partial(self._answer, states))

    def rounds_left(self, state: ReplayState) -> int:
        """The most rounds that a seed has before it."""
        if state.phase != EXPLORE:
            return int(state.phase == EXPLOIT) + tries_left(self, state)
        each = self.config.explore.num_episodes * self.env.max_steps
        return (self.config.replay.capacity - int(state.env_steps)) // each + 1

    # The rounds of one seed.

    def _explore(self, state: ReplayState) -> Any:
        explore, kept = self.config.explore, kept_of(state)
        now = Explored(state.model, state.cover, None if state.round == 0 else state.cover.weights)
        done = yield from explore_round(now, Parts(functools.partial(self._extend, state), lambda cover: None))
        seen, value = done.seen, 1.0 if done.improved is None else done.improved.value
        quiet = int(state.quiet) + 1 if value < explore.min_value and seen.largest < NEW else 0
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
            batches=int32(int(state.batches) + 1),
            explored=np.asarray(kept.size, np.int64),
            model=seen.model,
            waiting=seen.waiting,
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
            "closer_looks": int(state.closer),
            "largest_bonus": seen.largest,
            "landmarks": int(seen.model.landmarks.count),
            "observations": len(kept.observations),
            "sample": len(seen.sample.places),
        }
        is_full = kept.size + explore.num_episodes * self.env.max_steps > self.config.replay.capacity
        has_task = not self.env.is_reward_free and self.config.exploit.backups > 0
        looks_closer = has_task and state.closer < explore.closer_looks and not kept.has_success
        is_found = state.closer > 0 and kept.has_success  # what the closer looks were for
        if quiet >= explore.patience and looks_closer and not is_full:
            again = {"quiet": int32(0), "scaled_at": np.asarray(0, np.int64)}
            state = state._replace(closer=int32(int(state.closer) + 1), **again)
        elif quiet >= explore.patience or is_full or is_found:
            state = state._replace(phase=int32(EXPLOIT if has_task else DONE), phase_round=int32(0))
        elif has_task and tries_task(self, state):
            state = state._replace(phase=int32(EXPLOIT), tries=np.asarray(True), tried_at=np.asarray(kept.size))
        return state, Report(plain(metrics), member)

    def _exploit(self, state: ReplayState) -> Any:
        first = {"best_return": np.asarray(-np.inf)} if state.phase_round == 0 or state.tries else {}
        grain, state = grain_of(state), state._replace(**first)
        done = yield from task_round(Explored(state.model, state.cover, state.cover.weights))
        before = state
        state, metrics = after_round(self.env, state, done)
        if not self.config.exploit.visit_episodes:
            return state._replace(phase=int32(DONE)), Report(plain(metrics), None)
        seen, nothing = done.seen, np.zeros(0, np.float32)
        state = state._replace(batches=int32(int(state.batches) + 1), sample=seen.sample)
        member = ReplayMember(nothing, int32(0), int32(NOT_OF_THE_COVER), nothing, seen.cells, seen.returns, seen.batch)
        if state.tries:
            state = state._replace(
                phase=int32(EXPLORE), tries=np.asarray(False), explored=np.asarray(kept_of(state).size)
            )
            return state, Report(plain(metrics), member)
        if before.confirms:  # fresh episodes of the best policy: what they earned is what it earns
            state = state._replace(
                confirms=np.asarray(False), best_return=state.last_return, phase_round=before.phase_round
            )
            is_done = is_solved(self, state)
        else:
            state = state._replace(best_grain=int32(grain)) if state.best_return > before.best_return else state
            is_done = is_fine(self, state, done)
            state = state._replace(confirms=np.asarray(is_done and is_by_chance(self, state, seen.returns)))
        if not tries_left(self, state) or (is_done and not state.confirms):
            best = state.best_policy, state.best_return
            state = state._replace(phase=int32(DONE), policy=best[0], last_return=best[1], confirms=np.asarray(False))
        return state, Report(plain(metrics), member)

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
        return in_threads(
            lambda request: diagonal_design(
                request.cover.visits, explore.ridge, explore.weights, first=_weights_of(request.cover)
            ),
            requests,
        )

    def _improve(self, states: list[ReplayState]) -> list[Improved]:
        """A fit for each seed: of the bonus ahead while it explores, of the task's reward after it."""
        if any(state.confirms for state in states):
            fitted = iter(self._improve([state for state in states if not state.confirms]))
            return [confirming(state) if state.confirms else next(fitted) for state in states]
        explores = [state.phase == EXPLORE for state in states]
        inputs = [fit_inputs(self, state) for state in states]
        outputs = _split(explores, inputs, self.improve, self.solve)
        found = []
        for state, exploring, given, output in zip(states, explores, inputs, outputs, strict=True):
            scale = 1.0 if exploring else value_scale(self, kept_of(state))
            value, change = float(output.value) * scale, float(output.change) * scale
            model, own = state.model._replace(w=output.w), np.asarray(output.w) * np.float32(scale)
            policy = model if exploring else self._greedy(given.landmarks, own)
            found.append(Improved(policy, value, 0, {"change": change, "value": value}))
        return found

    def _visit(self, states: list[ReplayState], policies: list[Any]) -> list[Any]:
        """What each seed's policy met: kept and counted while it explores, an evaluation of the task's after it."""
        found: dict[int, Any] = {}
        done = [i for i, state in enumerate(states) if state.phase != EXPLORE]
        found |= dict(zip(done, tried_by(self, [states[i] for i in done], [policies[i] for i in done]), strict=True))
        exploring = [i for i, state in enumerate(states) if state.phase == EXPLORE]
        episodes = explored_by(self, [states[i] for i in exploring], [policies[i] for i in exploring])
        batches = [kept_of(states[i]).batch_of(played) for i, played in zip(exploring, episodes, strict=True)]
        met = [met_in(self, states[i], batch.code, batch.action) for i, batch in zip(exploring, batches, strict=True)]
        models = [with_room(self, policies[i]) for i in exploring]
        tol = np.float32(self.config.replay.tolerance)
        inputs = [CountInputs(model, *own[:3], tol) for model, own in zip(models, met, strict=True)]
        for i, played, batch, own, output in zip(exploring, episodes, batches, met, self.count(inputs), strict=True):
            found[i] = seen_in(self, states[i], played, batch, own, output)
        return finite_or_error(check_visits, states, [found[i] for i in range(len(states))])

    def listed(self, seed: int) -> Listed | None:
        """All observations of a seed's instance, where they can be listed; looked up once."""
        if seed not in self._tables:
            table = self.env.state_observations(self.env.instance(seed))
            ignored = self.config.replay.ignored
            self._tables[seed] = None if table is None else Listed(without(np.asarray(table), ignored))
        return self._tables[seed]


def _weights_of(cover: Members) -> np.ndarray:
    """The weights of the members that are rolled in, with one for the newest."""
    number = len(cover.visits)
    old = cover.weights[len(cover.weights) - max(number - 1, 0) :]
    return np.append(old * (number - 1) / number, 1 / number) if number else old


def kernel_template(config: ReplayConfig, env: Environment) -> GreedyPolicy:
    """A policy of the kind that a run hands back; its landmarks are as many as it needed."""
    return ReplayAgent(env, config, 1).init(0).policy


def _split(first: list[bool], inputs: list[Any], one: Programs, other: Programs) -> list[Any]:
    """The outputs of two programs, each for its own of the inputs, in their order."""
    ones = iter(one([given for given, is_first in zip(inputs, first, strict=True) if is_first]))
    others = iter(other([given for given, is_first in zip(inputs, first, strict=True) if not is_first]))
    return [next(ones) if is_first else next(others) for is_first in first]
