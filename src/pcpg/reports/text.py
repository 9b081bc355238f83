"""Numbers, names and commands as the page says them."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pcpg.reports.read import RunData
from pcpg.reports.statistics import Interval


def run_labels(runs: list[RunData]) -> list[str]:
    """A name for each run: the algorithm, and the folder where two runs share one."""
    names = [run.algo for run in runs]
    return [
        f"{name} ({shown(run.path.name)})" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def shown(text: str) -> str:
    """A text as it can stand in a picture: what no letter shows, such as a control code, has no place in XML either."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def number(value: float) -> str:
    """A number with three digits and a true minus sign."""
    if value == 0:
        return "0"
    size = abs(value)
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.3g}" if size < 1 else f"{value:.2f}"
    return text.replace("-", "\u2212")


def steps_text(steps: float) -> str:
    """A number of steps in thousands or millions."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.3g}{letter}"
    return f"{steps:.0f}"


def interval_text(interval: Interval | None) -> str:
    """A value with its interval, as in 0.75 [0.53, 0.89]."""
    if interval is None:
        return "\u2013"
    if np.isnan(interval.low):  # of one seed: nothing is known of the others
        return number(interval.value)
    return f"{number(interval.value)} [{number(interval.low)}, {number(interval.high)}]"


def range_text(values: list[int]) -> str:
    """The smallest and the largest count, or the one that all share."""
    if not values:
        return "\u2013"
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def duration(seconds: float) -> str:
    """A duration short enough for a table."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def listed(words: list[str]) -> str:
    """Words listed as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# commands that repeat a run


def with_config(config: Mapping[str, Any], path: str, out: str) -> str:
    """The short command, which reads the configuration of the run; a given cover must still be there."""
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
    limits = {name: value for name, value in config.get("limits", {}).items() if value}
    names = {"steps": "total_steps", "seconds": "max_time", "until": "until"}
    called += [f"{names[name]}={value!r}" for name, value in limits.items()]
    if network := _function(config.get("agent", {}).get("ppo", {}).get("body", "")):
        called.append(f"network={network}")
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
    return words + list(_flags("", agent)) + limit_flags(config)


def limit_flags(config: Mapping[str, Any]) -> list[str]:
    """The flags of a run's budget and target, where it has them."""
    limits, words = config.get("limits", {}), []
    for name, flag, form in (("steps", "--steps", "{}"), ("seconds", "--time", "{:g}s"), ("until", "--until", "{:g}")):
        if limits.get(name) or (name == "until" and limits.get(name) is not None):
            words += [flag, form.format(limits[name])]
    return words


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
