"""The settings of PC-PG, their formulas and defaults."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import numpy as np

from pcpg.algorithms import Agent, Arrays, Cost, Presets, Settings, Shown, World
from pcpg.algos.on_policy import Round, bytes_of_episodes, bytes_of_networks, is_long, sized_ppo
from pcpg.algos.ppo import HOST_PPO
from pcpg.algos.rounds import cover_weights
from pcpg.bonuses.elliptical import Elliptical, Joined
from pcpg.bonuses.protocol import Bonus
from pcpg.budget import EXPLORE_SHARE, NO_LIMITS, Limits
from pcpg.config import ConfigError, from_plain, positive, within
from pcpg.cover.bonus import BonusForm, RidgeScale, ridge_of, whitening
from pcpg.cover.cover import Cover
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.learners.settings import PPOConfig
from pcpg.policies.networks import ActorCritic
from pcpg.state import EXPLOIT, EXPLORE
from pcpg.trees import scalar, unflatten

MOST_POLICIES = 40
"""For which a cover has room where a budget is given, unless more fit in even if no episode ends early."""


@dataclasses.dataclass(frozen=True)
class ExploreConfig:
    """The outer loop: Algorithm 1."""

    max_policies: int = 0
    """Maximum number of policies in the cover; 0: 2 * max_steps + 8."""
    min_growth: float = 0.03
    """Exploration ends once the cover's best log-determinant grows by less than this, in nats ..."""
    patience: int = 6
    """... over this many policies together."""
    bonus_form: BonusForm = "root"
    """Function of the quadratic form: its square root, the form itself, or an indicator."""
    beta: float = 1.0
    """The indicator treats a pair as unknown if its scaled quadratic form reaches this value."""
    bonus_coef: float = 1.0
    """Weight of the bonus."""
    bonus_scale: Literal["cover", "raw"] = "cover"
    """cover: divide the quadratic form by its mean over the cover's policies; raw: do not scale it."""
    bonus_limit: float = 0.0
    """Upper limit on the scaled form, which caps the worth of a single pair; 0: no limit."""
    episodic: Literal["off", "beside", "times"] = "off"
    """Combine the cover's bonus with E3B's, which rewards novelty within an episode, for layouts that change with
    each episode. beside: add it; times: multiply by it (1 for new observations, near 0 for those already seen in
    the episode)."""
    episodic_coef: float = 0.5
    """Weight of the episodic bonus, whose discounted returns are scaled to standard deviation 1."""
    reward_coef: float = 0.0
    """Weight of the environment's reward during exploration; 0: reward-free."""
    ridge: float = 1e-6
    """lambda, added to the summed covariance."""
    ridge_scale: RidgeScale = "raw"
    """features: lambda is `ridge` times the mean squared norm of the features under the first policy, so results do
    not depend on their scale; raw: lambda is `ridge`."""
    weights: Literal["d-optimal", "uniform"] = "d-optimal"
    """How the policies of the cover are weighted for roll-ins."""
    visit_episodes: int = 256
    """Episodes used to estimate the covariance of a new policy."""
    num_groups: int = 64
    """Groups of episodes that share a roll-in policy; as many groups as episodes: one policy per episode."""
    start_share: float = 0.0
    """Share of the episodes without a roll-in, in addition to those whose drawn roll-in length is 0."""
    epsilon: float = 0.05
    """Probability of a random action at the first step after the roll-in."""
    advantage_floor: float = 0.0
    """Lower limit on the standard deviation that divides advantages."""
    anneal_to: float = 1.0
    """Anneal learning rate and entropy coefficient linearly to this share of their values over each round."""
    reward_first: float = 0.0
    """Share of the budget in which PPO learns from the reward alone before exploration starts (1: all of it) ..."""
    random_return: float | None = None
    """... PPO keeps the whole budget if its best mean return is above this value by then."""

    def __post_init__(self) -> None:
        positive(self, "ridge", "visit_episodes", "num_groups", "patience", "beta")
        if self.bonus_limit < 0:
            raise ValueError(f"bonus_limit must be 0 (none) or more, got {self.bonus_limit}")
        if self.episodic_coef < 0:
            raise ValueError(f"episodic_coef must be 0 or more, got {self.episodic_coef}")
        within(self, "reward_first", 0.0, 1.0)
        within(self, "epsilon", 1e-6, 1.0)
        within(self, "start_share", 0.0, 1.0)
        within(self, "anneal_to", 0.0, 1.0)
        if self.max_policies < 0:
            raise ValueError(f"max_policies must be 0 (by the formula) or more, got {self.max_policies}")

    @property
    def bonus(self) -> Bonus[Any]:
        """The cover's bonus, combined with E3B's if novelty within an episode counts too."""
        cover = Elliptical(self.bonus_form, self.beta, self.bonus_limit)
        if self.episodic == "off":
            return cover
        return Joined(coef=self.episodic_coef, cover=cover, is_product=self.episodic == "times")

    def whitening(self, cover: Cover) -> np.ndarray:
        """W of cover/bonus.py as float32; scaled by the cover, such that the form has mean 1 over its policies."""
        whiten = whitening(cover.sigma_sum, ridge_of(cover.used, self.ridge_scale, self.ridge))
        if self.bonus_scale == "cover":
            # E[phi' S^-1 phi] = tr(W' E[phi phi'] W) under the uniform mixture of the members.
            mean = np.einsum("ij,ik,kj->", whiten, cover.sigma_sum, whiten) / int(cover.size)
            whiten = whiten / np.sqrt(max(mean, 1e-30))
        return whiten.astype(np.float32)

    def is_over(self, log_dets: np.ndarray) -> bool:
        """Whether the cover is full, or its log-determinant grew too little for too long.

        The rule sees features alone, nothing of the environment's internals. With D-optimal weights `log_dets[i]` is
        the largest log det of a mixture of the first i + 1 covariances, which a policy that reaches nothing new cannot
        raise and no policy can lower. With uniform weights it is that of their plain mean: a policy may lower it, and
        one that only repeats what the rarer members reach may raise it, so the rule is then no more than a sign.
        """
        if len(log_dets) >= self.max_policies:
            return True
        if len(log_dets) <= self.patience:
            return False
        return bool(log_dets[-1] - log_dets[-1 - self.patience] < self.min_growth)


