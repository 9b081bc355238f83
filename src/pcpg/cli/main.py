"""The command line: which commands there are, their help, and how errors are told.

Flags come from the fields of frozen dataclasses. With --json one JSON object goes to stdout; everything else a
person is to read goes to stderr. A user's mistake is one line on stderr. PCPG_TRACEBACK=1 shows where an error came
from.

    0    done                                    130  stopped by Ctrl-C, after the round or at once
    1    a run had to stop, or is damaged        143  stopped by SIGTERM
    2    a mistake in the command or a file      129  stopped by SIGHUP
    3    done, but some seeds failed

A command is loaded when it is asked for: help and mistakes answer at once.
"""

import contextlib
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pcpg.cli.display import STOPPED, loading, print_json
from pcpg.cli.flags import Mistake, parse
from pcpg.experiments import EXPERIMENTS
from pcpg.runs.errors import DiskFull, RunError
from pcpg.training.display import printable, reader_has_gone


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(stderr=True)
    code = 1
    try:
        code = run_command(arguments, console)
    except KeyboardInterrupt:
        _say_error(console, "stopped", "interrupted")
        code = STOPPED
    except BrokenPipeError:
        if not reader_has_gone(sys.stdout) and not reader_has_gone(sys.stderr):
            raise  # another pipe: that of a simulator or a worker
        _silence()
        code = code or 1
    except Exception as error:
        kind, code = _judge(error)
        if kind is None:
            raise
        _say_error(console, kind, str(error))
    try:
        sys.stdout.flush()
    except OSError as error:  # a full disk behind it: what was asked for is on disk, but nobody can read the answer
        _say_error(console, "error", f"cannot write to stdout: {error.strerror}")
        _silence()
        code = code or 1
    sys.exit(code)


def _silence() -> None:
    """Send what is still to be written to nowhere: Python flushes at its end and would complain."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if reader_has_gone(stream) or stream is sys.stdout:
            os.dup2(null, stream.fileno())


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
    return COMMANDS[name].run(name, rest, console)


def _judge(error: Exception) -> tuple[str | None, int]:
    """How an error is introduced and the exit code; None for one that is not the user's but a bug."""
    if os.environ.get("PCPG_TRACEBACK"):
        return None, 1
    if isinstance(error, DiskFull):
        return "stopped", 1
    if isinstance(error, Mistake | RunError) or (isinstance(error, ValueError) and _is_our_refusal(error)):
        return "error", 2
    from pcpg.envs.host import EnvironmentFailed
    from pcpg.state import NonFinite

    if isinstance(error, NonFinite | EnvironmentFailed):
        return "stopped", 1
    if "RESOURCE_EXHAUSTED" in str(error):
        return "stopped: out of memory; try fewer --ppo.num-episodes or --lanes", 1
    return None, 1


def _is_our_refusal(error: Exception) -> bool:
    """Whether this package raised the error itself: what JAX or NumPy refuse in the middle of things is a bug."""
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])


# the kinds of commands


class Command:
    """A command whose flags are the fields of a dataclass, named as `module:Class`."""

    def __init__(self, home: str, summary: str) -> None:
        self.home, self.summary = home, summary

    def run(self, name: str, arguments: list[str], console: Console) -> int:
        return parse(_load(self.home), arguments, f"pcpg {name}")(console)


class FreeCommand(Command):
    """A command that reads its arguments itself, since its flags depend on the first; named as `module:function`."""

    def run(self, name: str, arguments: list[str], console: Console) -> int:
        return _load(self.home)(arguments, console)


class Group:
    """A command of commands, such as `pcpg reproduce lock`, each named as `module:Class`."""

    def __init__(self, summary: str, members: dict[str, str]) -> None:
        self.summary, self.members = summary, members

    def run(self, name: str, arguments: list[str], console: Console) -> int:
        if not arguments or arguments[0] in ("-h", "--help"):
            for member in self.members:
                console.print(f"  pcpg {name} {member} --help", highlight=False)
            return 0
        member = arguments[0]
        if member not in self.members:
            near = difflib.get_close_matches(member, self.members, n=1, cutoff=0.0)[0]
            valid = ", ".join(self.members)
            raise Mistake(f"unknown command 'pcpg {name} {member}'; did you mean {near!r}? Valid: {valid}")
        with loading(console):
            kind = self.load(self.members[member])
        return self.execute(parse(kind, arguments[1:], f"pcpg {name} {member}"), console)

    def load(self, home: str) -> Any:
        return _load(home)

    def execute(self, command: Any, console: Console) -> int:
        return command(console)


