"""Learning of a round: minibatches drawn on the host, updates in a compiled program."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from pcpg.algorithms import World
from pcpg.algos.deep_settings import DeepConfig
from pcpg.algos.deep_task import Task, best_places, scores, task_of
from pcpg.config import Json
from pcpg.data import Draws, Stream
from pcpg.engine.program import Program
from pcpg.engine.together import Shared
from pcpg.envs.protocol import Goals
from pcpg.envs.spaces import Box, Image
from pcpg.learners.hindsight import Rule, goals_in, relabelled, without_goal
from pcpg.learners.novelty import Novelty, fitted
from pcpg.learners.off_policy import (
    Learned,
    Learner,
    LearnInputs,
    Minibatch,
    OffPolicy,
    Params,
    Rates,
    init_learner,
    init_params,
    policy_of,
    rescaled,
)
from pcpg.learners.transitions import Transitions
from pcpg.policies.off_policy import DeepPolicy, Scale
from pcpg.state import NonFinite, SeedState, weights_rng

UPDATES = 256
"""Updates of one call of the program."""
MOST_BYTES = 32_000_000
"""Of the minibatches of one call."""
POOL = 4_096
"""Transitions whose bonus is computed in a round, beside the newest; the explorer's minibatches are drawn from them."""
PIECE = 8
"""Length of a piece of an episode in the pool, in steps of the explorer's targets."""
LIMIT = 1e6
"""Bound of the explorer's values."""
TEMPERATURE, EPSILON = 0.003, 0.1
"""How a policy of values explores."""


class OfAgent(NamedTuple):
    """One learner and the updates it is due."""

    learner: Learner
    due: np.ndarray  # float64


