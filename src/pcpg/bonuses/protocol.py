"""The protocol of a bonus, and the table of bonuses by name.

A bonus is a frozen dataclass of its settings with pure functions. Its state, such as networks and running scales, is a
pytree of arrays passed from one update to the next. A new bonus is one file and one line in `BONUSES`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.config import ConfigError, check_choice, from_plain
from pcpg.engine.rollout import Rollout, discounted_sums
from pcpg.engine.tabulated import Table, listed
from pcpg.envs.options import load
from pcpg.envs.spaces import Space
from pcpg.features.base import FeatureMap
from pcpg.policies.distributions import Distribution, for_space
from pcpg.policies.networks import ActorCritic
from pcpg.policies.normaliser import Moments, init_moments
from pcpg.shapes import Array, Bool, Float, Scalar

State = TypeVar("State")
Metrics = dict[str, jax.Array]


class CoverArrays(NamedTuple):
    """The cover as the compiled program sees it."""

    phi: FeatureMap | None  # None: roll-in alone, no bonus
    whiten: Array | None  # [d, d], see cover/bonus.py; None without a feature map
    members: ActorCritic | None  # stacked [capacity, ...], or those of several covers; None where nobody rolls in
    weights: Array  # [capacity] on the simplex
    first: Array | None = None  # where this cover's members begin, int32; None: at the front


class At(NamedTuple):
    """What a bonus needs to know about its run."""

    action_space: Space
    gamma: float
    table: Table | None = None  # of observations, where rollouts and samples hold their numbers
    cover: CoverArrays | None = None

    @property
    def distribution(self) -> Distribution:
        return for_space(self.action_space)

    def observations(self, given: jax.Array) -> jax.Array:
        """Observations themselves, where `given` may be their numbers in the table."""
        return listed(self.table, given)


class Samples(NamedTuple):
    """The samples that minibatches are cut from, [n, ...]."""

    observations: jax.Array
    actions: jax.Array
    log_probs: jax.Array
    advantages: jax.Array
    targets: jax.Array
    mask: jax.Array
    next_observations: jax.Array | None  # only where the bonus trains something
    beside: Any = None  # what the bonus gave each sample to take along

    @property
    def following(self) -> jax.Array:
        """The observations that followed the actions."""
        assert self.next_observations is not None, "a bonus that trains nothing has no next observations in its loss"
        return self.next_observations

    def mean(self, values: jax.Array) -> jax.Array:
        """The mean of some values over the samples that count."""
        return jnp.sum(jnp.where(self.mask, values, 0.0)) / jnp.maximum(jnp.sum(self.mask), 1)


@dataclasses.dataclass(frozen=True)
class Bonus(Generic[State]):
    """The defaults: no state, no payment and no loss.

    A bonus may pay nothing and add a loss to the policy's, for example to imitate episodes that its state holds.
    """

    needs_cover: ClassVar[bool] = False
    """Whether it requires a cover."""
    whole_episodes: ClassVar[bool] = False
    """Whether each place of a rollout must hold one episode, from its start to its end."""

    name: str = dataclasses.field(default="", init=False)
    """Its name in the table of bonuses."""

    def init(
        self, rng: np.random.Generator, observation_space: Space, action_space: Space, hidden: tuple[int, ...]
    ) -> State:
        """A fresh state, drawn on the host; `hidden` are the policy's layers."""
        return cast(State, None)

    def trained(self, state: State) -> Any:
        """The part of its state that the learner's optimiser trains along with the policy; None: nothing."""
        return None

    def with_trained(self, state: State, trained: Any) -> State:
        """The state with that part trained."""
        return state

    def pay(self, state: State, data: Rollout, at: At) -> tuple[jax.Array, State]:
        """The bonus of every step [T, E], and the state with its moments moved on."""
        return jnp.zeros_like(data.rewards), state

    def beside(self, state: State, key: jax.Array, count: int) -> Any:
        """What each sample takes along into its minibatch, for the loss, such as kept steps [count, ...]; or None."""
        return None

    def loss(
        self, policy: ActorCritic, trained: Any, state: State, samples: Samples, at: At
    ) -> tuple[jax.Array, Metrics]:
        """The term added to the learner's loss of a minibatch, and its parts by name."""
        return jnp.zeros(()), {}

    def weight(self, spent: float) -> float:
        """The coefficient of the bonus in the next round, when this share of the budget is used."""
        return 0.0

    @classmethod
    def from_plain(
        cls, data: object, where: str = "bonus", default: "Bonus | None" = None, *, text: bool = False
    ) -> "Bonus | None":
        """A bonus from JSON values: its name, or an object with its name and settings; null: none."""
        return bonus_from_plain(data, where, default, text=text)


NO_BONUS: Bonus[None] = Bonus()


class Pointwise(Bonus[State]):
    """A bonus of single transitions, which can also be paid for kept transitions."""

    def of(self, state: State, here: jax.Array, actions: jax.Array, after: jax.Array, at: At) -> jax.Array:
        """The bonus [...] of transitions, from observations [..., *shape] and actions as they were sampled."""
        raise NotImplementedError

    def pay(self, state: State, data: Rollout, at: At) -> tuple[jax.Array, State]:
        """The bonus of the policy's own steps."""
        here, after = at.observations(data.observations[:-1]), at.observations(data.following)
        return self.of(state, here, data.actions, after, at) * data.own, state


