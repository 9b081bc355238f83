"""Environments in processes of their own: they have a time limit, die with the process that trains, and are replaced.

Each process plays whole episodes by itself, from their seeds; results are put in the order of the episodes, and so do
not depend on how many processes there are, where they are or which of them played what. A process that ends while it
plays is started again, and its episode is played again from its start: nobody who trains notices but for a warning. One
that ends again, raises, or does not answer in time stops the training.
"""

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any, Protocol

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from pcpg.envs.adapters.players import PlainPlayers
from pcpg.envs.adapters.spaces import Actions, Observations
from pcpg.envs.host import EnvironmentFailed, Moved

START = 600.0
"""Seconds that a process has to start and to make its environment, which may load much."""
PATIENCE = 10.0
"""Seconds that a process has to close its environment before it is killed."""

Stage = tuple[Callable[[], Any], Observations, Actions]
"""What a worker needs: how the environment is made, seen and moved."""


class EnvWorker(Protocol):
    """Somebody with an environment, in another process."""

    is_hung: bool

    def is_started(self) -> bool:
        """Whether its environment is made."""
        ...

    def send(self, what: str, value: Any) -> None:
        """Ask for something; one that has ended is noticed when it is to answer."""
        ...

    def receive(self, timeout: float) -> Any:
        """The next answer; `WorkerEnded` where the process has ended."""
        ...

    def ask_to_close(self) -> None:
        """Let the environment close itself."""
        ...

    def end(self, patience: float) -> str:
        """Wait until it has ended, or end it; how it ended."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class WorkerEnded(Exception):
    """A worker's process has ended."""


class Beat(int):
    """Not an answer yet: the step at which a worker is."""


