"""The flags of `train`, which depend on the environment and the algorithm.

What needs JAX is imported where it is used: help and mistakes answer at once.
"""

import dataclasses
import itertools
import json
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pcpg.cli.flags import (
    HELP,
    Arg,
    Flag,
    JsonFlag,
    LogFlag,
    Mistake,
    OnFlag,
    Part,
    StepsFlag,
    TimeFlag,
    TrustFlag,
    collect,
    is_flag,
    open_options,
    parse_parts,
)
from pcpg.config import Json, entries_of, from_plain
from pcpg.runs.disk import read_file
from pcpg.runs.documents import refuse_nested
from pcpg.runs.errors import DamagedFile

if typing.TYPE_CHECKING:
    from pcpg.budget import Limits
    from pcpg.run_config import RunConfig

HELP_ALL = "--help-all"


@dataclasses.dataclass(frozen=True)
class TrainFlags:
    """The flags of `train` shared by all environments and algorithms."""

    environment: Annotated[str, Arg("ENV", positional=True)] = ""
    """An id listed by `pcpg envs`; from other libraries gymnasium:ID, bsuite:NAME or gymnax:NAME; or your own class or
    function as FILE.py:NAME or MODULE:NAME."""
    algo: str = "auto"
    """Algorithm."""
    seeds: int = 1
    """Number of seeds, trained together in one program."""
    seed: int = 0
    """First seed."""
    steps: StepsFlag = ""
    """Environment steps per seed, such as 500k, 1M or 2.5M; sets the schedule of rounds."""
    time: TimeFlag = ""
    """Time limit for the whole run, such as 90s, 10m or 1.5h; results then depend on the machine's speed."""
    until: float | None = None
    """Stop a seed once its mean evaluation return reaches this value."""
    out: Annotated[str, Arg("DIR")] = ""
    """Run folder to create; by default a new one under runs/."""
    data: Annotated[str, Arg("FILE")] = ""
    """Logged episodes to start from, for algorithms that keep all their data: an .npz file or minari:ID."""
    config: Annotated[str, Arg("FILE")] = ""
    """JSON or TOML file of settings, or the config.json of a run; flags override its entries."""
    trust: TrustFlag = False
    lanes: int = 0
    """Number of seeds to train in parallel; 0: chosen for the device."""
    devices: int = 0
    """Number of devices to spread seeds over; 0: all visible to JAX. Results are identical."""
    workers: int | None = None
    """Worker processes for an environment stepped on the host; short for --env.workers."""
    on: OnFlag = "local"
    """Where environment workers run: local processes or a Ray cluster. Results are identical."""
    log: LogFlag = ()
    json: JsonFlag = False


@dataclasses.dataclass(frozen=True)
class FeatureFlags:
    """The feature map phi of the cover's covariances."""

    features: str = "auto"
    """Name of the feature map."""
    feature_seed: int = 0
    """Seed of a random feature map; all seeds of a run share one map."""


@dataclasses.dataclass(frozen=True)
class BonusFlag:
    """The bonus for novelty."""

    bonus: str = ""
    """Name of the bonus; set its options with --bonus.KEY."""


class General(NamedTuple):
    """What can be parsed before the environment and the algorithm are known."""

    flags: TrainFlags
    features: FeatureFlags
    bonus: str
    said: frozenset[str]  # names of the flags that were given
    env_options: dict[str, object]  # as written, for an environment of another library
    unknown: list[str]
    words: list[str]  # all of them, ENV first


def read_general(words: list[str]) -> General:
    """The flags of `train` that every environment and algorithm has."""
    from pcpg.bonuses.protocol import upgraded_flag

    general = (TrainFlags, FeatureFlags, BonusFlag)
    flags = [flag for kind in general for section in Part(kind).sections() for flag in section.flags]
    words = _environment_first([upgraded_flag(word) for word in words])
    found, unknown = collect(words, flags, open_to=("env",))
    given = [{name: found[name] for name in entries_of(kind) if name in found} for kind in general]
    made = [from_plain(kind, values, "", text=True) for kind, values in zip(general, given, strict=True)]
    return General(made[0], made[1], made[2].bonus, frozenset(found), open_options("env", found), unknown, words)


def read_train_flags(arguments: list[str], notice: Callable[[str], None]) -> tuple["RunConfig", TrainFlags]:
    """The checked configuration from the arguments of `train`, and the general flags."""
    wanted = {*HELP, HELP_ALL} & set(arguments)
    general = read_general([word for word in arguments if word not in wanted])
    _check_positions(general)
    given = _given_config(general, notice, for_help=bool(wanted))
    parts = _parts(given)
    if wanted:
        is_auto = general.flags.algo == "auto" and not general.flags.config
        short = [part for name, part in parts.items() if HELP_ALL in wanted or name not in ("phi", "agent")]
        about = _about(given, parts, is_short=HELP_ALL not in wanted, is_auto=is_auto)
        parse_parts(short, ["--help"], "pcpg train", about)
    values = dict(zip(parts, parse_parts(list(parts.values()), general.words, "pcpg train"), strict=True))
    config = dataclasses.replace(
        given,
        agent=values["agent"],
        env_options=env_options(values["env"]) | _workers(general.flags, given),
        feature_options=values.get("phi", given.feature_options),
    )
    return config.resolved(), general.flags


