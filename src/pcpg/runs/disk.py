"""Durable files: written aside, synced, renamed; and the lock that keeps a run folder to one writer."""

import contextlib
import errno
import importlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcpg.runs.errors import DamagedFile, DiskFull, FolderInUse, RunError

CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)  # Windows has the second alone
TEMPORARY = ".tmp-"
LOCK = ".lock"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write `path` into a `RunError` that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path) from error
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def temporary_name(path: Path) -> Path:
    """The name beside `path` under which it is written until it is whole."""
    return path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")


def make_folder(path: Path) -> None:
    """Make the folder `path` if it is not there, durably."""
    with writing(path):
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that, whatever happens, the file is either the old one or the new one."""
    temporary = temporary_name(path)
    with writing(path):
        try:
            _write_new(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(path.parent)


def append(path: Path, data: bytes) -> None:
    """Append `data` to `path`, all of it or nothing."""
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | CLOSE_ON_EXEC, 0o666)
        try:
            length = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, length)
                raise
        finally:
            os.close(descriptor)


def truncate(path: Path, length: int) -> None:
    """Cut `path` to its first `length` bytes, durably."""
    with writing(path):
        os.truncate(path, length)
        sync_file(path)


def sync_file(path: Path) -> None:
    """Wait until what was written to `path` would survive a power cut."""
    with writing(path):
        _sync(os.open(path, os.O_RDONLY | CLOSE_ON_EXEC))


def sync_folder(path: Path) -> None:
    """Wait until the names in folder `path` would survive a power cut."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folder
        return
    with writing(path):
        try:
            _sync(os.open(path, os.O_RDONLY | os.O_DIRECTORY | CLOSE_ON_EXEC))
        except OSError as error:
            # Some network file systems cannot sync a folder and say so; there is nothing better to do there.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise


def read_file(path: Path) -> bytes:
    """The bytes of `path`; `DamagedFile` where they cannot be read."""
    try:
        return path.read_bytes()
    except PermissionError as error:
        # Not damage: whoever walks back to an older checkpoint must not pass over this one.
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except FileNotFoundError as error:
        raise DamagedFile(path, "missing") from error
    except OSError as error:
        raise DamagedFile(path, f"cannot be read: {error.strerror or error}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers left in `folder`; only for whoever holds the lock of the run."""
    if not folder.is_dir():
        return
    with writing(folder):
        for path in folder.iterdir():
            if not path.name.startswith(TEMPORARY):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Keep every other process out of `folder` while inside; the kernel lets go when the process dies."""
    with writing(folder / LOCK):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC, 0o666)
    try:
        with writing(folder / LOCK):
            try:
                _lock(descriptor)
            except (BlockingIOError, PermissionError) as error:
                raise FolderInUse(f"{folder}: another process is training into this run folder") from error
        # The file stays afterwards: removing it would let two processes lock two files of the same name.
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock an open file or refuse at once; with the system's own means, which differ."""
    try:
        posix: Any = importlib.import_module("fcntl")
    except ImportError:  # Windows
        windows: Any = importlib.import_module("msvcrt")
        windows.locking(descriptor, windows.LK_NBLCK, 1)
        return
    posix.flock(descriptor, posix.LOCK_EX | posix.LOCK_NB)


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | CLOSE_ON_EXEC, 0o666)
    try:
        _write_all(descriptor, data)
        # Before the rename: else a power cut can leave the new name with the content missing.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        # A disk about to be full takes a part and says so; only the next call fails.
        rest = rest[os.write(descriptor, rest) :]


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
