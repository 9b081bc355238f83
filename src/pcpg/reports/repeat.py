"""The commands that repeat a run, from its configuration alone."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any


def with_config(config: Mapping[str, Any], path: str, out: str) -> str:
    """The short command, which reads the configuration of the run; a given cover must be there too."""
    if is_exploit(config):
        return shlex.join([*with_flags(config), "--out", out])
    return shlex.join(["pcpg", "train", "--config", f"{path}/config.json", "--out", out])


def in_python(config: Mapping[str, Any], path: str, out: str) -> str:
    """The same in Python, for a run on functions of the user's own, which no command can name; empty for other runs."""
    env, features = (_function(config[name]) for name in ("env", "features"))
    if not (env or features) or is_exploit(config):
        return ""
    called = [env or repr(config["env"]), repr(config["algo"]), 'config=made["agent"]', f"features={features or '...'}"]
    if not features:
        called[-1:] = ['features=made["features"]', 'feature_options=made["feature_options"]']
    called += [f"{name}={config[name]!r}" for name in ("seed", "seeds", "feature_seed", "lanes")]
    lines = [
        "import json",
        "import pcpg",
        f'made = json.load(open({f"{path}/config.json"!r}))["content"]',
        f'pcpg.train({", ".join(called)}, out={out!r}, **made["env_options"])',
    ]
    return "\n".join(lines)


def _function(name: str) -> str:
    """The name of a function of the user's own, empty for what the library knows by name."""
    prefix, _, function = name.partition(":")
    return function.partition("#")[0] if prefix == "python" else ""


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
