"""Errors about the files of a run, with messages a user can act on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


class RunError(Exception):
    """A run cannot be written, read or used as asked; the message says which file and why."""


class BadValue(RunError):
    """A value that run files cannot store exactly."""


class DoesNotFit(RunError):
    """Stored arrays whose names, shapes or dtypes do not match the tree to restore."""


class FolderTaken(RunError):
    """A folder that already holds something else."""


class FolderInUse(RunError):
    """A run folder that another process is writing to."""


class NotARun(RunError):
    """A path that is not a run folder."""


# The errors below keep their arguments apart and make the message in __str__: an exception crosses process
# boundaries by its `args`, and one that only keeps the finished message cannot be rebuilt on the other side.


class MissingExtra(RunError):
    """A missing package, installed by an extra of pcpg."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(extra, what)
        self.extra, self.what = extra, what

    def __str__(self) -> str:
        return f"{self.what} needs the extra {self.extra!r}: pip install 'pcpg[{self.extra}]'"


class MemoryFull(RunError):
    """Too little memory for another round; everything is saved."""

    def __init__(self, free: int) -> None:
        super().__init__(free)
        self.free = free

    def __str__(self) -> str:
        return (
            f"only {self.free / 1e6:,.0f} MB of memory are free; everything is saved: resume with more memory, "
            "or train fewer seeds together"
        )


class DamagedFile(RunError):
    """A file that is missing, truncated, altered, or of the wrong kind."""

    def __init__(self, path: Path | str, cause: str) -> None:
        super().__init__(str(path), cause)
        self.path = Path(path)
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}"


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn errors in interpreting intact files into an error that names them."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        cause = f"intact, but not what a run stores there ({type(error).__name__}: {str(error)[:200]})"
        raise DamagedFile(path, cause) from error


class OtherVersion(RunError):
    """An intact file in a format that this version cannot read."""

    def __init__(self, path: Path | str, found: object, expected: int) -> None:
        super().__init__(str(path), found, expected)
        self.path = Path(path)
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"{self.path}: written in format version {self.found}, "
            f"this version of pcpg reads format version {self.expected}"
        )


class DiskFull(RunError):
    """No space left for a file; existing files are untouched."""

    def __init__(self, path: Path | str, stays: str = "files already written are intact") -> None:
        super().__init__(str(path), stays)
        self.path = Path(path)
        self.stays = stays

    def __str__(self) -> str:
        return f"disk full while writing {self.path}; {self.stays}"
