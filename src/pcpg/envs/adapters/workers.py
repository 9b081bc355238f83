"""Environments in processes of their own: they have a time limit, die with the process that trains, and are replaced.

A process that ends while it plays is started again, and its episode is played again from its seed by the same actions:
nobody who trains notices but for a warning. One that ends again, raises, or does not answer in time stops the training.
"""

import atexit
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from pcpg.envs.adapters.players import first_observation, reward_number
from pcpg.envs.adapters.spaces import Actions, Observations
from pcpg.envs.host import EnvironmentFailed, Moved

START = 600.0
"""Seconds that a process has to start and to make its environment, which may load much."""
PATIENCE = 10.0
"""Seconds that a process has to close its environment before it is killed."""


class WorkerPlayers:
    """A process for each environment; ended ones are left alone."""

    def __init__(
        self, make: Callable[[], Any], count: int, observations: Observations, actions: Actions, timeout: float = 0.0
    ) -> None:
        self.observations, self.actions, self.timeout = observations, actions, timeout
        self._make = CloudpickleWrapper(make)
        self._workers = [Worker(self._make, number) for number in range(count)]
        self._seen = np.zeros((count, *observations.space.shape), observations.space.dtype)
        self._seeds: list[int] = []
        self._done: list[list[Any]] = [[] for _ in range(count)]  # the actions of each episode so far
        self._at = 0

    @property
    def count(self) -> int:
        return len(self._workers)

    @property
    def where(self) -> dict[str, int]:
        """The place at which something may just have gone wrong."""
        seed = {"episode seed": self._seeds[self._at]} if self._at < len(self._seeds) else {}
        return seed | {"step": len(self._done[self._at]), "worker": self._at}

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start an episode in the first environments."""
        self._seeds, n = list(seeds), len(seeds)
        self._done = [[] for _ in self._workers]
        for number, seed in enumerate(seeds):
            self._send(number, "reset", seed)
        for number in range(n):
            self._seen[number] = self.observations.encode(self._answer(number, "reset", seeds[number]))
        return self._seen[:n]

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move the environments that are alive."""
        decoded = self.actions.decode(actions)
        choices = decoded.tolist() if decoded.ndim == 1 else decoded
        moving = np.flatnonzero(alive).tolist()
        for number in moving:
            self._send(number, "step", choices[number])
        outcomes = np.zeros((3, len(actions)))
        for number in moving:
            observation, reward, terminated, truncated = self._answer(number, "step", choices[number])
            self._done[number].append(choices[number])
            self._seen[number] = self.observations.encode(observation)
            outcomes[:, number] = reward, terminated, truncated
        return Moved(self._seen[: len(actions)], outcomes[0], outcomes[1] > 0, outcomes[2] > 0)

    def close(self) -> None:
        """Close the environments and end their processes."""
        for worker in self._workers:
            worker.ask_to_close()
        # One that hangs does not listen, and those beside it may hang as well.
        is_hung = any(worker.is_hung for worker in self._workers)
        limit = time.monotonic() + (1.0 if is_hung else PATIENCE)
        for worker in self._workers:
            worker.end(max(0.0, limit - time.monotonic()))

    def _send(self, number: int, what: str, value: Any) -> None:
        self._at = number
        with contextlib.suppress(OSError):  # one that has ended is noticed when it is to answer
            self._workers[number].pipe.send((what, value))

    def _answer(self, number: int, what: str, value: Any) -> Any:
        """What a process answers to what it was sent; one that has ended is replaced, once."""
        self._at = number
        try:
            return self._workers[number].receive(self.timeout)
        except (EOFError, OSError):
            code = self._replace(number)
        try:
            self._workers[number].pipe.send((what, value))
            return self._workers[number].receive(self.timeout)
        except (EOFError, OSError) as error:
            raise EnvironmentFailed(f"its process ended, twice at the same place ({_ending(code)})") from error

    def _replace(self, number: int) -> int | None:
        """A new process in place of one that ended, at the same place of the same episode; how the old one ended."""
        code = self._workers[number].end(1.0)
        self._workers[number] = Worker(self._make, number)
        done, self._done[number] = self._done[number], []
        if done:
            try:
                observation = self._workers[number].ask(self.timeout, "reset", self._seeds[number])
                for action in done:
                    observation = self._workers[number].ask(self.timeout, "step", action)[0]
                    self._done[number].append(action)
            except (EOFError, OSError) as error:
                raise EnvironmentFailed(f"its process ended ({_ending(code)}), and so did its replacement") from error
            if not np.array_equal(self.observations.encode(observation), self._seen[number]):
                raise EnvironmentFailed(
                    f"its process ended ({_ending(code)}), and played again from its seed the episode was another one"
                )
        warnings.warn(
            f"worker {number} ended ({_ending(code)}) and was replaced; its episode was played again from its seed",
            RuntimeWarning,
            stacklevel=2,
        )
        return code


