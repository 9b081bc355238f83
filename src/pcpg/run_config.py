"""The configuration of a run, which suffices to repeat it: to and from JSON, or from what a user asks for."""

import dataclasses
import functools
import json
import math
import operator
import typing
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from pcpg.algorithms import ALGORITHMS, DEFAULT, Settings, taking_data
from pcpg.algos.auto import LOOK_SHARE, SLOW_LINE, STEPS, chosen_line, limited, look_and_choose
from pcpg.algos.look import lines
from pcpg.bonuses.protocol import upgraded
from pcpg.budget import NO_LIMITS, Limits
from pcpg.config import ConfigError, Json, check_choice, check_type, entries_of, from_plain, setting_paths
from pcpg.elsewhere import POLICIES, refuse_elsewhere
from pcpg.envs.adapters.names import is_on_host, register_function
from pcpg.envs.protocol import Environment
from pcpg.envs.registry import complete_options, declared_options, known_as, make
from pcpg.envs.spaces import MOST_ENTRIES, flat_size
from pcpg.features import FEATURES, make_features
from pcpg.features.base import FeatureMap, Phi, is_own_features, register_features
from pcpg.machine import free_memory
from pcpg.policies.networks import Network, register_network
from pcpg.presets import environment_preset, features_for, preset
from pcpg.runs.documents import is_list_of, plain
from pcpg.runs.folder import MAX_SEED, MOST_SEEDS


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What is trained, on what, with which seeds."""

    env: str
    algo: str
    agent: Any
    """The settings of the algorithm."""
    env_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    features: str = "auto"
    feature_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    seeds: int = 1
    lanes: int = 0
    feature_seed: int = 0
    limits: Limits = NO_LIMITS
    """A budget of steps or time, and a target return."""
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The exploited cover of another run, see training/storage.py; empty: the run explores by itself."""
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Logged episodes with which the run begins, see training/logged.py; empty: none."""
    looked: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The look that chose algorithm and settings: `env_steps`, `saw` and `chose`, which is empty where random play only
    found a time limit; empty: no look."""

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algo, ALGORITHMS)
        for name, kind in typing.get_type_hints(RunConfig).items():
            if name not in ("agent", "limits"):
                check_type(kind, getattr(self, name), name)
        check_seeds(self.seeds, self.seed)
        if self.lanes < 0:
            raise ConfigError(f"lanes must be 0 (by the device) or more, got {self.lanes}")
        if self.feature_seed < 0:
            raise ConfigError(f"feature_seed must be 0 or more, got {self.feature_seed}")
        self._check_agent()
        self._check_source()
        self._check_data()

    def _check_agent(self) -> None:
        preset = ALGORITHMS[self.algo].presets.compiled
        expected = type(preset)
        if type(self.agent) is not expected:
            got = type(self.agent).__name__
            raise ConfigError(f"the agent of {self.algo} must be a {expected.__name__}, got a {got}")
        own, given = (getattr(one, "bonus", None) for one in (preset, self.agent))
        if own is not None and type(given) is not type(own):  # its name would say what it is not
            said = "none" if given is None else given.name
            raise ConfigError(
                f"agent.bonus: the bonus of {self.algo} is {own.name}, got {said}; other bonuses are for --algo ppo"
            )
        for name in getattr(preset, "absent", ()):
            if operator.attrgetter(name)(self.agent):
                raise ConfigError(f"agent.{name}: {self.algo} is the algorithm without it; others have one")
        if self.agent.needs_budget and not (self.limits.steps or self.limits.seconds):
            raise ConfigError("explore.reward_first is a share of the budget: set steps or time as well")

    def _check_source(self) -> None:
        if not self.source:
            return
        run, members, covers = map(self.source.get, ("run", "members", "covers"))
        fits = isinstance(run, str) and is_list_of(members, str) and isinstance(covers, Mapping)
        if not fits:
            raise ConfigError(f"source must have run, members and covers, got {dict(self.source)!r:.100}")

    def _check_data(self) -> None:
        kinds = {"from": str, "episodes": int, "steps": int, "sha256": str}
        if self.data and {name: type(value) for name, value in self.data.items()} != kinds:
            raise ConfigError(f"data must have {', '.join(kinds)}, got {dict(self.data)!r:.100}")
        if self.data:
            self.check_takes_data()

    def check_takes_data(self) -> None:
        """Refuse an algorithm that cannot begin with logged episodes."""
        if not self.agent.takes_data:
            raise ConfigError(f"{self.algo} cannot begin with logged episodes: use {' or '.join(taking_data())}")

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seed, self.seed + self.seeds))

    def make_env(self) -> Environment:
        """The environment of the run."""
        return make(self.env, **self.env_options)

    def make_features(self, env: Environment) -> FeatureMap:
        """The feature map of the run, shared by all seeds, so no seed depends on the others."""
        options = json.dumps(plain(self.feature_options, "feature_options"))
        can_be_kept = isinstance(env, Hashable) and not is_own_features(self.features)
        build = _make_features if can_be_kept else _make_features.__wrapped__
        return build(self.features, env, self.feature_seed, options)

    def to_json(self) -> Json:
        """The configuration as JSON values."""
        data = dataclasses.asdict(self)
        if self.limits == NO_LIMITS:
            del data["limits"]
        for name in ("looked", "data"):
            if not data[name]:
                del data[name]
        if "ppo" in data["agent"] and not data["agent"]["ppo"]["body"]:  # what few ask for
            del data["agent"]["ppo"]["body"]
        return data

    @classmethod
    def from_json(cls, data: Json, env: Environment | None = None) -> "RunConfig":
        """The configuration from JSON values; an error names any unknown name or wrong type.

        With `env`, the environment of an existing run, nothing is created and no features are drawn.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"a configuration must be an object, got {data!r}")
        algo = data.get("algo", DEFAULT)
        check_choice("algorithm", algo, ALGORITHMS)
        kind = ALGORITHMS[algo].settings
        agent = from_plain(kind, upgraded(data.get("agent", {})), "agent", preset(str(data.get("env")), algo))
        rest = {name: value for name, value in data.items() if name not in ("agent", "algo", "limits")}
        known = [field.name for field in dataclasses.fields(cls)]
        for name in rest:
            check_choice("configuration entry", name, known)
        if "env" not in rest:
            raise ConfigError("the configuration has no environment: expected an entry 'env'")
        limits = from_plain(Limits, data.get("limits", {}), "limits")
        config = cls(algo=algo, agent=agent, limits=limits, **rest)
        return config.checked() if env is None else config.recorded()

    def resolved(self) -> "RunConfig":
        """The configuration with every default written out and every formula worked out."""
        config = self.checked()
        env = config.make_env()
        agent = config.agent.sized(env, config.limits, int(config.looked.get("env_steps", 0)))
        check_fits(env, agent)
        return dataclasses.replace(config, agent=agent)

    def recorded(self) -> "RunConfig":
        """The configuration of an existing run, which is already written out and checked."""
        if not is_own_features(self.features):
            check_choice("features", self.features, FEATURES)
        return dataclasses.replace(self, env_options=complete_options(self.env, self.env_options))

    def checked(self) -> "RunConfig":
        """The configuration with the options of environment and features written out; refuses what cannot be built."""
        env, options, played, said = limited(self.env, complete_options(self.env, self.env_options))
        looked = self.looked or ({"env_steps": played, "saw": list(said), "chose": ""} if played else {})
        check_fits(env, self.agent)
        own = features_for(self.env, env, self.feature_seed)
        features = own[0] if self.features == "auto" else self.features
        if not is_own_features(features):
            check_choice("features", features, FEATURES)
        config = dataclasses.replace(self, env_options=options, features=features, looked=looked)
        if self.agent.takes_features:
            if not is_own_features(features):
                from_plain(FEATURES[features], self.feature_options, "feature_options")
            written = feature_defaults(features) | (own[1] if own[0] == features else {}) | dict(self.feature_options)
            config = dataclasses.replace(config, feature_options=plain(written, "feature_options"))
            config.make_features(env)
        return config


MOST_LOOKED_AT = 250_000
"""Limits on observation entries and actions for a look: beyond them its data would not fit."""


def check_seeds(seeds: int, seed: int) -> None:
    """Refuse seeds that do not exist."""
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, got {seeds}: it is how many, and seed is the first")
    if seeds > MOST_SEEDS:
        raise ConfigError(f"seeds must be at most {MOST_SEEDS:,}, got {seeds:,}")
    if not 0 <= seed <= MAX_SEED - seeds + 1:
        raise ConfigError(f"seed must lie between 0 and {MAX_SEED - seeds + 1}, got {seed}")


def chosen_by_a_look(env: str, env_options: Mapping[str, object], limits: Limits, seed: int = 0) -> Json:
    """The entries of a configuration for which a look decides, where the environment is all that was named.

    Compiled environments and those with a preset get no look and use `pcpg`.
    """
    check_seeds(1, seed)
    if not is_on_host(env) or environment_preset(env).settings:
        return {"algo": DEFAULT}
    if not limits.steps and not limits.seconds:
        limits = dataclasses.replace(limits, steps=STEPS)
    made, options, played, said = limited(env, complete_options(env, env_options))
    if max(flat_size(made.observation_space), getattr(made.action_space, "n", 0)) > MOST_LOOKED_AT:
        return {"algo": DEFAULT}  # which says what it would take
    looked = look_and_choose(env, options, math.floor(LOOK_SHARE * (limits.steps or STEPS)) - played, seed)
    choice = looked.choice
    assert choice is not None, "it is on the host"
    # What depends on the speed of the moment is left out: the configuration is the same whenever it is run.
    lasting = [line for line in looked.said if line != SLOW_LINE]
    saw = [*lines(env, looked.found._replace(steps_per_second=0.0)), *said, *lasting]
    return {
        "env_options": looked.options,
        "algo": choice.algo,
        "agent": choice.agent,
        "limits": dataclasses.asdict(limits),
        "looked": {"env_steps": played + looked.env_steps, "saw": saw, "chose": chosen_line(choice)},
    }


def feature_defaults(features: str) -> Json:
    """The options of a feature map that have a default, with it."""
    if is_own_features(features):
        return {}
    entries = entries_of(FEATURES[features])
    return {name: entry.default for name, entry in entries.items() if entry.default is not dataclasses.MISSING}


@functools.lru_cache(maxsize=4)
def _make_features(name: str, env: Environment, seed: int, options: str) -> FeatureMap:
    """Kept, since a configuration is checked more than once and some maps take seconds to draw."""
    try:
        return make_features(name, env, seed, **json.loads(options))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"features {name!r}: {error}") from error


MOST_STEPS = 2**31 - 1
"""Of all episodes that are played side by side: they are counted in 32 bits."""


def check_fits(env: Environment, settings: Settings) -> None:
    """Refuse spaces that are too large, and arrays of one seed that are larger than the free memory."""
    for what, space in (("observation", env.observation_space), ("action", env.action_space)):
        size = flat_size(space)
        if size > MOST_ENTRIES:
            raise ConfigError(
                f"one {what} of {space} has {size:,} entries as network input, more than the limit of {MOST_ENTRIES:,}"
            )
    cost, free = settings.sized(env, NO_LIMITS).cost(env, NO_LIMITS), free_memory()
    if free is not None and cost.data > free:
        raise ConfigError(
            f"the data of one seed may need {cost.data / 1e9:,.1f} GB of memory, but only {free / 1e9:,.1f} GB are "
            "free: give fewer --steps or a smaller --replay.capacity"
        )
    if free is not None and cost.networks + cost.episodes > free:
        raise ConfigError(
            f"one seed needs about {(cost.networks + cost.episodes) / 1e9:,.1f} GB of memory, but only "
            f"{free / 1e9:,.1f} GB are free: {cost.episodes / 1e9:,.1f} GB for the episodes of an update and "
            f"{cost.networks / 1e9:,.1f} GB for networks of "
            f"{flat_size(env.observation_space):,} inputs and {flat_size(env.action_space):,} actions. Use "
            "fewer episodes (--ppo.num-episodes), fewer policies (--explore.max-policies), or an environment with "
            "smaller spaces"
        )


def check_episodes_fit(env: Environment, episodes: int) -> None:
    """Refuse more episodes side by side than the free memory holds, or than steps can be counted."""
    entries = flat_size(env.observation_space) + flat_size(env.action_space) + 8
    free, most = free_memory(), MOST_STEPS // env.max_steps
    if free is not None:
        most = min(most, free // (4 * entries * env.max_steps))
    if episodes > most:
        raise ConfigError(
            f"episodes must be at most {most:,} here, got {episodes:,}: all are played side by side, {env.max_steps:,} "
            "steps each, and kept in memory"
        )


def new_config(
    env: object,
    algo: str,
    limits: Limits,
    features: str | Phi,
    feature_options: Json,
    network: Network | None,
    config: Mapping[str, object] | None,
    env_options: Mapping[str, object],
    rest: Json,
    keywords: Sequence[str],
) -> RunConfig:
    """The configuration of a new run; where only the environment was named, a look may choose it."""
    if env in POLICIES:
        raise ConfigError(f"the first argument is the environment, got {env!r}: networks follow from its spaces")
    if env in ALGORITHMS:
        raise ConfigError(f"the first argument is the environment, the second the algorithm: pcpg.train(env, {env!r})")
    if isinstance(algo, int):
        raise ConfigError(f"the second argument is the algorithm; steps are total_steps={algo}")
    check_choice("algorithm", algo, ["auto", *ALGORITHMS])
    if isinstance(env, str):
        env_id = env
    elif known := known_as(env):
        env_id, env_options = known[0], {**known[1], **env_options}
    else:
        env_id = register_function(env)
    chosen: Json = {"algo": DEFAULT if algo == "auto" else algo}
    settings = setting_paths(ALGORITHMS[chosen["algo"]].settings)
    refuse_elsewhere("train", env_options, keywords, declared_options(env_id), settings)
    if algo == "auto" and not config and network is None and features == "auto":
        chosen = chosen_by_a_look(env_id, env_options, limits, rest["seed"])
    name = chosen["algo"]
    agent: Any = from_plain(
        ALGORITHMS[name].settings, config or chosen.get("agent", {}), "config", preset(env_id, name)
    )
    if network is not None:
        agent = from_plain(type(agent), {"ppo": {"body": register_network(network)}}, "network", agent)
    return RunConfig(
        env=env_id,
        algo=name,
        agent=agent,
        env_options=chosen.get("env_options", env_options),
        features=features if isinstance(features, str) else register_features(features),
        feature_options=feature_options,
        limits=Limits(**chosen["limits"]) if "limits" in chosen else limits,
        looked=chosen.get("looked", {}),
        **rest,
    )
