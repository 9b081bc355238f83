"""The settings of the deep off-policy algorithms, their formulas and defaults."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from pcpg.algorithms import Arrays, Cost, Presets, Settings, World
from pcpg.budget import NO_LIMITS, UNLIMITED, Limits, too_little
from pcpg.config import ConfigError, positive, within
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Box, Image, flat_size
from pcpg.state import EXPLOIT, EXPLORE

if TYPE_CHECKING:
    from pcpg.algos.deep import DeepAgent

ROUND_STEPS = 250
"""About how many steps a round has; long episodes come one by one."""
MOST_EPISODES = 8


@dataclasses.dataclass(frozen=True)
class DeepLearnConfig:
    """The task policy's learner."""

    updates: float = 0.0
    """Updates per environment step; 0: 16, or 4 for images."""
    batch: int = 64
    """Transitions per update."""
    learning_rate: float = 5e-4
    """Adam learning rate."""
    tau: float = 0.01
    """Share by which the critic of the targets moves to the newest one at each update."""
    average: float = 1e-3
    """The same for the averaged policy that is evaluated and returned."""
    critics: int = 1
    """Critics; targets take the least of their values."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of each layer."""
    steps_ahead: int = 0
    """Steps of the targets; 0: 3, or where a success ends the episode 10, and down to 1 the more of them are known."""
    discount: float = 0.0
    """Discount factor; 0: 1 - 5 / max_steps, but from 0.99 to 0.995."""
    while_playing: bool = False
    """Learn from what was there before a round while its episodes are played; for slow simulators with workers."""
    entropy: float = -0.5
    """Target entropy per entry of a real action."""
    best_share: float = 0.5
    """Share of a minibatch drawn from the best episodes."""
    cloning: float = 0.5
    """Weight of imitating the best episodes' actions where they are worth more, if a success ends the episode."""
    best_steps: int = 4_000
    """Transitions of the best episodes, ranked by discounted return against what their start promises."""

    def __post_init__(self) -> None:
        positive(self, "batch", "learning_rate", "critics")
        within(self, "best_share", 0.0, 1.0)
        within(self, "tau", 0.0, 1.0)
        within(self, "average", 0.0, 1.0)
        within(self, "discount", 0.0, 1.0)
        for name in ("updates", "steps_ahead", "best_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden must name a layer or more, each of at least 1 unit, got {self.hidden}")


