"""The flags of the command line, made from dataclasses; those of `train` depend on environment and algorithm.

What needs JAX is imported where it is used: help and mistakes answer at once.
"""

import dataclasses
import inspect
import itertools
import json
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from pcpg.cli.hints import advice, argument_help, flags_of

if typing.TYPE_CHECKING:
    from pcpg.practice.budget import Limits
    from pcpg.run_config import RunConfig

Flag = tyro.conf.FlagCreatePairsOff[bool]
Folder = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR", help="Run folder.")]
JsonFlag = Annotated[Flag, tyro.conf.arg(help="Print one JSON object to stdout; everything else goes to stderr.")]
StepsFlag = Annotated[str, tyro.conf.arg(metavar="STEPS")]
TimeFlag = Annotated[str, tyro.conf.arg(metavar="TIME")]
TrustFlag = Annotated[
    Flag, tyro.conf.arg(help="Make an environment of a module that the folder names: you know where it comes from.")
]
LogFlag = Annotated[
    tuple[Literal["tensorboard", "wandb"], ...],
    tyro.conf.arg(help="Log to these besides metrics.jsonl; each needs the extra of its name."),
]
OnFlag = Annotated[str, tyro.conf.arg(metavar="local|ray|ray://HOST:PORT")]
StorageFlag = Annotated[
    Literal["auto", "shared", "ray"],
    tyro.conf.arg(help="How runs come back from other machines: on storage that all see, or through Ray."),
]


HELP_ALL = "--help-all"


class Mistake(Exception):
    """A command that cannot be carried out; the message says what was expected."""


def parse(kind: Any, arguments: list[str], program: str) -> Any:
    """A dataclass from arguments; --help and unknown flags end the process with a message."""
    config = (tyro.conf.AvoidSubcommands,)
    try:
        made, unknown = tyro.cli(kind, args=arguments, prog=program, config=config, return_unknown_args=True)
    except ValueError as error:  # a value that its dataclass refuses
        raise Mistake(str(error)) from error
    if unknown:
        hint = advice(unknown, flags_of(kind))
        raise Mistake(f"Unrecognized options: {', '.join(unknown)}{f'; {hint}' if hint else ''} (see {program} --help)")
    return made


@dataclasses.dataclass(frozen=True)
class TrainFlags:
    """The flags of `train` that every environment and algorithm has."""

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment id; `pcpg envs` lists them with their options. Others': gymnasium:ID, bsuite:NAME, gymnax:NAME."""
    algo: str = "auto"
    """Algorithm."""
    seeds: int = 1
    """Number of seeds, all trained in one program."""
    seed: int = 0
    """The first seed."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Run folder to create; by default a new one under runs/."""
    config: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """JSON file with settings, or a run's config.json; flags override its entries."""
    steps: StepsFlag = ""
    """Environment steps of each seed, as in 500k, 1M or 2.5M; the schedule of rounds follows from it."""
    time: TimeFlag = ""
    """Time for the whole run, as in 90s, 10m or 1.5h; the result then depends on the machine."""
    until: float | None = None
    """End a seed when a policy's mean return over its counted episodes is at least this."""
    trust: TrustFlag = False
    lanes: int = 0
    """How many seeds run side by side; 0 chooses by the device."""
    devices: int = 0
    """Over how many devices seeds are spread; 0: all that JAX sees. The result is the same."""
    workers: int | None = None
    """Processes that play the episodes of an environment which is stepped on the host; short for --env.workers."""
    on: OnFlag = "local"
    """Where these are: processes of this machine, or actors on a Ray cluster; the result is the same."""
    log: LogFlag = ()
    json: JsonFlag = False


def read_train_flags(arguments: list[str], notice: Callable[[str], None]) -> tuple["RunConfig", TrainFlags]:
    """The configuration that the arguments of `train` ask for, checked, and the flags beside it."""
    from pcpg.run_config import RunConfig

    wanted = {"-h", "--help", HELP_ALL} & set(arguments)
    given, words = _given_config([word for word in arguments if word not in wanted], notice, for_help=bool(wanted))
    if wanted:
        parse(_train_type(given, short=HELP_ALL not in wanted), [*words, "--help"], "pcpg train")
    flags = parse(_train_type(given), words, "pcpg train")
    features = {}
    if hasattr(flags, "features"):
        options = dict(given.feature_options) | dataclasses.asdict(flags.phi)
        features = {"features": flags.features, "feature_seed": flags.feature_seed, "feature_options": options}
    config = RunConfig(
        env=given.env,
        algo=given.algo,
        agent=flags.agent,
        env_options=_env_options(flags, given) | _workers(flags, given),
        seed=flags.seed,
        seeds=flags.seeds,
        lanes=flags.lanes,
        limits=_limits(flags, given),
        looked=given.looked,
        **features,
    )
    return config.resolved(), flags


