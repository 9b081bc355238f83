"""PPO, alone or with a bonus for novelty (bonuses/)."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from pcpg.algorithm1 import Explored
from pcpg.algorithms import Arrays, Cost, Presets, Settings, World
from pcpg.algos.on_policy import OnPolicy, Round, bytes_of_episodes, bytes_of_networks, sized_ppo
from pcpg.algos.rounds import after_round, plain
from pcpg.bonuses.e3b import E3B
from pcpg.bonuses.protocol import NO_BONUS, Bonus
from pcpg.bonuses.ranked import RankedEpisodes
from pcpg.bonuses.rnd import RND
from pcpg.budget import NO_LIMITS, UNLIMITED, Limits
from pcpg.config import ConfigError, positive
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.learners.ppo import Learner, make_task
from pcpg.learners.settings import PPOConfig
from pcpg.learners.update import Adam, init_adam
from pcpg.policies.networks import init_actor_critic
from pcpg.state import DONE, EXPLOIT, Ledger, Report, SeedState, weights_rng
from pcpg.trees import flatten


@dataclasses.dataclass(frozen=True)
class BaselineConfig(Settings):
    """PPO, alone or with a bonus for novelty."""

    ppo: PPOConfig = dataclasses.field(default=PPOConfig())
    bonus: Bonus | None = None
    """Bonus added to the reward; null: none."""
    budget: int = 3_000_000
    """Environment steps per seed; the round that reaches this number is completed."""
    num_rounds: int = 0
    """Maximum number of rounds per seed; 0: as many as the budget allows."""
    visit_episodes: int = 256
    """Episodes played to evaluate the policy after each round; their steps count."""
    autoreset: bool = False
    """Start a new episode whenever one ends, so every update has num_episodes * max_steps steps."""

    def __post_init__(self) -> None:
        positive(self, "budget", "visit_episodes")
        if self.bonus is not None and self.bonus.needs_cover:
            raise ValueError(f"the bonus {self.bonus.name} needs a cover, which PPO lacks; use pcpg")
        if self.autoreset and self.bonus is not None and self.bonus.whole_episodes:
            raise ValueError(f"the bonus {self.bonus.name} needs whole episodes: autoreset must be false")
        if self.num_rounds < 0:
            raise ValueError(f"num_rounds must be 0 (as many as the budget allows) or more, got {self.num_rounds}")

    @property
    def round(self) -> Round:
        return Round(self.ppo, self.visit_episodes)

    def sized(self, env: Environment, limits: Limits, used: int = 0) -> Self:
        made = dataclasses.replace(self, ppo=sized_ppo(self.ppo, env))
        if limits.steps:
            ppo, visits = made.round.fitted(env, limits)
            return dataclasses.replace(made, ppo=ppo, visit_episodes=visits, budget=limits.steps)
        return dataclasses.replace(made, budget=UNLIMITED) if limits.seconds else made

    def cost(self, env: Environment, limits: Limits) -> Cost:
        each = self.round.steps(env)
        return Cost(
            words=f"rounds of {self.ppo.num_updates} updates of {self.ppo.num_episodes} episodes",
            most_steps=min(self.budget, self.num_rounds * each) if self.num_rounds else self.budget,
            round_steps=each,
            is_estimate=True,
            networks=bytes_of_networks(env, self.ppo, 0),
            episodes=bytes_of_episodes(env, self.ppo.num_episodes),
        )

    def extended(self, limits: Limits, before: Limits) -> Self:
        return dataclasses.replace(self, budget=limits.steps or UNLIMITED, num_rounds=0)

    def reopened(self, arrays: Arrays, env: Environment, limits: Limits) -> int:
        bonus = self.bonus or NO_BONUS
        known = flatten(bonus.init(weights_rng(0, 0), env.observation_space, env.action_space, self.ppo.hidden))
        if lacking := [name for name in known if f".rnd{name}" not in arrays]:
            raise ConfigError(
                f"an older pcpg wrote this checkpoint, without {lacking[0]} of the bonus {bonus.name}: "
                "the run can be evaluated but not continued; train a new one"
            )
        return EXPLOIT

    def on_assets(self, new_steps: int, changes: Mapping[str, object]) -> Self:
        raise ConfigError("PPO leaves nothing behind that a task could be learned on")

    def agent(self, world: World) -> "PPO":
        return PPO(self.sized(world.env, NO_LIMITS), world)


class Training(NamedTuple):
    """State of a seed of PPO besides its policies."""

    adam: Adam
    rnd: Any  # the state of the bonus


class PPO(OnPolicy[Training]):
    """PPO on the task's reward plus an optional bonus."""

    settings: BaselineConfig

    def __init__(self, settings: BaselineConfig, world: World) -> None:
        if settings.autoreset and isinstance(world.env, HostEnvironment):
            raise ValueError("autoreset requires a compiled environment; this one is stepped on the host")
        bonus = settings.bonus or NO_BONUS
        learner = Learner(world.env, settings.ppo, bonus=bonus, autoreset=settings.autoreset)
        super().__init__(settings, world, learner, settings.visit_episodes)

    def init(self, seed: int) -> SeedState[Training]:
        """A seed before its first round: a random policy."""
        rng, ppo = weights_rng(seed, 0), self.settings.ppo
        spaces = self.env.observation_space, self.env.action_space
        policy = init_actor_critic(rng, *spaces, **ppo.network)
        bonus = self.learner.bonus
        carried = bonus.init(rng, *spaces, ppo.hidden)
        own = Training(init_adam((policy, bonus.trained(carried))), carried)
        return SeedState(Ledger.start(seed, self.env.num_cells), policy, policy, own).noted(phase=EXPLOIT)

    async def step(self, state: SeedState[Training]) -> tuple[SeedState[Training], Report]:
        """One round of updates on the task, and an evaluation of the policy."""
        ppo, settings = self.settings.ppo, self.settings
        used = int(state.ledger.env_steps) / settings.budget
        spent = self.budget.spent(state.ledger) if self.budget.is_set else used
        task = make_task(
            bonus_coef=self.learner.bonus.weight(spent),
            learning_rate=(ppo.learning_rate, ppo.learning_rate),
            entropy_coef=(ppo.entropy_coef, ppo.entropy_coef),
        )
        improved = await self.improved(state, state.policy, task, state.own.adam)
        seen = await self.visited(state, improved.policy)
        state = state.owning(adam=improved.adam, rnd=improved.rnd)
        state, metrics = after_round(self.env, state, Explored(improved.policy, None, improved=improved, seen=seen))
        cells = [int(count) for count in seen.cells]  # no cover keeps them
        if state.ledger.env_steps >= settings.budget or 0 < settings.num_rounds <= state.round:
            state = state.noted(phase=DONE)
        return state, Report(plain(metrics) | ({"cells": cells} if cells else {}))

    def left(self, state: SeedState[Training]) -> int:
        """The approximate number of remaining rounds, since the budget is in steps."""
        if state.is_done:
            return 0
        budget, most, used = self.settings.budget, self.settings.num_rounds, int(state.ledger.env_steps)
        if state.round == 0:  # as many as there are if no episode ends early
            rounds = math.ceil(budget / self.settings.round.steps(self.env))
            return min(rounds, most or rounds)
        rounds = max(1, math.ceil((budget - used) / (used / state.round)))
        return min(rounds, most - state.round) if most else rounds


