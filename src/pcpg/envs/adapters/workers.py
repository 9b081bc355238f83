"""Environments in separate processes: they have a time limit, end with the training, and are replaced if they die.

Each process plays whole episodes from their seeds. Results are ordered by episode, so they do not depend on the number
of processes, their place or their share of the work. If a process dies, it is replaced and its episode replayed from
the start, with a warning. If it dies again, raises, or does not answer in time, training stops.
"""

import abc
import atexit
import contextlib
import multiprocessing
import os
import signal
import time
import typing
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from pcpg.envs.adapters import worker_process
from pcpg.envs.adapters.worker_process import Answer, Beat, Stage
from pcpg.envs.host import EnvironmentFailed, Moved
from pcpg.machine import safe_path

START = 600.0
"""Time limit in seconds for a process to start and create its environment, which may load much."""
PATIENCE = 10.0
"""Time limit in seconds for a process to close its environment before it is killed."""


class WorkerEnded(Exception):
    """A worker's process has ended."""


class EnvWorker(abc.ABC):
    """Another process with an environment."""

    is_started = False  # its environment is made
    is_hung = False  # it did not answer in time

    @abc.abstractmethod
    def send(self, what: str, value: object) -> None:
        """Send a request; a dead process is noticed when it should answer."""

    @abc.abstractmethod
    def next_answer(self, seconds: float | None) -> Answer | None:
        """The next answer, or None if it takes too long; raises `WorkerEnded` if the process has ended."""

    @abc.abstractmethod
    def end(self, patience: float) -> str:
        """Wait for the process to end, or end it; returns how it ended."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End the process at once, with everything that its environment started."""

    def receive(self, timeout: float) -> Any:
        """The next answer; raises if it is an error."""
        found = self.next_answer((timeout if self.is_started else START) or None)
        if found is None:
            raise self.hung(timeout)
        is_fine, answer, where = found
        if not is_fine:
            raise EnvironmentFailed(answer, where)
        self.is_started = True
        return answer

    def hung(self, limit: float) -> EnvironmentFailed:
        """End a process that did not answer in time; returns the message."""
        self.is_hung = True
        self.kill()
        return EnvironmentFailed(f"it did not answer within {limit:g} s (--env.step-timeout) and was stopped")


class WorkerPlayers:
    """A worker for each environment."""

    def __init__(
        self,
        stage: Stage,
        count: int,
        timeout: float = 0.0,
        hire: Callable[[Stage, int], Any] | None = None,
        ready: Callable[[list[Any], float | None], list[Any]] | None = None,
    ) -> None:
        _, self.observations, self.actions = stage
        self.timeout, self._stage, self._hire, self._ready = timeout, stage, hire or Worker, ready or ready_workers
        self._workers = [self._hire(stage, number) for number in range(count)]
        self._where: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self._workers)

    @property
    def where(self) -> dict[str, int]:
        """The place to report for a failure."""
        return self._where

    def play(self, perform: Callable[..., object], shared: object, tasks: Sequence[object]) -> list[Any]:
        """The result of `perform(player, shared, task)` for each task; each free worker takes the next task.

        If several episodes fail, the first in order is reported, not the first in time.
        """
        return _Play(self, perform, shared, tasks).results()

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in the first environments."""
        for worker, seed in zip(self._workers, seeds, strict=False):
            worker.send("reset", [seed])
        return np.concatenate([self._answer(number) for number in range(len(seeds))])

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move the environments that are alive."""
        moving = np.flatnonzero(alive).tolist()
        for number in moving:
            self._workers[number].send("step", (actions[number : number + 1], np.ones(1, bool)))
        space = self.observations.space
        moved = Moved(np.zeros((len(actions), *space.shape), space.dtype), *np.zeros((3, len(actions))))
        for number in moving:
            for whole, part in zip(moved, self._answer(number), strict=True):
                whole[number] = part[0]
        return moved._replace(terminated=moved.terminated > 0, truncated=moved.truncated > 0)

    def close(self) -> None:
        """Close the environments and end their processes."""
        for worker in self._workers:
            with contextlib.suppress(Exception):  # it may be gone, and where it was too
                worker.send("close", None)
        # A hanging worker does not listen, and the others may hang as well.
        is_hung = any(worker.is_hung for worker in self._workers)
        limit = time.monotonic() + (1.0 if is_hung else PATIENCE)
        for worker in self._workers:
            worker.end(max(0.0, limit - time.monotonic()))

    def _answer(self, number: int) -> Any:
        self._where = {"worker": number}
        try:
            while isinstance(found := self._workers[number].receive(self.timeout), Beat):
                pass
            return found
        except WorkerEnded:
            raise EnvironmentFailed(f"its process died ({self._workers[number].end(1.0)})") from None


