"""PC-PG in practice: the paper's reward-free and reward-bonus versions, and tasks on a finished cover.

    reward first   PPO on the reward alone while it improves on random play (`explore.reward_first`); no cover yet
    explore        rounds of Algorithm 1: the newest policy, improved on the bonus, enters the cover
    exploit        a policy for the reward, with restarts rolled in through the finished cover
    keep best      the newest policy and the best one play the same fresh episodes (`exploit.keep_best`)

On the covers of another run a seed begins with `exploit`: explore once, then solve any reward. Several tasks may share
a cover, such as the goals of one maze.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from pcpg.algorithm1 import Explored, Parts, explore_round
from pcpg.algorithms import Arrays, Assets, World
from pcpg.algos.on_policy import OnPolicy
from pcpg.algos.pcpg_settings import Member, PCPGConfig, stacked, unpacked, with_room
from pcpg.algos.rounds import after_round, plain
from pcpg.bonuses.protocol import NO_BONUS, CoverArrays, Learned
from pcpg.cover.bonus import ridge_of
from pcpg.cover.cover import Cover, add_member, empty_cover, with_weights
from pcpg.cover.design import Design, d_optimal, uniform
from pcpg.engine.play import Visits
from pcpg.engine.program import in_threads
from pcpg.engine.together import Shared
from pcpg.features.base import FeatureMap
from pcpg.learners.ppo import ImproveInputs, ImproveOutputs, Learner, Task, make_task
from pcpg.learners.ppo_host import improve_program
from pcpg.learners.update import Adam, init_adam
from pcpg.policies.networks import ActorCritic
from pcpg.state import DONE, EXPLOIT, EXPLORE, Ledger, Report, SeedState, weights_rng

START, TASK, EXPLORER, EPISODIC = range(4)
"""Streams of initial weights: of the first policy, of one for the task, of one that explores after the reward alone had
led nowhere, and of the networks of the episodic bonus."""
STEADY, LEAST_LEFT = 0.7, 0.05
"""Where the reward alone is learned from: the share of the budget up to which learning rate and entropy coefficient
stay as they are, and what is left of them when it is used up."""

Whiten = Callable[[], np.ndarray]


class Covering(NamedTuple):
    """State of a seed of PC-PG besides its policies."""

    adam: Adam
    rnd: Learned | None  # networks of the episodic bonus
    cover: Cover[ActorCritic]
    log_dets: np.ndarray  # [capacity] float64: log det of the cover's design, by number of members - 1


State = SeedState[Covering]
Round = tuple[State, Report]


class PCPG(OnPolicy[Covering]):
    """PC-PG on an environment, or a task on the covers of another run."""

    settings: PCPGConfig

    def __init__(self, settings: PCPGConfig, world: World) -> None:
        explore, exploit = settings.explore, settings.exploit
        bonus, share = NO_BONUS, exploit.start_share
        if world.assets is None:  # the batch is sized for the phase with more roll-ins
            bonus, share = explore.bonus, min(explore.start_share, share)
        learner = Learner(world.env, settings.ppo, num_groups=explore.num_groups, bonus=bonus, sample_share=share)
        super().__init__(settings, world, learner, explore.visit_episodes)
        self.design = Shared(partial(in_threads, self._design))
        self.whiten: Shared[Whiten, np.ndarray] = Shared(partial(in_threads, operator.call))

    @functools.cached_property
    def frozen(self) -> FeatureMap | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The feature map of the covariances; a task on finished covers has none."""
        return None if self.world.features is None or self.world.assets is not None else self.world.features()

    @functools.cached_property
    def covers(self) -> dict[int, Cover[ActorCritic]]:
        """The covers of another run, by the seed that explored, each with room for the largest."""
        found = {seed: one.cover for seed, one in (self.world.assets or {}).items() if one.cover is not None}
        most = max((cover.capacity for cover in found.values()), default=0)
        return {seed: with_room(cover, most) for seed, cover in found.items()}

    @functools.cached_property
    def improve(self) -> Shared[ImproveInputs, ImproveOutputs]:
        """The program that runs all updates of a round."""
        axes: Any = 0
        if self.world.assets is not None:
            # The members of all covers are the same for all seeds; `weights` and `first` say which are a seed's own.
            axes = ImproveInputs._make([0] * 8)._replace(cover=CoverArrays._make([0, 0, None, 0, 0]))
        return Shared(improve_program(self.learner, self.world.lanes, axes))

    @property
    def programs(self) -> tuple[Shared, ...]:
        return self.whiten, self.improve, self.visit, self.design

    # A seed before its first round.

    def init(self, seed: int) -> State:
        """A random policy and an empty cover; on the covers of another run a finished one."""
        if self.world.assets is not None:
            return self._on_cover(seed, self.covers[self.env.dynamics_seed(seed)])
        assert self.frozen is not None
        policy, explore = self.fresh_policy(seed, START), self.settings.explore
        cover = empty_cover(policy, self.frozen.dim, explore.max_policies)
        spaces, hidden = (self.env.observation_space, self.env.action_space), self.settings.ppo.hidden
        bonus = self.learner.bonus
        carried = bonus.init(weights_rng(seed, EPISODIC), *spaces, hidden)
        own = Covering(init_adam((policy, bonus.trained(carried))), carried, cover, np.zeros(cover.capacity))
        state = SeedState(Ledger.start(seed, self.env.num_cells), policy, policy, own)
        return state.noted(phase=EXPLOIT) if explore.reward_first else state

    def _on_cover(self, seed: int, cover: Cover[ActorCritic]) -> State:
        newest = cover.member(int(cover.size) - 1)
        policy = dataclasses.replace(self.fresh_policy(seed, TASK), normaliser=newest.normaliser)
        own = Covering(init_adam(policy), None, cover, np.zeros(cover.capacity))
        return SeedState(Ledger.start(seed, self.env.num_cells), policy, policy, own).noted(phase=EXPLOIT)

    # The rounds of one seed.

    async def step(self, state: State) -> Round:
        """One round in the seed's current phase."""
        if state.phase == EXPLORE:
            return await self.explore(state)
        if self.settings.exploit.keep_best and self._task_is_over(state):
            return await self.keep_best(state)
        return await (self.reward_first(state) if state.own.cover.size == 0 else self.exploit(state))

    async def explore(self, state: State) -> Round:
        """A round of Algorithm 1, and whether it was the last."""
        explore, cover = self.settings.explore, state.own.cover
        parts = Parts(
            improve=partial(self._improve_on_bonus, state),
            visit=partial(self.visited, state, phi=self.frozen),
            extend=lambda cover, policy, seen: add_member(cover, policy, seen.sigma),
            design=self.design,
            bonus=self._bonus,
        )
        now = Explored(state.policy, cover)
        if cover.size:
            now = Explored(state.policy, cover, cover.weights, self._bonus(cover))
        done = await explore_round(now, parts)
        size, log_dets = int(done.cover.size), state.own.log_dets.copy()
        log_dets[size - 1] = done.design.log_det
        state = state.owning(cover=with_weights(done.cover, done.design.weights), log_dets=log_dets)
        if done.improved is not None:
            state = state.owning(rnd=done.improved.rnd)
        state, metrics = after_round(self.env, state, done)
        metrics |= {
            "policies": size,
            "policies_with_weight": int(np.count_nonzero(done.design.weights)),
            "log_det": done.design.log_det,
            "design_gap": done.design.gap,
        }
        has_task = self.settings.exploit.num_rounds > 0
        over = self.budget.ends_exploration(state.ledger, has_task=has_task, begun=explore.reward_first)
        if over or explore.is_over(log_dets[:size]):
            state = self._begin_exploiting(state)
        return state, Report(plain(metrics), Member(done.policy, done.seen.sigma, done.seen.cells, done.seen.returns))

    async def exploit(self, state: State) -> Round:
        """A round of learning the task on the finished cover, annealed over the phase."""
        ppo, exploit, cover = self.settings.ppo, self.settings.exploit, state.own.cover
        round_, rounds = int(state.ledger.phase_round), self._rounds_of_task(state)
        left, then = (1 - (round_ + ahead) / rounds if exploit.anneal else 1.0 for ahead in (0, 1))
        task = make_task(
            start_share=exploit.start_share,
            epsilon=exploit.epsilon,
            learning_rate=(ppo.learning_rate * left, ppo.learning_rate * then),
            entropy_coef=(ppo.entropy_coef * left, ppo.entropy_coef * then),
            advantage_floor=exploit.advantage_floor,
        )
        if self.world.assets is None:
            whiten = await self.whiten(self._bonus(cover))
            arrays = CoverArrays(self.frozen, whiten, cover.members, cover.weights.astype(np.float32))
        else:
            arrays = self._shared_arrays(state)
        return await self._learn_task(state, task, arrays)

    async def reward_first(self, state: State) -> Round:
        """A round of PPO from the start state, before there is a cover; if it does not improve, exploration is next."""
        ppo, explore, spent = self.settings.ppo, self.settings.explore, self.budget.spent(state.ledger)
        left = min(max(1 - spent, LEAST_LEFT) / (1 - STEADY), 1.0) if self.settings.exploit.anneal else 1.0
        task = make_task(
            learning_rate=(ppo.learning_rate * left, ppo.learning_rate * left),
            entropy_coef=(ppo.entropy_coef * left, ppo.entropy_coef * left),
        )
        cover = state.own.cover
        weights = np.eye(1, cover.capacity, dtype=np.float32)[0]  # of a roll-in that has no steps
        nothing = np.zeros(cover.sigma_sum.shape, np.float32)  # the bonus where nothing is known
        state, report = await self._learn_task(state, task, CoverArrays(self.frozen, nothing, cover.members, weights))
        is_better = explore.random_return is None or state.ledger.best_return > explore.random_return
        if self.budget.spent(state.ledger) >= explore.reward_first < 1 and not is_better:
            policy = self.fresh_policy(state.seed, EXPLORER)
            state = state._replace(policy=policy).noted(phase=EXPLORE, phase_round=0)
            state = state.owning(adam=self._fresh_adam(state))
        return state, report

    async def keep_best(self, state: State) -> Round:
        """Compare the newest and the best policy on the same fresh episodes, and return the better one."""
        newest = await self.visited(state, state.policy, self.frozen)
        best = await self.visited(state, state.best_policy, self.frozen)
        is_newest = newest.returns.mean() >= best.returns.mean()
        policy, seen, other = (state.policy, newest, best) if is_newest else (state.best_policy, best, newest)
        state = state.noted(env_steps=state.ledger.env_steps + int(other.env_steps))
        state, metrics = after_round(self.env, state, Explored(policy, state.own.cover, seen=seen))
        return state.noted(phase=DONE), Report(plain(metrics))

    async def _learn_task(self, state: State, task: Task, cover: CoverArrays) -> Round:
        improved = await self.improved(state, state.policy, task, state.own.adam, cover)
        seen: Visits = await self.visited(state, improved.policy, self.frozen)
        state = state.owning(adam=improved.adam, rnd=improved.rnd)
        state, metrics = after_round(self.env, state, Explored(improved.policy, None, improved=improved, seen=seen))
        if self._task_is_over(state) and not self.settings.exploit.keep_best:
            state = state.noted(phase=DONE)
        return state, Report(plain(metrics))

    # Parts of a round.

    async def _improve_on_bonus(self, state: State, now: Explored) -> ImproveOutputs:
        """Line 7: the newest policy improved on the cover's bonus, and on the reward in the reward-bonus version."""
        ppo, explore, cover = self.settings.ppo, self.settings.explore, now.cover
        task = make_task(
            reward_coef=explore.reward_coef,
            bonus_coef=explore.bonus_coef,
            start_share=explore.start_share,
            epsilon=explore.epsilon,
            learning_rate=(ppo.learning_rate, ppo.learning_rate * explore.anneal_to),
            entropy_coef=(ppo.entropy_coef, ppo.entropy_coef * explore.anneal_to),
            advantage_floor=explore.advantage_floor,
        )
        arrays = CoverArrays(self.frozen, await self.whiten(now.bonus), cover.members, cover.weights.astype(np.float32))
        return await self.improved(state, now.policy, task, self._fresh_adam(state), arrays)

    def _design(self, cover: Cover[ActorCritic]) -> Design:
        explore = self.settings.explore
        design = d_optimal if explore.weights == "d-optimal" else uniform
        return design(cover.used, ridge=ridge_of(cover.used, explore.ridge_scale, explore.ridge))

    def _bonus(self, cover: Cover[ActorCritic]) -> Whiten:
        """The bonus of a cover as a whitening, made where and when an improvement needs it."""
        return partial(self.settings.explore.whitening, cover)

    def _fresh_adam(self, state: State) -> Adam:
        return init_adam((state.policy, self.learner.bonus.trained(state.own.rnd)))

    def _shared_arrays(self, state: State) -> CoverArrays:
        """The cover of another run; in a program over several seeds the members of all covers are one part of it."""
        cover, weights = state.own.cover, state.own.cover.weights.astype(np.float32)
        if self.world.lanes == 1:
            return CoverArrays(None, None, cover.members, weights, np.asarray(0, np.int32))
        place = list(self.covers).index(self.env.dynamics_seed(state.seed))
        return CoverArrays(None, None, self._all_members, weights, np.asarray(place * cover.capacity, np.int32))

    @functools.cached_property
    def _all_members(self) -> ActorCritic:
        """The members of all covers, one cover after the other."""
        members = [cover.members for cover in self.covers.values()]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *members)

    def _begin_exploiting(self, state: State) -> State:
        """The state at the end of exploration: with the initial policy of exploitation, or done."""
        exploit = self.settings.exploit
        if exploit.warm_start:
            state = state._replace(policy=state.best_policy).noted(last_return=state.ledger.best_return)
        if exploit.num_rounds == 0:
            return state.noted(phase=DONE)
        if not exploit.warm_start:
            fresh = self.fresh_policy(state.seed, TASK)
            fresh = dataclasses.replace(fresh, normaliser=state.policy.normaliser)
            state = state._replace(policy=fresh)
            if not exploit.keep_best:
                state = state._replace(best_policy=fresh).noted(best_return=-np.inf)
        return state.noted(phase=EXPLOIT, phase_round=0).owning(adam=self._fresh_adam(state))

    def _task_is_over(self, state: State) -> bool:
        """Whether the task has used its rounds or budget."""
        if self.budget.is_set:
            return self.budget.is_over(state.ledger)
        return self._rounds_of_task(state) <= int(state.ledger.phase_round)

    def _rounds_of_task(self, state: State) -> int:
        """Rounds of exploitation, all together: those of the settings, or about as many as the budget holds."""
        ahead = self.budget.rounds_left(state.ledger) if self.budget.is_set else 0
        return int(state.ledger.phase_round) + ahead if ahead else self.settings.exploit.num_rounds

    # Interface.

    def left(self, state: State) -> int:
        """The maximum number of remaining rounds of a seed."""
        rounds = self.settings.exploit.num_rounds
        if state.is_done:
            return 0
        if state.phase == EXPLORE:
            return self.settings.explore.max_policies - int(state.own.cover.size) + rounds
        return rounds - int(state.ledger.phase_round)

    def stopped(self, state: State, why: str) -> State:
        """Rounds of exploration handle time limits themselves."""
        return state if state.phase == EXPLORE and why == "time" else state.noted(phase=DONE)

    def ended(self, state: State) -> str:
        """Why exploration ended."""
        size, explore = int(state.own.cover.size), self.settings.explore
        if self.world.assets is not None:
            return ""
        if state.phase == EXPLORE:
            return "exploring"
        if size == 0:
            return "reward"
        if size >= explore.max_policies:
            return "full"
        return "grown" if explore.is_over(state.own.log_dets[:size]) else "budget"

    def policies(self, state: State) -> int:
        return int(state.own.cover.size)

    def moving(self, own: Covering) -> Any:
        """Everything but the members, which have their own files."""
        return own._replace(cover=Cover(None, np.zeros((0, 0, 0)), own.cover.weights, own.cover.size))

    def restored(self, fresh: State, moving: SeedState[Any], parts: Sequence[Arrays]) -> State:
        cover = fresh.own.cover
        if self.world.assets is None:
            members = [unpacked(fresh.policy, part) for part in parts[: int(moving.own.cover.size)]]
            cover = dataclasses.replace(stacked(cover, members), weights=moving.own.cover.weights)
        return moving.owning(cover=cover)

    def assets(self, weights: np.ndarray, parts: Sequence[Arrays]) -> Assets:
        if not 0 < len(weights) <= len(parts):
            return Assets()
        members = [unpacked(self.template(), part) for part in parts[: len(weights)]]
        cover = stacked(empty_cover(members[0].policy, members[0].sigma.shape[0], len(weights)), members)
        return Assets(with_weights(cover, weights), self.settings.explore.ridge)
