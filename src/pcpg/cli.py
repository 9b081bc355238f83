"""The command line: `pcpg train | resume | evaluate | show | envs`.

Flags come from the fields of frozen dataclasses. With --json one JSON object goes to stdout; everything else a
person is to read goes to stderr. A mistake of the user's is one line on stderr and exit code 2; a run that had to
stop exits with 1, one that Ctrl-C stopped with 130. PCPG_TRACEBACK=1 shows where an error came from.

What needs JAX is imported where it is used: help and mistakes answer at once.
"""

import dataclasses
import difflib
import functools
import importlib
import json
import os
import sys
import traceback
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pcpg.flags import Flag, JsonFlag, Mistake, parse, read_train_flags
from pcpg.runs.errors import DiskFull, FolderTaken, RunError
from pcpg.runs.folder import RunFolder

if typing.TYPE_CHECKING:
    from pcpg.agents.run_config import RunConfig

STOPPED = 130
"""Exit code of a run that Ctrl-C interrupted, as shells have it."""

Folder = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR", help="Run folder.")]


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
    if os.environ.get("PCPG_TRACEBACK"):
        return None, 1
    if isinstance(error, DiskFull):
        return "stopped", 1
    if isinstance(error, Mistake | RunError) or (isinstance(error, ValueError) and _is_our_refusal(error)):
        return "error", 2
    from pcpg.agents.state import NonFinite

    if isinstance(error, NonFinite):
        return "stopped", 1
    if "RESOURCE_EXHAUSTED" in str(error):
        return "stopped: out of memory; fewer --ppo.num-episodes or --lanes need less", 1
    return None, 1


def _is_our_refusal(error: Exception) -> bool:
    """Whether this package raised the error itself: what JAX or NumPy refuse in the middle of things is a bug."""
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename).is_relative_to(Path(__file__).parent)


# train


def _train(arguments: list[str], console: Console) -> int:
    with _loading(console):
        from pcpg.agents.training import start_run

    notice = functools.partial(console.print, style="yellow", highlight=False, soft_wrap=True)
    config, flags = read_train_flags(arguments, notice)
    folder = start_run(config, flags.out) if flags.out else _start_in_free_folder(config)
    return _train_folder(folder, console, flags.json)


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
        _answer(console, self.json).print(evaluation_table(run, played))
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
        _answer(console, self.json).print(visits_table(visits))
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
        _answer(console, self.json).print(envs_table(entries))
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
        return parse(self.kind, arguments, f"pcpg {self.name}")(console)


class TrainCommand:
    """`train`, whose flags depend on the environment and the algorithm."""

    summary = "Train on an environment and leave a run folder behind."

    def run(self, arguments: list[str], console: Console) -> int:
        return _train(arguments, console)


class Group:
    """A command of commands, such as `pcpg reproduce lock`; each is loaded when it is asked for."""

    def __init__(self, name: str, summary: str, members: dict[str, str]) -> None:
        self.name, self.summary, self.members = name, summary, members

    def run(self, arguments: list[str], console: Console) -> int:
        if not arguments or arguments[0] in ("-h", "--help"):
            for member in self.members:
                console.print(f"  pcpg {self.name} {member} --help", highlight=False)
            return 0
        member = arguments[0]
        if member not in self.members:
            near = difflib.get_close_matches(member, self.members, n=1, cutoff=0.0)[0]
            valid = ", ".join(self.members)
            raise Mistake(f"unknown command 'pcpg {self.name} {member}'; did you mean {near!r}? Valid: {valid}")
        module, _, kind = self.members[member].partition(":")
        with _loading(console):
            loaded = getattr(importlib.import_module(module), kind)
        return self.execute(parse(loaded, arguments[1:], f"pcpg {self.name} {member}"), console)

    def execute(self, command: Any, console: Console) -> int:
        return command(console)


class TheoryGroup(Group):
    """Commands that give back a result and know how to show it."""

    def execute(self, command: Any, console: Console) -> int:
        try:
            result = command()
        except ValueError as error:
            raise Mistake(str(error)) from error
        if not command.json:
            command.render(result)
        _print_json(result, command.json)
        return 0


COMMANDS: dict[str, Any] = {
    "train": TrainCommand(),
    "resume": Command(Resume, "resume"),
    "evaluate": Command(Evaluate, "evaluate"),
    "show": Command(Show, "show"),
    "envs": Command(Envs, "envs"),
    "reproduce": Group(
        "reproduce",
        "Reproduce a claim of the paper, with its table and figures.",
        {
            "lock": "pcpg.experiments.lock.command:ReproduceLock",
            "maze": "pcpg.experiments.maze.command:ReproduceMaze",
            "mountaincar": "pcpg.experiments.mountaincar.command:ReproduceMountainCar",
        },
    ),
    "theory": TheoryGroup(
        "theory",
        "The provable algorithm on small MDPs, and the numbers of its theorem.",
        {
            "run": "pcpg.theory.commands:Run",
            "parameters": "pcpg.theory.commands:Parameters",
            "tree": "pcpg.theory.example_commands:Tree",
            "aggregation": "pcpg.theory.example_commands:Aggregation",
            "kernel": "pcpg.theory.example_commands:Kernel",
        },
    ),
}


# what the commands share


def _train_folder(folder: RunFolder, console: Console, as_json: bool) -> int:
    say = functools.partial(console.print, highlight=False, soft_wrap=True)
    go_on = f"go on with: pcpg resume {folder.path}"
    try:
        with _loading(console):
            from pcpg.agents.training import train_run
            from pcpg.console import Display, result_table, title_of

        with Display(console, title_of(folder.config)) as display:

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
    answer = _answer(console, as_json)
    answer.print(result_table(folder))
    answer.print(f"run folder: {folder.path}", highlight=False, soft_wrap=True)
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


def _answer(console: Console, as_json: bool) -> Console:
    """Where the answer for a person goes: to stdout, unless that is the JSON object's."""
    return console if as_json else Console()


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
