"""What can be set in a run: frozen dataclasses with the paper's names, their checks, and their way from JSON."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pcpg.cover.bonus import BonusForm, RidgeScale
from pcpg.envs.options import nearest
from pcpg.learning.e3b import E3BConfig
from pcpg.learning.rnd import RNDConfig


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """The learner inside every agent: what one call of `improve` does."""

    num_updates: int = 40
    """Policy updates per round; PC-PG adds a policy to its cover after each round of exploration."""
    num_episodes: int = 0
    """Episodes gathered per update; 0: 512 per 16 steps of an episode, rounded up."""
    num_epochs: int = 4
    """Passes over the samples of each update."""
    minibatch_size: int = 0
    """Samples per gradient step; 0: 64 per 16 steps of an episode, rounded up."""
    learning_rate: float = 1e-3
    """Adam learning rate."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of the generalised advantage estimate."""
    clip_eps: float = 0.2
    """PPO clips the probability ratio to 1 +/- this."""
    entropy_coef: float = 0.05
    """Weight of the entropy in the loss."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 5.0
    """Largest Euclidean norm of the gradient of all parameters together."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of each fully connected layer."""
    shared_body: bool = True
    """One body for policy and value, as in the released code, or one for each."""
    normalise_observations: bool = False
    """Scale observations by their mean and deviation so far; each policy keeps those with which it acts."""
    normalise_rewards: bool = False
    """Divide rewards by the deviation of the discounted returns so far; the bonus has a scale of its own."""
    body: str = ""
    """Name of a network that was given in Python, in place of the hidden layers."""
    shards: int = 1
    """Parts into which minibatches are cut, so that one seed can use as many devices; the bits depend on it alone."""

    def __post_init__(self) -> None:
        positive(self, "num_updates", "num_epochs", "learning_rate", "clip_eps", "max_grad_norm")
        for name in ("num_episodes", "minibatch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 (by the formula) or more, got {getattr(self, name)}")
        if self.shards < 1 or self.minibatch_size % self.shards:
            raise ValueError(f"shards must be 1 or more and divide minibatch_size, got {self.shards}")
        within(self, "gamma", 0.0, 1.0)
        within(self, "gae_lambda", 0.0, 1.0)
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden must name a layer or more, each of at least 1 unit, got {self.hidden}")

    @property
    def network(self) -> dict[str, Any]:
        """What the shape of a policy depends on, as `init_actor_critic` takes it."""
        names = ("hidden", "shared_body", "normalise_observations", "normalise_rewards", "body")
        return {name: getattr(self, name) for name in names}


def positive(config: object, *names: str) -> None:
    """Refuse fields that are not above zero."""
    for name in names:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(config, name)}")


def within(config: object, name: str, low: float, high: float) -> None:
    """Refuse a field that is not between two bounds, both included."""
    if not low <= getattr(config, name) <= high:
        raise ValueError(f"{name} must lie between {low} and {high}, got {getattr(config, name)}")