PAPER_PPO = PPOConfig(num_episodes=512, num_epochs=5, minibatch_size=160, entropy_coef=0.01)
"""The paper's table for the lock: clip 0.2, gradient norm 5, learning rate 1e-3, 5 epochs of minibatches of 160."""

# Tuned on seeds from 1000 on: a maze that is new at every reset (PPO, 150k steps: 0.57 of the episodes solved with 6
# epochs of larger minibatches and entropy 0.005, 0.8 to 0.9 with these and entropy 0.02 to 0.05), three stages,
# CartPole.
HOST_PPO = PPOConfig(num_updates=10, num_epochs=10, entropy_coef=0.03, shared_body=False, normalise_rewards=True)
"""On the host updates are fewer and smaller, and used more often. Rewards are scaled, whatever the size of returns, and
the loss of the values does not pull at the policy's body."""
HOST_BASELINE = BaselineConfig(ppo=HOST_PPO, budget=500_000, visit_episodes=64)

PLAIN = Presets(BaselineConfig(ppo=PAPER_PPO), HOST_BASELINE)
WITH_RND = Presets(
    BaselineConfig(ppo=PAPER_PPO, bonus=RND()),
    dataclasses.replace(HOST_BASELINE, bonus=RND(coef=0.5, normalise=True)),
)
WITH_E3B = Presets(BaselineConfig(ppo=PAPER_PPO, bonus=E3B()), dataclasses.replace(HOST_BASELINE, bonus=E3B()))

RANKED_PPO = PPOConfig(
    num_updates=5,
    num_episodes=10,
    num_epochs=4,
    minibatch_size=128,
    learning_rate=5e-4,
    entropy_coef=0.01,
    hidden=(128, 128),
    square_code=16,
)
"""Small updates of ten episodes: where levels are new at every reset, training itself shows how good a policy is."""
RANKED_HOST = BaselineConfig(ppo=RANKED_PPO, bonus=RankedEpisodes(), budget=500_000, visit_episodes=2)
RANKED = Presets(RANKED_HOST, RANKED_HOST)