def _check_positions(general: General) -> None:
    """Refuse an algorithm that stands where no flag names it."""
    from pcpg.algorithms import ALGORITHMS

    for word in (general.flags.environment, *general.unknown):
        if word in ALGORITHMS:
            raise Mistake(f"{word!r} is an algorithm, which a flag names: pcpg train ENV --algo {word}")


def _parts(given: "RunConfig") -> dict[str, Part]:
    """Everything that flags can set for this environment and algorithm."""
    from pcpg.algorithms import ALGORITHMS
    from pcpg.bonuses.protocol import BONUSES, bonus_class
    from pcpg.features import FEATURES

    shared = {name: getattr(given, name) for name in ("algo", "seeds", "seed", "lanes")}
    algos = "".join(f"\n{name}: {algorithm.about}" for name, algorithm in ALGORITHMS.items())
    about = f"Algorithm.\nauto: pcpg, or the choice of `pcpg look` if the environment is stepped on the host{algos}\n"
    algo = Arg("{" + ",".join(["auto", *ALGORITHMS]) + "}", about)
    parts = {"options": Part(TrainFlags, TrainFlags(given.env, **shared), args={"algo": algo})}
    parts["env"] = environment_part(given)
    if given.agent.takes_features:
        features = Arg("{" + ",".join(FEATURES) + "}", "Feature map.")
        chosen = FeatureFlags(given.features, given.feature_seed)
        parts["features"] = Part(FeatureFlags, chosen, title="features", args={"features": features})
    if "bonus" in entries_of(type(given.agent)):
        chosen = BonusFlag("" if given.agent.bonus is None else given.agent.bonus.name)
        alone = [name for name in BONUSES if not bonus_class(name).needs_cover]
        parts["bonus"] = Part(BonusFlag, chosen, title="bonus", args={"bonus": Arg("{" + ",".join(alone) + "}")})
    parts["agent"] = Part(type(given.agent), given.agent, title=f"algorithm {given.algo}")
    if "features" in parts and given.features in FEATURES:
        parts["phi"] = Part(FEATURES[given.features], given.feature_options, "phi", f"features {given.features}")
    return parts


def environment_part(config: "RunConfig") -> Part:
    """The options of an environment: its fields, or anything for one of another library."""
    from pcpg.envs.adapters.names import is_adapted

    env = config.make_env()
    if is_adapted(config.env) or not dataclasses.is_dataclass(env):
        return Part(dict, config.env_options, "env")
    return Part(type(env), env, "env", "environment")


def env_options(made: object) -> dict[str, object]:
    """The options that flags gave, from the result of `environment_part`."""
    return made if isinstance(made, dict) else {name: getattr(made, name) for name in entries_of(type(made))}


def _about(given: "RunConfig", parts: Mapping[str, Part], *, is_short: bool, is_auto: bool) -> str:
    from pcpg.envs.adapters.names import is_adapted, is_on_host

    first = f"Train {given.algo} on {given.env} and write a run folder."
    if is_auto and is_on_host(given.env):
        first = f"Train on {given.env} and write a run folder. Without --algo, `pcpg look` chooses the algorithm; "
        first += f"settings below are those of {given.algo}."
    said = [first, "Options depend on the environment and algorithm: run `pcpg train ENV --algo ALGO --help`."]
    if is_adapted(given.env):
        options = ", ".join(f"{name} ({value})" for name, value in given.env_options.items())
        said.append(f"Set options of the environment with --env.KEY VALUE; now: {options}.")
    if is_short:
        sections = [section for name in ("agent", "phi") if name in parts for section in parts[name].sections()]
        names = [name for section in sections for name in _names(section.flags)]
        said.append(f"Other settings: {', '.join(dict.fromkeys(names))}. {HELP_ALL} explains them.")
    return "\n\n".join(said)


def _names(flags: Iterable[Flag]) -> list[str]:
    """Flags for a short list, one entry per group."""
    return [f"--{flag.path.split('.')[0]}.*" if "." in flag.path else flag.name for flag in flags]


def _workers(flags: TrainFlags, given: "RunConfig") -> dict[str, object]:
    """The number of workers, if given; refused if the environment cannot use them."""
    from pcpg.envs.adapters.names import LOCAL, check_place, is_on_host

    check_place(flags.on)
    if not is_on_host(given.env) and (flags.workers is not None or flags.on != LOCAL):
        raise Mistake(f"{given.env} is compiled and runs on the training device, so it has no workers")
    workers = given.env_options.get("workers", 0) if flags.workers is None else flags.workers
    if flags.on != LOCAL and not workers:
        raise Mistake(f"--on {flags.on} requires a number of workers, as in --workers 8")
    return {} if flags.workers is None else {"workers": workers}


# What decides which flags there are: environment, algorithm and feature map.


