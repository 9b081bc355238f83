"""The configuration of a run: all that is needed to repeat it, to and from JSON."""

import dataclasses
import functools
import inspect
import json
import math
import typing
from collections.abc import Hashable, Mapping
from typing import Any

from pcpg.algorithms import ALGORITHMS, preset
from pcpg.config import AgentConfig, ConfigError, PCPGConfig, check_choice, check_type, from_plain
from pcpg.envs.adapters.names import is_on_host
from pcpg.envs.protocol import Environment
from pcpg.envs.registry import complete_options, make
from pcpg.envs.spaces import flat_size
from pcpg.features import FEATURES, make_features
from pcpg.features.base import FeatureMap
from pcpg.features.own import is_own_features
from pcpg.practice.budget import NO_LIMITS, Limits, budgeted
from pcpg.practice.choice import LOOK_SHARE, STEPS, chosen_line, limited, look_and_choose
from pcpg.practice.look import lines
from pcpg.practice.memory import check_fits
from pcpg.presets import environment_preset, features_for
from pcpg.runs.documents import plain

MAX_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What is trained, on what, with which seeds."""

    env: str
    algo: str
    agent: AgentConfig
    env_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    features: str = "auto"
    feature_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    seeds: int = 1
    lanes: int = 0
    feature_seed: int = 0
    limits: Limits = NO_LIMITS
    """A budget of steps or time, and a return at which to stop."""
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The cover of another run that this one exploits, see training/storage.py; empty: the run explores by itself."""
    looked: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The look that chose algorithm and settings: its `env_steps`, what it `saw` and `chose`; empty: nobody looked."""

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algo, ALGORITHMS)
        for name, kind in typing.get_type_hints(RunConfig).items():
            if name not in ("agent", "limits"):
                check_type(kind, getattr(self, name), name)
        if self.seeds < 1:
            raise ConfigError(f"seeds must be at least 1, got {self.seeds}")
        if self.seeds > MAX_SEED:
            raise ConfigError(f"seeds must be at most {MAX_SEED}, got {self.seeds}")
        if not 0 <= self.seed <= MAX_SEED - self.seeds + 1:
            raise ConfigError(f"seed must lie between 0 and {MAX_SEED - self.seeds + 1}, got {self.seed}")
        if self.lanes < 0:
            raise ConfigError(f"lanes must be 0 (by the device) or more, got {self.lanes}")
        if self.feature_seed < 0:
            raise ConfigError(f"feature_seed must be 0 or more, got {self.feature_seed}")
        self._check_agent()

    def _check_agent(self) -> None:
        preset = ALGORITHMS[self.algo].preset
        if type(self.agent) is not type(preset):
            expected, got = type(preset).__name__, type(self.agent).__name__
            raise ConfigError(f"the agent of {self.algo} must be a {expected}, got a {got}")
        for part in ("rnd", "e3b"):
            wanted = getattr(preset, part, None) is not None
            if wanted != (getattr(self.agent, part, None) is not None):
                advice = "needs it; use ppo to do without" if wanted else f"has none; use ppo-{part}"
                raise ConfigError(f"agent.{part}: the algorithm {self.algo} {advice}")
        is_endless = isinstance(self.agent, PCPGConfig) and self.agent.explore.reward_first > 0
        if is_endless and not (self.limits.steps or self.limits.seconds):
            raise ConfigError("explore.reward_first is a share of the budget: give steps or time as well")

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seed, self.seed + self.seeds))

    def make_env(self) -> Environment:
        """The environment of the run."""
        return make(self.env, **self.env_options)

    def make_features(self, env: Environment) -> FeatureMap:
        """The feature map of the run: one for all seeds, so that none depends on which others run beside it."""
        options = json.dumps(plain(self.feature_options, "feature_options"))
        can_be_kept = isinstance(env, Hashable) and not is_own_features(self.features)
        build = _make_features if can_be_kept else _make_features.__wrapped__
        return build(self.features, env, self.feature_seed, options)

    def to_json(self) -> dict[str, Any]:
        """The configuration as JSON values."""
        data = dataclasses.asdict(self)
        if self.limits == NO_LIMITS:
            del data["limits"]
        if not self.looked:
            del data["looked"]
        for name, usual in (("body", ""), ("shards", 1)):  # what few ask for
            if "ppo" in data["agent"] and data["agent"]["ppo"][name] == usual:
                del data["agent"]["ppo"][name]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any], env: Environment | None = None) -> "RunConfig":
        """The configuration from JSON values; an unknown name or a wrong type is named.

        With `env`, that of a run which has begun, no environment is made and no features are drawn.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"a configuration must be an object, got {data!r}")
        algo = data.get("algo", "pcpg")
        check_choice("algorithm", algo, ALGORITHMS)
        kind = type(ALGORITHMS[algo].preset)
        agent = from_plain(kind, data.get("agent", {}), "agent", preset(str(data.get("env")), algo))
        rest = {name: value for name, value in data.items() if name not in ("agent", "algo", "limits")}
        known = [field.name for field in dataclasses.fields(cls)]
        for name in rest:
            check_choice("configuration entry", name, known)
        if "env" not in rest:
            raise ConfigError("the configuration names no environment: expected an entry 'env'")
        limits = from_plain(Limits, data.get("limits", {}), "limits")
        config = cls(algo=algo, agent=agent, limits=limits, **rest)
        return config.checked() if env is None else config.recorded()

    def resolved(self) -> "RunConfig":
        """The configuration with every default written out and every formula worked out."""
        config = self.checked()
        env = config.make_env()
        agent = budgeted(config.agent, env, config.limits, int(config.looked.get("env_steps", 0)))
        check_fits(env, agent)
        return dataclasses.replace(config, agent=agent)

    def recorded(self) -> "RunConfig":
        """The configuration of a run that has begun: everything was written out and checked then."""
        if not is_own_features(self.features):
            check_choice("features", self.features, FEATURES)
        return dataclasses.replace(self, env_options=complete_options(self.env, self.env_options))

    def checked(self) -> "RunConfig":
        """The configuration with the options of environment and features written out; refuses what cannot be built."""
        options = complete_options(self.env, self.env_options)
        env = make(self.env, **options)
        check_fits(env, self.agent)
        own = features_for(self.env, env, self.feature_seed)
        features = own[0] if self.features == "auto" else self.features
        if not is_own_features(features):
            check_choice("features", features, FEATURES)
        config = dataclasses.replace(self, env_options=options, features=features)
        if isinstance(self.agent, PCPGConfig):
            written = feature_defaults(features) | (own[1] if own[0] == features else {}) | dict(self.feature_options)
            config = dataclasses.replace(config, feature_options=plain(written, "feature_options"))
            config.make_features(env)
        return config


