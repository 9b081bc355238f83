"""The command line: its commands, their help, and its error messages.

Flags come from the fields of frozen dataclasses. With --json one JSON object goes to stdout and everything else to
stderr. Mistakes are reported in one line on stderr. PCPG_TRACEBACK=1 shows the traceback of an error.

    0    done                                    130  stopped by Ctrl-C, after the round or at once
    1    a run had to stop, or is corrupted      143  stopped by SIGTERM
    2    a mistake in the command or a file      129  stopped by SIGHUP
    3    done, but some seeds failed

Commands are loaded when called, so help and errors are instant.
"""

import contextlib
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pcpg.cli.display import STOPPED, answers_apart, loading, print_json
from pcpg.cli.flags import HELP, Mistake, parse
from pcpg.config import nearest
from pcpg.elsewhere import COMMANDS as ELSEWHERE
from pcpg.runs.disk import check_folder
from pcpg.runs.errors import DiskFull, MemoryFull, RunError
from pcpg.training.display import one_line, printable, reader_has_gone


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(stderr=True)
    code, answers = 1, list[str]()
    try:
        if "--json" in arguments:
            with answers_apart() as answers:
                code = run_command(arguments, console)
        else:
            code = run_command(arguments, console)
    except KeyboardInterrupt:
        _say_error(console, "stopped", "interrupted")
        code = STOPPED
    except BrokenPipeError:
        if not reader_has_gone(sys.stdout) and not reader_has_gone(sys.stderr):
            raise  # the pipe of a simulator or a worker
        _silence()
        code = code or 1
    except Exception as error:
        kind, code = _judge(error)
        if kind is None:
            raise
        _say_error(console, kind, one_line(str(error)))
    try:
        for line in answers:
            print(line)
        sys.stdout.flush()
    except OSError as error:  # such as a full disk
        _say_error(console, "error", f"cannot write to stdout: {error.strerror}")
        _silence()
        code = code or 1
    sys.exit(code)


