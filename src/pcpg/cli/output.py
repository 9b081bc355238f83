"""Where the commands put what they have to say."""

import json
from typing import Annotated, Any

import tyro
from rich.console import Console

STOPPED = 130
"""Exit code of a run that Ctrl-C interrupted, as shells have it."""

Folder = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR", help="Run folder.")]


def answer(console: Console, as_json: bool) -> Console:
    """Where the answer for a person goes: to stdout, unless that is the JSON object's."""
    return console if as_json else Console()


def loading(console: Console) -> Any:
    """Something to see while JAX is imported, which takes seconds."""
    return console.status("loading ...")


def print_json(result: dict[str, Any], wanted: bool) -> None:
    """The one JSON object on stdout, if it is wanted."""
    if wanted:
        print(json.dumps(result, allow_nan=False))
