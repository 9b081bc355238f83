"""Cells of the table: each is measured once, in a process of its own, and kept as a JSON record.

Which cells there are is known only as records come in: the tuned factor decides what is run in A and B, and a size at
which no seed got there ends its family.
"""

import contextlib
import dataclasses
import datetime
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pcpg.experiments.common import Record, commit
from pcpg.experiments.table1 import exploration, misspecification, tree, tuning

Kind = Literal["tuning", "A", "theory", "B", "C"]
MEASURES: dict[Kind, Callable[..., Record]] = {
    "tuning": tuning.measure,
    "A": exploration.measure,
    "theory": exploration.measure,
    "B": misspecification.measure,
    "C": tree.measure,
}
ORDER: tuple[Kind, ...] = ("tuning", "A", "B", "theory", "C")  # what others wait for comes first
# A process measures one cell on one core: no threads of its own, and no accelerator.
WORKER_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


class Cell(NamedTuple):
    """One measurement: its name is that of its file, its arguments are all that it depends on."""

    kind: Kind
    name: str
    arguments: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Store:
    """The folder of the records, and what each of them says of its origin."""

    out: Path
    command: str

    def path(self, cell: Cell) -> Path:
        """Return where the record of a cell is kept."""
        return self.out / "cells" / f"{cell.name}.json"

    def read(self, cell: Cell) -> Record | None:
        """Return the record of a cell if it is done, or raise a ValueError if it was measured otherwise."""
        path = self.path(cell)
        if not path.exists():
            return None
        record = json.loads(path.read_text())
        if record["arguments"] != json.loads(json.dumps(cell.arguments)):
            changed = [key for key in cell.arguments if record["arguments"].get(key) != cell.arguments[key]]
            raise ValueError(f"{path} was measured with other settings ({', '.join(changed)}): choose another --out")
        return record

    def write(self, cell: Cell, found: Record, seconds: float) -> Record:
        """Write the record of a cell aside and rename it, so that what is there is whole."""
        record = found | {
            "kind": cell.kind,
            "name": cell.name,
            "arguments": cell.arguments,
            "seconds": round(seconds, 2),
            "device": "cpu",
            "commit": commit(),
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": self.command,
        }
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")
        aside.write_text(json.dumps(record, allow_nan=False))
        aside.replace(path)
        return json.loads(json.dumps(record))

    def all(self) -> list[Record]:
        """Return every record of the folder."""
        return [json.loads(path.read_text()) for path in sorted((self.out / "cells").glob("*.json"))]


def measure(cell: Cell) -> tuple[Record, float]:
    """Return what is measured in a cell, and the seconds of processor time it took."""
    started = time.process_time()
    found = MEASURES[cell.kind](**cell.arguments)
    return found, time.process_time() - started


def run_cells(
    first: list[Cell],
    follow: Callable[[Record], list[Cell]],
    store: Store,
    jobs: int,
    notice: Callable[[Record], None],
) -> list[Record]:
    """Return the records of the first cells and of all that follow from records, measured by `jobs` processes."""
    records: list[Record] = []
    todo = list(first)
    running: dict[Future[tuple[Record, float]], Cell] = {}
    with _pool(jobs) as pool:
        while todo or running:
            while todo and len(running) < jobs:
                cell = todo.pop(min(range(len(todo)), key=lambda i: ORDER.index(todo[i].kind)))
                record = store.read(cell)
                if record is None:
                    running[pool.submit(measure, cell)] = cell
                else:
                    records.append(record)
                    todo += follow(record)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                record = store.write(running.pop(future), *future.result())
                notice(record)
                records.append(record)
                todo += follow(record)
    return records


class _Here:
    """A pool of no other processes: for one job, where starting one would only cost time."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future


def _leave_with(parent: int) -> None:
    """End this process soon after its parent, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _pool(jobs: int) -> Iterator[Any]:
    if jobs == 1:
        yield _Here()
        return
    before = {name: os.environ.get(name) for name in WORKER_ENVIRONMENT}
    os.environ.update(WORKER_ENVIRONMENT)  # processes that are started inherit it, before they load NumPy
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_with, initargs=(os.getpid(),))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