def _silence() -> None:
    """Drop unwritten output, which Python would complain about when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if reader_has_gone(stream) or stream is sys.stdout:
            os.dup2(null, stream.fileno())


def run_command(arguments: list[str], console: Console) -> int:
    """Dispatch to a command; returns the exit code."""
    if broken := [word for word in arguments if "\0" in word]:
        raise Mistake(f"an argument must not contain a NUL character, got {broken[0]!r}")
    if arguments and arguments[0] in (*HELP, "help") and arguments[1:]:
        arguments = [*arguments[1:], "--help"]  # pcpg help train
    if not arguments or arguments[0] in (*HELP, "help"):
        _print_help()
        return 0
    if arguments[0] == "--version":
        from pcpg import __version__

        print(__version__)
        return 0
    name, rest = arguments[0], arguments[1:]
    _check_command("", name, COMMANDS)
    return COMMANDS[name].run(name, rest, console)


def _check_command(group: str, name: str, valid: Iterable[str]) -> None:
    if name not in valid:
        shown = repr(f"pcpg {group} {name}" if group else name)
        hint = ELSEWHERE.get(name, "") if not group else ""
        near = hint or nearest(name, valid, cutoff=0.5)
        said = f"; did you mean {near!r}?" if near else "."
        raise Mistake(f"unknown command {shown}{said} Valid: {', '.join(valid)}")


def _judge(error: Exception) -> tuple[str | None, int]:
    """The prefix and exit code of an error; None for a bug, which keeps its traceback."""
    if os.environ.get("PCPG_TRACEBACK"):
        return None, 1
    if isinstance(error, DiskFull | MemoryFull):
        return "stopped", 1
    if isinstance(error, Mistake | RunError) or (isinstance(error, ValueError) and _is_our_refusal(error)):
        return "error", 2
    from pcpg.envs.host import EnvironmentFailed
    from pcpg.state import NonFinite

    if isinstance(error, NonFinite | EnvironmentFailed):
        return "stopped", 1
    if "Unable to initialize backend" in str(error):  # of JAX, as JAX_PLATFORMS names it
        return "error", 2
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "stopped: out of memory; try fewer --ppo.num-episodes or --lanes", 1
    return None, 1


def _is_our_refusal(error: Exception) -> bool:
    """Whether our packages raised the error themselves: a ValueError from JAX or NumPy is a bug."""
    *_, last = traceback.walk_tb(error.__traceback__)
    return str(last[0].f_globals.get("__name__")).partition(".")[0] in ("pcpg", "pcpg_theory", "pcpg_lab")


# the kinds of commands


class Command:
    """A command whose flags are the fields of a dataclass, named as `module:Class`."""

    def __init__(self, home: str, summary: str) -> None:
        self.home, self.summary = home, summary

    def run(self, name: str, arguments: list[str], console: Console) -> int:
        return parse(_load(self.home), arguments, f"pcpg {name}")(console)


class FreeCommand(Command):
    """A command that parses its own arguments, since its flags depend on the first one; named as `module:function`."""

    def run(self, name: str, arguments: list[str], console: Console) -> int:
        return _load(self.home)(arguments, console)


class Group(Command):
    """A group of commands, such as `pcpg reproduce lock`; their classes are in a table named as `module:TABLE`."""

    @functools.cached_property
    def members(self) -> dict[str, str]:
        """Its commands by name, loaded on demand."""
        return _load(self.home)

    def run(self, name: str, arguments: list[str], console: Console) -> int:
        if not arguments or arguments[0] in HELP:
            for member in self.members:
                console.print(f"  pcpg {name} {member} --help", highlight=False)
            return 0
        member, rest = arguments[0], arguments[1:]
        _check_command(name, member, self.members)
        with loading(console):
            found = _load(self.members[member])
        return self.execute(found, rest, f"pcpg {name} {member}", console)

    def execute(self, found: Any, arguments: list[str], program: str, console: Console) -> int:
        return parse(found, arguments, program)(console)


class ExperimentGroup(Group):
    """The experiments: commands, and claims, which do not know the command line."""

    def execute(self, found: Any, arguments: list[str], program: str, console: Console) -> int:
        if isinstance(found, type):
            command = parse(found, arguments, program)
            check_folder(command.out)
            return command(console)
        return _load("pcpg_lab.cli:run_claim")(found, arguments, program, console)


class TheoryGroup(Group):
    """Commands that return a result which can show itself."""

    def execute(self, found: Any, arguments: list[str], program: str, console: Console) -> int:
        command = parse(found, arguments, program)
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
COMMANDS: dict[str, Command] = {
    "train": FreeCommand("pcpg.cli.train:train", "Train on an environment and write a run folder."),
    "exploit": FreeCommand("pcpg.cli.train:exploit", "Train on the cover of a finished run, for any reward."),
    "sweep": Command("pcpg_lab.cli:Sweep", "Run many cells, locally or on a cluster; `sweep status DIR`."),
    "tune": Command("pcpg_lab.cli:Tune", "Find good settings with Optuna; each trial is a cell."),
    "resume": Command("pcpg.cli.train:Resume", "Resume an interrupted run, with the same result."),
    "evaluate": Command("pcpg.cli.inspect:Evaluate", "Play fresh episodes with the final policy of each seed."),
    "certify": Command("pcpg_theory.cli.certify:Certify", "Bound a run's gap to the best policy from its data alone."),
    "show": Command("pcpg.cli.inspect:Show", "Show where the policies of a cover go: visits by grid cell."),
    "verify": Command("pcpg.cli.inspect:Verify", "Check a run folder for missing or corrupted files."),
    "report": Command("pcpg.cli.inspect:Report", "Write a report of one or more runs as an HTML page."),
    "watch": Command("pcpg.cli.watch:Watch", "Show the report of a run in a browser while it trains."),
    "video": Command("pcpg.cli.inspect:Video", "Record episodes of a policy as a GIF or an MP4."),
    "export": Command("pcpg.cli.inspect:Export", "Save episodes of a run as a Minari dataset."),
    "look": FreeCommand("pcpg.cli.inspect:look", "Play random episodes and describe the environment."),
    "envs": Command("pcpg.cli.inspect:Envs", "List the environments and their options."),
    "reproduce": ExperimentGroup(
        "pcpg_lab.claims:EXPERIMENTS", "Reproduce a claim of the paper, with its table and figures."
    ),
    "theory": TheoryGroup(
        "pcpg_theory.cli:COMMANDS", "Run the provable algorithm on small MDPs and compute its bounds."
    ),
}


# messages


def _say_error(console: Console, kind: str, text: str) -> None:
    with contextlib.suppress(OSError, ValueError, SystemExit):  # stderr may be gone
        said = escape(printable(text))
        console.print(f"[bold red]{escape(kind)}:[/] {said}", emoji=False, highlight=False, soft_wrap=True)


def _print_help() -> None:
    console = Console()
    console.print("[bold]pcpg[/]: explore an environment with a policy cover, then exploit it.\n", highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(f"  [bold]pcpg {name}[/]", command.summary)
    console.print(table)
    console.print("\n`pcpg COMMAND --help` explains each command. A first run takes a minute or two:", highlight=False)
    console.print(
        "  pcpg train CombinationLock-v0 --env.horizon 5 --seeds 4 --out runs/first", highlight=False, soft_wrap=True
    )