@dataclasses.dataclass(frozen=True)
class ExploreConfig:
    """The outer loop: Algorithm 1."""

    max_policies: int = 0
    """Most policies in the cover; 0: 2 * max_steps + 8."""
    min_growth: float = 0.03
    """Exploration ends when the largest log-determinant of the cover grew by less than this, in nats ..."""
    patience: int = 6
    """... over so many policies together."""
    bonus_form: BonusForm = "root"
    """What the bonus is of the quadratic form: its square root, the form itself, or an indicator."""
    beta: float = 1.0
    """The indicator counts a pair as unknown where the scaled quadratic form is at least this."""
    bonus_coef: float = 1.0
    """Weight of the bonus."""
    bonus_scale: Literal["cover", "raw"] = "cover"
    """cover: the quadratic form is divided by its mean over the cover's policies; raw: left as it is."""
    bonus_limit: float = 0.0
    """The most that the scaled form counts, so that no pair is worth more than so many usual ones; 0: no limit."""
    episodic: Literal["off", "beside", "times"] = "off"
    """Whether E3B's bonus, for what is new within an episode, is joined to the cover's, for layouts that change with
    each episode. beside: it is added; times: the cover's is multiplied by it, 1 for what is new and near 0 for what
    the episode has met already."""
    episodic_coef: float = 0.5
    """Weight of the episodic bonus beside the cover's; its discounted returns have deviation 1."""
    reward_coef: float = 0.0
    """Weight of the environment's reward while exploring; 0: reward-free."""
    ridge: float = 1e-6
    """lambda, added to the summed covariance."""
    ridge_scale: RidgeScale = "raw"
    """features: lambda is this times the mean squared norm of the features under the first policy, so that nothing
    depends on their scale; raw: as it is."""
    weights: Literal["d-optimal", "uniform"] = "d-optimal"
    """Mixture weights of the cover for the roll-in."""
    visit_episodes: int = 256
    """Episodes played to estimate the covariance of a new policy."""
    num_groups: int = 64
    """Groups of episodes that share a roll-in policy; as many as episodes: one policy per episode."""
    start_share: float = 0.0
    """Share of the episodes without roll-in, beside those whose length comes out as 0."""
    epsilon: float = 0.05
    """Chance of a random action at the first step after the roll-in."""
    advantage_floor: float = 0.0
    """Least standard deviation by which advantages are divided."""
    anneal_to: float = 1.0
    """Learning rate and entropy coefficient fall linearly to this share of themselves over each round."""
    reward_first: float = 0.0
    """Share of the budget in which PPO learns from the reward alone, before anything is explored (1: all of it) ..."""
    random_return: float | None = None
    """... and if its best mean return is above this by then, it goes on to the end."""

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


@dataclasses.dataclass(frozen=True)
class ExploitConfig:
    """Learning the task on the finished cover."""

    num_rounds: int = -1
    """Rounds of updates; 0: no exploitation; -1: max_steps + 4."""
    start_share: float = 0.2
    """Share of the episodes without roll-in."""
    epsilon: float = 0.05
    """Chance of a random action at the first step after the roll-in."""
    advantage_floor: float = 0.3
    """Least standard deviation by which advantages are divided."""
    anneal: bool = True
    """Anneal learning rate and entropy coefficient linearly to zero over the phase."""
    warm_start: bool = False
    """Start from the policy of the cover with the best return; otherwise from a fresh one, as in the paper."""
    keep_best: bool = False
    """At the end play the newest policy and the best so far in the same fresh episodes and hand back the better one."""

    def __post_init__(self) -> None:
        within(self, "epsilon", 1e-6, 1.0)
        within(self, "start_share", 0.0, 1.0)
        if self.num_rounds < -1:
            raise ValueError(f"num_rounds must be -1 (by the formula) or more, got {self.num_rounds}")


@dataclasses.dataclass(frozen=True)
class PCPGConfig:
    """PC-PG: explore, then exploit."""

    ppo: PPOConfig = PPOConfig()
    explore: ExploreConfig = ExploreConfig()
    exploit: ExploitConfig = ExploitConfig()

    def __post_init__(self) -> None:
        if self.ppo.num_episodes % self.explore.num_groups:
            raise ValueError(
                f"num_episodes ({self.ppo.num_episodes}) must be a multiple of num_groups ({self.explore.num_groups})"
            )
        if self.explore.bonus_form == "indicator" and self.ppo.gamma >= 1:
            raise ValueError(f"the indicator pays 1 / (1 - gamma): gamma must be below 1, got {self.ppo.gamma}")


@dataclasses.dataclass(frozen=True)
class BaselineConfig:
    """PPO, or PPO with random network distillation or an episodic bonus."""

    ppo: PPOConfig = PPOConfig()
    rnd: RNDConfig | None = None
    e3b: E3BConfig | None = None
    budget: int = 3_000_000
    """Environment steps per seed; the round that reaches it is finished."""
    num_rounds: int = 0
    """Most rounds per seed; 0: as many as the budget takes."""
    visit_episodes: int = 256
    """Episodes played to evaluate the policy after each round; their steps count."""
    autoreset: bool = False
    """Start a new episode where one ends, so that every update has num_episodes * max_steps steps."""

    def __post_init__(self) -> None:
        positive(self, "budget", "visit_episodes")
        if self.num_rounds < 0:
            raise ValueError(f"num_rounds must be 0 (as many as the budget takes) or more, got {self.num_rounds}")


