"""PC-PG in practice: the paper's reward-free and reward-bonus versions, for some seeds at once.

Everything here works on lists with one entry per seed. A seed first explores: each round improves its newest
policy on the bonus (plus the reward, in the reward-bonus version) and adds it to its cover. When the cover stops
growing it exploits: a policy is trained on the reward, with restarts rolled in through the finished cover.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcpg.algorithm1_old import Covered, Parts, cover_step, explore_step
from pcpg.config import ExploreConfig, PCPGConfig, sized
from pcpg.cover.bonus import whitening
from pcpg.cover.cover import Cover, add_member, empty_cover, with_weights
from pcpg.cover.design import Design, d_optimal, uniform
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap
from pcpg.learning.update import init_adam
from pcpg.policies.networks import ActorCritic
from pcpg.practice.exploit import FRESH, end_of_round, exploit_task, fresh_policy
from pcpg.practice.host import HostImprove, HostVisit, improve_program, visit_program
from pcpg.practice.ppo import CoverArrays, ImproveInputs, ImproveOutputs, Learner, Task, make_task
from pcpg.practice.program import Program, in_threads
from pcpg.practice.rounds import after_round, improve_all, plain, round_inputs, visit_all
from pcpg.practice.visit import VisitInputs, Visitor, Visits
from pcpg.state import DONE, EXPLOIT, EXPLORE, Member, Report, SeedState, int32

Whitening = Callable[[], np.ndarray]
"""Makes the whitening of a cover where it is needed: that of a round's last cover is, in the next round, if ever."""


