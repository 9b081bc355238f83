"""An algorithm bound to an environment: its two compiled programs, and their answers to what its rounds ask for.

An algorithm is a `Rounds`: pure functions of the agent and of one seed's state. Its rounds are coroutines made of those
of pcpg/algorithm1.py; `Agent.step` runs the rounds of all seeds in lockstep, so that one call of a program serves the
seeds that explore and those that exploit.
"""

import dataclasses
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pcpg.algorithm1 import Design, Explored, Improve, Request, Visit, lockstep
from pcpg.config import AgentConfig
from pcpg.cover.bonus import ridge_of
from pcpg.cover.cover import Cover
from pcpg.cover.design import d_optimal, uniform
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap
from pcpg.learning.update import Adam
from pcpg.policies.networks import ActorCritic, init_actor_critic
from pcpg.practice.budget import NO_BUDGET, Budget
from pcpg.practice.host import HostImprove, HostVisit, improve_program, visit_program
from pcpg.practice.ppo import WATCHED, ImproveInputs, ImproveOutputs, Learner, Task
from pcpg.practice.program import Program, Programs, in_threads
from pcpg.practice.rewards import CoverArrays
from pcpg.practice.visit import VisitInputs, Visitor, Visits
from pcpg.presets import sized
from pcpg.state import PHASES, NonFinite, Report, SeedState, int32, weights_rng

Covers = dict[int, Cover[ActorCritic]]
"""Finished covers, by the seed of the run that made them."""

Turn = Generator[Request, Any, tuple[SeedState, Report]]
"""One round of one seed: from requests to the next state and a report."""


class Assignment(NamedTuple):
    """What an improvement is to learn, and the optimiser with which it begins."""

    task: Task
    adam: Adam


class Rounds(NamedTuple):
    """An algorithm in practice."""

    learner: Callable[["Agent"], Learner]  # the constants of `improve`
    visit_episodes: Callable[["Agent"], int]  # episodes of a visit
    begin: Callable[["Agent", int], SeedState]  # a seed before its first round
    turn: Callable[["Agent", SeedState], Turn]  # one round
    assign: Callable[["Agent", SeedState], Assignment]
    left: Callable[["Agent", SeedState], int]  # rounds that a seed has before it, at most or about


@dataclasses.dataclass(frozen=True)
class Agent:
    """An algorithm on an environment; compiles nothing before the first round."""

    checkpoint_share = 1.0  # of the time at most: after every round

    env: Environment
    config: Any  # the settings of the algorithm, an AgentConfig
    rounds: Rounds
    lanes: int
    phi: FeatureMap | None = None  # of the cover's covariance; None: no bonus is paid
    covers: Covers | None = None  # those that are exploited; None: the agent explores by itself, or has no cover
    budget: Budget = NO_BUDGET

    def __post_init__(self) -> None:
        config: AgentConfig = sized(self.config, self.env)
        object.__setattr__(self, "config", config)

    @functools.cached_property
    def improve(self) -> Program[ImproveInputs, ImproveOutputs] | HostImprove:
        """The program that runs all updates of a round."""
        learner = self.rounds.learner(self)
        if self.covers is None:
            return improve_program(learner, self.lanes)
        # The members of all covers are the same for all seeds; `weights` and `first` say which are a seed's own.
        cover = CoverArrays(phi=0, whiten=0, members=None, weights=0, first=0)  # pyright: ignore[reportArgumentType]
        axes = ImproveInputs(0, 0, 0, 0, 0, 0, cover, 0)  # pyright: ignore[reportArgumentType]
        return improve_program(learner, self.lanes, axes)

    @functools.cached_property
    def visit(self) -> Programs[VisitInputs, Visits] | HostVisit:
        """The program that plays a policy from the start state."""
        return visit_program(Visitor(self.env, self.rounds.visit_episodes(self)), self.lanes)

    @property
    def programs(self) -> tuple[Any, ...]:
        """Both programs, for their compilations."""
        return self.improve, self.visit

    def init(self, seed: int) -> SeedState:
        """A seed before its first round."""
        return self.rounds.begin(self, seed)

    def step(self, states: Sequence[SeedState]) -> list[tuple[SeedState, Report]]:
        """One round for each seed, in the phase it is in; an error where a number was not finite."""
        return all_finite(self.try_step(states))

    def try_step(self, states: Sequence[SeedState]) -> list[tuple[SeedState, Report] | NonFinite]:
        """One round for each seed; for one in which a number was not finite, the error in its place."""
        turns = [self.rounds.turn(self, state) for state in states]
        return lockstep(turns, functools.partial(self._answer, states))

    def rounds_left(self, state: SeedState) -> int:
        """How many rounds a seed has before it: at most for PC-PG, about where the budget is in steps."""
        return self.rounds.left(self, state)

    def fresh_policy(self, seed: int, stream: int) -> ActorCritic:
        """A policy with random weights."""
        space, actions = self.env.observation_space, self.env.action_space
        return init_actor_critic(weights_rng(seed, stream), space, actions, **self.config.ppo.network)

    def _answer(self, states: Sequence[SeedState], kind: type[Request], asked: list[tuple[int, Any]]) -> Sequence[Any]:
        who = [states[number] for number, _ in asked]
        requests = [request for _, request in asked]
        if kind is Improve:
            return self._improve(who, [request.now for request in requests])
        if kind is Visit:
            return self._visit(who, [request.policy for request in requests])
        assert kind is Design
        explore = self.config.explore
        design = d_optimal if explore.weights == "d-optimal" else uniform
        ridge = functools.partial(ridge_of, scale=explore.ridge_scale, ridge=explore.ridge)
        return in_threads(lambda request: design(request.cover.used, ridge=ridge(request.cover.used)), requests)

    def _improve(self, states: list[SeedState], nows: list[Explored]) -> list[ImproveOutputs | NonFinite]:
        """The policy of each seed after a round of updates; an error in place of one that was not finite."""
        whitenings = in_threads(lambda now: None if now.bonus is None else now.bonus(), nows)
        inputs = []
        for state, now, whiten in zip(states, nows, whitenings, strict=True):
            task, adam = self.rounds.assign(self, state)
            params, cover = self.env.instance(int(state.seed)), self._cover_arrays(state, now.cover, whiten)
            inputs.append(ImproveInputs(state.seed, state.round, params, now.policy, adam, task, cover, state.rnd))
        return finite_or_error(check_updates, states, self.improve(inputs))

    def _visit(self, states: list[SeedState], policies: list[ActorCritic]) -> list[Visits | NonFinite]:
        """What the policy of each seed saw and earned; an error in place of what was not finite."""
        visits = self.visit(
            [
                VisitInputs(state.seed, state.round, self.env.instance(int(state.seed)), policy, self.phi)
                for state, policy in zip(states, policies, strict=True)
            ]
        )
        return finite_or_error(check_visits, states, visits)

    def _cover_arrays(self, state: SeedState, cover: Cover | None, whiten: np.ndarray | None) -> CoverArrays | None:
        if cover is None:
            return None
        weights = cover.weights.astype(np.float32)
        if self.covers is None:
            return CoverArrays(self.phi, whiten, cover.members, weights)
        if self.lanes == 1:
            return CoverArrays(None, None, cover.members, weights, int32(0))
        place = list(self.covers).index(self.env.dynamics_seed(int(state.seed)))
        return CoverArrays(None, None, self._all_members, weights, int32(place * cover.capacity))

    @functools.cached_property
    def _all_members(self) -> ActorCritic:
        """The members of all covers, one cover after the other."""
        covers = (self.covers or {}).values()
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *(cover.members for cover in covers))


