"""The process of an environment: it plays on request and ends with the training process."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

import numpy as np

from pcpg.envs.adapters.players import PlainPlayers
from pcpg.envs.adapters.spaces import Actions, Observations
from pcpg.envs.host import EnvironmentFailed, Moved
from pcpg.machine import leave_safe_path

Stage = tuple[Callable[[], Any], Observations, Actions]
"""What a worker needs to create the environment and convert its observations and actions."""

Answer = tuple[bool, Any, dict[str, int]]
"""Whether the task succeeded, its result or error, and the place."""


class Beat(int):
    """An interim message with the current step of a worker."""


class Player(PlainPlayers):
    """The environment of a worker; reports its step if asked to."""

    def __init__(self, stage: Stage, beat: Callable[[int], None] = lambda step: None) -> None:
        make, observations, actions = stage
        super().__init__([make()], observations, actions)
        self.beat, self.is_watched = beat, False
        self._perform: Any = None
        self._shared: object = None

    def step(self, actions: np.ndarray, alive: np.ndarray) -> Moved:
        """Move the environment."""
        moved = super().step(actions, alive)
        if self.is_watched:
            self.beat(self._step)
        return moved

    def answer(self, what: str, value: Any) -> Answer:
        """Reset, take a step, or play what it is given."""
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
    """The text of an exception, with the line that raised it."""
    frames = [] if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)  # it says where
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def work(pipe: connection.Connection, stage: Callable[[], Stage]) -> None:
    """Create an environment and serve requests from the pipe until it says close or the other end is gone."""
    leave_safe_path()
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
    """Ignore signals: the trainer ends this process after its round. Its own process group includes its children."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def _die_with_the_parent() -> None:
    """End this process, hung or not, as soon as the training process has ended in whatever way."""
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
