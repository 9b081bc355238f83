"""The command line: `pcpg train | resume | evaluate | show | envs`.

Flags come from the fields of frozen dataclasses. With --json one JSON object goes to stdout; everything else a
person is to read goes to stderr. A mistake of the user's is one line on stderr and exit code 2.
"""

import dataclasses
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pcpg.agents.config import PRESETS
from pcpg.agents.run_config import ConfigError, RunConfig, check_choice
from pcpg.agents.state import NonFinite
from pcpg.envs.registry import make, spec
from pcpg.runs.errors import RunError
from pcpg.runs.folder import RunFolder

STOPPED = 130
"""Exit code of a run that Ctrl-C interrupted, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(stderr=True)
    try:
        code = run_command(arguments, console)
    except (RunError, ValueError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        code = 2
    except NonFinite as error:
        console.print(f"[bold red]stopped:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        code = 1
    sys.exit(code)


def run_command(arguments: list[str], console: Console) -> int:
    """Dispatch to a command; the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_help(console)
        return 0
    if arguments[0] == "--version":
        from pcpg import __version__

        print(__version__)
        return 0
    name, rest = arguments[0], arguments[1:]
    check_choice("command", name, COMMANDS)
    return COMMANDS[name].run(rest, console)


# train


def _train(arguments: list[str], console: Console) -> int:
    env_id, algo, given, rest = _split_train(arguments)
    options = _parse(_train_type(env_id, algo, given), rest, "pcpg train ENV")
    config = RunConfig(
        env=env_id,
        algo=algo,
        agent=dataclasses.replace(
            given.agent, **{f.name: getattr(options, f.name) for f in dataclasses.fields(given.agent)}
        ),
        env_options=dataclasses.asdict(options.env),
        features=options.features,
        feature_options=dict(given.feature_options),
        seed=options.seed,
        seeds=options.seeds,
        lanes=options.lanes,
    ).resolved()
    from pcpg.agents.training import start_run

    out = options.out or _free_folder(f"runs/{env_id}-{algo}")
    return _train_folder(start_run(config, out), console, options.json)


def _split_train(arguments: list[str]) -> tuple[str, str, RunConfig, list[str]]:
    """The environment, the algorithm and the base configuration, which decide what other flags there are."""
    rest = list(arguments)
    file = _take_flag(rest, "--config")
    base = _read_config(Path(file)) if file else {}
    wants_help = any(flag in rest for flag in ("-h", "--help"))
    if rest and not rest[0].startswith("-"):
        base["env"] = rest.pop(0)
    if "env" not in base:
        if not wants_help:
            raise ConfigError("name an environment, as in `pcpg train CombinationLock-v0`; `pcpg envs` lists them")
        base["env"] = "CombinationLock-v0"
    algo = _take_flag(rest, "--algo")
    if algo is not None:
        check_choice("algorithm", algo, PRESETS)
        if base.get("algo", algo) != algo:
            base.pop("agent", None)
        base["algo"] = algo
    # Options that the flags will give are not known yet: only those of the file are checked here.
    config = RunConfig.from_json(base)
    return config.env, config.algo, config, rest


def _train_type(env_id: str, algo: str, given: RunConfig) -> Any:
    """The dataclass of the flags of `train`, for this environment and this algorithm."""
    env = make(env_id, **given.env_options)
    fields: list[Any] = [
        ("env", type(env), dataclasses.field(default=env)),
        ("seeds", int, dataclasses.field(default=given.seeds)),
        ("seed", int, dataclasses.field(default=given.seed)),
        ("out", str, dataclasses.field(default="")),
        ("features", str, dataclasses.field(default=given.features)),
        ("lanes", int, dataclasses.field(default=given.lanes)),
        ("json", bool, dataclasses.field(default=False)),
    ]
    fields += [
        (field.name, field.type, dataclasses.field(default=getattr(given.agent, field.name)))
        for field in dataclasses.fields(given.agent)
    ]
    made = dataclasses.make_dataclass("Train", fields, frozen=True)
    made.__doc__ = (
        f"Train {algo} on {env_id}. Also: --algo {{{','.join(PRESETS)}}} and --config FILE, whose entries the flags "
        "override.\n\nArgs:\n    env: Options of the environment.\n    seeds: How many seeds, all in one program.\n"
        "    seed: The first seed.\n    out: Run folder to make; by default a new one under runs/.\n"
        "    features: Feature map phi of the cover's covariance; auto chooses by the observations.\n"
        "    lanes: Width of the program over seeds; 0 chooses by the device.\n"
        "    json: One JSON object on stdout, everything else on stderr."
    )
    return made