def _workers(flags: TrainFlags, given: "RunConfig") -> dict[str, Any]:
    """How many processes play episodes, where that is said, and an environment that has any use for them."""
    from pcpg.envs.adapters.names import is_on_host
    from pcpg.envs.adapters.places import LOCAL, check_place

    check_place(flags.on)
    if not is_on_host(given.env) and (flags.workers is not None or flags.on != LOCAL):
        raise Mistake(f"{given.env} is compiled, and plays its episodes where it learns: it has no workers")
    workers = given.env_options.get("workers", 0) if flags.workers is None else flags.workers
    if flags.on != LOCAL and not workers:
        raise Mistake(f"--on {flags.on} is where workers are: say how many, as in --workers 8")
    return {} if flags.workers is None else {"workers": workers}


def _limits(flags: TrainFlags, given: "RunConfig") -> "Limits":
    """Those of the flags, and of the file where there is no flag."""
    from pcpg.api import limits_of

    flagged = limits_of(flags.steps or None, flags.time or None, flags.until)
    changes = {name: value for name, value in dataclasses.asdict(flagged).items() if value}
    return dataclasses.replace(given.limits, **changes)


def _given_config(
    arguments: list[str], notice: Callable[[str], None], *, for_help: bool = False
) -> tuple["RunConfig", list[str]]:
    """The settings that decide which other flags there are, and the arguments with ENV among them."""
    from pcpg.envs.adapters.names import is_adapted, outside_module
    from pcpg.run_config import RunConfig

    words = _without_auto(arguments)
    file = value_of(words, "--config")
    given = _read_config(Path(file)) if file else {}
    env_id = _environment_in(words)
    if env_id is None and "env" in given:
        words.insert(0, str(given["env"]))
    elif env_id is None and for_help:
        env_id = "CombinationLock-v0"
    elif env_id is None:
        raise Mistake("name an environment first, as in `pcpg train CombinationLock-v0`; `pcpg envs` lists them")
    # Another environment, algorithm or feature map than the file's has other settings.
    for entry, settings, value in (
        ("env", "env_options", env_id),
        ("algo", "agent", value_of(words, "--algo")),
        ("features", "feature_options", value_of(words, "--features")),
    ):
        if value is None:
            continue
        if given.get(entry, value) != value and given.pop(settings, None):
            notice(f"{value}: '{settings}' in {file} belongs to {given[entry]} and is left out")
        given[entry] = value
    if env_id is None and "--trust" not in words:
        options = given.get("env_options", {})
        module = outside_module(str(given["env"]), options if isinstance(options, Mapping) else {})
        if module is not None:
            raise Mistake(
                f"{file} names the environment {given['env']!r}: making it would import {module}, and with it run "
                "code. If you know where the file comes from, add --trust"
            )
    if is_adapted(str(given["env"])):
        options, words = free_options(words)
        given["env_options"] = dict(given.get("env_options", {})) | options
    if "algo" not in given and not for_help and not _sets_anything(words) and not {"agent", "features"} & given.keys():
        given |= _chosen(given, words)
    return RunConfig.from_json(given), words


def _without_auto(arguments: list[str]) -> list[str]:
    """The arguments without `--algo auto`, which is what happens where none is named."""
    words = [word for word in arguments if word != "--algo=auto"]
    while ("--algo", "auto") in itertools.pairwise(words):
        at = list(itertools.pairwise(words)).index(("--algo", "auto"))
        words[at : at + 2] = []
    return words


