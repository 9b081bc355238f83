"""The engine with nothing installed: processes on this machine."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from pcpg.machine import available_cores
from pcpg.sweeps.cells import Job, Outcome
from pcpg.sweeps.resources import environment, gpu_names

Saved = Callable[[int], None]


class WorkerLost(Exception):
    """A worker ended while it had a cell; the message says how."""

    lost_seconds = 0.0
    """Work since the last checkpoint that arrived, where that is known."""


class Worker(Protocol):
    """Something that runs one cell at a time."""

    where: str
    shared: bool
    """Whether it sees the folder of the sweep."""

    def run(self, job: Job) -> Outcome:
        """Run a cell; `WorkerLost` where the worker is gone, with all that it ran."""
        ...

    def stop(self) -> None:
        """Ask the cell at work to stop after its round."""
        ...

    def close(self) -> None:
        """End the worker, at once."""
        ...


class Engine(Protocol):
    """Where cells run."""

    def slots(self) -> int:
        """How many cells can run at a time, now."""
        ...

    def hire(self, slot: int, is_over: Callable[[], bool]) -> Worker | None:
        """A worker for a slot, as soon as there is room; None when it is no longer needed before that."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class LocalEngine:
    """A pool of processes, each with cores of its own."""

    def __init__(self, cores: int = 1, gpus: float | None = None, most: int = 0) -> None:
        self.cores, self.names, self.most = cores, gpu_names(), most
        self.gpus = (1.0 if self.names else 0.0) if gpus is None else gpus
        if self.gpus and not self.names:
            raise ValueError(f"gpus must be 0 on a machine without GPUs, got {gpus:g}")

    def slots(self) -> int:
        by_cores = max(1, len(available_cores()) // self.cores)
        wanted = min(by_cores, self._by_gpus()) if self.gpus else by_cores
        return min(wanted, self.most) if self.most else wanted

    def _by_gpus(self) -> int:
        return max(1, int(len(self.names) / self.gpus)) if self.gpus >= 1 else len(self.names) * self._sharing

    @property
    def _sharing(self) -> int:
        return int(1 / self.gpus + 1e-9)

    def hire(self, slot: int, is_over: Callable[[], bool]) -> "Process":
        del is_over
        made = environment(self.cores, self.gpus)
        if self.gpus:
            whole = max(1, round(self.gpus))
            first = slot // self._sharing if self.gpus < 1 else slot * whole
            made["CUDA_VISIBLE_DEVICES"] = ",".join(self.names[first : first + whole])
        return Process(self.cores, made)

    def close(self) -> None:
        """Nothing is held."""


class Process:
    """A worker process of this machine, and the pipes to it."""

    shared = True

    def __init__(self, cores: int, variables: dict[str, str], saved: Saved = lambda step: None) -> None:
        self.where, self._saved = f"process on {os.uname().nodename}" if hasattr(os, "uname") else "process", saved
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pcpg.sweeps.worker", str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # Ctrl-C is for the one who sends the cells
        )
        self._lock = threading.Lock()
        self._answer()  # ready

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, job: Job) -> Outcome:
        self._send(job)
        while True:
            said = self._answer()
            if "saved" not in said:
                return said
            self._saved(said["saved"])
            self._send({"seen": True})

    def stop(self) -> None:
        with contextlib.suppress(WorkerLost):
            self._send({"stop": True})

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _send(self, said: dict[str, Any]) -> None:
        try:
            with self._lock:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps(said) + "\n")
                self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerLost(self._ending()) from error

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerLost(self._ending())
        return json.loads(line)

    def _ending(self) -> str:
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its process ended ({how})"