# resume, evaluate, show, envs


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run; the result is the same as if it had never been interrupted."""

    dir: tyro.conf.Positional[str]
    """Run folder."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __call__(self, console: Console) -> int:
        return _train_folder(RunFolder.open(self.dir), console, self.json)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play fresh episodes with the final policy of each seed."""

    dir: tyro.conf.Positional[str]
    """Run folder."""
    episodes: int = 100
    """Episodes for each seed."""
    greedy: bool = False
    """Take the likeliest action instead of a sample."""
    best: bool = False
    """The best policy by its evaluations in training, instead of the final one."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __call__(self, console: Console) -> int:
        from pcpg.api import load

        run = load(self.dir)
        returns = run.evaluate(self.episodes, greedy=self.greedy, best=self.best)
        solved = run.env.solved_return
        table = Table("seed", "mean return", "standard error", *(["solved"] if solved is not None else []))
        for seed, row in zip(run.config.seed_list, returns.returns, strict=True):
            error = row.std() / len(row) ** 0.5
            mark = [] if solved is None else ["yes" if row.mean() > solved else "no"]
            table.add_row(str(seed), f"{row.mean():.3f}", f"{error:.3f}", *mark)
        console.print(table)
        result = {
            "env": run.config.env,
            "algo": run.config.algo,
            "seeds": run.config.seed_list,
            "episodes": self.episodes,
            "greedy": self.greedy,
            "mean_return": returns.mean_return,
        }
        _print_json(result, self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Show:
    """Where the policies of a cover went: visits by cell for each policy, and for the weighted cover."""

    dir: tyro.conf.Positional[str]
    """Run folder, finished or not."""
    seed: int | None = None
    """Which seed; by default the first."""
    png: str = ""
    """Also draw a picture into this file."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __call__(self, console: Console) -> int:
        from pcpg.console import visits_table
        from pcpg.reports.visits import draw_visits, read_visits

        folder = RunFolder.open(self.dir)
        first, count = folder.config["seed"], folder.config["seeds"]
        seed = first if self.seed is None else self.seed
        if seed not in range(first, first + count):
            raise ConfigError(f"the run has seeds {first} to {first + count - 1}, got {seed}")
        visits = read_visits(folder, seed)
        console.print(visits_table(visits))
        if self.png:
            draw_visits(visits, Path(self.png))
            console.print(f"picture: {self.png}", highlight=False)
        result = {
            "run": str(folder.path),
            "seed": seed,
            "covered": visits.covered,
            "weights": visits.weights.tolist(),
            "returns": visits.returns.tolist(),
            "visits": visits.counts.tolist(),
        }
        _print_json(result, self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments that can be trained on, with their options."""

    all: bool = False
    """The probes that tests use as well."""
    json: bool = False
    """One JSON object on stdout, everything else on stderr."""

    def __call__(self, console: Console) -> int:
        entries = [entry for entry in spec() if self.all or not entry.hidden]
        table = Table("environment", "what it is", "options", "observations", "actions")
        for entry in entries:
            options = ", ".join(str(option) for option in entry.options)
            table.add_row(entry.id, entry.summary, options, entry.observation_space, entry.action_space)
        console.print(table)
        listing = [
            {
                "id": entry.id,
                "summary": entry.summary,
                "options": {option.name: None if option.required else option.default for option in entry.options},
                "observation_space": entry.observation_space,
                "action_space": entry.action_space,
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
    from pcpg.agents.training import train_run
    from pcpg.console import Display, result_table

    title = f"{folder.config['algo']} on {folder.config['env']}"
    notice = functools.partial(console.print, style="yellow", highlight=False)
    with Display(console, title) as display:
        trained = train_run(folder, observer=display, notice=notice)
    if not trained.finished:
        console.print(f"stopped; everything so far is saved. Go on with: pcpg resume {folder.path}", highlight=False)
        return STOPPED
    summary = folder.read_summary()
    console.print(result_table(folder))
    console.print(f"run folder: {folder.path}", highlight=False)
    result = {
        "run": str(folder.path),
        "env": folder.config["env"],
        "algo": folder.config["algo"],
        "seeds": summary["seeds"],
        "env_steps_per_seed": max(summary["env_steps"]),
        "env_steps": summary["env_steps"],
        "policies": summary["policies"],
        "final_return": summary["final_return"],
        "seconds": trained.seconds + trained.compile_seconds,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": trained.env_steps / trained.seconds if trained.seconds else None,
    }
    _print_json(result, as_json)
    return 0


def _parse(kind: Any, arguments: list[str], program: str) -> Any:
    return tyro.cli(kind, args=arguments, prog=program, config=(tyro.conf.AvoidSubcommands,))


def _take_flag(arguments: list[str], flag: str) -> str | None:
    """Remove `flag VALUE` or `flag=VALUE` from the arguments; its value."""
    for index, argument in enumerate(arguments):
        if argument == flag:
            if index + 1 == len(arguments):
                raise ConfigError(f"{flag} needs a value")
            del arguments[index]
            return arguments.pop(index)
        if argument.startswith(f"{flag}="):
            return arguments.pop(index).split("=", 1)[1]
    return None


def _read_config(path: Path) -> dict[str, Any]:
    """A configuration file: a plain JSON object, or the config.json of a run."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a JSON object")
    return data["content"] if "content" in data and "format_version" in data else data


def _free_folder(stem: str) -> str:
    """The first of STEM-1, STEM-2, ... that does not exist."""
    number = 1
    while Path(f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"


def _print_json(result: dict[str, Any], wanted: bool) -> None:
    if wanted:
        print(json.dumps(result, allow_nan=False))


def _print_help(console: Console) -> None:
    table = Table(title="pcpg COMMAND ... ; each has --help", box=None)
    for name, command in COMMANDS.items():
        table.add_row(name, command.summary)
    console.print(table)