def _sets_anything(words: list[str]) -> bool:
    """Whether an argument is a setting of an algorithm, which only the one has that it belongs to."""
    known = {field.name for field in dataclasses.fields(TrainFlags)}
    names = (word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--"))
    return any(name.replace("-", "_") not in known for name in names)


def _chosen(given: Mapping[str, Any], words: list[str]) -> dict[str, Any]:
    """What a look at the environment chooses, for the budget that is asked for."""
    from pcpg.api import limits_of
    from pcpg.config import from_plain
    from pcpg.practice.budget import Limits
    from pcpg.run_config import chosen_by_a_look

    asked = limits_of(value_of(words, "--steps"), value_of(words, "--time"), None)
    in_file = from_plain(Limits, given.get("limits", {}), "limits")
    limits = asked if asked.steps or asked.seconds else in_file
    seed = value_of(words, "--seed") or str(given.get("seed", 0))
    return chosen_by_a_look(given["env"], given.get("env_options", {}), limits, int(seed) if seed.isdigit() else 0)


def free_options(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The flags `--env.KEY VALUE` of an environment of another library, whose options are not known here; the rest."""
    options, rest, index = {}, [], 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        if not name.startswith("--env."):
            rest.append(words[index])
        else:
            if not equals:
                index += 1
                if index == len(words):
                    raise Mistake(f"{name} needs a value")
                value = words[index]
            options[name.removeprefix("--env.").replace("-", "_")] = _literal(value)
        index += 1
    return options, rest


def _literal(text: str) -> Any:
    """A value as it is written in JSON or in Python; else the text itself."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _env_options(flags: Any, given: "RunConfig") -> dict[str, Any]:
    if not hasattr(flags, "env"):
        return dict(given.env_options)
    return {field.name: getattr(flags.env, field.name) for field in dataclasses.fields(flags.env)}


def _train_type(given: "RunConfig", *, short: bool = False) -> Any:
    """The dataclass of the flags of `train`, for this environment and this algorithm; the short one is for help."""
    from pcpg.algorithms import ALGORITHMS
    from pcpg.config import PCPGConfig
    from pcpg.envs.adapters.names import is_adapted
    from pcpg.features import FEATURES

    env = given.make_env()
    fields: list[Any] = []
    about = "Other environments and algorithms have other flags: name them before --help."
    if is_adapted(given.env):
        listing = ", ".join(f"{name} ({value})" for name, value in given.env_options.items())
        about += f" Set the environment's options with --env.KEY VALUE; now: {listing}."
    else:
        fields.append(("env", type(env), dataclasses.field(default=env)))
    if isinstance(given.agent, PCPGConfig):
        names = Annotated[Literal[tuple(FEATURES)], tyro.conf.arg(help="Feature map phi of the cover's covariances.")]
        seed = Annotated[int, tyro.conf.arg(help="Seed of a random feature map; one map serves all seeds.")]
        phi = _phi_type(FEATURES[given.features], given.feature_options)
        fields += [
            ("features", names, dataclasses.field(default=given.features)),
            ("feature_seed", seed, dataclasses.field(default=given.feature_seed)),
            *([] if short else [("phi", phi, dataclasses.field(default=phi()))]),
        ]
    without_prefix = Annotated[type(given.agent), tyro.conf.arg(name="")]
    if short:
        parts = [field.name for field in dataclasses.fields(given.agent)]
        about += f" Every other setting ({', '.join(parts)} and those of the features): {HELP_ALL}."
    else:
        fields.append(("agent", without_prefix, dataclasses.field(default=given.agent)))
    about_algos = "auto: pcpg, or on the host what a look chooses; " + "; ".join(
        f"{name}: {algorithm.about}" for name, algorithm in ALGORITHMS.items()
    )
    algos = Annotated[Literal["auto", *ALGORITHMS], tyro.conf.arg(help=f"{about_algos}.")]
    fields.append(("algo", algos, dataclasses.field(default=given.algo)))
    fields += [
        (field.name, field.type, dataclasses.field(default=getattr(given, field.name)))
        for field in dataclasses.fields(TrainFlags)
        if field.name in ("seeds", "seed", "lanes")
    ]
    made = dataclasses.make_dataclass("Train", fields, bases=(TrainFlags,), frozen=True)
    made.__doc__ = f"Train {given.algo} on {given.env} and write a run folder.\n\n{about}"
    return made


def _phi_type(build: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """The dataclass of a feature map's own flags: those of its options that a flag can hold."""
    simple = (int, float, bool, str, float | None, int | None)
    said = argument_help(build)
    fields: list[Any] = [
        (
            name,
            Annotated[option.annotation, tyro.conf.arg(help=said.get(name))],
            dataclasses.field(default=given.get(name, option.default)),
        )
        for name, option in inspect.signature(build).parameters.items()
        if option.kind is option.KEYWORD_ONLY and option.annotation in simple
    ]
    made = dataclasses.make_dataclass("Phi", fields, frozen=True)
    made.__doc__ = "Feature-map options."
    return made


def _environment_in(words: list[str]) -> str | None:
    """ENV: the first argument, or after flags the first that is a known id and no folder's name."""
    from pcpg.envs.adapters.names import is_adapted
    from pcpg.envs.registry import spec

    if words and not words[0].startswith("-"):
        return words[0]
    known = {entry.id for entry in spec()}
    pairs = itertools.pairwise(words)
    return next((word for flag, word in pairs if (word in known or is_adapted(word)) and flag != "--out"), None)


def value_of(arguments: list[str], flag: str) -> str | None:
    """The value of a flag, given as `flag VALUE` or `flag=VALUE`; of the last one, where there are several."""
    value = None
    for index, argument in enumerate(arguments):
        if argument == flag:
            if index + 1 == len(arguments) or arguments[index + 1].startswith("--"):
                raise Mistake(f"{flag} needs a value")
            value = arguments[index + 1]
        elif argument.startswith(f"{flag}="):
            value = argument.split("=", 1)[1]
    return value


def _read_config(path: Path) -> dict[str, Any]:
    """A configuration file: a plain JSON object, or the config.json of a run."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mistake(f"--config {path}: {error.strerror}") from error
    except ValueError as error:
        raise Mistake(f"--config {path} is not JSON: {error}") from error
    if isinstance(data, dict) and "format_version" in data:
        data = data.get("content")
    if not isinstance(data, dict):
        raise Mistake(f"--config {path} must hold a JSON object, got a {type(data).__name__}")
    return data
