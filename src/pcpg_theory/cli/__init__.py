"""The commands of `pcpg theory`."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pcpg.config import Json
from pcpg.runs.disk import check_output, make_folder, write_file

COMMANDS = {
    "run": "pcpg_theory.cli.run:RunCommand",
    "parameters": "pcpg_theory.cli.run:ParametersCommand",
    "tree": "pcpg_theory.cli.examples:TreeCommand",
    "aggregation": "pcpg_theory.cli.examples:AggregationCommand",
    "kernel": "pcpg_theory.cli.examples:KernelCommand",
    "compare": "pcpg_theory.cli.compare:CompareCommand",
    "certify": "pcpg_theory.cli.run:CertifyCommand",
}

Result = Json
Mode = Literal["exact", "sampled"]
MDPName = Literal["lock", "linear", "linear-lock", "chain", "deep-sea", "maze", "aggregated"]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of `pcpg theory`."""

    json: bool = False
    """Print one JSON object to standard output."""
    out: Path | None = None
    """Also write the JSON object to this file."""

    @property
    def outputs(self) -> dict[Path, bytes]:
        """The files that it writes, by what is in the first bytes of such a file."""
        return {} if self.out is None else {self.out: b"{"}

    def work(self) -> Result:
        """The result, before it is made fit for JSON."""
        raise NotImplementedError

    def __call__(self) -> Result:
        """The result as JSON holds it, after writing it to `out`."""
        for path, mark in self.outputs.items():
            check_output(path, mark)
        result = clean(self.work())
        if self.out is not None:
            make_folder(self.out.parent)
            write_file(self.out, (json.dumps(result, allow_nan=False) + "\n").encode())
        return result


@dataclass(frozen=True, kw_only=True)
class SeededCommand(Command):
    """A command that draws random numbers."""

    seed: int = 0
    """The first seed, for instances and for sampling."""


@dataclass(frozen=True, kw_only=True)
class DrawnCommand(SeededCommand):
    """A command whose result can be plotted."""

    png: Path | None = None
    """Save a figure of the result to this file."""

    @property
    def outputs(self) -> dict[Path, bytes]:
        """The files that it writes, by what is in the first bytes of such a file."""
        if self.png is not None and self.png.suffix != ".png":
            raise ValueError(f"--png must name a .png file, got {self.png}")
        return super().outputs | ({} if self.png is None else {self.png: b"\x89PNG"})


def at_least(least: int, **numbers: int | None) -> None:
    """Raise a ValueError for a number that is given and below the least."""
    for name, number in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{name} must be {least} or more, got {number}")


def check_seeds(seeds: int, seed: int) -> range:
    """The seeds, or a ValueError if there is none or one is negative."""
    at_least(1, seeds=seeds)
    at_least(0, seed=seed)
    return range(seed, seed + seeds)


def clean(value: Any) -> Any:
    """The value with NumPy types converted to Python ones, and inf and nan to None."""
    if isinstance(value, dict):
        return {str(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return clean(value.tolist())
    if isinstance(value, list | tuple):
        return [clean(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table to standard error; a column is its title and a format, as in "value|.3f", and None shows as "-"."""
    from rich.console import Console
    from rich.table import Table

    made, formats = Table(title=title), []
    for i, column in enumerate(columns):
        name, _, spec = column.partition("|")
        made.add_column(name, justify="right" if i else "left")
        formats.append(spec)
    for row in rows:
        made.add_row(*("-" if cell is None else format(cell, spec) for cell, spec in zip(row, formats, strict=True)))
    Console(stderr=True).print(made)
