"""The engine for more than one machine: a Ray actor for each worker, which starts the same process as the local engine.

A worker that sees the folder of the sweep writes the run folder of a cell there, and another node resumes from the last
checkpoint. Otherwise checkpoints travel: the actor keeps the changed files of each one until the driver fetches them.
"""

import contextlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pcpg.runs.disk import make_folder, read_file, write_file
from pcpg.runs.errors import RunError
from pcpg.runs.lock import LOCK
from pcpg.runs.manifest import MANIFEST
from pcpg_lab.cluster import connect, imported
from pcpg_lab.sweeps.crew import Job, Outcome, WorkerLost, environment
from pcpg_lab.sweeps.local import Process

LOOK = 0.25
HIRES = 5
"""Workers that may end one after the other before any of them was ready."""


class RayEngine:
    """Workers on the nodes of a cluster."""

    def __init__(
        self,
        name: str,
        out: Path | str,
        cores: int = 1,
        gpus: float | None = None,
        most: int = 0,
        storage: str = "auto",
    ) -> None:
        self.is_mine, self.ray = connect(name), imported()
        has_gpus = self.ray.cluster_resources().get("GPU", 0) > 0
        self.cores, self.gpus, self.most = cores, (1.0 if has_gpus else 0.0) if gpus is None else gpus, most
        self.out, self.storage, self.token = Path(out).absolute(), storage, secrets.token_hex(8)
        make_folder(self.out)
        self.mark = self.out / f".seen-{self.token}"
        self.mark.touch()
        options: dict[str, Any] = {"num_cpus": cores, "num_gpus": self.gpus, "max_restarts": 0, "max_concurrency": 4}
        if not self.gpus:  # else Ray says which, and hides the others
            options["num_gpus"] = 0
        self.hand = self.ray.remote(**options, scheduling_strategy="SPREAD")(Hand)
        self.hired = self.failures = 0

    def slots(self) -> int:
        there = self.ray.cluster_resources()
        found = int(there.get("CPU", 0) // self.cores)
        if self.gpus:
            found = min(found, int(there.get("GPU", 0) / self.gpus + 1e-9))
        if found == 0:
            raise RunError(f"the cluster has no room for a cell of {self.cores} cores and {self.gpus:g} GPUs: {there}")
        return min(found, self.most) if self.most else found

    def hire(self, slot: int, is_over: Callable[[], bool]) -> "RayWorker | None":
        del slot
        while True:
            hand = self.hand.remote(self.cores, self.gpus)
            asked = hand.ready.remote(str(self.mark))
            try:
                while not self.ray.wait([asked], timeout=LOOK)[0]:
                    if is_over():
                        self.ray.kill(hand)
                        return None
                where, sees = self.ray.get(asked)
                self.hired += 1
                return RayWorker(self.ray, hand, where, sees if self.storage == "auto" else self.storage == "shared")
            except self.ray.exceptions.RayError as error:
                self.failures += 1
                if self.failures > HIRES and not self.hired:
                    raise RunError(f"no worker of the cluster could start: {_last_line(error)}") from error
                time.sleep(LOOK)

    def close(self) -> None:
        self.mark.unlink(missing_ok=True)
        if self.is_mine:
            self.ray.shutdown()


class RayWorker:
    """A worker on some node."""

    def __init__(self, ray: ModuleType, hand: Any, where: str, shared: bool) -> None:
        self.ray, self.hand, self.where, self.shared = ray, hand, where, shared

    def run(self, job: Job) -> Outcome:
        if self.shared or "path" not in job:
            return self._wait(self.hand.run.remote(job, None), lambda: None)
        path = Path(job["path"])

        def fetch() -> None:
            parcel = self.ray.get(self.hand.take.remote())
            if parcel is not None:
                unpack(parcel, path)

        return self._wait(self.hand.run.remote(job, Parcel.of(path)), fetch)

    def _wait(self, asked: object, meanwhile: Callable[[], None]) -> Outcome:
        try:
            while not self.ray.wait([asked], timeout=LOOK)[0]:
                meanwhile()
            outcome = self.ray.get(asked)
            meanwhile()
            return outcome
        except self.ray.exceptions.RayError as error:
            raise WorkerLost(_last_line(error)) from error

    def stop(self) -> None:
        self.hand.stop.remote()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it may be gone, and its cluster too
            self.ray.kill(self.hand)


class Hand:
    """The actor on a node: it holds a worker process and the unfetched files of a run folder."""

    def __init__(self, cores: int, gpus: float) -> None:
        self._lock, self._parcel, self._folder = threading.Lock(), None, Path()
        self._process = Process(cores, environment(cores, gpus), self._saved)
        self._known: dict[str, tuple[int, int]] = {}

    def ready(self, mark: str) -> tuple[str, bool]:
        """Where it is, and whether it sees the folder of the sweep."""
        return f"node {imported().get_runtime_context().get_node_id()[:8]}", Path(mark).exists()

    def run(self, job: Job, parcel: "Parcel | None") -> Outcome:
        """Run a cell, in the folder that all see or in one of its own."""
        try:
            if job["shared"] or "path" not in job:
                return self._process.run(job)
            scratch = Path(tempfile.mkdtemp(prefix="pcpg-cell-"))
            try:
                self._folder, self._known = scratch / "cell", {}
                if parcel is not None:
                    unpack(parcel, self._folder)
                    self._changes()
                return self._process.run(job | {"path": str(self._folder)})
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        except WorkerLost:
            os._exit(1)  # the actor ends with its process, and Ray reports that to the caller

    def take(self) -> "Parcel | None":
        """What has changed since it was last asked for."""
        with self._lock:
            parcel, self._parcel = self._parcel, None
            return parcel

    def stop(self) -> None:
        """Let the cell at work stop after its round."""
        self._process.stop()

    def _saved(self, step: int) -> None:
        changed = self._changes()
        with self._lock:
            before = {} if self._parcel is None else self._parcel.files
            kept = {name: data for name, data in before.items() if name in changed.names}
            self._parcel = Parcel(changed.names, kept | changed.files)

    def _changes(self) -> "Parcel":
        found = Parcel.of(self._folder, self._known)
        assert found is not None
        self._known = {name: _stamp(self._folder / name) for name in found.names}
        return found


class Parcel(NamedTuple):
    """A run folder on its way: all names, and the files that have changed."""

    names: list[str]
    files: dict[str, bytes]

    @classmethod
    def of(cls, folder: Path, known: dict[str, tuple[int, int]] | None = None) -> "Parcel | None":
        """The changed contents of a folder; None if it does not exist."""
        if not (folder / "config.json").exists():
            return None
        names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
        names = [name for name in names if name != LOCK]
        new = [name for name in names if (known or {}).get(name) != _stamp(folder / name)]
        return cls(names, {name: read_file(folder / name) for name in new})


def _stamp(path: Path) -> tuple[int, int]:
    seen = path.stat()
    return seen.st_mtime_ns, seen.st_size


def unpack(parcel: Parcel, folder: Path) -> None:
    """Write down what has arrived, the manifest last: whenever this is cut short, the folder is one of a killed run."""
    for name in sorted(parcel.files, key=lambda name: (name == MANIFEST, name)):
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise RunError(f"run folders have no file {name!r}")
        make_folder(path.parent)
        write_file(path, parcel.files[name])
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()  # what still holds a file stays
        elif name not in parcel.names and name != LOCK:
            path.unlink()


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:300]