@dataclasses.dataclass(frozen=True)
class KeepConfig:
    """The data that PC-PG keeps, and the features that are made from them."""

    capacity: int = 0
    """Most transitions kept per seed; nothing is dropped, exploration ends there. 0: 40 * max_steps^2 * (actions + 10),
    between 200,000 and 40 million, and at most 4 GB."""
    pool: int = 0
    """Transitions of one fit, drawn from the sample; four times as many for the task. 0: 8 * actions * landmarks,
    between 4096 and 65536."""
    sample_rate: float = 8.0
    """A transition is sampled for fits with probability this times its bonus when it was met."""
    features: Literal["observation", "inverse-dynamics"] = "observation"
    """What the kernel tells apart: observations, entry by entry, or features of them that are learned from the data to
    tell which action led from one to the next, so that what no action moves is left out."""
    bandwidth: float = 0.35
    """Bandwidth of the kernel."""
    bandwidth_scale: Literal["median", "raw"] = "median"
    """median: it is relative to the median distance of two observations, each entry over its range; raw: as it is."""
    tolerance: float = 0.1
    """An observation becomes a landmark where the others leave more than this of it unexplained."""
    max_landmarks: int = 2048
    """Most landmarks; covariances take 8 * actions * landmarks^2 bytes."""
    num_actions: int = 5
    """Real actions are chosen from a grid of about this many."""
    ignored: tuple[int, ...] = ()
    """Numbers of the entries of an observation that are noise: they are kept as zeros, and nobody looks at them."""

    def __post_init__(self) -> None:
        if self.ignored and min(self.ignored) < 0:
            raise ValueError(f"ignored names entries by their numbers, from 0 on, got {list(self.ignored)}")
        positive(self, "sample_rate", "bandwidth", "num_actions", "max_landmarks")
        within(self, "tolerance", 1e-4, 1.0)
        for name in ("capacity", "pool"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 (by the formula) or more, got {getattr(self, name)}")
        if self.max_landmarks < 64 or self.max_landmarks & (self.max_landmarks - 1):
            raise ValueError(f"max_landmarks must be a power of two of at least 64, got {self.max_landmarks}")


@dataclasses.dataclass(frozen=True)
class ReplayExploreConfig:
    """The outer loop: Algorithm 1 on kept data."""

    num_episodes: int = 0
    """Episodes per round; 0: 32, where they are longer than 128 steps 16."""
    roll_in_share: float = 0.2
    """Share of the episodes that roll in through the cover."""
    sharpness: float = 10.0
    """Actions are chosen with odds of their worth (value or bonus, the larger) to this power."""
    bonus_coef: float = 1.0
    """Weight of the bonus; 0: actions are chosen by chance alone."""
    backups: int = 0
    """Backups per fit; 0: max_steps."""
    discount: float = 5.0
    """The discount factor of the bonus ahead is 1 - 1 / (this * max_steps)."""
    min_value: float = 0.2
    """Exploration ends when the largest bonus that the start promises was below this ..."""
    patience: int = 5
    """... for this many rounds in a row, and none of them met anything new."""
    closer_looks: int = 3
    """So often exploration goes on with a kernel half as wide where it would end and hardly anything good was met: a
    reward above 0, or the end of an episode where every step costs, three times. It then ends when that is met."""
    attempts: float = 1.5
    """With a target (`--until`) the task is tried while exploration goes on, whenever the data have grown by this
    factor since the last try and something good was met; exploration ends when a try reaches the target. 0: never."""
    weights: Literal["d-optimal", "uniform"] = "d-optimal"
    """Mixture weights of the cover for the roll-in."""
    ridge: float = 1e-3
    """lambda of the D-optimal weights."""

    def __post_init__(self) -> None:
        positive(self, "sharpness", "discount", "patience", "ridge")
        within(self, "roll_in_share", 0.0, 1.0)
        if self.num_episodes < 0 or self.num_episodes % 8:
            raise ValueError(f"num_episodes must be 0 (by the formula) or a multiple of 8, got {self.num_episodes}")
        for name in ("backups", "closer_looks"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.attempts != 0 and self.attempts <= 1:
            raise ValueError(f"attempts must be 0 (never) or more than 1, got {self.attempts}")


@dataclasses.dataclass(frozen=True)
class ReplayExploitConfig:
    """Learning the task from the kept data."""

    backups: int = -1
    """Backups of the fit; 0: no exploitation; -1: 2 * max_steps."""
    refine: float = 4.0
    """Values of the task have landmarks of their own, with a kernel this many times narrower. Where its policy falls
    short of them, other grains are tried: 4 and 16 times narrower kernels, and where short observations hardly come
    again 512 and 2,048 landmarks that are evenly spaced, before these."""
    discount: float = 20.0
    """The discount factor of the reward is 1 - 1 / (this * max_steps): the end of an episode counts for 5% less than
    its start."""
    smooth_discount: float = 5.0
    """The same where values are interpolated."""
    visit_episodes: int = 32
    """Episodes played to evaluate the policy; their steps count. 0: none, and no return is known."""
    steps: int = -1
    """New steps that the task may take where its policy earns less than its values promise, or than what the
    environment calls solved: it is played, a quarter of the episodes rolled in through the cover, what it meets is
    kept, and the values are fitted again. 0: none, the data alone; -1: a quarter of those of exploration, and at least
    an evaluation of each grain; where the environment says what is solved and no policy was, all that the budget
    leaves, or 300,000 without one."""
    tolerance: float = 0.1
    """How much less a policy may earn than its values promise, as a share of the range of returns met so far; with -1
    all steps are taken that are allowed."""

    def __post_init__(self) -> None:
        positive(self, "refine", "discount", "smooth_discount")
        if self.steps < -1:
            raise ValueError(f"steps must be -1 (by the formula) or more, got {self.steps}")
        if self.steps > 0 and self.visit_episodes == 0:
            raise ValueError("visit_episodes must be at least 8 where steps are allowed: they are played in episodes")
        if self.visit_episodes < 0 or self.visit_episodes % 8:
            raise ValueError(f"visit_episodes must be 0 or a multiple of 8, got {self.visit_episodes}")
        if self.backups < -1:
            raise ValueError(f"backups must be -1 (by the formula) or more, got {self.backups}")


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
    """PC-PG that keeps its data: explore, then exploit the data."""

    replay: KeepConfig = KeepConfig()
    explore: ReplayExploreConfig = ReplayExploreConfig()
    exploit: ReplayExploitConfig = ReplayExploitConfig()


AgentConfig = PCPGConfig | BaselineConfig | ReplayConfig


# From JSON values to settings.

KINDS = {int: "an integer", float: "a number", str: "text", bool: "true or false", tuple: "a list"}
KINDS |= {Mapping: "an object"}


class ConfigError(ValueError):
    """A configuration that cannot be run; the message names the value and what was expected."""


def check_choice(what: str, value: Any, valid: Iterable[str]) -> None:
    """Refuse a name that is not among the valid ones, and name the nearest."""
    valid = list(valid)
    if not isinstance(value, str) or value not in valid:
        hint = nearest(str(value), valid)
        raise ConfigError(f"unknown {what} {value!r}; did you mean {hint!r}? Valid: {', '.join(valid)}")


def from_plain(kind: Any, data: Any, where: str, default: Any = None) -> Any:
    """A dataclass from nested mappings; fields that are absent come from `default`."""
    if data is None and types.NoneType in typing.get_args(kind):
        return None
    kind = _without_none(kind)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return check_type(kind, data, where)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} must be an object, got {data!r}")
    hints = typing.get_type_hints(kind)
    for name in data:
        check_choice(f"entry of {where}", name, hints)
    base = kind() if default is None else default
    values = {
        name: from_plain(hints[name], value, f"{where}.{name}", getattr(base, name)) for name, value in data.items()
    }
    try:
        return dataclasses.replace(typing.cast(Any, base), **values)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(kind) if part is not types.NoneType]
        return parts[0] if len(parts) == 1 else kind
    return kind


def check_type(kind: Any, value: Any, where: str) -> Any:
    """A value of a simple type, or a ConfigError that says where it stands and what was expected."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        check_choice(f"value of {where}", value, typing.get_args(kind))
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(check_type(typing.get_args(kind)[0], item, where) for item in value)
    expected = origin or kind
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ConfigError(f"{where} must be {KINDS.get(expected, expected.__name__)}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} must be finite, got {value}")
    return value