def _given_config(general: General, notice: Callable[[str], None], *, for_help: bool) -> "RunConfig":
    """The configuration from the file and the general flags, which determine the other flags."""
    from pcpg.algorithms import taking_data
    from pcpg.envs.adapters.names import is_adapted
    from pcpg.run_config import RunConfig

    flags, file = general.flags, general.flags.config
    given, ignored = _read_config(Path(file)) if file else {}, list[str]()
    env_id = flags.environment
    if not env_id and "env" not in given:
        if not for_help:
            word = _flagged_environment(general.unknown)
            first = "name an environment first, as in `pcpg train CombinationLock-v0`; `pcpg envs` lists them"
            raise Mistake(f"the environment is the first word: pcpg train {word}" if word else first)
        env_id = "CombinationLock-v0"
    # Another environment, algorithm or feature map than the file's has other settings.
    for entry, settings, value in (
        ("env", "env_options", env_id),
        ("algo", "agent", "" if flags.algo == "auto" else flags.algo),
        ("features", "feature_options", general.features.features if "features" in general.said else ""),
    ):
        if value and given.get(entry, value) != value and given.pop(settings, None):
            ignored.append(f"ignoring '{settings}' in {file}: it belongs to {given[entry]}, not {value}")
        if value:
            given[entry] = value
    if not env_id and not flags.trust:
        _check_trusted(given, file)
    if general.env_options and is_adapted(str(given["env"])):
        given["env_options"] = dict(given.get("env_options", {})) | general.env_options
    if flags.data and not {"algo", "agent"} & given.keys():
        given["algo"] = taking_data()[0]
    shared = {name: getattr(flags, name) for name in ("seed", "seeds", "lanes")}
    shared["feature_seed"] = general.features.feature_seed
    given |= {name: value for name, value in shared.items() if name in general.said}
    if general.bonus:
        given["agent"] = dict(given.get("agent", {})) | {"bonus": general.bonus}
    given["limits"] = dataclasses.asdict(_limits(given, flags))
    sets_anything = any(map(is_flag, general.unknown)) or {"features", "feature_seed", "bonus"} & general.said
    if not for_help and not sets_anything and not {"algo", "agent", "features"} & given.keys():
        given |= _chosen(given)
    config = RunConfig.from_json(given)
    for text in ignored:  # a mistake is one line
        notice(text)
    return config


def _flagged_environment(unknown: list[str]) -> str:
    """The environment that a flag of another library names, as in `--env-id CartPole-v1`; empty if none does."""
    flags = ("--env-id", "--env", "--env_id", "--gym-id", "--environment", "--task", "-e")
    return next((word for flag, word in itertools.pairwise(unknown) if flag in flags), "")


def _limits(given: Mapping[str, object], flags: TrainFlags) -> "Limits":
    """The limits of the file, overridden by flags."""
    from pcpg.budget import Limits, limits_of

    flagged = dataclasses.asdict(limits_of(flags.steps or None, flags.time or None, flags.until))
    in_file = from_plain(Limits, given.get("limits", {}), "limits")
    return dataclasses.replace(in_file, **{name: value for name, value in flagged.items() if value})


def _chosen(given: Json) -> Json:
    """The algorithm and settings that `pcpg look` chooses for the environment."""
    from pcpg.budget import Limits
    from pcpg.run_config import chosen_by_a_look

    seed = from_plain(int, given.get("seed", 0), "seed")
    return chosen_by_a_look(given["env"], given.get("env_options", {}), Limits(**given["limits"]), seed)


def _check_trusted(given: Mapping[str, object], file: str | None) -> None:
    """Refuse a file whose environment would import an untrusted module."""
    from pcpg.envs.adapters.names import outside_module

    options = given.get("env_options", {})
    module = outside_module(str(given["env"]), options if isinstance(options, Mapping) else {})
    if module is not None:
        raise Mistake(
            f"{file} names the environment {given['env']!r}: creating it would import and run {module}. "
            "If you trust this file, add --trust"
        )


def _environment_first(words: list[str]) -> list[str]:
    """The words with ENV moved to the front, if it is the first known id and not the value of --out."""
    from pcpg.envs.adapters.names import is_adapted
    from pcpg.envs.registry import spec

    if words and not is_flag(words[0]):
        return words
    known = {entry.id for entry in spec()}
    for at, (flag, word) in enumerate(itertools.pairwise(words), start=1):
        if (word in known or is_adapted(word)) and flag != "--out":
            return [word, *words[:at], *words[at + 1 :]]
    return words


def _read_config(path: Path) -> Json:
    """Reads a configuration file: a JSON object, the config.json of a run, or a TOML file with the same entries."""
    read, form = (tomllib.loads, "TOML") if path.suffix == ".toml" else (json.loads, "JSON")
    try:
        data = read(read_file(path).decode())
    except DamagedFile as error:
        raise Mistake(f"--config {error}") from error
    except (ValueError, RecursionError) as error:
        raise Mistake(f"--config {path} is not {form}: {error}") from error
    if isinstance(data, dict) and "format_version" in data:
        data = data.get("content")
    if not isinstance(data, dict):
        raise Mistake(f"--config {path} must hold a JSON object, got a {type(data).__name__}")
    try:
        refuse_nested(data)
    except ValueError as error:
        raise Mistake(f"--config {path} is {error}") from error
    return data
