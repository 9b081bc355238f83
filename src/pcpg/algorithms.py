"""The interface of an algorithm, and the table of all algorithms.

An algorithm is a frozen dataclass of settings, in one file of `algos/`, and its agent. The command line reads the
fields of the settings, the loop drives the agent, and storage writes what the agent asks it to keep. No other code
depends on which algorithm it is. Add your own from Python:

    ALGORITHMS["mine"] = Row("Mine", "what it does", "#7a4fa3", "-", Presets(MySettings(), MySettings()))
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from pcpg.budget import NO_BUDGET, Budget, Limits
from pcpg.config import Json
from pcpg.cover.cover import Cover
from pcpg.data import Kept
from pcpg.engine.together import Shared
from pcpg.envs.options import load
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap
from pcpg.learners.transitions import Transitions
from pcpg.state import DONE, Report, SeedState

Arrays = Mapping[str, np.ndarray]
Own = TypeVar("Own")


class Assets(NamedTuple):
    """What one seed leaves for other runs."""

    cover: Cover | None = None
    ridge: float = 0.0  # lambda of the cover's design
    data: Kept | Transitions | None = None
    candidates: np.ndarray | None = None  # the actions that numbers in the data stand for; None: they are actions


class Shown(NamedTuple):
    """The cover of a seed for display."""

    weights: np.ndarray  # [members]
    cells: np.ndarray  # [members, cells] visits
    returns: tuple[np.ndarray, ...]  # of each member, [episodes]
    sigmas: np.ndarray | None = None  # [members, d, d]; None: members have data in place of covariances


class World(NamedTuple):
    """The world of an agent."""

    env: Environment
    lanes: int = 1
    features: Callable[[], FeatureMap] | None = None  # draws the feature map, or reads the saved one
    budget: Budget = NO_BUDGET
    assets: Mapping[int, Assets] | None = None  # by the seed that explored; None: the agent explores by itself
    given: Arrays | None = None  # logged episodes with which every seed begins, as a part of a round has them


class Cost(NamedTuple):
    """The cost of a run, as far as known before the first round."""

    words: str  # the schedule
    most_steps: int  # environment steps of a seed
    round_steps: int  # of a round, if no episode ends early; 0: not known
    is_estimate: bool  # whether the steps are about that many, not at most
    networks: int  # bytes
    episodes: int  # bytes
    data: int = 0  # bytes of all that a seed may keep


class Settings(Protocol):
    """A frozen dataclass whose fields are the flags and the entries of config.json; subclasses have these defaults."""

    takes_features: ClassVar[bool] = False  # whether a feature map is among the settings of a run
    takes_data: ClassVar[bool] = False  # whether a run can begin with logged episodes
    leaves: ClassVar[Literal["", "cover", "data"]] = ""  # whether a finished run leaves something to learn a task on

    @property
    def needs_budget(self) -> bool:
        """Whether a setting is a share of the budget, which then must be given."""
        return False

    def sized(self, env: Environment, limits: Limits, used: int = 0) -> Self:
        """The settings with formulas resolved, fitted to a budget of which `used` steps are spent.

        Resolved settings stay the same. Raises a ConfigError if something does not fit.
        """
        ...

    def cost(self, env: Environment, limits: Limits) -> Cost:
        """The cost of a run with these resolved settings."""
        ...

    def extended(self, limits: Limits, before: Limits) -> Self:
        """The settings without the limit that ended the run, so new limits apply."""
        return self

    def reopened(self, arrays: Arrays, env: Environment, limits: Limits) -> int:
        """The phase in which a finished seed continues, from the arrays of its checkpoint and the old limits."""
        ...

    def on_assets(self, new_steps: int, changes: Mapping[str, object]) -> Self:
        """The settings with which `exploit` begins, with the changes that the environment's preset asks for."""
        ...

    def check_on_assets(self, made: Self, env: Environment) -> Self:
        """These settings, if they can serve the assets of a run with settings `made`; a ConfigError says why not."""
        return self

    @staticmethod
    def weights(arrays: Arrays) -> np.ndarray:
        """The weights of the members of the cover in a seed's checkpoint, [members]."""
        return np.zeros(0)

    @staticmethod
    def shown(arrays: Arrays, parts: Sequence[Arrays]) -> Shown | None:
        """The cover in a seed's checkpoint and its parts, or None."""
        return None

    def agent(self, world: World) -> "Agent":
        """The agent; it compiles nothing before the first round."""
        ...


