"""What workers do in tests: cells that die, or wait, in a round that is known and not when the clock says so."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg_lab.sweeps import sweep
from pcpg_lab.sweeps.crew import Boss

ROUND = 3


def cells_that(does: Callable[[dict[str, Any], Boss], dict[str, Any]], where: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the cells of sweeps do this, with a folder in which the test and its workers meet."""
    where.mkdir()
    job_of, name = sweep.job_of, f"{__name__}:{does.__name__}"
    patch.setattr(sweep, "job_of", lambda cell, path: job_of(cell, path) | {"does": name, "meet": str(where)})


def dies_once(job: dict[str, Any], boss: Boss) -> dict[str, Any]:
    """Run a cell; the first process to do so is killed in it."""

    def die() -> None:
        killed = Path(job["meet"]) / "killed"
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return _run(job, boss, die)


def waits(job: dict[str, Any], boss: Boss) -> dict[str, Any]:
    """Run a cell, which says how far it is and goes on once it may."""

    def wait() -> None:
        (Path(job["meet"]) / job["cell"]).touch()
        while not (Path(job["meet"]) / "go on").exists():
            time.sleep(0.01)

    return _run(job, boss, wait)


def _run(job: dict[str, Any], boss: Boss, meanwhile: Callable[[], None]) -> dict[str, Any]:
    train_run = sweep.train_run

    def watched(folder: Any, observer: Callable[[Any], bool], **options: Any) -> Any:
        def observe(progress: Any) -> bool:
            goes_on = observer(progress)
            if progress.step == ROUND:
                meanwhile()
            return goes_on

        return train_run(folder, observer=observe, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "train_run", watched)
        return sweep.run_cell(job, boss)
