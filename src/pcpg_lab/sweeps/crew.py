"""The engine interface, and the one way to run jobs on it: workers take task after task, and lost ones are replaced.

The resources of a worker: its cores, its threads, its share of a GPU; set before NumPy and JAX load.
"""

import contextlib
import importlib
import os
import stat
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pcpg.config import Json
from pcpg.machine import THREADS, available_cores
from pcpg.runs.errors import DiskFull, FolderInUse, RunError

LEFT = 0.9
"""The part of its share of a GPU's memory that a worker takes: the driver needs some too."""

_HELD: list[int] = []
"""Descriptors of the cores that this process holds; the system closes them when it ends."""


def environment(cores: int, gpus: float) -> dict[str, str]:
    """Environment variables for the process of a worker.

    BLAS has one thread, as in `pcpg train`: seeds fill the cores, and a result must not depend on their number.
    """
    made = dict.fromkeys(THREADS, "1") | {"NPROC": str(cores)}  # the last is XLA's
    if not gpus:
        return made | {"JAX_PLATFORMS": "cpu"}
    if gpus < 1:
        made |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{LEFT * gpus:.3f}"}
    return made


def pin(count: int) -> list[int]:
    """Bind this process to so many cores, preferring free ones; the cores."""
    cores = available_cores()
    if count >= len(cores) or not hasattr(os, "sched_setaffinity"):
        return cores
    try:
        posix: Any = importlib.import_module("fcntl")
        folder = Path(tempfile.gettempdir()) / f"pcpg-cores-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except (ImportError, OSError):
        return cores
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return cores  # somebody else's, in a folder where all may write
    mine: list[int] = []
    for core in cores:
        if len(mine) == count:
            break
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                posix.flock(descriptor, posix.LOCK_EX | posix.LOCK_NB)
                mine.append(core)
                _HELD.append(descriptor)
            except OSError:
                os.close(descriptor)
    others = [core for core in cores if core not in mine]
    first = os.getpid() % max(1, len(others))
    mine += (others[first:] + others[:first])[: count - len(mine)]  # more workers than cores: they share
    os.sched_setaffinity(0, mine)
    return mine


def gpu_names() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES has them; found without opening one."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name and name != "-1"]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number, line in enumerate(done.stdout.splitlines()) if line.startswith("GPU ")]


DONE, FAILED, STOPPED = "done", "failed", "stopped"

Job = Json
"""`does` names the function as module:name, `shared` says whether it sees the folder of the sweep."""
Outcome = Json
"""`state` and `seconds`; of a failed job `cause`, and `again` where another attempt may help."""


class Boss:
    """The sender of a job, as the job sees it."""

    def __init__(self) -> None:
        self.stop = threading.Event()  # set to ask a run to stop after its round

    def saved(self, step: int) -> None:
        """Called after each checkpoint of a run folder that has to be sent elsewhere."""


def perform(job: Job, boss: Boss) -> Outcome:
    """Do a job; returns an outcome with its error, never raises."""
    began = time.monotonic()
    try:
        module, _, name = job["does"].partition(":")
        outcome = getattr(importlib.import_module(module), name)(job, boss)
    except Exception as error:
        from pcpg.config import ConfigError

        cause = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        outcome = {"state": FAILED, "cause": cause, "again": isinstance(error, DiskFull | FolderInUse | OSError)}
    return {"pid": os.getpid()} | outcome | {"seconds": time.monotonic() - began}


ATTEMPTS = 3
"""Attempts at a task that makes no progress in between."""
LOOK = 0.5
"""Seconds between two looks at the work."""

Say = Callable[[str], None]


class WorkerLost(Exception):
    """A worker ended while it had a job; the message says how."""


class Worker(Protocol):
    """Runs one job at a time."""

    where: str
    shared: bool
    """Whether it sees the folder of the sweep."""

    def run(self, job: Job) -> Outcome:
        """Run a job; `WorkerLost` if the worker is gone, with everything that it ran."""
        ...

    def stop(self) -> None:
        """Ask the current job to stop after its round."""
        ...

    def close(self) -> None:
        """End the worker at once."""
        ...


class Engine(Protocol):
    """Where jobs run."""

    def slots(self) -> int:
        """How many jobs can run at a time, now."""
        ...

    def hire(self, slot: int, is_over: Callable[[], bool]) -> Worker | None:
        """A worker for a slot, as soon as there is room; None if it is no longer needed by then."""
        ...

    def close(self) -> None:
        """Release everything: nothing, by default."""


class Task(NamedTuple):
    """A job in the queue."""

    id: str
    job: Job
    rank: int = 0
    """Lower ranks go first."""


class Current(NamedTuple):
    """A task at work."""

    task: Task
    worker: Worker
    since: float


