"""`pcpg reproduce NAME`: a claim of the paper from one command, cell by cell, none of them twice."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markdown import Markdown

from pcpg.cli.display import STOPPED, print_json
from pcpg.experiments.harness import Experiment, Flags, reproduce
from pcpg.sweeps.engines import engine_of
from pcpg.sweeps.local import Engine
from pcpg.sweeps.plan import Plan
from pcpg.training.display import Display, say


def command_of(experiment: Experiment[Any]) -> Any:
    """The dataclass of an experiment's flags and --json; calling an instance runs the experiment."""
    json = Annotated[bool, tyro.conf.arg(help="One JSON object on stdout, everything else on stderr.")]
    places = "local|ray|ray://HOST:PORT"
    about = "Train cells side by side there; by default one after the other, in this process."
    on = Annotated[str, tyro.conf.arg(metavar=places, help=about)]
    made = dataclasses.make_dataclass(
        "Reproduce",
        [("on", on, dataclasses.field(default="")), ("json", json, dataclasses.field(default=False))],
        bases=(experiment.flags,),
        frozen=True,
        namespace={"__call__": lambda flags, console: _run(experiment, flags, flags.on, flags.json, console)},
    )
    made.__doc__ = experiment.flags.__doc__
    return made


def _run(experiment: Experiment[Any], flags: Flags, on: str, as_json: bool, console: Console) -> int:
    """Run an experiment with its progress on the console and show its table; the exit code."""

    def notice(text: str) -> None:
        say(console, text)

    def engine(out: Path) -> Engine:
        return engine_of(on, Plan(()), str(out))

    results = reproduce(experiment, flags, lambda name: Display(console, name), notice, engine if on else None)
    if results is None:
        notice("stopped; run the same command again to resume")
        return STOPPED
    console.print(Markdown(results.table))
    notice(f"written to {results.out}")
    print_json(results.summary, as_json)
    return 0