class ExperimentGroup(Group):
    """Experiments, which know nothing of the command line."""

    def load(self, home: str) -> Any:
        from pcpg.cli.reproduce import command_of

        found = _load(home)
        return found if isinstance(found, type) else command_of(found)


class TheoryGroup(Group):
    """Commands that give back a result and know how to show it."""

    def execute(self, command: Any, console: Console) -> int:
        try:
            result = command()
        except ValueError as error:
            raise Mistake(str(error)) from error
        if not command.json:
            command.render(result)
        print_json(result, command.json)
        return 0


def _load(home: str) -> Any:
    module, _, kind = home.partition(":")
    return getattr(importlib.import_module(module), kind)


# A new command is a line here and a dataclass there.
COMMANDS: dict[str, Command | Group] = {
    "train": FreeCommand("pcpg.cli.train:train", "Train on an environment and write a run folder."),
    "exploit": FreeCommand("pcpg.cli.train:exploit", "Train on the cover of a finished run, for any reward."),
    "sweep": Command("pcpg.cli.sweep:Sweep", "Run many cells, here or on many machines; `sweep status DIR` looks."),
    "tune": Command("pcpg.cli.tune:Tune", "Find good settings with Optuna, each trial a cell."),
    "resume": Command("pcpg.cli.train:Resume", "Resume an interrupted run, with the same result."),
    "evaluate": Command("pcpg.cli.inspect:Evaluate", "Play fresh episodes with the final policy of each seed."),
    "show": Command("pcpg.cli.inspect:Show", "Show where the policies of a cover went: visits by grid cell."),
    "verify": Command("pcpg.cli.inspect:Verify", "Say what of a run folder is whole, and what a damage costs."),
    "report": Command("pcpg.cli.inspect:Report", "Write a report of one or more runs as an HTML page."),
    "video": Command("pcpg.cli.inspect:Video", "Record episodes of a policy as a GIF or an MP4."),
    "export": Command("pcpg.cli.inspect:Export", "Save episodes of a run as a Minari dataset."),
    "look": FreeCommand("pcpg.cli.look:look", "Play an environment at random and say what it is like."),
    "envs": Command("pcpg.cli.inspect:Envs", "List the environments that can be trained on, with their options."),
    "reproduce": ExperimentGroup("Reproduce a claim of the paper, with its table and figures.", EXPERIMENTS),
    "theory": TheoryGroup(
        "The provable algorithm on small MDPs, and the numbers of its theorem.",
        {
            "run": "pcpg.cli.theory:RunCommand",
            "parameters": "pcpg.cli.theory:ParametersCommand",
            "tree": "pcpg.cli.theory_examples:TreeCommand",
            "aggregation": "pcpg.cli.theory_examples:AggregationCommand",
            "kernel": "pcpg.cli.theory_examples:KernelCommand",
            "compare": "pcpg.cli.theory_compare:CompareCommand",
            "certify": "pcpg.cli.theory_certify:CertifyCommand",
        },
    ),
}


# what is said


def _say_error(console: Console, kind: str, text: str) -> None:
    with contextlib.suppress(OSError, ValueError, SystemExit):  # stderr may be gone
        said = escape(printable(text))
        console.print(f"[bold red]{escape(kind)}:[/] {said}", highlight=False, soft_wrap=True)


def _print_help() -> None:
    console = Console()
    console.print("[bold]pcpg[/]: explore an environment with a policy cover, then exploit it.\n", highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(f"  [bold]pcpg {name}[/]", command.summary)
    console.print(table)
    console.print("\n`pcpg COMMAND --help` explains each command. A first run, of a minute or two:", highlight=False)
    console.print("  pcpg train CombinationLock-v0 --env.horizon 5 --seeds 4 --out runs/first", highlight=False)