@dataclasses.dataclass(frozen=True)
class DeepExploreConfig:
    """The explorer: the bonus of all kept data plus the reward."""

    updates: float = 8.0
    """Updates per environment step, for images at most half of the task's; 0: no explorer."""
    learning_rate: float = 1e-3
    """Adam learning rate."""
    steps_ahead: int = 5
    """Steps of the explorer's targets, whose bonuses are all as of now."""
    num_features: int = 512
    """Random Fourier features of the bonus."""
    bandwidth: float = 0.0
    """Width of their kernel in deviations of the observation; 0: an eighth of its effective dimensions."""
    bonus_form: Literal["root", "quadratic"] = "root"
    """Function of the quadratic form: its square root or the form itself."""
    reward_coef: float = 1.0
    """Weight of the reward, whose largest value counts 1."""
    bonus_coef: float = 1.0
    """Weight of the bonus, whose mean over the data is 1."""
    task_share: float = 0.75
    """Share of the episodes for the task policy once a reward was met."""
    cover: int = 0
    """Explorers that are kept as a cover, weighted D-optimally, into which half of its episodes roll in; 0: none."""

    def __post_init__(self) -> None:
        positive(self, "learning_rate", "num_features", "steps_ahead")
        within(self, "task_share", 0.0, 1.0)
        for name in ("updates", "bandwidth", "reward_coef", "cover"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class DeepConfig(Settings):
    """Off-policy learning on all kept data, with an explorer or without."""

    learn: DeepLearnConfig = dataclasses.field(default_factory=DeepLearnConfig)
    explore: DeepExploreConfig = dataclasses.field(default_factory=DeepExploreConfig)
    budget: int = 100_000
    """Environment steps per seed."""
    num_episodes: int = 0
    """Episodes per round; 0: as many as 250 steps hold, from 1 to 8; 8 with `while_playing`."""
    sure_share: float = 0.5
    """Share of the task policy's episodes without noise; they evaluate it, and their data are kept as well."""
    confirm_episodes: int = 0
    """Fresh episodes that confirm a policy before a run stops; 0: by the rule, from 5 or 20 on."""
    offline_updates: int = 20_000
    """Updates on given data before the first new step."""

    takes_data: ClassVar[bool] = True
    leaves: ClassVar[Literal["", "cover", "data"]] = "data"

    @property
    def absent(self) -> tuple[str, ...]:
        """What the algorithm goes without that has these settings as its preset."""
        return () if self.explore.updates else ("explore.updates",)

    def __post_init__(self) -> None:
        positive(self, "budget")
        within(self, "sure_share", 0.0, 1.0)
        for name in ("num_episodes", "confirm_episodes", "offline_updates"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")

    def sized(self, env: Environment, limits: Limits, used: int = 0) -> Self:
        """The settings with formulas resolved."""
        space, steps = env.action_space, env.max_steps
        if isinstance(space, Box) and not math.isfinite(space.high - space.low):
            raise ConfigError(f"real actions must have finite bounds, got {space}")
        by_rule = MOST_EPISODES if self.learn.while_playing else int(np.clip(ROUND_STEPS // steps, 1, MOST_EPISODES))
        episodes = self.num_episodes or by_rule
        budget = limits.steps - used if limits.steps else UNLIMITED if limits.seconds else self.budget
        if limits.steps and budget < 2 * episodes * steps:
            episodes = 1
            if budget < 2 * steps:
                raise too_little(limits.steps, used + 2 * steps)
        is_image = isinstance(env.observation_space, Image)
        learn = dataclasses.replace(
            self.learn,
            updates=self.learn.updates or (4.0 if is_image else 16.0),
            discount=self.learn.discount or float(np.clip(1 - 5 / steps, 0.99, 0.995)),
        )
        most = learn.updates / 2 if is_image else math.inf
        explore = dataclasses.replace(self.explore, updates=min(self.explore.updates, most))
        return dataclasses.replace(self, learn=learn, explore=explore, budget=budget, num_episodes=episodes)

    def cost(self, env: Environment, limits: Limits) -> Cost:
        """The cost of networks and of the episodes of a round."""
        space = env.observation_space
        sizes = [flat_size(space) + flat_size(env.action_space), *self.learn.hidden]
        parameters = sum(one * other for one, other in itertools.pairwise(sizes)) * (self.learn.critics + 1)
        each = math.prod(space.shape) * np.dtype(space.dtype).itemsize
        round_steps = self.num_episodes * env.max_steps
        return Cost(
            words=f"rounds of {self.num_episodes} episodes, {self.learn.updates:g} updates a step",
            most_steps=self.budget,
            round_steps=min(round_steps, self.budget),
            is_estimate=True,
            networks=4 * 5 * 2 * parameters,
            episodes=round_steps * each if isinstance(env, HostEnvironment) else 0,
        )

    def extended(self, limits: Limits, before: Limits) -> Self:
        """The settings with the budget of the new limits."""
        return dataclasses.replace(self, budget=limits.steps or UNLIMITED)

    def reopened(self, arrays: Arrays, env: Environment, limits: Limits) -> int:
        """The task where a reward was met."""
        return EXPLOIT if arrays[".met"] > 0 or not self.explore.updates else EXPLORE

    def on_assets(self, new_steps: int, changes: Mapping[str, object]) -> Self:
        """From the data alone, or with new steps of the task policy."""
        return dataclasses.replace(self, budget=max(new_steps, 1))

    def check_on_assets(self, made: Self, env: Environment) -> Self:
        """These settings, if the granted steps hold an episode."""
        if 1 < self.budget < env.max_steps:
            raise ConfigError(f"{self.budget:,} new steps are too few: an episode needs up to {env.max_steps:,}")
        return self

    def agent(self, world: World) -> "DeepAgent":
        """The agent; it compiles nothing before the first round."""
        from pcpg.algos.deep import DeepAgent

        return DeepAgent(self.sized(world.env, NO_LIMITS), world)


DEEP = Presets(DeepConfig(), DeepConfig())
ALONE = DeepConfig(explore=DeepExploreConfig(updates=0.0))
SAC = Presets(ALONE, ALONE)
