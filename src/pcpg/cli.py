"""The command line: `pcpg train | resume | evaluate | show | envs`.

Flags come from the fields of frozen dataclasses. With --json one JSON object goes to stdout; everything else a
person is to read goes to stderr. A mistake of the user's is one line on stderr and exit code 2; a run that had to
stop exits with 1, one that Ctrl-C stopped with 130.

What needs JAX is imported where it is used: help and mistakes answer at once.
"""

import dataclasses
import difflib
import functools
import inspect
import json
import os
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pcpg.runs.errors import DiskFull, FolderTaken, RunError
from pcpg.runs.folder import RunFolder

if typing.TYPE_CHECKING:
    from pcpg.agents.run_config import RunConfig

STOPPED = 130
"""Exit code of a run that Ctrl-C interrupted, as shells have it."""

Folder = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR", help="Run folder.")]
Flag = tyro.conf.FlagCreatePairsOff[bool]
JsonFlag = Annotated[Flag, tyro.conf.arg(help="One JSON object on stdout, everything else on stderr.")]


class Mistake(Exception):
    """Something in the command that cannot be done; the message says what was expected."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(stderr=True)
    try:
        code = run_command(arguments, console)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _say_error(console, "stopped", "interrupted")
        code = STOPPED
    except BrokenPipeError:  # whoever read stdout has gone, as in `pcpg envs --json | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        kind, code = _judge(error)
        if kind is None:
            raise
        _say_error(console, kind, str(error))
    sys.exit(code)


def run_command(arguments: list[str], console: Console) -> int:
    """Dispatch to a command; the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _print_help()
        return 0
    if arguments[0] == "--version":
        from pcpg import __version__

        print(__version__)
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.0)[0]
        raise Mistake(f"unknown command {name!r}; did you mean {near!r}? Valid: {', '.join(COMMANDS)}")
    return COMMANDS[name].run(rest, console)


def _judge(error: Exception) -> tuple[str | None, int]:
    """How an error is introduced and the exit code; None for one that is not the user's but a bug."""
    if isinstance(error, DiskFull):
        return "stopped", 1
    if isinstance(error, Mistake | RunError):
        return "error", 2
    # Whatever raised it has loaded these modules already.
    from pcpg.agents.run_config import ConfigError
    from pcpg.agents.state import NonFinite
    from pcpg.envs.options import InvalidOption
    from pcpg.envs.registry import UnknownEnvironment

    if isinstance(error, ConfigError | InvalidOption | UnknownEnvironment):
        return "error", 2
    if isinstance(error, NonFinite):
        return "stopped", 1
    if "RESOURCE_EXHAUSTED" in str(error):
        return "stopped: out of memory; fewer --ppo.num-episodes or --lanes need less", 1
    return None, 1


# train


@dataclasses.dataclass(frozen=True)
class TrainFlags:
    """What `train` takes whatever the environment and the algorithm."""

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Environment; `pcpg envs` lists them, with their options."""
    algo: Literal["pcpg", "pcpg-bonus", "ppo", "ppo-rnd"] = "pcpg"
    """Explore, then exploit; explore with the reward added; PPO; PPO with random network distillation."""
    seeds: int = 1
    """How many seeds, all in one program."""
    seed: int = 0
    """The first seed."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Run folder to make; by default a new one under runs/."""
    config: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """JSON file with settings, or the config.json of a run; flags override its entries."""
    lanes: int = 0
    """Width of the program over seeds; 0 chooses by the device."""
    json: JsonFlag = False


def _train(arguments: list[str], console: Console) -> int:
    with _loading(console):
        from pcpg.agents.run_config import RunConfig
        from pcpg.agents.training import start_run

    given, words = _given_config(arguments, console)
    options = _parse(_train_type(given), words, "pcpg train")
    features = {}
    if hasattr(options, "features"):
        features = {"features": options.features, "feature_seed": options.feature_seed}
        features["feature_options"] = dict(given.feature_options) | dataclasses.asdict(options.phi)
    config = RunConfig(
        env=given.env,
        algo=given.algo,
        agent=options.agent,
        env_options={field.name: getattr(options.env, field.name) for field in dataclasses.fields(options.env)},
        seed=options.seed,
        seeds=options.seeds,
        lanes=options.lanes,
        **features,
    ).resolved()
    folder = start_run(config, options.out) if options.out else _start_in_free_folder(config)
    return _train_folder(folder, console, options.json)


