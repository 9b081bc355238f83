"""Leases: one process at a time works on a cell, wherever it runs, and one that has gone is replaced.

The lease of a cell is a file `ID.N` on the storage that all see, made by whoever comes first; its holder adds a byte
every second. A holder that adds none for `PATIENCE` seconds, by the clock of the one who watches, or whose process is
known to be gone, has lost its lease to whoever makes `ID.N+1` first. A holder that was only asleep finds that out at
its next beat, and ends its process before it writes on.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pcpg.runs.disk import make_folder, writing

BEAT = 1.0
PATIENCE = 30.0


class Held(NamedTuple):
    """A lease as others see it."""

    path: Path
    number: int
    owner: dict[str, Any]
    beats: int
    touched: float


def newest(folder: Path, cell: str) -> Held | None:
    """The lease of a cell that counts; None where nobody has one."""
    found = sorted(folder.glob(f"{cell}.*"), key=lambda path: int(path.suffix[1:]))
    for path in reversed(found):
        with contextlib.suppress(OSError):
            head, _, beats = path.read_text(encoding="utf-8").partition("\n")
            with contextlib.suppress(ValueError):
                return Held(path, int(path.suffix[1:]), json.loads(head), len(beats), path.stat().st_mtime)
            return Held(path, int(path.suffix[1:]), {}, 0, path.stat().st_mtime)  # being written
    return None


class Lease:
    """A lease that this process holds; it beats until it is released, and ends the process when it is lost."""

    def __init__(self, folder: Path, cell: str, number: int, lost: Callable[[], None]) -> None:
        self.folder, self.cell, self.number = folder, cell, number
        self.path, self._lost, self._over = folder / f"{cell}.{number}", lost, threading.Event()
        self._head = json.dumps(whoami() | {"token": secrets.token_hex(8)})
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        os.write(descriptor, f"{self._head}\n".encode())
        os.close(descriptor)
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            try:
                if not self.is_mine():
                    self._lost()
                    return
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
                os.write(descriptor, b".")
                os.close(descriptor)
            except FileNotFoundError:
                self._lost()
                return
            except OSError:  # a full disk, or storage that is away for a while: the others' patience decides
                continue

    def is_mine(self) -> bool:
        """Whether no one has taken it over."""
        held = newest(self.folder, self.cell)
        return held is not None and held.number == self.number and json.dumps(held.owner) == self._head

    def release(self) -> None:
        """Give the cell back."""
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            if self.is_mine():
                self.path.unlink()


def take(folder: Path, cell: str, lost: Callable[[], None], patience: float = PATIENCE) -> tuple[Lease, Held | None]:
    """The lease of a cell, waited for as long as its holder lives, and that of a holder who has gone."""
    with writing(folder):
        make_folder(folder)
        while True:
            before = newest(folder, cell)
            if before is not None and not has_gone(before, patience):
                continue
            try:
                lease = Lease(folder, cell, 1 if before is None else before.number + 1, lost)
            except FileExistsError:
                continue  # another was faster
            if before is not None:
                before.path.unlink(missing_ok=True)
            return lease, before


def has_gone(held: Held, patience: float) -> bool:
    """Whether a holder is gone: watched until it beats, for at most so long."""
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        if is_dead(held.owner):
            return True
        time.sleep(min(BEAT / 4, patience))
        seen = newest(held.path.parent, held.path.stem)
        if seen is None or seen.number != held.number or seen.beats != held.beats:
            return False
    return True


def whoami() -> dict[str, Any]:
    """This process among those of all machines."""
    return {"host": machine(), "pid": os.getpid(), "started": started(os.getpid())}


def is_dead(owner: dict[str, Any]) -> bool:
    """Whether a process is known to be gone: one of this machine, and no longer there."""
    if owner.get("host") != machine() or owner.get("started") is None:
        return False
    return started(int(owner["pid"])) != owner["started"]


def machine() -> str:
    """The name of this machine since it was started."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.exists() else ''}"


def started(pid: int) -> str | None:
    """When a process began, in the system's own count; None where it is gone or nobody tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