class Agent(Protocol[Own]):
    """An algorithm bound to a world; `Bound` has the defaults given here for everything but `init` and `step`."""

    checkpoint_share: float = 1.0  # of the time, at most; 1: after every round
    grows: bool = False  # whether arrays of a state change their shapes
    env: Environment

    @property
    def frozen(self) -> Any:
        """Arrays that are drawn and saved once, such as a feature map, or None."""
        ...

    @property
    def programs(self) -> Sequence[Shared]:
        """What rounds await, in the order of a round."""
        ...

    def template(self) -> Any:
        """A policy of the kind that a run returns."""
        ...

    def init(self, seed: int) -> SeedState[Own]:
        """A seed before its first round."""
        ...

    async def step(self, state: SeedState[Own]) -> tuple[SeedState[Own], Report]:
        """One round of one seed; raises NonFinite."""
        ...

    def left(self, state: SeedState[Own]) -> int:
        """The maximum or approximate number of remaining rounds of a seed."""
        return 0

    def stopped(self, state: SeedState[Own], why: Literal["target", "time"]) -> SeedState[Own]:
        """The state after the round that reached the target or the time limit."""
        return state.noted(phase=DONE)

    def ended(self, state: SeedState[Own]) -> str:
        """Why exploration ended, or that it has not: a word of `ENDS`."""
        return ""

    def policies(self, state: SeedState[Own]) -> int | None:
        """The members of its cover; None: the algorithm has none."""
        return None

    def moving(self, own: Own) -> Any:
        """The part of `own` in a checkpoint; its names are the names of arrays in the file."""
        return own

    def restored(self, fresh: SeedState[Own], moving: SeedState[Any], parts: Sequence[Arrays]) -> SeedState[Own]:
        """A seed from its checkpoint, whose `own` is what `moving` gave, and the parts that it wrote before."""
        return moving

    def assets(self, weights: np.ndarray, parts: Sequence[Arrays]) -> Assets:
        """What a seed leaves for others, from the weights of its cover and the parts that it wrote."""
        return Assets()


ENDS = {
    "": "there was nothing to explore",
    "exploring": "exploration continues",
    "grown": "the cover stopped growing",
    "full": "the cover is full",
    "quiet": "no reachable state promised anything new",
    "found": "the reward was met often enough to learn from",
    "budget": "the budget was used up",
    "target": "the target was reached",
    "reward": "training stayed with the reward",
}
"""Why exploration ended, by the word that summary.json has."""


class Bound(Agent[Own]):
    """An agent by its defaults: it has no cover, leaves no assets, and its state is all that a checkpoint needs."""

    frozen: Any = None


class Presets(NamedTuple):
    """The default settings of an algorithm."""

    compiled: Any
    host: Any  # for environments that are stepped on the host


class Row(NamedTuple):
    """A row in the table of algorithms."""

    label: str
    about: str  # one line, for --help
    colour: str
    line: str  # of curves, as matplotlib names it
    home: str | Presets  # "module:NAME" of its presets, loaded when they are asked for

    @property
    def presets(self) -> Presets:
        return load(self.home) if isinstance(self.home, str) else self.home

    @property
    def settings(self) -> type[Any]:
        """The dataclass of its settings."""
        return type(self.presets.compiled)


ALGORITHMS: dict[str, Row] = {
    "pcpg": Row(
        "PC-PG", "explores without reward, then exploits", "#1b6ca8", "-", "pcpg.algos.pcpg_settings:REWARD_FREE"
    ),
    "pcpg-bonus": Row(
        "PC-PG (reward bonus)",
        "explores with the bonus added to the reward",
        *("#1b6ca8", "-", "pcpg.algos.pcpg_settings:WITH_REWARD"),
    ),
    "pcpg-replay": Row(
        "PC-PG (kept data)",
        "explores on all data so far, then learns the task from it; needs the fewest samples",
        *("#2a9d5c", "-", "pcpg.algos.replay:REPLAY"),
    ),
    "pcpg-deep": Row(
        "PC-PG (deep)",
        "explores and learns off-policy from all data so far, where observations never repeat",
        *("#c17d11", "-", "pcpg.algos.deep_settings:DEEP"),
    ),
    "sac": Row("SAC", "the same learner without an explorer", "#c17d11", "--", "pcpg.algos.deep_settings:SAC"),
    "ppo-rnd": Row("PPO+RND", "PPO with random network distillation", "#d1495b", "--", "pcpg.algos.ppo:WITH_RND"),
    "ppo-e3b": Row(
        "PPO+E3B", "PPO with a bonus for novelty within an episode", "#8e6c3a", "-.", "pcpg.algos.ppo:WITH_E3B"
    ),
    "ppo-ranked": Row(
        "PPO + ranked episodes",
        "PPO that also imitates its best episodes; for levels that are new at every reset",
        *("#b5179e", "-", "pcpg.algos.ppo:RANKED"),
    ),
    "ppo": Row("PPO", "a baseline", "#5f6b6d", ":", "pcpg.algos.ppo:PLAIN"),
}


def label(algo: str) -> str:
    """The name of an algorithm for people; that of one which is not in the table is its id."""
    return ALGORITHMS[algo].label if algo in ALGORITHMS else algo


def taking_data() -> list[str]:
    """The algorithms that can begin with logged episodes."""
    return [name for name, row in ALGORITHMS.items() if row.settings.takes_data]


DEFAULT = "pcpg"
"""The default algorithm if no look chooses one."""

Algo = Literal[
    "auto", "pcpg", "pcpg-bonus", "pcpg-replay", "pcpg-deep", "sac", "ppo-rnd", "ppo-e3b", "ppo-ranked", "ppo"
]
"""The names in `ALGORITHMS`, for type checkers, and "auto" to have one chosen."""


def settings_of(config: Json) -> type | None:
    """The settings class of a run's algorithm; None for one that is not in the table."""
    row = ALGORITHMS.get(config["algo"])
    return None if row is None else row.settings