def network_template(config: Any, env: Environment) -> ActorCritic:
    """A policy of the shape that the settings train."""
    spaces = env.observation_space, env.action_space
    return init_actor_critic(np.random.default_rng(0), *spaces, **config.ppo.network)


def finite_or_error(check: Callable[[Any, Any], None], states: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """What was found for each seed, or the error that its check raises: one seed's NaN is not that of the others."""
    answers: list[Any] = []
    for state, one in zip(states, found, strict=True):
        try:
            check(state, one)
            answers.append(one)
        except NonFinite as error:
            answers.append(error)
    return answers


def all_finite(results: Sequence[Any]) -> list[Any]:
    """The results of all seeds; raises the error of the first that has one."""
    for result in results:
        if isinstance(result, NonFinite):
            raise result
    return list(results)


def check_updates(state: SeedState, outputs: ImproveOutputs) -> None:
    """Raise if a reward, observation, bonus or loss of the round was not finite."""
    finite = np.asarray(outputs.finite)
    if finite.all():
        return
    update = int(np.argmin(finite.all(axis=1)))
    what = WATCHED[int(np.argmin(finite[update]))]
    article = "an" if what == "observation" else "a"
    raise NonFinite(
        f"seed {int(state.seed)}: {article} {what} that is not finite appeared in update {update} of round "
        f"{int(state.round)}, after {int(state.env_steps):,} environment steps; the last good checkpoint stays"
    )


def check_visits(state: Any, visits: Any) -> None:
    """Raise if the visits of a policy hold a number that is not finite."""
    if not bool(visits.finite):
        raise NonFinite(
            f"seed {int(state.seed)}: the visits of the newest policy hold a reward, observation or covariance "
            f"that is not finite, in round {int(state.round)}, after {int(state.env_steps):,} environment steps; "
            "the last good checkpoint stays"
        )


def after_round(env: Environment, state: Any, done: Explored) -> tuple[Any, dict[str, Any]]:
    """The state with the round counted and its best policy kept, and the metrics that every round has."""
    visits, output = done.seen, done.improved
    reachable = env.reachable_cells(env.instance(int(state.seed)))  # the grid cells of which `coverage` is a share
    mean_return = float(np.mean(visits.returns, dtype=np.float64))
    env_steps = state.env_steps + int(visits.env_steps) + (0 if output is None else int(output.env_steps))
    metrics = {
        "seed": int(state.seed),
        "round": int(state.round),
        "phase": PHASES[int(state.phase)],
        "env_steps": int(env_steps),
        "return": mean_return,
    }
    seen = state.seen | (np.asarray(visits.cells) > 0)
    if reachable.any():
        metrics["coverage"] = float(np.mean(seen[reachable]))
    if output is not None:
        metrics |= {f"train/{name}": value for name, value in output.metrics.items()}
    state = state._replace(policy=done.policy)
    if mean_return > state.best_return:
        state = state._replace(best_policy=state.policy, best_return=np.asarray(mean_return))
    state = state._replace(
        seen=seen,
        last_return=np.asarray(mean_return),
        env_steps=np.asarray(env_steps, np.int64),
        round=int32(int(state.round) + 1),
        phase_round=int32(int(state.phase_round) + 1),
    )
    return state, metrics


def plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics as JSON values; a mean over nothing (no episode of that kind) is None."""
    out: dict[str, Any] = {}
    for name, value in metrics.items():
        value = value if isinstance(value, str | int) else float(value)
        out[name] = None if isinstance(value, float) and not np.isfinite(value) else value
    return out
