"""`pcpg sweep`: many cells on an engine, with one display of the whole; `pcpg sweep status DIR`.
`pcpg reproduce NAME`: a claim of the paper from one command, cell by cell, none of them twice.
"""

import dataclasses
import functools
import os
import time
import typing
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from pcpg.cli.display import FAILED, STOPPED, answer, loading, print_json
from pcpg.cli.flags import Arg, JsonFlag, Mistake, OnFlag, Part, StorageFlag, parse_parts
from pcpg.config import Json
from pcpg.machine import environment_variable
from pcpg.runs.disk import check_folder
from pcpg.training.display import QUIET_SECONDS, Display, clock_time, duration, one_line, printable, say
from pcpg.training.interrupt import stop_on_interrupt

if typing.TYPE_CHECKING:
    from pcpg_lab.claims.harness import Claim
    from pcpg_lab.sweeps.crew import Engine
    from pcpg_lab.sweeps.plan import Plan
    from pcpg_lab.sweeps.status import Status


@dataclasses.dataclass(frozen=True)
class OnEngine:
    """The flags of commands that run cells on an engine."""

    file: str
    on: OnFlag = "local"
    """Where cells run: processes on this machine, or a Ray cluster."""
    out: Annotated[str, Arg("DIR")] = ""
    """Folder of the results; by default runs/ and the name of the file."""
    slots: int = 0
    """Maximum number of cells at a time; 0: as many as fit. With 1 a search is reproducible."""
    storage: StorageFlag = "auto"
    json: JsonFlag = False

    @property
    def folder(self) -> str:
        """The folder of the results."""
        return self.out or str(Path("runs") / Path(self.file).stem)


@dataclasses.dataclass(frozen=True)
class Sweep(OnEngine):
    """Run the cells of a sweep; finished cells are never run again, and the same command resumes a sweep.

    `pcpg sweep status DIR` shows its progress, from any machine that sees the folder.
    """

    file: Annotated[str, Arg("FILE", "TOML or Python file with the cells, or `status`.", positional=True)]
    dir: Annotated[str, Arg("DIR", "After `status`: the sweep's folder.", positional=True)] = ""

    def __call__(self, console: Console) -> int:
        if self.file == "status":
            return show_status(self.dir, console, self.json)
        if self.dir:
            raise Mistake(f"unexpected argument {self.dir!r}: a sweep takes one file; did you mean --out {self.dir}?")
        out = self.folder
        with loading(console), on_the_cpu():
            from pcpg_lab.sweeps.local import engine_of
            from pcpg_lab.sweeps.plan import read_plan

            plan = read_plan(self.file)
        say(console, f"{len(plan.cells)} cells, all settings valid; {plan.cores} cores each, writing to {out}", "dim")
        engine = engine_of(self.on, out, plan.cores, plan.gpus, self.slots, self.storage)
        try:
            return run(plan, out, engine, console, self.json)
        finally:
            engine.close()


def on_the_cpu() -> AbstractContextManager[None]:
    """Check settings on the CPU: GPUs are for the cells."""
    return environment_variable("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS", "cpu"))


def run(plan: "Plan", out: str, engine: "Engine", console: Console, as_json: bool) -> int:
    """Run a plan with its progress on the screen and write the results; the exit code."""
    from pcpg_lab.sweeps.status import SweepFolder, write_page, write_tables
    from pcpg_lab.sweeps.sweep import run_sweep

    folder = SweepFolder.claimed(out)
    notice = functools.partial(say, console, style="yellow")
    with stop_on_interrupt(notice) as stop, SweepDisplay(console, plan) as display:
        swept = run_sweep(plan, folder, engine, watch=display, notice=notice, stop=stop)
    table = write_tables(folder, plan, notice)
    if not swept.finished:
        say(
            console,
            f"stopped; {table['done']} of {table['cells']} cells are done; run the same command again to resume",
        )
        return STOPPED
    page = write_page(folder, plan)
    show = answer(console, as_json)
    show.print(groups_table(table))
    for failure in table["failed"]:
        say(console, f"failed: {failure['label']}: {failure['cause']}", "red")
    if swept.losses:
        say(show, f"{swept.losses} workers were lost; {duration(swept.lost_seconds)} of work was repeated")
    say(show, f"written to {out}: table.csv, table.json{', report.html' if page else ''}")
    result = {"out": out, "ran": len(swept.ran), "seconds": swept.seconds, "losses": swept.losses}
    print_json(result | {"lost_seconds": swept.lost_seconds} | table, as_json)
    return FAILED if table["failed"] else 0


