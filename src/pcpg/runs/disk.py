"""Durable files: written aside, synced, renamed.

Every file that a command is given or finds is opened here. A folder may come from anybody, so nothing in it is
followed out of it: what is opened must be a plain file, neither a link nor a pipe nor a device, and not larger than a
file of its kind can be.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from pcpg.machine import free_memory
from pcpg.runs.errors import DamagedFile, DiskFull, RunError

CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)  # Windows has the second alone
TEMPORARY = ".tmp-"

MOST_BYTES = {".json": 1 << 24, ".toml": 1 << 24, ".py": 1 << 24, ".jsonl": 1 << 28}
"""The largest files that are read, by how their names end; others may take half of the free memory."""
UNKNOWN_MEMORY = 8 << 30
"""Bytes that are taken to be free where the system does not tell."""

_NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither this nor the next
_SAFELY = CLOSE_ON_EXEC | _NOT_FOLLOWED | getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for its other end for ever


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
    """The temporary name next to `path` under which it is written."""
    return path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")


def make_folder(path: Path) -> None:
    """Make the folder `path` if it is not there, durably."""
    with writing(path):
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)


def write_file(path: Path, data: bytes, *, settled: bool = True) -> None:
    """Write `data` to `path` so that, whatever happens, the file is either the old one or the new one.

    Unless `settled`, a power cut may still bring the old one back: for callers that sync the folder later, or need not.
    """
    temporary = temporary_name(path)
    with writing(path):
        try:
            _write_new(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if settled:
            sync_folder(path.parent)


def append(path: Path, data: bytes) -> None:
    """Append `data` to `path`, all of it or nothing."""
    with writing(path):
        descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
        descriptor = open_plain(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, length)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until what was written to `path` would survive a power cut."""
    with writing(path):
        _sync(open_plain(path, os.O_RDONLY))


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


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to read `path` into an error that names it."""
    try:
        yield
    except PermissionError as error:
        # Not damage: a search for an older checkpoint must not skip this one.
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except FileNotFoundError as error:
        raise DamagedFile(path, "missing") from error
    except OSError as error:
        raise DamagedFile(path, f"cannot be read: {error.strerror or error}") from error


def read_file(path: Path, most: int | None = None) -> bytes:
    """The bytes of `path`, of which there may be `most`; `DamagedFile` where they cannot be read."""
    with reading(path), open(open_plain(path, os.O_RDONLY), "rb") as file:
        size, limit = os.fstat(file.fileno()).st_size, largest(path) if most is None else most
        if size > limit:
            raise DamagedFile(path, f"too large: {size:,} bytes, expected at most {limit:,}")
        return file.read(size + 1)  # no more than was looked at, should it grow meanwhile


def copy_folder(source: Path, target: Path, leave: Iterable[str] = ()) -> None:
    """Copy a folder of plain files to a new place, whole or not at all; links are neither followed nor copied."""
    making = temporary_name(target)
    make_folder(target.parent)
    with writing(target):
        try:
            _copy(source, making, frozenset(leave), depth=8)
            os.rename(making, target)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        sync_folder(target.parent)


def _copy(source: Path, target: Path, leave: frozenset[str], depth: int) -> None:
    if stat.S_ISDIR(os.lstat(source).st_mode):
        if not depth:
            raise DamagedFile(source, "nested too deeply")
        target.mkdir()
        for name in sorted(os.listdir(source)):
            if name not in leave and not name.startswith(TEMPORARY):
                _copy(source / name, target / name, frozenset(), depth - 1)
        return
    with reading(source):
        descriptor = open_plain(source, os.O_RDONLY)
    with open(descriptor, "rb") as read, open(target, "xb") as written:
        shutil.copyfileobj(read, written)
        written.flush()
        os.fsync(written.fileno())


def read_head(path: Path, count: int) -> tuple[bytes, int]:
    """The first bytes of a file, and how many it has."""
    with reading(path), open(open_plain(path, os.O_RDONLY), "rb") as file:
        return file.read(count), os.fstat(file.fileno()).st_size


def largest(path: Path) -> int:
    """The most bytes that are read from a file of this name."""
    return MOST_BYTES.get(path.suffix) or (free_memory() or UNKNOWN_MEMORY) // 2


def exists(path: Path) -> bool:
    """Whether there is anything of this name, a link that leads nowhere among it."""
    return os.path.lexists(path)


def is_folder(path: Path | str) -> bool:
    """Whether there is a folder of this name; none has a name that is too long."""
    return os.path.isdir(path)


def check_folder(path: Path | str) -> None:
    """Raise unless there is a folder of this name, or one can be made there; changes nothing."""
    for place in (Path(path).absolute(), *Path(path).absolute().parents):
        try:
            mode = os.stat(place).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # such as a name that is too long
            raise RunError(f"cannot write {path}: {error.strerror}") from error
        if not stat.S_ISDIR(mode):
            raise RunError(f"cannot write {path}: {place} is {_kind(mode)}; choose another name")
        return


def check_output(path: Path, mark: bytes) -> None:
    """Raise unless `path` is free for a file that a user asked for: nothing, an empty file or one of the same kind.

    `mark` is in the first bytes of files of that kind.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:  # such as a name that is too long
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise RunError(f"cannot write {path}: it is {_kind(mode)}; choose another name")
    head, size = read_head(path, 512)
    if size and mark not in head:
        raise RunError(f"cannot write {path}: a file of another kind is there and is not replaced; choose another name")


def refuse_strange(folder: Path, names: Iterable[str]) -> None:
    """Raise if one of these entries of a folder, or anything one or two levels inside it, is no plain file or folder.

    Runs are checked once, when opened: from then on no name inside leads elsewhere.
    """
    for name in names:
        _refuse_strange(folder / name, depth=2)


def _refuse_strange(path: Path, depth: int) -> None:
    inside: list[os.DirEntry[str]] = []
    with reading(path), contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            inside = list(os.scandir(path)) if depth else []
        elif not stat.S_ISREG(mode):
            raise DamagedFile(path, _what(mode))
    for entry in inside:
        if depth > 1 or not entry.is_file(follow_symlinks=False):
            _refuse_strange(Path(entry.path), depth - 1)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    kinds |= {stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _what(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "is a folder, expected a file"
    return f"is {_kind(mode)}, not a plain file, and is not followed; remove it if it is not yours"


def open_plain(path: Path, flags: int) -> int:
    """A descriptor of a plain file, made where the flags say so; `DamagedFile` for anything else of that name."""
    try:
        descriptor = os.open(path, flags | _SAFELY, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise DamagedFile(path, _what(os.lstat(path).st_mode)) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise DamagedFile(path, _what(mode))
    return descriptor


def remove_leftovers(folder: Path) -> None:
    """Remove leftovers of killed writers in `folder`; the caller must hold the lock of the run."""
    if not folder.is_dir() or folder.is_symlink():
        return
    with writing(folder):
        for path in folder.iterdir():
            if not path.name.startswith(TEMPORARY):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _write_new(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # what a killed process of this number left, or somebody put there
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC | _NOT_FOLLOWED, 0o666)
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
