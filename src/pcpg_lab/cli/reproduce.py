"""`pcpg reproduce NAME`: a claim of the paper from one command, cell by cell, none of them twice."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markdown import Markdown

from pcpg.cli.display import STOPPED, print_json
from pcpg.cli.flags import Arg
from pcpg.training.display import Display, say
from pcpg_lab.claims.harness import Claim, Flags, reproduce
from pcpg_lab.claims.records import Summary
from pcpg_lab.sweeps.crew import Engine
from pcpg_lab.sweeps.local import engine_of


def command_of(claim: Claim) -> Any:
    """The dataclass of a claim's flags and --json; calling an instance runs the claim."""
    json = Annotated[bool, Arg(help="Print one JSON object to stdout and everything else to stderr.")]
    places = "local|ray|ray://HOST:PORT"
    about = "Where to train cells in parallel; by default one after another in this process."
    on = Annotated[str, Arg(places, about)]
    made = dataclasses.make_dataclass(
        "Reproduce",
        [("on", on, dataclasses.field(default="")), ("json", json, dataclasses.field(default=False))],
        bases=(claim.flags,),
        frozen=True,
        namespace={"__call__": lambda flags, console: _run(claim, flags, flags.on, flags.json, console)},
    )
    made.__doc__ = claim.flags.__doc__
    return made


def _run(claim: Claim, flags: Flags, on: str, as_json: bool, console: Console) -> int:
    """Run a claim with its progress on the console and show its table; the exit code."""

    def notice(text: str) -> None:
        say(console, text)

    def engine(out: Path) -> Engine:
        return engine_of(on, out)

    results = reproduce(claim, flags, lambda name: Display(console, name), notice, engine if on else None)
    if results is None:
        return say_stopped(console)
    return show(console, *results, as_json)


def say_stopped(console: Console) -> int:
    """Say that the command resumes; the exit code."""
    say(console, "stopped; run the same command again to resume")
    return STOPPED


def show(console: Console, summary: Summary, table: str, out: Path, as_json: bool) -> int:
    """Show the results of a claim; the exit code."""
    console.print(Markdown(table))
    say(console, f"written to {out}")
    print_json(summary, as_json)
    return 0