class _Play:
    """A batch of episodes in progress."""

    def __init__(
        self, players: WorkerPlayers, perform: Callable[..., object], shared: object, tasks: Sequence[object]
    ) -> None:
        self.players, self.perform, self.shared, self.tasks = players, perform, shared, tasks
        self.found: list[Any] = [None] * len(tasks)
        self.at: dict[int, int] = {}  # by worker, the task that it plays
        self.steps: dict[int, tuple[int, float]] = {}  # by worker, where it is, and since when
        self.next, self.knowing = 0, set[int]()
        self.replaced: set[int] = set()  # tasks in which a worker ended
        self.failures: dict[int, EnvironmentFailed] = {}

    def results(self) -> list[Any]:
        """All of them, in order."""
        workers = self.players._workers
        for number in range(len(workers)):
            self._give(number)
        while self.at:
            busy = [workers[number] for number in self.at]
            for worker in self.players._ready(busy, self._patience()):
                self._take(workers.index(worker))
            self._look_at_the_clock()
        if self.failures:
            first = min(self.failures)
            self.players._where = self.failures[first].where
            raise self.failures[first]
        return self.found

    def _give(self, number: int) -> None:
        """The next task for a worker; None if an earlier one has failed."""
        if self.next < min([len(self.tasks), *self.failures]):
            self._send(number, self.next)
            self.next += 1

    def _send(self, number: int, task: int) -> None:
        self.at[number], self.steps[number] = task, (0, time.monotonic())
        shared = None if number in self.knowing else (self.perform, self.shared)
        self.knowing.add(number)
        self.players._workers[number].send("play", (shared, self.tasks[task], self.players.timeout > 0))

    def _take(self, number: int) -> None:
        task = self.at[number]
        try:
            found = self.players._workers[number].receive(0.0)
        except WorkerEnded:
            return self._replace(number, task)
        except EnvironmentFailed as error:
            return self._fail(number, task, error)
        if isinstance(found, Beat):
            self.steps[number] = int(found), time.monotonic()
            return None
        self.found[task] = found
        del self.at[number]
        return self._give(number)

    def _replace(self, number: int, task: int) -> None:
        """Replace a dead process, once, by a new one that plays the same episode."""
        how = self.players._workers[number].end(1.0)
        if task in self.replaced:
            return self._fail(number, task, EnvironmentFailed(f"its process died twice at the same step ({how})"))
        self.replaced.add(task)
        self.players._workers[number] = self.players._hire(self.players._stage, number)
        self.knowing.discard(number)
        self._send(number, task)
        warnings.warn(
            f"worker {number} died ({how}) and was replaced; its episode was replayed from its seed",
            RuntimeWarning,
            stacklevel=2,
        )
        return None

    def _fail(self, number: int, task: int, error: EnvironmentFailed) -> None:
        del self.at[number]
        self.failures[task] = error
        error.where |= {"step": error.where.get("step", self.steps[number][0]), "worker": number}
        seed = getattr(self.tasks[task], "seed", None)
        error.where = ({} if seed is None else {"episode seed": int(seed)}) | error.where

    def _patience(self) -> float:
        return min(self.players.timeout / 4, 0.5) if self.players.timeout else 5.0

    def _look_at_the_clock(self) -> None:
        for number, task in list(self.at.items()):
            worker = self.players._workers[number]
            limit = self.players.timeout if worker.is_started else START  # a start is none of a step's time
            if limit and time.monotonic() - self.steps[number][1] > limit:
                self._fail(number, task, worker.hung(limit))


class Worker(EnvWorker):
    """A process with an environment, and its pipe."""

    def __init__(self, stage: Stage, number: int) -> None:
        # Not by fork: JAX has threads, and a copy of a process with threads may hang.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", worker_process.__name__])  # imported once, for all workers
        self.pipe, theirs = context.Pipe()
        carried = CloudpickleWrapper(typing.cast(Any, lambda: stage))
        with warnings.catch_warnings(action="ignore"):
            arguments = {"target": worker_process.work, "args": (theirs, carried), "name": f"pcpg-{number}"}
            self.process = context.Process(**arguments, daemon=True)
            with safe_path():
                self.process.start()
        theirs.close()
        _ALIVE.add(self)

    def send(self, what: str, value: object) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send((what, value))

    def next_answer(self, seconds: float | None) -> Answer | None:
        try:
            return self.pipe.recv() if self.pipe.poll(seconds) else None
        except (EOFError, OSError) as error:
            raise WorkerEnded from error

    def end(self, patience: float) -> str:
        self.process.join(patience)
        code = self.process.exitcode
        self.kill()
        if code is None:
            return "unknown cause"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        pid = self.process.pid
        with contextlib.suppress(OSError, ValueError):
            if pid is not None:
                os.killpg(pid, signal.SIGKILL)  # a group of its own, see worker_process
        with contextlib.suppress(OSError, ValueError):
            if self.process.is_alive():
                self.process.kill()
            self.process.join(5.0)
        self.pipe.close()
        _ALIVE.discard(self)


def ready_workers(workers: list[Worker], timeout: float | None) -> list[Worker]:
    """The workers with a message; waits until there is one."""
    able = connection.wait([worker.pipe for worker in workers], timeout)
    return [worker for worker in workers if worker.pipe in able]


_ALIVE: "weakref.WeakSet[Worker]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for worker in list(_ALIVE):
        worker.kill()