class Learning:
    """The learners of all rounds."""

    def __init__(self, config: DeepConfig, world: World) -> None:
        self.config, self.env = config, world.env
        self.space = self.env.action_space
        self.like = self.params(0, 0)
        size = max(1, int(np.prod(self.env.observation_space.shape, dtype=int)))
        item = np.dtype(self.env.observation_space.dtype).itemsize
        fit = MOST_BYTES // (2 * config.learn.batch * size * item)
        self.updates = int(np.clip(1 << max(fit, 1).bit_length() - 1, 4, UPDATES))
        self.learn = Shared(Program(OffPolicy(self.like, self.space).learn, world.lanes))

    # Learners.

    def params(self, seed: int, stream: int) -> Params:
        """Fresh parameters of a seed; each stream has its own."""
        learn = self.config.learn
        spaces = self.env.observation_space, self.space
        return init_params(weights_rng(seed, stream), *spaces, hidden=learn.hidden, critics=learn.critics)

    def fresh(self, seed: int, stream: int, value: float = 0.0) -> OfAgent:
        """A learner before its first update, and about the value that everything has."""
        params = self.params(seed, stream)
        if value:
            bias = np.full_like(params.critics.layers[-1].bias, value)
            params = eqx.tree_at(lambda made: made.critics.layers[-1].bias, params, bias)
        return OfAgent(init_learner(params), np.zeros(()))

    def explorer(self, seed: int) -> OfAgent:
        """The explorer's learner: everything promises the mean bonus for ever."""
        return self.fresh(seed, 1, self.config.explore.bonus_coef / (1 - self.config.learn.discount))

    def no_scale(self) -> Scale:
        """Observations as they are."""
        shape = () if isinstance(self.env.observation_space, Image) else self.env.observation_space.shape
        return Scale(np.zeros(shape, np.float32), np.ones(shape, np.float32))

    def policy(self, agent: OfAgent, scale: Scale, *, newest: bool = False) -> DeepPolicy:
        """The averaged policy of a learner, or the newest."""
        vector = agent.learner.params if newest else agent.learner.average
        return policy_of(vector, self.like, scale, self.space, TEMPERATURE, EPSILON)

    # A round.

    async def round(self, state: SeedState[Any], task: Task, steps: float) -> tuple[SeedState[Any], Json]:
        """All updates for so many new steps."""
        own, learn, explore = state.own, self.config.learn, self.config.explore
        own = self._scaled(state, task)
        own = own._replace(task=_due(own.task, learn.updates * steps * self._has_lesson(task, own)))
        metrics: Json = {}
        state = state._replace(own=own)
        if own.explorer is not None:
            share = 1.0 - explore.task_share if task.is_met else 1.0  # as many as its data are worth
            own = own._replace(explorer=_due(own.explorer, explore.updates * steps * share))
            explorer, found = await self._explorer(state._replace(own=own), task)
            own, metrics = own._replace(explorer=explorer), metrics | found
        agent, found = await self._task(state._replace(own=own), task)
        return state._replace(own=own._replace(task=agent)), metrics | found

    def _has_lesson(self, task: Task, own: Any) -> bool:
        """Whether there is something to learn of the task."""
        return task.is_met or own.explorer is None or task.goals is not None

    def task(self, kept: Transitions) -> Task:
        """The task as far as these data show it."""
        return task_of(kept, self.config.learn.discount, self.goals(kept))

    def goals(self, kept: Transitions) -> Goals | None:
        """The goals that observations name, if rewards are theirs."""
        return goals_in(kept, self.env.observed_goals)

    def _scaled(self, state: SeedState[Any], task: Task) -> Any:
        """The state with scales that the data of now have: looked at anew whenever the data have doubled."""
        own, kept = state.own, state.own.data
        if task.scale != float(own.reward_scale):
            factor = float(own.reward_scale) / task.scale
            learner = rescaled(own.task.learner, self.like, factor)
            own = own._replace(task=own.task._replace(learner=learner), reward_scale=np.asarray(task.scale))
        explore, novelty = self.config.explore, own.novelty
        is_anew = kept.size >= 2 * int(own.scaled_at)
        if is_anew:
            own = own._replace(scale=self._scale_of(kept), scaled_at=np.asarray(kept.size, np.int64))
        if novelty is not None:
            seen = kept.observations[kept.landing_rows(np.arange(0 if is_anew else int(own.counted), kept.size))]
            if is_anew:
                rng = weights_rng(state.seed, 2)
                novelty = fitted(rng, without_goal(seen, task.goals), explore.num_features, explore.bandwidth)
            novelty = novelty.with_data(seen)
        return own._replace(novelty=novelty, counted=np.asarray(kept.size, np.int64))

    def _scale_of(self, kept: Transitions) -> Scale:
        if isinstance(self.env.observation_space, Image):
            return self.no_scale()
        seen = kept.observations[-200_000:].astype(np.float64)
        deviation = seen.std(axis=0)
        inverse = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 1.0)
        return Scale(seen.mean(axis=0).astype(np.float32), inverse.astype(np.float32))

    async def _task(self, state: SeedState[Any], task: Task) -> tuple[OfAgent, Json]:
        """The task policy's updates: the reward alone, n-step targets, partly the best episodes."""
        own, kept, learn, goals = state.own, state.own.data, self.config.learn, task.goals
        rng, n, gamma = (
            Draws(state.seed, state.round).of(Stream.SAMPLE),
            task.steps_ahead(learn.steps_ahead),
            learn.discount,
        )
        starts = kept.first_observations.reshape(kept.count, -1)
        whitened = (
            np.zeros((kept.count, 0))
            if isinstance(self.env.observation_space, Image)
            else ((starts - own.scale.mean) * own.scale.inverse)
        )
        best = best_places(kept, scores(kept, task.reward, gamma, whitened), learn.best_steps)
        rates = self._rates(learn.learning_rate, task.low, task.high, learn.cloning)
        has_best = bool(task.success.any()) and (
            goals is None or not float(np.ptp(starts[:, goals.desired], axis=0).max())
        )
        num_best = round(learn.best_share * learn.batch) if has_best else 0
        floors = kept.earned(task.reward, gamma) if task.has_floor else None
        cloned = num_best if task.ends and learn.cloning else 0

        def draw() -> Minibatch:
            places = rng.integers(kept.size, size=(self.updates, learn.batch))
            places[:, :num_best] = best[rng.integers(len(best), size=(self.updates, num_best))]
            returns = kept.returns(places, n, gamma, task.reward)
            batch = kept.minibatch(places, n, gamma, returns, self._noise(rng), floors, cloned)
            if goals is None:
                return batch
            rule = Rule(goals, task.ends, task.by_end, task.scale)
            return relabelled(kept, batch, places, n, gamma, rule, rng, num_best)

        agent, found = await self._updated(state, own.task, draw, rates)
        return agent, {f"train/{name}": value for name, value in found.items()}

    async def _explorer(self, state: SeedState[Any], task: Task) -> tuple[OfAgent, Json]:
        """The explorer's updates: the bonus of all data so far plus the reward."""
        own, kept, explore = state.own, state.own.data, self.config.explore
        rng, batch = Draws(state.seed, state.round).of(Stream.LEARN), self.config.learn.batch
        places, is_whole = self._pool(kept, rng)
        novelty: Novelty = own.novelty
        power = 0.5 if explore.bonus_form == "root" else 1.0
        bonus = novelty.bonus(kept.observations[kept.landing_rows(places)], novelty.inverse_root(), power)
        mean = float(bonus.mean())
        paid = np.zeros(kept.size, np.float32)
        paid[places] = bonus * np.float32(explore.bonus_coef / max(mean, 1e-12))
        paid[places] += np.float32(explore.reward_coef) * task.reward[places]
        places, gamma, n = places[is_whole], self.config.learn.discount, explore.steps_ahead
        rates = self._rates(explore.learning_rate, -LIMIT, LIMIT)

        def draw() -> Minibatch:
            chosen = places[rng.integers(len(places), size=(self.updates, batch))]
            return kept.minibatch(chosen, n, gamma, kept.returns(chosen, n, gamma, paid), self._noise(rng))

        agent, found = await self._updated(state, own.explorer, draw, rates)
        return agent, {f"explore/{name}": value for name, value in found.items()} | {"bonus": mean}

    def _pool(self, kept: Transitions, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The places whose bonus is computed, all new ones among them, and at which of them all steps of a target are.

        What is new is learned from at once; the others are pieces of episodes.
        """
        if kept.size <= POOL:
            return np.arange(kept.size), np.ones(kept.size, bool)
        new = min(POOL, int(kept.each("lengths")[-self.config.num_episodes :].sum()))
        ahead = self.config.explore.steps_ahead
        piece = 1 if ahead == 1 else PIECE * ahead
        first = rng.integers(kept.size - new, size=(POOL // piece, 1))
        places, end = first + np.arange(piece), kept.column("end")[first]
        is_whole = (places + ahead <= first + piece) | (end <= first + piece)
        inside = places < end
        newest = np.arange(kept.size - new, kept.size)
        return np.concatenate([newest, places[inside]]), np.concatenate([np.ones(new, bool), is_whole[inside]])

    async def _updated(
        self, state: SeedState[Any], agent: OfAgent, draw: Any, rates: Rates
    ) -> tuple[OfAgent, dict[str, float]]:
        """The learner after all whole calls of the program that it is due."""
        calls, found = int(float(agent.due) // self.updates), []
        learner = agent.learner
        for _ in range(calls):
            learned: Learned = await self.learn(LearnInputs(learner, draw(), state.own.scale, rates))
            if not np.isfinite(learned.loss):
                raise NonFinite(f"seed {state.seed}: a loss became non-finite in round {state.round}")
            learner = learned.learner
            found.append([float(learned.loss), float(learned.value), float(learned.alpha)])
        means = np.mean(found, axis=0).tolist() if found else []
        due = np.asarray(float(agent.due) - calls * self.updates)
        return OfAgent(learner, due), dict(zip(("loss", "value", "alpha"), means, strict=False))

    def _rates(self, learning_rate: float, low: float, high: float, cloning: float = 0.0) -> Rates:
        learn = self.config.learn
        numbers = learning_rate, learn.tau, learn.average, learn.entropy, cloning, low, high
        return Rates(*(np.asarray(number, np.float32) for number in numbers))

    def _noise(self, rng: np.random.Generator) -> np.ndarray:
        """For the real actions of two policies; nothing for discrete ones."""
        if not isinstance(self.space, Box):
            return np.zeros((self.updates, 0), np.float32)
        shape = (self.updates, 2, self.config.learn.batch, math.prod(self.space.shape))
        return rng.standard_normal(shape, np.float32)


def _due(agent: OfAgent, updates: float) -> OfAgent:
    return agent._replace(due=agent.due + updates)