class WorkerPlayers:
    """A worker for each environment."""

    def __init__(
        self,
        stage: Stage,
        count: int,
        timeout: float = 0.0,
        hire: "Callable[[Stage, int], Any] | None" = None,
        ready: "Callable[[list[Any], float | None], list[Any]] | None" = None,
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
        """The place at which something may just have gone wrong."""
        return self._where

    def play(self, perform: Callable[..., Any], shared: Any, tasks: Sequence[Any]) -> list[Any]:
        """What `perform(player, shared, task)` gives for each task; each worker takes the next as soon as it is free.

        Of several episodes that fail the first is told, whichever came first in time.
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
            worker.ask_to_close()
        # One that hangs does not listen, and those beside it may hang as well.
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
            raise EnvironmentFailed(f"its process ended ({self._workers[number].end(1.0)})") from None


class _Play:
    """Some episodes at work."""

    def __init__(self, players: WorkerPlayers, perform: Callable[..., Any], shared: Any, tasks: Sequence[Any]) -> None:
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
        """The next task for a worker; none where one has failed that comes before."""
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
        """A new process in place of one that ended, which plays the same episode; once."""
        how = self.players._workers[number].end(1.0)
        if task in self.replaced:
            return self._fail(number, task, EnvironmentFailed(f"its process ended, twice at the same place ({how})"))
        self.replaced.add(task)
        self.players._workers[number] = self.players._hire(self.players._stage, number)
        self.knowing.discard(number)
        self._send(number, task)
        warnings.warn(
            f"worker {number} ended ({how}) and was replaced; its episode was played again from its seed",
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
            limit = self.players.timeout if worker.is_started() else START  # a start is none of a step's time
            if limit and time.monotonic() - self.steps[number][1] > limit:
                worker.is_hung = True
                worker.kill()
                text = f"it did not answer within {limit:g} s (--env.step-timeout), and was ended"
                self._fail(number, task, EnvironmentFailed(text))


class Worker:
    """A process with an environment, and the pipe to it."""

    def __init__(self, stage: Stage, number: int) -> None:
        # Not by fork: JAX has threads, and a copy of a process with threads may hang.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", __name__])  # imported once, for all workers
        self.pipe, theirs = context.Pipe()
        carried = CloudpickleWrapper(lambda: stage)  # pyright: ignore[reportArgumentType]
        with warnings.catch_warnings(action="ignore"):
            self.process = context.Process(target=_work, args=(theirs, carried), name=f"pcpg-{number}", daemon=True)
            self.process.start()
        theirs.close()
        self._is_ready = self.is_hung = False
        _ALIVE.add(self)

    def send(self, what: str, value: Any) -> None:
        with contextlib.suppress(OSError):  # one that has ended is noticed when it is to answer
            self.pipe.send((what, value))

    def is_started(self) -> bool:
        """Whether its environment is made."""
        return self._is_ready

    def receive(self, timeout: float) -> Any:
        """What it says next; `WorkerEnded` where the process has ended."""
        try:
            if not self.pipe.poll((timeout if self._is_ready else START) or None):
                self.is_hung = True
                self.kill()
                raise EnvironmentFailed(f"it did not answer within {timeout:g} s (--env.step-timeout), and was ended")
            is_fine, answer, where = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerEnded from error
        if not is_fine:
            raise EnvironmentFailed(answer, where)
        self._is_ready = True
        return answer

    def ask_to_close(self) -> None:
        self.send("close", None)

    def end(self, patience: float) -> str:
        self.process.join(patience)
        code = self.process.exitcode
        self.kill()
        return _ending(code)

    def kill(self) -> None:
        """End the process and all that its environment started."""
        pid = self.process.pid
        with contextlib.suppress(OSError, ValueError):
            if pid is not None:
                os.killpg(pid, signal.SIGKILL)  # a group of its own, see _work
        with contextlib.suppress(OSError, ValueError):
            if self.process.is_alive():
                self.process.kill()
            self.process.join(5.0)
        self.pipe.close()
        _ALIVE.discard(self)


def ready_workers(workers: list[Worker], timeout: float | None) -> list[Worker]:
    """Those that have something to say, waited for until one has."""
    by_pipe = {worker.pipe: worker for worker in workers}
    return [by_pipe[pipe] for pipe in connection.wait(list(by_pipe), timeout)]  # pyright: ignore


_ALIVE: "weakref.WeakSet[Worker]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for worker in list(_ALIVE):
        worker.kill()


def _ending(code: int | None) -> str:
    if code is None:
        return "how is unknown"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


# In the process of an environment.


class Player(PlainPlayers):
    """The one environment of a worker; it says at which step it is, where somebody wants to know."""

    def __init__(self, stage: Stage, beat: Callable[[int], None] = lambda step: None) -> None:
        make, observations, actions = stage
        super().__init__([make()], observations, actions)
        self.beat, self.is_watched = beat, False
        self._perform: Any = None
        self._shared: Any = None

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move the environment."""
        moved = super().step(actions, alive)
        if self.is_watched:
            self.beat(self._step)
        return moved

    def answer(self, what: str, value: Any) -> tuple[bool, Any, dict[str, int]]:
        """Whether it went well, what came of it or went wrong, and where."""
        try:
            if what == "reset":
                return True, self.reset(value), {}
            if what == "step":
                return True, self.step(*value), {}
            shared, task, self.is_watched = value
            if shared is not None:
                self._perform, self._shared = shared
            return True, self._perform(self, self._shared, task), {}
        except Exception as error:
            cause = error.__cause__ if isinstance(error, EnvironmentFailed) and error.__cause__ is not None else error
            return False, said(cause), {"step": self._step}


def said(error: BaseException) -> str:
    """An exception with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _work(pipe: Any, stage: Any) -> None:
    """Make an environment, and do what the pipe says until it says close, or until the other end is gone."""
    _leave_signals_to_the_parent()
    _die_with_the_parent()
    player = None
    try:
        try:
            player = Player(stage(), lambda step: pipe.send((True, Beat(step), {})))
            pipe.send((True, Beat(0), {}))
        except Exception as error:
            pipe.send((False, said(error), {}))
            return
        while True:
            what, value = pipe.recv()
            if what == "close":
                return
            pipe.send(player.answer(what, value))
    except (EOFError, OSError):
        return  # the one that trains is gone
    finally:
        if player is not None:
            player.close()


def _leave_signals_to_the_parent() -> None:
    """A round is finished first; whoever trains ends this process. A group of its own, so that its children go too."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def _die_with_the_parent() -> None:
    """End this process, hung or not, as soon as the one that trains has ended, however it did."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # of the fork server, which ends with the trainer
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