class SweepDisplay:
    """The whole sweep in one display; plain lines without a terminal."""

    def __init__(self, console: Console, plan: "Plan") -> None:
        self.console, self.labels = console, {cell.id: cell.label for cell in plan.cells}
        self.began, self.status, self.said, self.last = time.monotonic(), None, "", -QUIET_SECONDS
        self.live = Live(get_renderable=self._draw, console=console, refresh_per_second=4)

    def __enter__(self) -> "SweepDisplay":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live.is_started:
            self.live.stop()

    def __call__(self, status: "Status") -> None:
        self.status, now = status, time.monotonic()
        is_over = len(status.done) + len(status.failed) == status.cells
        if not self.console.is_terminal and (is_over or now - self.last > QUIET_SECONDS):
            line = _line(status)
            if line != self.said:
                self.said, self.last = line, now
                say(self.console, line)

    def _draw(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        clock = f"{clock_time(time.monotonic() - self.began)} elapsed"
        grid.add_row("starting" if self.status is None else _line(self.status), clock)
        running = {} if self.status is None else self.status.running
        for cell, rounds in list(running.items())[:12]:
            grid.add_row(f"  {escape(printable(self.labels[cell]))}", f"round {rounds}")
        return grid


def _line(status: "Status") -> str:
    left = status.seconds_left
    is_over = len(status.done) + len(status.failed) == status.cells
    return status.line() + (f"; about {duration(left)} left" if left is not None and not is_over else "")


def groups_table(table: Json) -> Table:
    """A row for each group of cells that differ in their seeds alone."""
    shown = Table("environment", "algorithm", "settings", "seeds", "final return", "solved")
    for row in table["groups"]:
        settings = ", ".join(f"{name.split('.')[-1]} {value}" for name, value in row["settings"].items())
        cells = (row["env"], row["algo"], settings, str(row["seeds"]), _interval(row["final_return"]))
        shown.add_row(*(escape(printable(text)) for text in (*cells, _interval(row["solved"]))))
    return shown


def _interval(found: list[float | None] | None) -> str:
    if found is None or found[0] is None:
        return "-"
    return f"{found[0]:.3g}" + ("" if found[1] is None else f" [{found[1]:.3g}, {found[2]:.3g}]")


def show_status(path: str, console: Console, as_json: bool) -> int:
    """Show the progress of a sweep."""
    if not path:
        raise Mistake("name the folder of a sweep, as in `pcpg sweep status runs/lock`")
    with loading(console):
        from pcpg_lab.sweeps.status import SweepFolder, status_of
    folder = SweepFolder(Path(path))
    plan = folder.read_plan()
    status = status_of(folder, plan)
    labels = {cell.id: cell.label for cell in plan.cells}
    out = answer(console, as_json)
    say(out, _line(status))
    for cell, rounds in status.running.items():
        say(out, one_line(f"running: {labels[cell]}: round {rounds}"))
    for cell, cause in status.failed.items():
        say(out, one_line(f"failed: {labels[cell]}: {cause}"), "red")
    print_json(status.as_json(), as_json)
    return 0


@dataclasses.dataclass(frozen=True)
class Tune(OnEngine):
    """Find good settings with Optuna. Trials that fall behind are stopped; the same command resumes a search."""

    file: Annotated[str, Arg("FILE", "TOML or Python file with a table [tune].", positional=True)]

    def __call__(self, console: Console) -> int:
        out = self.folder
        with loading(console), on_the_cpu():
            from pcpg_lab.sweeps.local import engine_of
            from pcpg_lab.sweeps.plan import read_entries
            from pcpg_lab.sweeps.tune import search_of, tune

            entries = read_entries(Path(self.file))
            search = search_of(entries)
        say(console, f"{search.trials} trials, {search.direction} {search.metric}, into {out}", "dim")
        cores, gpus = entries.get("cores", 1), entries.get("gpus")
        engine = engine_of(self.on, out, cores, gpus, self.slots, self.storage)
        try:
            tuned = tune(entries, out, engine, functools.partial(say, console, style="yellow"))
        finally:
            engine.close()
        show = answer(console, self.json)
        show.print(trials_table(tuned.trials))
        if tuned.best is None:
            say(console, "no trial finished with a value of the metric", "red")
            return FAILED
        path = Path(out) / "best.json"
        say(show, f"best: {search.metric} {tuned.value:.4g}; train with: pcpg train --config {path}")
        print_json({"out": out, "best": tuned.best, "value": tuned.value, "trials": tuned.trials}, self.json)
        return 0


def trials_table(trials: list[Json]) -> Table:
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


# Claims.


@dataclasses.dataclass(frozen=True)
class Shared:
    """Where the cells run, and what is printed."""

    on: OnFlag = ""
    """Where to train cells in parallel; by default one after another in this process."""
    json: JsonFlag = False


def run_claim(claim: "Claim[Any]", arguments: list[str], program: str, console: Console) -> int:
    """Run a claim with its progress on the console and show its table; the exit code."""
    from pcpg_lab.claims.harness import reproduce
    from pcpg_lab.sweeps.local import engine_of

    flags, shared = parse_parts([Part(claim.flags), Part(Shared, title="for every claim")], arguments, program)
    check_folder(flags.out)

    def notice(text: str) -> None:
        say(console, text)

    def engine(out: Path) -> "Engine":
        return engine_of(shared.on, out)

    results = reproduce(claim, flags, lambda name: Display(console, name), notice, engine if shared.on else None)
    if results is None:
        return say_stopped(console)
    return show(console, *results, shared.json)


def say_stopped(console: Console) -> int:
    """Say that the command resumes; the exit code."""
    say(console, "stopped; run the same command again to resume")
    return STOPPED


def show(console: Console, summary: Json, table: str, out: Path, as_json: bool) -> int:
    """Show the results of a claim; the exit code."""
    console.print(Markdown(table))
    say(console, f"written to {out}")
    print_json(summary, as_json)
    return 0
