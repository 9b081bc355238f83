"""The lock that keeps a folder to one writer. The kernel releases it when the process ends, however it ends."""

import contextlib
import functools
import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcpg.runs.disk import open_plain, reading, writing
from pcpg.runs.errors import FolderInUse

LOCK = ".lock"
TRIES, PAUSE = 5, 0.05
"""A process that checks a lock holds it for a moment, so a writer retries after this pause."""


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Keep every other process out of `folder` while inside."""
    with writing(folder / LOCK):
        descriptor = open_plain(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        with writing(folder / LOCK):
            for attempt in range(TRIES):
                time.sleep(PAUSE if attempt else 0.0)
                if _locks(descriptor, alone=True):
                    break
            else:
                raise FolderInUse(f"{folder}: another process is writing to this run folder")
        # The file stays afterwards: removing it would let two processes lock two files of the same name.
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of `folder`."""
    if not os.path.lexists(folder / LOCK):
        return False
    with reading(folder / LOCK):
        descriptor = open_plain(folder / LOCK, os.O_RDONLY)
        try:
            return not _locks(descriptor, alone=False)
        finally:
            os.close(descriptor)


def _locks(descriptor: int, *, alone: bool) -> bool:
    """Whether an open file could be locked, by the means of the operating system."""
    try:
        posix: Any = importlib.import_module("fcntl")
    except ImportError:  # Windows
        windows: Any = importlib.import_module("msvcrt")
        lock = functools.partial(windows.locking, descriptor, windows.LK_NBLCK, 1)
    else:
        lock = functools.partial(posix.flock, descriptor, posix.LOCK_NB | (posix.LOCK_EX if alone else posix.LOCK_SH))
    with contextlib.suppress(BlockingIOError, PermissionError):
        lock()
        return True
    return False
