"""The baselines of the paper, on the same learning code: PPO, and PPO with random network distillation."""

import dataclasses
import functools
from collections.abc import Sequence

from pcpg.config import BaselineConfig, sized
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.learning.rnd import init_rnd
from pcpg.learning.update import init_adam
from pcpg.policies.networks import init_actor_critic
from pcpg.practice.host import HostImprove, HostVisit, improve_program, visit_program
from pcpg.practice.ppo import ImproveInputs, ImproveOutputs, Learner, Task, make_task
from pcpg.practice.program import Program
from pcpg.practice.rounds import after_round, improve_all, plain, round_inputs, visit_all
from pcpg.practice.visit import VisitInputs, Visitor, Visits
from pcpg.state import DONE, EXPLOIT, Report, SeedState, int32, weights_rng


@dataclasses.dataclass(frozen=True)
class Baseline:
    """PPO (with or without RND) bound to an environment and compiled programs."""

    env: Environment
    config: BaselineConfig
    lanes: int

    def __post_init__(self) -> None:
        if self.config.autoreset and isinstance(self.env, HostEnvironment):
            raise ValueError("autoreset is for environments that are compiled, not for one stepped on the host")
        object.__setattr__(self, "config", sized(self.config, self.env))

    @property
    def max_rounds(self) -> int:
        """The most rounds a seed can take, if no episode ends early."""
        ppo = self.config.ppo
        steps = (ppo.num_updates * ppo.num_episodes + self.config.visit_episodes) * self.env.max_steps
        rounds = -(-self.config.budget // steps)
        return min(rounds, self.config.num_rounds or rounds)

    @functools.cached_property
    def improve(self) -> Program[ImproveInputs, ImproveOutputs] | HostImprove:
        learner = Learner(self.env, self.config.ppo, rnd=self.config.rnd, autoreset=self.config.autoreset)
        return improve_program(learner, self.lanes)

    @functools.cached_property
    def visit(self) -> Program[VisitInputs, Visits] | HostVisit:
        return visit_program(Visitor(self.env, self.config.visit_episodes), self.lanes)

    def init(self, seed: int) -> SeedState:
        """A seed before its first round: a random policy."""
        rng = weights_rng(seed, 0)
        ppo, space = self.config.ppo, self.env.observation_space
        policy = init_actor_critic(rng, space, self.env.action_space, **ppo.network)
        rnd = None if self.config.rnd is None else init_rnd(rng, space, ppo.hidden)
        trained = (policy, None if rnd is None else rnd.predictor)
        return SeedState.start(seed, policy, init_adam(trained), num_cells=self.env.num_cells, rnd=rnd)._replace(
            phase=int32(EXPLOIT)
        )

    def step(self, states: Sequence[SeedState]) -> list[tuple[SeedState, Report]]:
        """One round of updates for each seed, and an evaluation of where it led."""
        task = self._task()
        inputs = [round_inputs(self.env, state, task) for state in states]
        outputs = improve_all(self.improve, states, inputs)
        visits = visit_all(self.visit, self.env, states, [output.policy for output in outputs])
        return [self._end_of_round(*turn) for turn in zip(states, outputs, visits, strict=True)]

    def _end_of_round(self, state: SeedState, output: ImproveOutputs, visits: Visits) -> tuple[SeedState, Report]:
        state = state._replace(policy=output.policy, adam=output.adam, rnd=output.rnd)
        state, metrics = after_round(state, visits, output, self.env)
        cells = [int(count) for count in visits.cells]  # no cover keeps them
        rounds = self.config.num_rounds
        if state.env_steps >= self.config.budget or (rounds and state.round >= rounds):
            state = state._replace(phase=int32(DONE))
        return state, Report(plain(metrics) | ({"cells": cells} if cells else {}), None)

    def _task(self) -> Task:
        ppo = self.config.ppo
        return make_task(
            reward_coef=1.0,
            bonus_coef=0.0 if self.config.rnd is None else self.config.rnd.coef,
            start_share=1.0,
            epsilon=0.0,
            learning_rate=(ppo.learning_rate, ppo.learning_rate),
            entropy_coef=(ppo.entropy_coef, ppo.entropy_coef),
            advantage_floor=0.0,
        )