@dataclasses.dataclass(frozen=True)
class PCPG:
    """The algorithm bound to an environment, a feature map and compiled programs."""

    env: Environment
    phi: FeatureMap
    config: PCPGConfig
    lanes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", sized(self.config, self.env))

    @property
    def capacity(self) -> int:
        """Most policies a cover can hold."""
        return self.config.explore.max_policies

    @property
    def max_rounds(self) -> int:
        """The most rounds a seed can take."""
        return self.capacity + self.config.exploit.num_rounds

    @functools.cached_property
    def improve(self) -> Program[ImproveInputs, ImproveOutputs] | HostImprove:
        explore, exploit = self.config.explore, self.config.exploit
        learner = Learner(
            self.env,
            self.config.ppo,
            num_groups=explore.num_groups,
            bonus_form=explore.bonus_form,
            beta=explore.beta,
            sample_share=min(explore.start_share, exploit.start_share),
        )
        return improve_program(learner, self.lanes)

    @functools.cached_property
    def visit(self) -> Program[VisitInputs, Visits] | HostVisit:
        return visit_program(Visitor(self.env, self.config.explore.visit_episodes), self.lanes)

    def init(self, seed: int) -> SeedState:
        """A seed before its first round: a random policy and an empty cover."""
        policy = fresh_policy(self.env, self.config.ppo, seed, 0)
        cover = empty_cover(policy, self.phi.dim, self.capacity)
        return SeedState.start(seed, policy, init_adam(policy), num_cells=self.env.num_cells, cover=cover)

    def step(self, states: Sequence[SeedState]) -> list[tuple[SeedState, Report]]:
        """One round for each seed, in the phase it is in."""
        exploring = [state for state in states if state.phase == EXPLORE]
        exploiting = [state for state in states if state.phase == EXPLOIT]
        results = [*self._explore(exploring), *self._exploit(exploiting)]
        by_seed = {int(state.seed): (state, report) for state, report in results}
        return [by_seed[int(state.seed)] for state in states]

    def _reachable(self, state: SeedState) -> np.ndarray:
        return self.env.reachable_cells(self.env.instance(int(state.seed)))

    # Exploration: Algorithm 1.

    def _explore(self, states: list[SeedState]) -> list[tuple[SeedState, Report]]:
        if not states:
            return []
        config = self.config.explore
        outputs: list[ImproveOutputs] = []
        visits: list[Visits] = []
        designs: list[Design] = []

        def improve(policies: list, covers: list, weights: list, bonuses: list) -> list[ActorCritic]:
            task = self._explore_task()
            fresh = [init_adam(policy) for policy in policies]
            outputs[:] = self._improve(states, policies, fresh, covers, bonuses, [task] * len(states))
            return [output.policy for output in outputs]

        def covariance(policies: list[ActorCritic]) -> list[np.ndarray]:
            visits[:] = self._visit(states, policies)
            return [seen.sigma for seen in visits]

        def weights(covers: list[Cover]) -> list[np.ndarray]:
            design = d_optimal if config.weights == "d-optimal" else uniform
            designs[:] = in_threads(lambda cover: design(cover.used, ridge=config.ridge), covers)
            return [design.weights for design in designs]

        def extend(covers: list, policies: list, sigmas: list) -> list[Cover]:
            return in_threads(lambda new: add_member(*new), zip(covers, policies, sigmas, strict=True))

        def bonus(covers: list[Cover]) -> list[Whitening]:
            return [functools.partial(scaled_whitening, cover, config) for cover in covers]

        parts = Parts(covariance, extend, weights, bonus, improve)
        policies = [state.policy for state in states]
        covers: Any = [state.cover for state in states]
        if states[0].round == 0:
            covered = cover_step(parts, policies, covers)
        else:
            before = Covered(covers, [cover.weights for cover in covers], bonus(covers))
            policies, covered = explore_step(parts, policies, before)
        return [
            self._explored(state, policy, cover, seen, design, output)
            for state, policy, cover, seen, design, output in zip(
                states, policies, covered.cover, visits, designs, outputs or [None] * len(states), strict=True
            )
        ]

    def _explored(
        self,
        state: SeedState,
        policy: ActorCritic,
        cover: Cover,
        visits: Visits,
        design: Design,
        output: ImproveOutputs | None,
    ) -> tuple[SeedState, Report]:
        size = int(cover.size)
        log_dets = state.log_dets.copy()
        log_dets[size - 1] = design.log_det
        member = Member(policy, visits.sigma, visits.cells, visits.returns)
        state = state._replace(policy=policy, cover=with_weights(cover, design.weights), log_dets=log_dets)
        state, metrics = after_round(state, visits, output, self.env)
        metrics |= {
            "policies": size,
            "policies_with_weight": int(np.count_nonzero(design.weights)),
            "log_det": design.log_det,
            "design_gap": design.gap,
        }
        if exploration_is_over(log_dets[:size], self.config.explore, self.capacity):
            state = self._begin_exploiting(state)
        return state, Report(plain(metrics), member)

    def _begin_exploiting(self, state: SeedState) -> SeedState:
        exploit = self.config.exploit
        if exploit.warm_start:
            state = state._replace(policy=state.best_policy, last_return=state.best_return)
        if exploit.num_rounds == 0:
            return state._replace(phase=int32(DONE))
        if not exploit.warm_start:
            fresh = fresh_policy(self.env, self.config.ppo, int(state.seed), FRESH)
            fresh = dataclasses.replace(fresh, normaliser=state.policy.normaliser)
            state = state._replace(policy=fresh, best_policy=fresh, best_return=np.asarray(-np.inf))
        return state._replace(phase=int32(EXPLOIT), phase_round=int32(0), adam=init_adam(state.policy))

    # Exploitation: the reward alone, through the finished cover.

    def _exploit(self, states: list[SeedState]) -> list[tuple[SeedState, Report]]:
        if not states:
            return []
        covers: Any = [state.cover for state in states]
        outputs = self._improve(
            states,
            [state.policy for state in states],
            [state.adam for state in states],
            covers,
            [functools.partial(scaled_whitening, cover, self.config.explore) for cover in covers],
            [exploit_task(self.config, int(state.phase_round)) for state in states],
        )
        visits = self._visit(states, [output.policy for output in outputs])
        return [
            end_of_round(state, output, seen, self.env, self.config.exploit.num_rounds)
            for state, output, seen in zip(states, outputs, visits, strict=True)
        ]

    # The programs.

    def _improve(
        self,
        states: list[SeedState],
        policies: list[ActorCritic],
        adams: list,
        covers: list[Cover],
        bonuses: list[Whitening],
        tasks: list[Task],
    ) -> list[ImproveOutputs]:
        whitenings = in_threads(lambda whitening: whitening(), bonuses)
        inputs = [
            round_inputs(
                self.env,
                state._replace(policy=policy, adam=adam),
                task,
                CoverArrays(self.phi, whiten, cover.members, cover.weights.astype(np.float32)),
            )
            for state, policy, adam, cover, whiten, task in zip(
                states, policies, adams, covers, whitenings, tasks, strict=True
            )
        ]
        return improve_all(self.improve, states, inputs)

    def _visit(self, states: list[SeedState], policies: list[ActorCritic]) -> list[Visits]:
        return visit_all(self.visit, self.env, states, policies, self.phi)

    def _explore_task(self) -> Task:
        explore, ppo = self.config.explore, self.config.ppo
        return make_task(
            reward_coef=explore.reward_coef,
            bonus_coef=explore.bonus_coef,
            start_share=explore.start_share,
            epsilon=explore.epsilon,
            learning_rate=(ppo.learning_rate, ppo.learning_rate * explore.anneal_to),
            entropy_coef=(ppo.entropy_coef, ppo.entropy_coef * explore.anneal_to),
            advantage_floor=explore.advantage_floor,
        )


def scaled_whitening(cover: Cover, config: ExploreConfig) -> np.ndarray:
    """W of cover/bonus.py as float32; scaled by the cover, such that the form has mean 1 over its policies."""
    whiten = whitening(cover.sigma_sum, config.ridge)
    if config.bonus_scale == "cover":
        # E[phi' S^-1 phi] = tr(W' E[phi phi'] W) under the uniform mixture of the members.
        mean = np.einsum("ij,ik,kj->", whiten, cover.sigma_sum, whiten) / int(cover.size)
        whiten = whiten / np.sqrt(max(mean, 1e-30))
    return whiten.astype(np.float32)


def exploration_is_over(log_dets: np.ndarray, config: ExploreConfig, capacity: int) -> bool:
    """Whether the cover is full, or its log-determinant grew too little for too long.

    The rule sees features alone, nothing of the environment's internals. With D-optimal weights `log_dets[i]` is the
    largest log det of a mixture of the first i + 1 covariances, which a policy that reaches nothing new cannot raise
    and no policy can lower. With uniform weights it is that of their plain mean: a policy may lower it, and one that
    only repeats what the rarer members reach may raise it, so the rule is then no more than a sign.
    """
    if len(log_dets) >= capacity:
        return True
    if len(log_dets) <= config.patience:
        return False
    return bool(log_dets[-1] - log_dets[-1 - config.patience] < config.min_growth)
