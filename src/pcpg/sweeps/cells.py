"""One cell in the process that runs it: its lease, its run folder, and how it ended."""

import os
import time
from pathlib import Path
from typing import Any, Protocol

from pcpg.config import ConfigError
from pcpg.run_config import RunConfig
from pcpg.runs.disk import exists
from pcpg.runs.errors import DiskFull, FolderInUse
from pcpg.runs.folder import RunFolder
from pcpg.sweeps.lease import Held, take
from pcpg.training.loop import Progress, start_run, train_run

DONE, FAILED, STOPPED = "done", "failed", "stopped"

Job = dict[str, Any]
Outcome = dict[str, Any]


class Boss(Protocol):
    """Who sent the cell."""

    stop: Any
    """Set when the cell is to stop after its round."""

    def saved(self, step: int) -> None:
        """Is told of every checkpoint, where the folder is to be taken elsewhere."""
        ...


def run_cell(job: Job, boss: Boss) -> Outcome:
    """Run a cell to its end, from its last checkpoint; an outcome with what went wrong, never an exception."""
    began, path = time.monotonic(), Path(job["path"])
    outcome: Outcome = {"cell": job["cell"], "pid": os.getpid(), "lost_seconds": 0.0, "again": False}
    try:
        lease, before = take(Path(job["leases"]), job["cell"], _leave, job["patience"])
        try:
            if before is not None:
                outcome["lost_seconds"] = lost_seconds(path, before)
            outcome |= _train(job, path, boss)
        finally:
            lease.release()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}" if not isinstance(error, ConfigError) else str(error)
        outcome |= {"state": FAILED, "cause": cause, "again": isinstance(error, DiskFull | FolderInUse | OSError)}
    return outcome | {"seconds": time.monotonic() - began}


def _train(job: Job, path: Path, boss: Boss) -> Outcome:
    is_begun = exists(path / "config.json")
    folder = RunFolder.open(path) if is_begun else start_run(RunConfig.from_json(job["config"]), path)
    known = -1

    def watch(progress: Progress) -> bool:
        nonlocal known
        step = 0 if job["shared"] else RunFolder.open(path).manifest.step  # pyright: ignore[reportOptionalMemberAccess]
        if not job["shared"] and step > known:
            known = step
            boss.saved(step)
        return not boss.stop.is_set()

    trained = train_run(folder, observer=watch, trust=True)  # the environment is named by the sweep's own file
    if not job["shared"]:
        boss.saved(-1)
    busy = {"training_seconds": trained.seconds, "compile_seconds": trained.compile_seconds}
    return busy | {"state": DONE if trained.finished else STOPPED}


def lost_seconds(path: Path, held: Held) -> float:
    """How long the one who has gone had worked since its last checkpoint: what is to be done again."""
    manifest = path / "manifest.json"
    saved = manifest.stat().st_mtime if manifest.exists() else held.touched - held.beats
    return max(0.0, held.touched - saved)


def _leave() -> None:
    os._exit(75)  # another has the cell: nothing more may be written