def _given_config(arguments: list[str], console: Console) -> tuple["RunConfig", list[str]]:
    """The settings that decide which other flags there are, and the arguments with ENV in its place."""
    from pcpg.agents.config import PRESETS
    from pcpg.agents.run_config import RunConfig, check_choice

    words = list(arguments)
    file = _value_of(words, "--config")
    given = _read_config(Path(file)) if file else {}
    env_id = _environment_in(words)
    if env_id is not None:
        if given.get("env", env_id) != env_id:
            given.pop("env_options", None)
        given["env"] = env_id
    elif "env" in given:
        words.insert(0, str(given["env"]))
    elif {"-h", "--help"} & set(words):
        given["env"] = "CombinationLock-v0"
    else:
        raise Mistake("name an environment first, as in `pcpg train CombinationLock-v0`; `pcpg envs` lists them")
    algo = _value_of(words, "--algo")
    if algo is not None:
        check_choice("algorithm", algo, PRESETS)
        if given.get("algo", algo) != algo and given.pop("agent", None):
            text = f"--algo {algo}: the agent's settings in {file} are for {given['algo']} and are left out"
            console.print(text, style="yellow", highlight=False, soft_wrap=True)
        given["algo"] = algo
    features = _value_of(words, "--features")
    if features is not None:
        if given.get("features", features) != features:
            given.pop("feature_options", None)
        given["features"] = features
    return RunConfig.from_json(given), words


def _train_type(given: "RunConfig") -> Any:
    """The dataclass of the flags of `train`, for this environment and this algorithm."""
    from pcpg.agents.config import PCPGConfig
    from pcpg.features import FEATURES

    env = given.make_env()
    fields: list[Any] = [("env", type(env), dataclasses.field(default=env))]
    if isinstance(given.agent, PCPGConfig):
        names = Annotated[Literal[tuple(FEATURES)], tyro.conf.arg(help="Feature map phi of the cover's covariance.")]
        seed = Annotated[int, tyro.conf.arg(help="Of the features that are drawn at random; one map for all seeds.")]
        phi = _phi_type(FEATURES[given.features], given.feature_options)
        fields += [
            ("features", names, dataclasses.field(default=given.features)),
            ("feature_seed", seed, dataclasses.field(default=given.feature_seed)),
            ("phi", phi, dataclasses.field(default=phi())),
        ]
    flat = Annotated[type(given.agent), tyro.conf.arg(name="")]
    fields.append(("agent", flat, dataclasses.field(default=given.agent)))
    defaults = {"algo": given.algo, "seeds": given.seeds, "seed": given.seed, "lanes": given.lanes}
    fields += [
        (field.name, field.type, dataclasses.field(default=defaults[field.name]))
        for field in dataclasses.fields(TrainFlags)
        if field.name in defaults
    ]
    made = dataclasses.make_dataclass("Train", fields, bases=(TrainFlags,), frozen=True)
    made.__doc__ = f"Train {given.algo} on {given.env} and leave a run folder behind. Another environment or --algo has other flags."
    return made


def _phi_type(build: Callable[..., Any], given: Any) -> Any:
    """The dataclass of a feature map's own flags: those of its options that a flag can hold."""
    simple = (int, float, bool, str, float | None, int | None)
    fields = [
        (name, option.annotation, dataclasses.field(default=given.get(name, option.default)))
        for name, option in inspect.signature(build).parameters.items()
        if option.kind is option.KEYWORD_ONLY and option.annotation in simple
    ]
    made = dataclasses.make_dataclass("Phi", fields, frozen=True)
    made.__doc__ = "Of the feature map."
    return made


