"""`pcpg tune`: settings found by Optuna, each trial a cell on the engines of sweeps."""

import dataclasses
import functools
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pcpg.cli.display import FAILED, answer, loading, print_json
from pcpg.cli.flags import JsonFlag, OnFlag, StorageFlag
from pcpg.cli.sweep import on_the_cpu
from pcpg.training.display import printable, say


@dataclasses.dataclass(frozen=True)
class Tune:
    """Find good settings with Optuna: trials that fall behind are stopped, and an interrupted search goes on."""

    file: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE", help="TOML or Python file with a table [tune].")
    ]
    on: OnFlag = "local"
    """Where trials run: processes on this machine, or a Ray cluster."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Folder of the search; by default runs/ and the name of the file."""
    slots: int = 0
    """At most so many trials at a time; 0: as many as there is room for. With 1 the search can be repeated."""
    storage: StorageFlag = "auto"
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        out = self.out or str(Path("runs") / Path(self.file).stem)
        with loading(console), on_the_cpu():
            from pcpg.sweeps.engines import engine_of
            from pcpg.sweeps.plan import Plan, read_entries
            from pcpg.sweeps.tune import search_of, tune

            entries = read_entries(Path(self.file))
            search = search_of(entries)
        say(console, f"{search.trials} trials, {search.direction} {search.metric}, into {out}", "dim")
        plan = Plan((), entries.get("cores", 1), entries.get("gpus"))
        engine = engine_of(self.on, plan, out, self.slots, self.storage)
        try:
            tuned = tune(entries, out, engine, functools.partial(say, console, style="yellow"))
        finally:
            engine.close()
        show = answer(console, self.json)
        show.print(trials_table(tuned.trials))
        if tuned.best is None:
            say(console, "no trial came to its end with a value", "red")
            return FAILED
        path = Path(out) / "best.json"
        say(show, f"best: {search.metric} {tuned.value:.4g}; train with: pcpg train --config {path}")
        print_json({"out": out, "best": tuned.best, "value": tuned.value, "trials": tuned.trials}, self.json)
        return 0


def trials_table(trials: list[dict[str, Any]]) -> Table:
    """A row for each trial."""
    shown = Table("trial", "settings", "rounds", "value", "state")
    for row in trials:
        settings = ", ".join(f"{name.split('.')[-1]} {_short(value)}" for name, value in row["settings"].items())
        value = "-" if row["value"] is None else f"{row['value']:.4g}"
        cells = (str(row["trial"]), settings, str(row["rounds"]), value, row["state"])
        shown.add_row(*(escape(printable(text)) for text in cells))
    return shown


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
