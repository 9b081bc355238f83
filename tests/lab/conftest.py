"""What the laboratory's tests share: a claim at smoke scale, and an engine whose workers do not train."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pcpg_lab.claims.harness import Claim, reproduce


@pytest.fixture(scope="module")
def smoke(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module's whole experiment at smoke scale."""
    out = tmp_path_factory.mktemp("smoke")
    assert reproduce(request.module.CLAIM, request.module.Flags(scale="smoke", out=str(out)))
    return out


def check_written(claim: Claim, out: Path, algos: Sequence[str], figures: Sequence[str]) -> None:
    """The folder has a summary of these algorithms, its table, and the figures as PNG and SVG."""
    summary = json.loads((out / "summary.json").read_text())
    assert [cell["algo"] for cell in summary["cells"]] == list(algos)
    assert (out / "table.md").read_text() == claim.table(summary)
    assert min((out / f"{name}.{kind}").stat().st_size for name in figures for kind in ("png", "svg")) > 1000


class Engine:
    """An engine whose workers hand their jobs to `work`, with an event that says when to stop."""

    count = 1

    def slots(self) -> int:
        return self.count

    def hire(self, slot: int, is_over: Callable[[], bool]) -> Any:
        return Worker(self)

    def close(self) -> None:
        pass

    def work(self, job: dict[str, Any], stopped: threading.Event) -> dict[str, Any]:
        raise NotImplementedError


class Worker:
    where, shared = "here", True

    def __init__(self, engine: Engine) -> None:
        self.engine, self.stopped = engine, threading.Event()

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.engine.work(job, self.stopped)

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        pass
