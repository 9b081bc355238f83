"""`pcpg sweep`: many cells on an engine, with one display of the whole; `pcpg sweep status DIR`."""

import contextlib
import dataclasses
import functools
import os
import signal
import threading
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pcpg.cli.display import FAILED, STOPPED, answer, loading, print_json
from pcpg.cli.flags import JsonFlag, Mistake, OnFlag, StorageFlag
from pcpg.training.display import QUIET_SECONDS, clock_time, duration, printable, say

if typing.TYPE_CHECKING:
    from pcpg.sweeps.plan import Plan
    from pcpg.sweeps.status import Status


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Run the cells of a sweep; those that are done are never run twice, and an interrupted sweep goes on.

    `pcpg sweep status DIR` says how far one is, from any machine that sees its folder.
    """

    file: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="FILE", help="TOML or Python file with the cells, or `status`."),
    ]
    dir: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR", help="After `status`: the sweep's folder.")
    ] = ""
    on: OnFlag = "local"
    """Where cells run: processes on this machine, or a Ray cluster."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Folder of the sweep; by default runs/ and the name of the file."""
    slots: int = 0
    """At most so many cells at a time; 0: as many as there is room for."""
    storage: StorageFlag = "auto"
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if self.file == "status":
            return show_status(self.dir, console, self.json)
        if self.dir:
            raise Mistake(f"one file is a sweep, got {self.dir!r} as well; did you mean --out {self.dir}?")
        out = self.out or str(Path("runs") / Path(self.file).stem)
        with loading(console), on_the_cpu():
            from pcpg.sweeps.engines import engine_of
            from pcpg.sweeps.plan import read_plan

            plan = read_plan(self.file)
        say(console, f"{len(plan.cells)} cells, all settings checked; {plan.cores} cores each, into {out}", "dim")
        engine = engine_of(self.on, plan, out, self.slots, self.storage)
        try:
            return run(plan, out, engine, console, self.json)
        finally:
            engine.close()


@contextlib.contextmanager
def on_the_cpu() -> Iterator[None]:
    """Settings are checked on the CPU, so that GPUs are left to the cells."""
    before = os.environ.get("JAX_PLATFORMS")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAX_PLATFORMS"]


def run(plan: "Plan", out: str, engine: Any, console: Console, as_json: bool) -> int:
    """Run a plan with its progress on the screen, write what came out; the exit code."""
    from pcpg.sweeps.status import SweepFolder
    from pcpg.sweeps.sweep import run_sweep
    from pcpg.sweeps.table import write_page, write_tables

    folder, stop = SweepFolder.claimed(out), threading.Event()
    notice = functools.partial(say, console, style="yellow")
    with stopping(stop, notice), SweepDisplay(console, plan) as display:
        swept = run_sweep(plan, folder, engine, watch=display, notice=notice, stop=stop)
    table = write_tables(folder, plan)
    if not swept.finished:
        say(console, f"stopped; {table['done']} of {table['cells']} cells are done; the same command goes on")
        return STOPPED
    page = write_page(folder, plan)
    show = answer(console, as_json)
    show.print(groups_table(table))
    for failure in table["failed"]:
        say(console, f"failed: {failure['label']}: {failure['cause']}", "red")
    if swept.losses:
        say(show, f"{swept.losses} workers were lost, and {duration(swept.lost_seconds)} of work with them, done again")
    say(show, f"written to {out}: table.csv, table.json{', report.html' if page else ''}")
    result = {"out": out, "ran": len(swept.ran), "seconds": swept.seconds, "losses": swept.losses}
    print_json(result | {"lost_seconds": swept.lost_seconds} | table, as_json)
    return FAILED if table["failed"] else 0


@contextlib.contextmanager
def stopping(stop: threading.Event, notice: Any) -> Iterator[None]:
    """The first Ctrl-C, or a SIGTERM, asks the cells to stop after their rounds; the second ends them at once."""

    def handle(signum: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        notice("stopping after the rounds at work; press Ctrl-C again to stop at once")

    before = {one: signal.signal(one, handle) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class SweepDisplay:
    """The whole sweep in one display; plain lines where there is no terminal."""

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


def groups_table(table: dict[str, Any]) -> Table:
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
    """How far a sweep is."""
    if not path:
        raise Mistake("name the folder of a sweep, as in `pcpg sweep status runs/lock`")
    with loading(console):
        from pcpg.sweeps.status import SweepFolder, status_of
    folder = SweepFolder(Path(path))
    plan = folder.read_plan()
    status = status_of(folder, plan)
    labels = {cell.id: cell.label for cell in plan.cells}
    out = answer(console, as_json)
    say(out, _line(status))
    for cell, rounds in status.running.items():
        say(out, f"running: {labels[cell]}: round {rounds}")
    for cell, cause in status.failed.items():
        say(out, f"failed: {labels[cell]}: {cause}", "red")
    print_json(status.as_json(), as_json)
    return 0