MOST_LOOKED_AT = 250_000
"""Entries of an observation, and actions, beyond which no look is taken: its data would not fit."""


def chosen_by_a_look(env: str, env_options: Mapping[str, Any], limits: Limits, seed: int = 0) -> dict[str, Any]:
    """The entries of a configuration for which a look decides, where the environment is all that was named.

    An environment that is compiled, or that has a preset, is not looked at: it is explored by `pcpg`.
    """
    if not is_on_host(env) or environment_preset(env).settings:
        return {"algo": "pcpg"}
    if not limits.steps and not limits.seconds:
        limits = dataclasses.replace(limits, steps=STEPS)
    options = complete_options(env, env_options)
    made, _ = limited(env, options)
    if max(flat_size(made.observation_space), getattr(made.action_space, "n", 0)) > MOST_LOOKED_AT:
        return {"algo": "pcpg"}  # which says what it would take
    looked = look_and_choose(env, options, math.floor(LOOK_SHARE * (limits.steps or STEPS)), seed)
    choice = looked.choice
    assert choice is not None, "it is on the host"
    saw = [*lines(env, looked.found._replace(steps_per_second=0.0)), *looked.said]  # the same whenever it is run
    return {
        "env_options": looked.options,
        "algo": choice.algo,
        "agent": choice.agent,
        "limits": dataclasses.asdict(limits),
        "looked": {"env_steps": looked.env_steps, "saw": saw, "chose": chosen_line(choice)},
    }


def feature_defaults(features: str) -> dict[str, Any]:
    """The options of a feature map that have a default, with it."""
    if is_own_features(features):
        return {}
    options = inspect.signature(FEATURES[features]).parameters.values()
    return {o.name: o.default for o in options if o.kind is o.KEYWORD_ONLY and o.default is not o.empty}


@functools.lru_cache(maxsize=4)
def _make_features(name: str, env: Environment, seed: int, options: str) -> FeatureMap:
    """Kept, since a configuration is checked more than once and some maps take seconds to draw."""
    try:
        return make_features(name, env, seed, **json.loads(options))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"features {name!r}: {error}") from error