Over = Callable[[Current, Outcome], Iterable[Task]]
"""Called after each attempt, one at a time; gives the tasks that follow. `again` says whether the task is retried."""


def map_tasks(engine: Engine, tasks: Iterable[Task], done: Callable[[Task, Outcome], Iterable[Task]]) -> None:
    """Run tasks and all that follow from them, each to its end; a RunError names one that fails."""

    def over(current: Current, outcome: Outcome) -> Iterable[Task]:
        if outcome["again"]:
            return ()
        if outcome["state"] != DONE:
            raise RunError(f"{current.task.id}: {outcome['cause']}")
        return done(current.task, outcome)

    try:
        Crew(engine, tasks, over).run()
    finally:
        engine.close()


class Crew:
    """The workers of an engine, each in a thread that sends it one task after the other."""

    def __init__(
        self,
        engine: Engine,
        tasks: Iterable[Task],
        over: Over,
        *,
        notice: Say = lambda text: None,
        progress: Callable[[Task], int] = lambda task: 0,
    ) -> None:
        self.engine, self.over, self.notice, self.progress = engine, over, notice, progress
        self.waiting, self.working = list(tasks), dict[str, Current]()
        self.attempts, self.reached = Counter[str](), dict[str, int]()
        self.changed, self.errors = threading.Condition(), list[BaseException]()
        self.is_stopped, self.losses = False, 0

    def run(
        self,
        look: Callable[[], None] = lambda: None,
        stop: threading.Event | None = None,
        pause: float = LOOK,
    ) -> None:
        """Work until no task is left or `stop` is set; `look` is called every now and then."""
        threads: list[threading.Thread] = []
        try:
            while not self.is_over():
                for slot in range(len(threads), min(self.engine.slots(), len(self.waiting) + len(self.working))):
                    threads.append(threading.Thread(target=self._hand, args=(slot,), daemon=True))
                    threads[-1].start()
                look()
                if stop is not None and stop.is_set() and not self.is_stopped:
                    self._stop()
                with self.changed:
                    self.changed.wait(pause)
            for thread in threads if not self.errors else ():
                thread.join()
        finally:
            self.is_stopped = True
            for current in list(self.working.values()):
                current.worker.close()
        if self.errors:
            raise self.errors[0]

    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        with self.changed:
            return bool(self.errors) or (not self.working and (self.is_stopped or not self.waiting))

    def _stop(self) -> None:
        with self.changed:
            self.is_stopped = True
            workers = [current.worker for current in self.working.values()]
        for worker in workers:
            worker.stop()

    def _hand(self, slot: int) -> None:
        """One worker after the other for a slot, until there is nothing to do."""
        try:
            while (worker := self.engine.hire(slot, self._is_idle)) is not None:
                try:
                    while (current := self._next(worker)) is not None:
                        self._work(current)
                    if self._is_idle():
                        return
                except WorkerLost as error:
                    self.notice(f"{worker.where}: {error}")
                finally:
                    worker.close()
        except BaseException as error:
            with self.changed:
                self.errors.append(error)
                self.changed.notify_all()

    def _is_idle(self) -> bool:
        with self.changed:
            return self.is_stopped or bool(self.errors) or (not self.waiting and not self.working)

    def _next(self, worker: Worker) -> Current | None:
        """The next task; waited for while others work, whose tasks may come back or be followed by more."""
        with self.changed:
            while not self.waiting:
                if self.is_stopped or not self.working or self.errors:
                    return None
                self.changed.wait(LOOK)
            if self.is_stopped:
                return None
            task = self.waiting.pop(min(range(len(self.waiting)), key=lambda i: self.waiting[i].rank))
            self.working[task.id] = Current(task, worker, time.time())
            return self.working[task.id]

    def _work(self, current: Current) -> None:
        try:
            outcome = current.worker.run(current.task.job | {"shared": current.worker.shared})
        except WorkerLost as error:
            with self.changed:
                self.losses += 1
                self._end(current, {"state": FAILED, "cause": str(error), "again": True, "lost": True})
            raise
        with self.changed:
            self._end(current, outcome)

    def _end(self, current: Current, outcome: Outcome) -> None:
        task, reached = current.task, self.progress(current.task)
        del self.working[task.id]
        self.attempts[task.id] = 1 if reached > self.reached.get(task.id, -1) else self.attempts[task.id] + 1
        self.reached[task.id] = reached
        is_last = self.attempts[task.id] >= ATTEMPTS or self.is_stopped
        outcome = outcome | {"again": bool(outcome.get("again")) and outcome["state"] == FAILED and not is_last}
        self.waiting += [*([task] if outcome["again"] else []), *self.over(current, outcome)]
        self.changed.notify_all()
