"""Cells of the table: each is measured once, in a process of its own, and kept as a JSON record.

Which cells there are is known only as records come in: see `plan`.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from pcpg.envs.adapters.cluster import connect, imported
from pcpg.envs.adapters.places import LOCAL
from pcpg.experiments.harness import Record, commit
from pcpg.experiments.table1 import measures
from pcpg.experiments.table1.plan import CellKind, Table1Cell
from pcpg.machine import THREADS
from pcpg.theory import own
from pcpg.theory.learners.registry import COMPARATORS, OLD_NAMES, current_name

MEASURES: dict[CellKind, Callable[..., Record]] = {
    "tuning": measures.tune,
    "A": measures.measure_samples,
    "own": measures.measure_own,
    "eps": measures.measure_accuracy,
    "gap": measures.measure_gaps,
    "bare": measures.measure_samples,
    "theory": measures.measure_samples,
    "problem": measures.measure_problem,
    "B": measures.measure_losses,
    "C": measures.measure_trees,
}
# What others wait for comes first.
ORDER: tuple[CellKind, ...] = ("tuning", "A", "problem", "eps", "gap", "own", "B", "bare", "theory", "C")
# A process measures one cell on one core: no threads of its own, and no accelerator.
RETRIES = 3
"""Times that a cell is measured again where its node was lost."""
WORKER_ENVIRONMENT = dict.fromkeys(THREADS, "1") | {"JAX_PLATFORMS": "cpu"}


@dataclasses.dataclass(frozen=True)
class Store:
    """The folder of the records, and what each of them says of its origin."""

    out: Path
    command: str

    def path(self, cell: Table1Cell) -> Path:
        """Where the record of a cell is kept, under an old name of its algorithm where only that is there."""
        path = self.out / "cells" / f"{cell.name}.json"
        for old, algo in OLD_NAMES.items():
            before = path.with_name(path.name.replace(f"-{algo}", f"-{old}"))
            if cell.arguments.get("algo") == algo and before.exists() and not path.exists():
                return before
        return path

    def read(self, cell: Table1Cell) -> Record | None:
        """The record of a cell if it is done with this code; a ValueError if it was measured otherwise."""
        path = self.path(cell)
        if not path.exists():
            return None
        record = _read(path)
        if record.get("source") != source_of(cell):
            return None
        if record["arguments"] != json.loads(json.dumps(cell.arguments)):
            changed = [key for key in cell.arguments if record["arguments"].get(key) != cell.arguments[key]]
            raise ValueError(f"{path} was measured with other settings ({', '.join(changed)}): choose another --out")
        return record

    def write(self, cell: Table1Cell, found: Record, seconds: float) -> Record:
        """Write the record of a cell aside and rename it, so that what is there is whole."""
        record = found | {
            "kind": cell.kind,
            "name": cell.name,
            "arguments": cell.arguments,
            "source": source_of(cell),
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
        """Every record of the folder whose algorithm there is."""
        records = [_read(path) for path in sorted((self.out / "cells").glob("*.json"))]
        return [record for record in records if record["arguments"].get("algo", "pcpg") in COMPARATORS]


def _read(path: Path) -> Record:
    """A record, with the current name of its algorithm."""
    record = json.loads(path.read_text())
    if "algo" in record["arguments"]:
        record["arguments"]["algo"] = current_name(record["arguments"]["algo"])
    return record


def source_of(cell: Table1Cell) -> str:
    """The digest of the code that a cell's numbers come from: that of its learner, and of a problem of one's own."""
    digest, reference = own.source_digest(cell.arguments.get("algo", "pcpg")), cell.arguments.get("reference")
    if reference is None:
        return digest
    file = Path(reference.rpartition(":")[0]).read_bytes()
    return hashlib.sha256(digest.encode() + file).hexdigest()[:16]


def measure(cell: Table1Cell, references: dict[str, str | None] | None = None) -> tuple[Record, float]:
    """What is measured in a cell, and the seconds of processor time it took.

    `references` are those of learners that are not the library's: a process of its own has to find them.
    """
    for name, reference in (references or {}).items():
        if name not in COMPARATORS and reference is not None:
            own.learner(name, own.load(reference))
    started = time.process_time()
    found = MEASURES[cell.kind](**cell.arguments)
    return found, time.process_time() - started


def run_cells(
    first: list[Table1Cell],
    follow: Callable[[Record], list[Table1Cell]],
    store: Store,
    jobs: int,
    notice: Callable[[Record], None],
    on: str = LOCAL,
) -> list[Record]:
    """The records of the first cells and of all that follow from records, measured by `jobs` processes.

    On a cluster `jobs` of 0 are as many as it has cores, and a cell whose node is lost is measured again elsewhere.
    """
    records: list[Record] = []
    todo = list(first)
    running: dict[Future[tuple[Record, float]], Table1Cell] = {}
    with _pool(jobs) if on == LOCAL else _cluster(on) as pool:
        while todo or running:
            while todo and len(running) < (jobs or pool.cores()):
                cell = todo.pop(min(range(len(todo)), key=lambda i: ORDER.index(todo[i].kind)))
                record = store.read(cell)
                if record is None:
                    running[pool.submit(measure, cell, dict(own.REFERENCES))] = cell
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


class _Cluster:
    """The cores of a Ray cluster, as a pool: each cell is a task of one core."""

    def __init__(self) -> None:
        self.ray = imported()

    def cores(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        asked = {"num_cpus": 1, "max_retries": RETRIES, "runtime_env": {"env_vars": WORKER_ENVIRONMENT}}
        return self.ray.remote(**asked)(work).remote(*arguments).future()


@contextlib.contextmanager
def _cluster(on: str) -> Iterator[_Cluster]:
    is_mine = connect(on)
    try:
        yield _Cluster()
    finally:
        if is_mine:
            imported().shutdown()


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