@dataclasses.dataclass(frozen=True)
class ExploitConfig:
    """Learning the task on the finished cover."""

    num_rounds: int = -1
    """Rounds of updates; 0: no exploitation; -1: max_steps + 4."""
    start_share: float = 0.2
    """Share of the episodes without a roll-in."""
    epsilon: float = 0.05
    """Probability of a random action at the first step after the roll-in."""
    advantage_floor: float = 0.3
    """Lower limit on the standard deviation that divides advantages."""
    anneal: bool = True
    """Anneal learning rate and entropy coefficient linearly to zero over the phase."""
    warm_start: bool = False
    """Start from the cover policy with the best return; otherwise from a fresh policy, as in the paper."""
    keep_best: bool = False
    """Finally compare the newest and the best policy on the same fresh episodes and return the better one."""

    def __post_init__(self) -> None:
        within(self, "epsilon", 1e-6, 1.0)
        within(self, "start_share", 0.0, 1.0)
        if self.num_rounds < -1:
            raise ValueError(f"num_rounds must be -1 (by the formula) or more, got {self.num_rounds}")


@dataclasses.dataclass(frozen=True)
class PCPGConfig(Settings):
    """PC-PG: explore, then exploit."""

    takes_features: ClassVar[bool] = True
    leaves: ClassVar[Literal["", "cover", "data"]] = "cover"
    weights = staticmethod(cover_weights)

    ppo: PPOConfig = dataclasses.field(default=PPOConfig())
    explore: ExploreConfig = ExploreConfig()
    exploit: ExploitConfig = ExploitConfig()

    def __post_init__(self) -> None:
        if self.ppo.num_episodes % self.explore.num_groups:
            raise ValueError(
                f"num_episodes ({self.ppo.num_episodes}) must be a multiple of num_groups ({self.explore.num_groups})"
            )
        if self.explore.bonus_form == "indicator" and self.ppo.gamma >= 1:
            raise ValueError(f"the indicator pays 1 / (1 - gamma): gamma must be below 1, got {self.ppo.gamma}")

    @property
    def needs_budget(self) -> bool:
        return self.explore.reward_first > 0

    @property
    def round(self) -> Round:
        return Round(self.ppo, self.explore.visit_episodes)

    def sized(self, env: Environment, limits: Limits, used: int = 0) -> Self:
        """The settings with their formulas worked out; `max_steps` is H + 1 on the lock.

        With a budget rounds are small enough for it, and there is room for all the policies that it may find, unless a
        number was given.
        """
        ppo, steps, is_free = sized_ppo(self.ppo, env), env.max_steps, self.explore.max_policies == 0
        policies, rounds = 2 * steps + 8, steps + 4
        if isinstance(env, HostEnvironment):  # of a round, if no episode ends early
            of_round = ppo.num_updates * ppo.num_episodes * steps
            policies, rounds = min(policies, 40, max(10, 600_000 // of_round)), min(rounds, 16)
        if is_long(self.ppo, env):
            policies, rounds = min(policies, 12), min(rounds, 8)
        given = self.exploit.num_rounds
        exploit = dataclasses.replace(self.exploit, num_rounds=rounds if given < 0 else given)
        explore = dataclasses.replace(self.explore, max_policies=self.explore.max_policies or policies)
        made = dataclasses.replace(self, ppo=ppo, explore=explore, exploit=exploit)
        if not limits.steps:
            return made._with_room(MOST_POLICIES) if limits.seconds and is_free else made
        ppo, visits = made.round.fitted(env, limits, explore.num_groups)
        groups = explore.num_groups if ppo.num_episodes % explore.num_groups == 0 else ppo.num_episodes
        explore = dataclasses.replace(explore, visit_episodes=visits, num_groups=groups)
        made = dataclasses.replace(made, ppo=ppo, explore=explore)
        # Where episodes end early a round takes far fewer steps than it may, so more policies fit in.
        room = max(min(2 * steps + 8, MOST_POLICIES), math.ceil(limits.steps / made.round.steps(env)) + 1)
        return made._with_room(room) if is_free else made

    def _with_room(self, policies: int) -> Self:
        most = max(self.explore.max_policies, policies)
        return dataclasses.replace(self, explore=dataclasses.replace(self.explore, max_policies=most))

    def cost(self, env: Environment, limits: Limits) -> Cost:
        ppo, each, rounds = self.ppo, self.round.steps(env), self.exploit.num_rounds
        words = (
            f"up to {self.explore.max_policies} policies of {ppo.num_updates} updates of {ppo.num_episodes} episodes"
        )
        if rounds == 0:
            words += ", no exploitation"
        elif limits.steps or limits.seconds:
            words += f" in up to {EXPLORE_SHARE:.0%} of the budget, the rest for the task"
        else:
            words += f", then {rounds} rounds for the task"
        most = (self.explore.max_policies - 1 + rounds) * each + self.explore.visit_episodes * env.max_steps
        networks = bytes_of_networks(env, ppo, self.explore.max_policies)
        return Cost(words, most, each, False, networks, bytes_of_episodes(env, ppo.num_episodes))

    def reopened(self, arrays: Arrays, env: Environment, limits: Limits) -> int:
        if self.exploit.num_rounds:
            return EXPLOIT
        if scalar(arrays[".cover.size"]) >= self.explore.max_policies:
            raise ConfigError(
                f"the cover is full ({self.explore.max_policies} policies): start a new run with a larger "
                "--explore.max-policies"
            )
        return EXPLORE

    def on_assets(self, new_steps: int, changes: Mapping[str, object]) -> Self:
        if new_steps:
            raise ConfigError("only runs that keep their data take new steps; here, set exploit.num_rounds instead")
        rounds = {"num_rounds": self.exploit.num_rounds or -1, "warm_start": False}
        return from_plain(type(self), changes, "config", from_plain(type(self), {"exploit": rounds}, "config", self))

    def check_on_assets(self, made: Self, env: Environment) -> Self:
        if self.exploit.num_rounds == 0:
            raise ConfigError("exploit.num_rounds must be at least 1 here, got 0")
        if self.exploit.warm_start:
            raise ConfigError("exploit.warm_start cannot be used: the cover was scored on a different reward")
        for name, value in made.ppo.network.items():
            here = getattr(self.ppo, name)
            if here != value:
                raise ConfigError(f"ppo.{name} must be {value} as in the cover, got {here}")
        return self

    @staticmethod
    def shown(arrays: Arrays, parts: Sequence[Arrays]) -> Shown | None:
        weights = cover_weights(arrays)
        if not 0 < len(weights) <= len(parts):
            return None
        members = parts[: len(weights)]
        sigmas = np.stack([part[".sigma"] for part in members]).astype(np.float64)
        return Shown(
            weights=weights,
            cells=np.stack([part[".cells"] for part in members]),
            returns=tuple(np.asarray(part[".returns"], np.float64) for part in members),
            sigmas=(sigmas + sigmas.transpose(0, 2, 1)) / 2,
        )

    def agent(self, world: World) -> Agent:
        from pcpg.algos.pcpg import PCPG  # which is made of these settings

        return PCPG(self.sized(world.env, NO_LIMITS), world)


REWARD_BONUS = ExploitConfig(num_rounds=0, warm_start=True)
"""The reward-bonus version has no exploitation: it hands back the best policy of its cover."""
HOST_EXPLORE = ExploreConfig(visit_episodes=64, num_groups=8, ridge=1e-4, ridge_scale="features")
HOST_EXPLOIT = ExploitConfig(start_share=0.5, advantage_floor=0.1, keep_best=True)

# The settings of compiled environments are the lock's, the same at every horizon: results/lock/tuning.md.
REWARD_FREE = Presets(PCPGConfig(), PCPGConfig(HOST_PPO, HOST_EXPLORE, HOST_EXPLOIT))
WITH_REWARD = Presets(
    PCPGConfig(explore=ExploreConfig(reward_coef=1.0), exploit=REWARD_BONUS),
    PCPGConfig(HOST_PPO, dataclasses.replace(HOST_EXPLORE, reward_coef=1.0), REWARD_BONUS),
)


class Member(NamedTuple):
    """The stored data of a member of the cover; never changes."""

    policy: ActorCritic
    sigma: np.ndarray  # [d, d]
    cells: np.ndarray  # visits by cell, over the episodes of its covariance
    returns: np.ndarray  # [episodes]


def unpacked(like: ActorCritic, part: Arrays) -> Member:
    """A member from its arrays; `like` is a policy of the same shape."""
    prefix = ".policy"
    policy = unflatten(like, {name[len(prefix) :]: a for name, a in part.items() if name.startswith(prefix)})
    return Member(policy, part[".sigma"], part[".cells"], part[".returns"])


def stacked(empty: Cover[ActorCritic], members: Sequence[Member]) -> Cover[ActorCritic]:
    """The cover of some members at once: `add_member` copies the whole stack each time."""
    stack, sigmas = jax.tree.map(np.copy, empty.members), empty.sigmas.copy()
    for index, member in enumerate(members):
        jax.tree.map(lambda place, leaf, i=index: place.__setitem__(i, leaf), stack, member.policy)
        sigma = np.asarray(member.sigma, np.float64)
        sigmas[index] = (sigma + sigma.T) / 2
    return Cover(stack, sigmas, empty.weights, np.asarray(len(members), np.int32))


def with_room(cover: Cover[ActorCritic], capacity: int) -> Cover[ActorCritic]:
    """The cover with room for so many members."""
    more = capacity - cover.capacity

    def pad(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf, np.zeros((more, *leaf.shape[1:]), leaf.dtype)])

    members = jax.tree.map(pad, cover.members)
    return Cover(members, pad(cover.sigmas), pad(cover.weights), cover.size) if more else cover
