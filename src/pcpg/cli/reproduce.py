"""`pcpg reproduce NAME`: a claim of the paper from one command, cell by cell, none of them twice."""

import dataclasses
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markdown import Markdown

from pcpg.cli.display import STOPPED, print_json
from pcpg.experiments.harness import Experiment, Flags, reproduce
from pcpg.training.display import Display, say


def command_of(experiment: Experiment[Any]) -> Any:
    """The dataclass of an experiment's flags and --json; calling an instance runs the experiment."""
    json = Annotated[bool, tyro.conf.arg(help="One JSON object on stdout, everything else on stderr.")]
    made = dataclasses.make_dataclass(
        "Reproduce",
        [("json", json, dataclasses.field(default=False))],
        bases=(experiment.flags,),
        frozen=True,
        namespace={"__call__": lambda flags, console: _run(experiment, flags, flags.json, console)},
    )
    made.__doc__ = experiment.flags.__doc__
    return made


def _run(experiment: Experiment[Any], flags: Flags, as_json: bool, console: Console) -> int:
    """Run an experiment with its progress on the console and show its table; the exit code."""

    def notice(text: str) -> None:
        say(console, text)

    results = reproduce(experiment, flags, lambda name: Display(console, name), notice)
    if results is None:
        notice("stopped; run the same command again to resume")
        return STOPPED
    console.print(Markdown(results.table))
    notice(f"written to {results.out}")
    print_json(results.summary, as_json)
    return 0
