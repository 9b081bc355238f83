"""Shared parts of algorithms that improve a policy by PPO: the size of rounds, and two compiled programs."""

import dataclasses
import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import Bound, Own, World
from pcpg.algos.rounds import check_visits
from pcpg.bonuses.protocol import CoverArrays
from pcpg.budget import Limits, too_little
from pcpg.engine.play import VisitInputs, Visitor, Visits, visit_program
from pcpg.engine.together import Shared
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Image, flat_size
from pcpg.features.base import FeatureMap
from pcpg.learners.ppo import WATCHED, ImproveInputs, ImproveOutputs, Learner, Task
from pcpg.learners.ppo_host import improve_program
from pcpg.learners.settings import PPOConfig
from pcpg.learners.update import Adam
from pcpg.policies.networks import ActorCritic, init_actor_critic
from pcpg.state import NonFinite, SeedState, weights_rng

MOST_SAMPLES = 2**20
"""Maximum number of samples that an update can shuffle (learners/update.py)."""
FEWEST_ROUNDS = 12
"""Minimum number of rounds per budget: for a small budget, rounds get smaller."""
FEWEST_UPDATES = 4
"""Updates of a round below which an update gets fewer episodes instead."""
FEWEST_EPISODES = 16
"""Of an update that is made smaller."""
FEWEST_PER_UPDATE = 4
"""The same where the budget does not hold three such rounds."""
VISIT_SHARE = 0.25
"""Of a round that is made smaller, for the episodes that measure its policy."""