def _environment_in(words: list[str]) -> str | None:
    """ENV: the first argument, or after flags the first that is a known id and no flag's value."""
    from pcpg.envs.registry import spec

    if words and not words[0].startswith("-"):
        return words[0]
    known = {entry.id for entry in spec()}
    found = [word for before, word in zip(words, words[1:], strict=False) if word in known and before != "--out"]
    return found[0] if found else None


def _start_in_free_folder(config: "RunConfig") -> RunFolder:
    """A run in the first free one of runs/ENV-ALGO-1, -2, ..."""
    from pcpg.agents.training import start_run

    number = 1
    while True:
        try:
            return start_run(config, Path("runs") / f"{config.env}-{config.algo}-{number}")
        except FolderTaken:
            number += 1


# resume, evaluate, show, envs


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run, to the same result as if it had never been interrupted."""

    dir: Folder
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        return _train_folder(RunFolder.open(self.dir), console, self.json)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play fresh episodes with the final policy of each seed."""

    dir: Folder
    episodes: int = 100
    """Episodes for each seed."""
    greedy: Flag = False
    """Take the likeliest action instead of a sample."""
    best: Flag = False
    """The best policy by its evaluations in training, instead of the final one."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if self.episodes < 1:
            raise Mistake(f"episodes must be at least 1, got {self.episodes}")
        folder = RunFolder.open(self.dir)
        with _loading(console):
            from pcpg.api import Run
            from pcpg.console import evaluation_table
        run = Run(folder)
        played = run.evaluate(self.episodes, greedy=self.greedy, best=self.best)
        console.print(evaluation_table(run, played))
        result = {
            "run": str(run.path),
            "env": run.config.env,
            "algo": run.config.algo,
            "seeds": run.config.seed_list,
            "episodes": self.episodes,
            "greedy": self.greedy,
            "best": self.best,
            "mean_return": played.mean_return,
            "standard_error": played.standard_error,
            "env_steps": played.env_steps,
        }
        _print_json(result, self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Show:
    """Where the policies of a cover went: visits by cell, for each policy and for the weighted cover."""

    dir: Folder
    seed: int | None = None
    """Which seed; by default the first."""
    png: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Also draw a picture into this file."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        first, count = folder.config["seed"], folder.config["seeds"]
        seed = first if self.seed is None else self.seed
        if seed not in range(first, first + count):
            raise Mistake(f"the run has seeds {first} to {first + count - 1}, got {seed}")
        if self.png and not Path(self.png).resolve().parent.is_dir():
            raise Mistake(f"{self.png}: there is no folder {Path(self.png).parent} to put the picture into")
        with _loading(console):
            from pcpg.console import visits_table
            from pcpg.reports.visits import draw_visits, read_visits
        visits = read_visits(folder, seed)
        console.print(visits_table(visits))
        if self.png:
            draw_visits(visits, Path(self.png))
            console.print(f"picture: {self.png}", highlight=False, soft_wrap=True)
        result = {
            "run": str(folder.path),
            "seed": seed,
            "covered": visits.covered,
            "weights": visits.weights.tolist(),
            "returns": visits.returns.tolist(),
            "visits": visits.counts.tolist(),
        }
        _print_json(result | ({"png": self.png} if self.png else {}), self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments that can be trained on, with their options."""

    all: Flag = False
    """The probes that tests use as well."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        with _loading(console):
            from pcpg.console import envs_table
            from pcpg.envs.registry import spec
        entries = [entry for entry in spec() if self.all or not entry.hidden]
        # What was asked for goes to stdout; with --json that is the object.
        (console if self.json else Console()).print(envs_table(entries))
        listing = [
            {
                "id": entry.id,
                "summary": entry.summary,
                "options": {option.name: None if option.required else option.default for option in entry.options},
                "observation_space": entry.observation_space,
                "action_space": entry.action_space,
                "max_steps": entry.max_steps,
            }
            for entry in entries
        ]
        _print_json({"envs": listing}, self.json)
        return 0


class Command:
    """A command whose flags are the fields of a dataclass."""

    def __init__(self, kind: Any, name: str) -> None:
        self.kind, self.name = kind, name
        self.summary = kind.__doc__.splitlines()[0]

    def run(self, arguments: list[str], console: Console) -> int:
        return _parse(self.kind, arguments, f"pcpg {self.name}")(console)


class TrainCommand:
    """`train`, whose flags depend on the environment and the algorithm."""

    summary = "Train on an environment and leave a run folder behind."

    def run(self, arguments: list[str], console: Console) -> int:
        return _train(arguments, console)


COMMANDS: dict[str, Any] = {
    "train": TrainCommand(),
    "resume": Command(Resume, "resume"),
    "evaluate": Command(Evaluate, "evaluate"),
    "show": Command(Show, "show"),
    "envs": Command(Envs, "envs"),
}


# what the commands share


def _train_folder(folder: RunFolder, console: Console, as_json: bool) -> int:
    say = functools.partial(console.print, highlight=False, soft_wrap=True)
    go_on = f"go on with: pcpg resume {folder.path}"
    try:
        with _loading(console):
            from pcpg.agents.training import train_run
            from pcpg.console import Display, result_table

        with Display(console, folder.config) as display:

            def leave() -> None:
                display.stop()
                say(f"stopped at once; the last checkpoint is whole: {go_on}")
                os._exit(STOPPED)  # a compilation cannot be cancelled, and everything is on disk

            trained = train_run(folder, observer=display, notice=functools.partial(say, style="yellow"), leave=leave)
    except KeyboardInterrupt:
        say(f"stopped; {go_on}")
        return STOPPED
    except DiskFull:
        say(f"make room, then {go_on}")
        raise
    if not trained.finished:
        say(f"stopped; everything so far is saved: {go_on}")
        return STOPPED
    summary = folder.read_summary()
    console.print(result_table(folder))
    say(f"run folder: {folder.path}")
    result = {
        "run": str(folder.path),
        "env": folder.config["env"],
        "algo": folder.config["algo"],
        "seeds": summary["seeds"],
        "env_steps_per_seed": max(summary["env_steps"]),
        "env_steps": summary["env_steps"],
        "policies": summary["policies"],
        "final_return": summary["final_return"],
        # Of this process: a resumed run has spent more before.
        "seconds": trained.seconds + trained.compile_seconds,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": trained.env_steps / trained.seconds if trained.seconds else 0.0,
    }
    _print_json(result, as_json)
    return 0


def _parse(kind: Any, arguments: list[str], program: str) -> Any:
    try:
        return tyro.cli(kind, args=arguments, prog=program, config=(tyro.conf.AvoidSubcommands,))
    except ValueError as error:  # a value that its dataclass refuses
        raise Mistake(str(error)) from error


def _value_of(arguments: list[str], flag: str) -> str | None:
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
    if not isinstance(data, dict):
        raise Mistake(f"--config {path} must hold a JSON object, got a {type(data).__name__}")
    return data["content"] if "content" in data and "format_version" in data else data


def _loading(console: Console) -> Any:
    """Something to see while JAX is imported, which takes seconds."""
    return console.status("loading ...")


def _say_error(console: Console, kind: str, text: str) -> None:
    console.print(f"[bold red]{escape(kind)}:[/] {escape(text)}", highlight=False, soft_wrap=True)


def _print_json(result: dict[str, Any], wanted: bool) -> None:
    if wanted:
        print(json.dumps(result, allow_nan=False))


def _print_help() -> None:
    console = Console()
    console.print("[bold]pcpg[/]: explore an environment with a policy cover, then exploit it.\n", highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(f"  [bold]pcpg {name}[/]", command.summary)
    console.print(table)
    console.print("\n`pcpg COMMAND --help` explains each. A first run, of a minute or two:", highlight=False)
    console.print("  pcpg train CombinationLock-v0 --env.horizon 5 --seeds 4 --out runs/first", highlight=False)