BONUSES = {
    "elliptical": "pcpg.bonuses.elliptical:Elliptical",
    "rnd": "pcpg.bonuses.rnd:RND",
    "e3b": "pcpg.bonuses.e3b:E3B",
    "icm": "pcpg.bonuses.icm:ICM",
    "ranked": "pcpg.bonuses.ranked:RankedEpisodes",
}
"""The module of each bonus, imported on demand."""


def bonus_class(name: str) -> type[Bonus]:
    """The bonus of a name; an unknown one is refused with the nearest."""
    check_choice("bonus", name, BONUSES)
    return load(BONUSES[name])


def bonus_from_plain(
    data: object, where: str = "bonus", default: Bonus | None = None, *, text: bool = False
) -> Bonus | None:
    """A bonus from JSON values.

    Args:
        data: Its name, or an object with its name and settings; None: no bonus.
        where: The place of `data`, for messages.
        default: Its class serves where no name is given, its settings where the name is its own.
        text: Whether the settings are words of the command line.

    Returns:
        The bonus, or None.
    """
    if data is None:
        return None
    settings = {"name": data} if isinstance(data, str) else data
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where} must be a name or an object, got {data!r}")
    name = settings.get("name", None if default is None else default.name)
    if name is None:
        raise ConfigError(f"{where} has no name; expected one of {', '.join(BONUSES)}")
    kind = bonus_class(name)
    settings = {entry: value for entry, value in settings.items() if entry != "name"}
    base = default if default is not None and default.name == name else None
    return from_plain(kind, settings, where, base, text=text)


OLD_KEYS = ("rnd", "e3b")
"""Entries of an agent that had a bonus of this name, before there was an entry `bonus`."""


def upgraded(agent: object) -> Any:
    """An agent's entries of an old config.json in today's form; those of today are left as they are.

    >>> upgraded({"ppo": {"shards": 1}, "rnd": {"coef": 5.0}, "e3b": None})
    {'ppo': {}, 'bonus': {'name': 'rnd', 'coef': 5.0}}
    """
    if not isinstance(agent, Mapping):
        return agent
    entries = {name: value for name, value in agent.items() if name not in OLD_KEYS}
    if isinstance(entries.get("ppo"), Mapping):  # `shards` split minibatches over devices
        entries["ppo"] = {name: value for name, value in entries["ppo"].items() if name != "shards"}
    for name in OLD_KEYS:
        if isinstance(agent.get(name), Mapping):
            entries["bonus"] = {"name": name, **agent[name]}
        elif name in agent:
            entries.setdefault("bonus", agent[name])
    return entries


def upgraded_flag(word: str) -> str:
    """A word of a command line in today's form.

    >>> upgraded_flag("--rnd.coef=5"), upgraded_flag("--ppo.gamma")
    ('--bonus.coef=5', '--ppo.gamma')
    """
    for name in OLD_KEYS:
        if word.startswith(f"--{name}."):
            return "--bonus." + word.removeprefix(f"--{name}.")
    return word


class RunningScale(NamedTuple):
    """Moments of all intrinsic returns so far; checkpoints hold them under these names."""

    total: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    @classmethod
    def fresh(cls) -> "RunningScale":
        """The moments of no returns yet, with deviation 1."""
        return cls(*init_moments(()))

    def update(self, values: Float[Array, "*batch"], mask: Bool[Array, "*batch"]) -> "RunningScale":
        """The moments with the masked values added."""
        new = jnp.sum(mask).astype(jnp.float32)
        mean = jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(new, 1.0)
        variance = jnp.sum(jnp.where(mask, (values - mean) ** 2, 0.0)) / jnp.maximum(new, 1.0)
        return RunningScale(*Moments(*self).merged(new, mean, variance))

    def scaled(
        self,
        bonus: Float[jax.Array, "T envs"],
        mask: Bool[Array, "T envs"],
        gamma: Scalar,
        ends: Bool[Array, "T envs"] | None = None,
    ) -> tuple[Float[jax.Array, "T envs"], "RunningScale"]:
        """A masked bonus in deviations of its discounted returns, those of this rollout included, and the new moments.

        `ends` marks where one episode ends and the next begins.
        """
        scale = self.update(discounted_sums(bonus, gamma, ends), mask)
        return bonus / jnp.sqrt(scale.variance + 1e-8), scale


class Learned(NamedTuple):
    """Networks in training, and the scale of the bonus's returns."""

    model: Any
    scale: RunningScale


@dataclasses.dataclass(frozen=True)
class Learning(Bonus[Learned]):
    """A bonus that trains networks along with the policy, paid in deviations of its discounted returns."""

    coef: float = 0.5
    """Weight of the bonus, whose discounted returns are scaled to standard deviation 1."""

    def trained(self, state: Learned) -> Any:
        return state.model

    def with_trained(self, state: Learned, trained: Any) -> Learned:
        return state._replace(model=trained)

    def scaled(
        self, state: Learned, bonus: jax.Array, mask: jax.Array, data: Rollout, at: At
    ) -> tuple[jax.Array, Learned]:
        """The bonus in deviations of its discounted returns, 0 where masked, and the state with those added."""
        bonus, scale = state.scale.scaled(bonus * mask, mask, at.gamma, data.ends)
        return bonus, state._replace(scale=scale)

    def weight(self, spent: float) -> float:
        return self.coef