class Worker:
    """A process with an environment, and the pipe to it."""

    def __init__(self, make: CloudpickleWrapper, number: int) -> None:
        # Not by fork: JAX has threads, and a copy of a process with threads may hang.
        context = _context()
        self.pipe, theirs = context.Pipe()
        with warnings.catch_warnings(action="ignore"):
            self.process = context.Process(target=_work, args=(theirs, make), name=f"pcpg-{number}", daemon=True)
            self.process.start()
        theirs.close()
        self._is_ready = self.is_hung = False
        _ALIVE.add(self)

    def ask(self, timeout: float, what: str, value: Any) -> Any:
        """Send something and wait for the answer."""
        self.pipe.send((what, value))
        return self.receive(timeout)

    def receive(self, timeout: float) -> Any:
        """An answer; `EOFError` where the process has ended."""
        if not self._is_ready:  # its start is none of a step's time
            self._is_ready = True
            self.receive(START)
        if not self.pipe.poll(timeout or None):
            self.is_hung = True
            self.kill()
            raise EnvironmentFailed(f"it did not answer within {timeout:g} s (--env.step-timeout), and was ended")
        is_fine, answer = self.pipe.recv()
        if not is_fine:
            raise EnvironmentFailed(answer)
        return answer

    def ask_to_close(self) -> None:
        """Let the environment close itself."""
        with contextlib.suppress(OSError, ValueError):
            self.pipe.send(("close", None))

    def end(self, patience: float) -> int | None:
        """Wait until the process has ended, or end it; its exit code where it ended by itself."""
        self.process.join(patience)
        code = self.process.exitcode
        self.kill()
        return code

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


def _context() -> Any:
    """Processes from a fork server that has imported this module: the first start takes its time, no other does."""
    context = multiprocessing.get_context("forkserver")
    server = getattr(importlib.import_module("multiprocessing.forkserver"), "_forkserver", None)
    if getattr(server, "_preload_modules", None) == ["__main__"]:  # nobody asked for anything else
        context.set_forkserver_preload(["__main__", __name__])
    return context


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


def _work(pipe: Any, make: CloudpickleWrapper) -> None:
    """Make an environment, and do what the pipe says until it says close, or until the other end is gone."""
    _leave_signals_to_the_parent()
    _die_with_the_parent()
    env = None
    try:
        try:
            env = make.fn()
            pipe.send((True, "ready"))
        except Exception as error:
            pipe.send((False, _said(error)))
            return
        while True:
            what, value = pipe.recv()
            if what == "close":
                return
            try:
                answer = (True, _played(env, what, value))
            except Exception as error:
                answer = (False, _said(error))
            pipe.send(answer)
    except (EOFError, OSError):
        return  # the one that trains is gone
    finally:
        with contextlib.suppress(Exception):
            if env is not None:
                env.close()


def _played(env: Any, what: str, value: Any) -> Any:
    if what == "reset":
        return first_observation(env.reset(seed=value))
    observation, reward, terminated, truncated, _ = env.step(value)
    return observation, reward_number(reward), bool(terminated), bool(truncated)


def _said(error: Exception) -> str:
    """An exception with the line that raised it; its traceback goes to stderr, which is the trainer's too."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


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
