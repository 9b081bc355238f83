"""The commands that repeat a run, from its configuration alone."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any


def with_config(config: Mapping[str, Any], path: str, out: str) -> str:
    """The short command, which reads the configuration of the run; a given cover must be there too."""
    if is_exploit(config):
        return shlex.join([*with_flags(config), "--out", out])
    return shlex.join(["pcpg", "train", "--config", f"{path}/config.json", "--out", out])


def with_flags(config: Mapping[str, Any]) -> list[str]:
    """The whole command, word by word: it needs no file, since every setting of numbers and names is a flag."""
    agent, seeds = config["agent"], ["--seed", str(config["seed"]), "--seeds", str(config["seeds"])]
    seeds += ["--lanes", str(config["lanes"])]
    if is_exploit(config):
        words = ["pcpg", "exploit", config["source"]["run"], *seeds, *_flags("env.", config["env_options"])]
        words += ["--num-groups", str(agent["explore"]["num_groups"])]
        return [*words, *_flags("ppo.", agent["ppo"]), *_flags("exploit.", agent["exploit"])]
    words = ["pcpg", "train", config["env"], "--algo", config["algo"], *seeds, *_flags("env.", config["env_options"])]
    if config["algo"].startswith("pcpg"):
        words += ["--features", config["features"], "--feature-seed", str(config["feature_seed"])]
        words += _flags("phi.", {name: value for name, value in config["feature_options"].items() if _has_flag(value)})
    return words + list(_flags("", agent))


def without_flags(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the features that no flag can hold: lists."""
    return {name: value for name, value in config["feature_options"].items() if not _has_flag(value)}


def is_exploit(config: Mapping[str, Any]) -> bool:
    """Whether the run took over the cover of another."""
    return bool(config.get("source"))


def _has_flag(value: Any) -> bool:
    return not isinstance(value, list | tuple | Mapping)


def _flags(prefix: str, settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        flag = f"--{prefix}{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            yield from _flags(f"{prefix}{name}.".replace("_", "-"), value)
        elif isinstance(value, bool):
            yield flag if value else f"--{prefix}no-{name.replace('_', '-')}"
        elif isinstance(value, list | tuple):
            yield from (flag, *map(str, value))
        elif value is not None:
            yield from (flag, str(value))