class Round(NamedTuple):
    """The size of a round: updates of PPO, and the episodes that measure its policy."""

    ppo: PPOConfig
    visits: int

    def steps(self, env: Environment) -> int:
        """Environment steps, if no episode ends early."""
        return (self.ppo.num_updates * self.ppo.num_episodes + self.visits) * env.max_steps

    def fewest_steps(self, env: Environment) -> int:
        """The smallest budget that holds three rounds with enough episodes to learn much from one."""
        return 3 * self.smaller(env, 1).steps(env)

    def fitted(self, env: Environment, limits: Limits, group: int = 8) -> "Round":
        """A round of which a budget of steps holds enough; `group`: the episodes of an update are a multiple of it."""
        if not limits.steps:
            return self
        made = self.smaller(env, limits.steps, group)
        return made if 3 * made.steps(env) <= limits.steps else self.smallest(env, limits.steps, group)

    def smallest(self, env: Environment, budget: int, group: int) -> "Round":
        """A third of a budget in which no round of a usual size fits three times: few updates of few episodes."""
        episodes = max(2, budget // (3 * env.max_steps))
        if episodes * env.max_steps > budget:
            raise too_little(budget, 2 * env.max_steps)
        visits = min(self.visits, max(1, int(VISIT_SHARE * episodes)))
        left, ppo = episodes - visits, self.ppo
        updates = min(ppo.num_updates, FEWEST_UPDATES, max(1, left // FEWEST_PER_UPDATE))
        each = left // updates
        each = min(ppo.num_episodes, each if each < group else each // group * group)
        return Round(dataclasses.replace(ppo, num_updates=updates, num_episodes=each), visits)

    def smaller(self, env: Environment, budget: int, group: int = 8) -> "Round":
        """This round, or one of which the budget holds `FEWEST_ROUNDS`, as far as rounds may be made smaller."""
        if self.steps(env) * FEWEST_ROUNDS <= budget:
            return self
        episodes = budget // (FEWEST_ROUNDS * env.max_steps)
        visits = min(self.visits, max(8, int(VISIT_SHARE * episodes)))
        left, ppo = max(episodes - visits, 1), self.ppo
        updates = min(ppo.num_updates, max(FEWEST_UPDATES, left // ppo.num_episodes))
        least = -(-FEWEST_EPISODES // group) * group
        each = min(ppo.num_episodes, max(least, left // updates // group * group))
        return Round(dataclasses.replace(ppo, num_updates=updates, num_episodes=each), visits)


def sized_ppo(ppo: PPOConfig, env: Environment) -> PPOConfig:
    """PPO's settings with formulas of the episode length resolved.

    On the host, where a step costs a hundred times as much, an update has fewer episodes, at most 64; so has that of a
    compiled environment whose episodes are too long for the formula.
    """
    blocks, on_host = -(-env.max_steps // 16), isinstance(env, HostEnvironment)
    episodes = 64 if is_long(ppo, env) else 512 * blocks
    if on_host:
        episodes = min(64, max(16, 9600 // env.max_steps // 16 * 16))
    return dataclasses.replace(
        ppo,
        num_episodes=ppo.num_episodes or episodes,
        minibatch_size=ppo.minibatch_size or (min(128, 32 * blocks) if on_host else 64 * blocks),
    )


def is_long(ppo: PPOConfig, env: Environment) -> bool:
    """Whether the episodes of a compiled environment are too long for the formula of an update's size."""
    if isinstance(env, HostEnvironment) or ppo.num_episodes:
        return False
    return 512 * -(-env.max_steps // 16) * env.max_steps > MOST_SAMPLES


def bytes_of_networks(env: Environment, ppo: PPOConfig, cover: int) -> int:
    """Of the policies that a seed holds at a time: its own, the best, the optimiser's moments, the cover."""
    seen, actions = flat_size(env.observation_space), flat_size(env.action_space)
    sizes = [0 if isinstance(env.observation_space, Image) and ppo.hidden else seen, *ppo.hidden, actions]
    return 4 * sum(one * other for one, other in itertools.pairwise(sizes)) * (6 + cover)


def bytes_of_episodes(env: Environment, number: int) -> int:
    """Of the observations of one update's episodes; compiled environments often need not hold them."""
    if not isinstance(env, HostEnvironment):
        return 0
    space = env.observation_space
    return (env.max_steps + 1) * number * math.prod(space.shape) * np.dtype(space.dtype).itemsize


class OnPolicy(Bound[Own]):
    """The programs of such an algorithm, and what a round awaits of them."""

    def __init__(self, settings: Any, world: World, learner: Learner, visit_episodes: int) -> None:
        self.settings, self.learner, self.visit_episodes = settings, learner, visit_episodes
        self.world, self.env, self.budget = world, world.env, world.budget

    def template(self) -> ActorCritic:
        """A policy of the kind that a run returns."""
        return self.fresh_policy(0, 0)

    def fresh_policy(self, seed: int, stream: int) -> ActorCritic:
        """A policy with random weights."""
        spaces = self.env.observation_space, self.env.action_space
        return init_actor_critic(weights_rng(seed, stream), *spaces, **self.settings.ppo.network)

    @functools.cached_property
    def improve(self) -> Shared[ImproveInputs, ImproveOutputs]:
        """The program that runs all updates of a round."""
        return Shared(improve_program(self.learner, self.world.lanes))

    @functools.cached_property
    def visit(self) -> Shared[VisitInputs, Visits]:
        """The program that plays a policy from the start state."""
        return Shared(visit_program(Visitor(self.env, self.visit_episodes), self.world.lanes))

    @property
    def programs(self) -> tuple[Shared, ...]:
        return self.improve, self.visit

    async def improved(
        self, state: SeedState[Any], policy: ActorCritic, task: Task, adam: Adam, cover: CoverArrays | None = None
    ) -> ImproveOutputs:
        """The policy after a round of updates; raises on a non-finite number."""
        ledger, params = state.ledger, self.env.instance(state.seed)
        inputs = ImproveInputs(ledger.seed, ledger.round, params, policy, adam, task, cover, state.own.rnd)
        outputs = await self.improve(inputs)
        check_updates(state, outputs)
        return outputs

    async def visited(self, state: SeedState[object], policy: ActorCritic, phi: FeatureMap | None = None) -> Visits:
        """What a policy saw and earned; raises where a number was not finite."""
        ledger, params = state.ledger, self.env.instance(state.seed)
        visits = await self.visit(VisitInputs(ledger.seed, ledger.round, params, policy, phi))
        check_visits(state, visits)
        return visits


def check_updates(state: SeedState[object], outputs: ImproveOutputs) -> None:
    """Raise if a reward, observation, bonus or loss of the round was not finite."""
    finite = np.asarray(outputs.finite)
    if finite.all():
        return
    update = int(np.argmin(finite.all(axis=1)))
    what = WATCHED[int(np.argmin(finite[update]))]
    article = "an" if what == "observation" else "a"
    raise NonFinite(
        f"seed {state.seed}: {article} {what} became non-finite in update {update} of round "
        f"{state.round}, after {int(state.ledger.env_steps):,} environment steps; the last good checkpoint is kept"
    )
