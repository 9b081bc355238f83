"""The configuration of a new run, from what a user asks for."""

from collections.abc import Mapping, Sequence
from typing import Any

from pcpg.algorithms import ALGORITHMS, DEFAULT
from pcpg.budget import Limits, read_steps, read_time
from pcpg.config import ConfigError, Json, check_choice, from_plain, setting_paths
from pcpg.elsewhere import POLICIES, refuse_elsewhere
from pcpg.envs.adapters.names import register_function
from pcpg.envs.registry import declared_options, known_as
from pcpg.features.base import Phi, register_features
from pcpg.policies.networks import Network, register_network
from pcpg.presets import preset
from pcpg.run_config import RunConfig, chosen_by_a_look


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


def limits_of(steps: int | str | None, time: float | str | None, until: float | None) -> Limits:
    """The limits of a new run, from user input."""
    number, more = (0, False) if steps is None else read_steps(steps)
    seconds, longer = (0.0, False) if time is None else read_time(time)
    if more or longer:
        raise ConfigError(f"a plus sign extends an existing run, and this one is new: got {steps or time!r}")
    return Limits(number, seconds, until)
