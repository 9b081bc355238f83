"""`pcpg reproduce NAME`: a claim of the paper from one command, cell by cell, none of them twice."""

import dataclasses
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from pcpg.cli.display import STOPPED, print_json
from pcpg.cli.flags import JsonFlag, OnFlag, Part, parse_parts
from pcpg.training.display import Display, say
from pcpg_lab.claims.harness import Claim, reproduce
from pcpg_lab.claims.records import Summary
from pcpg_lab.sweeps.crew import Engine
from pcpg_lab.sweeps.local import engine_of


@dataclasses.dataclass(frozen=True)
class Shared:
    """Where the cells run, and what is printed."""

    on: OnFlag = ""
    """Where to train cells in parallel; by default one after another in this process."""
    json: JsonFlag = False


def run(claim: Claim, arguments: list[str], program: str, console: Console) -> int:
    """Run a claim with its progress on the console and show its table; the exit code."""
    flags, shared = parse_parts([Part(claim.flags), Part(Shared, title="for every claim")], arguments, program)

    def notice(text: str) -> None:
        say(console, text)

    def engine(out: Path) -> Engine:
        return engine_of(shared.on, out)

    results = reproduce(claim, flags, lambda name: Display(console, name), notice, engine if shared.on else None)
    if results is None:
        return say_stopped(console)
    return show(console, *results, shared.json)


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
