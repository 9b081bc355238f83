"""Engines by name, and the one that needs nothing installed: processes on this machine.

A worker process is `python -m pcpg_lab.sweeps.local CORES`. It reads jobs from stdin, one JSON object a line, does one
after the other, and answers on stdout; all other output goes to stderr. JAX and its compiled programs stay loaded from
job to job. The process ends when stdin is closed: the sender is gone.
"""

import contextlib
import json
import os
import platform
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from pcpg.config import ConfigError, Json
from pcpg.envs.adapters.names import LOCAL, check_place
from pcpg.machine import available_cores
from pcpg_lab.sweeps.crew import Boss, Engine, Job, Outcome, WorkerLost, environment, gpu_names, perform, pin

Saved = Callable[[int], None]


def engine_of(
    name: str, out: Path | str, cores: int = 1, gpus: float | None = None, most: int = 0, storage: str = "auto"
) -> Engine:
    """The engine of a name: local, ray, ray://host:port; one that cannot be reached is refused."""
    check_place(name)
    if most < 0:
        raise ConfigError(f"slots must be 0 (as many as fit) or more, got {most}")
    if name == LOCAL:
        return LocalEngine(cores, gpus, most)
    from pcpg_lab.sweeps.on_ray import RayEngine

    return RayEngine(name, out, cores, gpus, most, storage)


def engine_for_calls(jobs: int, out: Path, name: str = LOCAL) -> Engine:
    """The engine for calls of one core each, at most so many at a time (0: all cores); one job needs no process."""
    return Here() if name == LOCAL and jobs == 1 else engine_of(name, out, gpus=0.0, most=jobs)


class Here(Engine):
    """The engine that starts no process: one job at a time, in this one."""

    where, shared = "this process", True

    def slots(self) -> int:
        return 1

    def hire(self, slot: int, is_over: Callable[[], bool]) -> "Here":
        return self

    def run(self, job: Job) -> Outcome:
        self.boss = Boss()
        return perform(job, self.boss)

    def stop(self) -> None:
        self.boss.stop.set()


class LocalEngine(Engine):
    """A pool of processes, each with cores of its own."""

    def __init__(self, cores: int = 1, gpus: float | None = None, most: int = 0) -> None:
        self.cores, self.names, self.most = cores, gpu_names(), most
        self.gpus = (1.0 if self.names else 0.0) if gpus is None else gpus
        there = len(available_cores())
        if cores > there:
            raise ConfigError(f"cores must be at most {there}, which this machine has, got {cores}")
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


class Process:
    """A worker process of this machine, and the pipes to it."""

    shared = True

    def __init__(self, cores: int, variables: dict[str, str], saved: Saved = lambda step: None) -> None:
        self._saved = saved
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pcpg_lab.sweeps.local", str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # Ctrl-C is for the sender of the jobs
        )
        self.pid, self._lock = self._process.pid, threading.Lock()
        self.where = f"process {self.pid} on {platform.node()}"
        self._answer()  # ready

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

    def _send(self, said: Mapping[str, object]) -> None:
        try:
            with self._lock:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps(said) + "\n")
                self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerLost(self._ending()) from error

    def _answer(self) -> Json:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerLost(self._ending())
        return json.loads(line)

    def _ending(self) -> str:
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its process died ({how})"


# In a worker process.


class Jobs(Boss):
    """The jobs that come in, and whether the current one is to stop after its round."""

    def __init__(self, source: TextIO, answers: TextIO) -> None:
        super().__init__()
        self._source, self._answers = source, answers
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._acknowledged = threading.Semaphore(0)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._source:
            said = json.loads(line)
            if said.get("stop"):
                self.stop.set()
            elif said.get("seen"):
                self._acknowledged.release()
            else:
                self.stop.clear()  # that was for the job before
                self._jobs.put(said)
        os._exit(1)

    def get(self) -> Job:
        """The next job."""
        return self._jobs.get()

    def saved(self, step: int) -> None:
        """Report a checkpoint, and wait until it was fetched."""
        self.answer({"saved": step})
        self._acknowledged.acquire()

    def answer(self, said: Mapping[str, object]) -> None:
        """Send a message back."""
        print(json.dumps(said), file=self._answers, flush=True)


def main() -> None:
    """Do jobs until the sender is gone."""
    cores = pin(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs = Jobs(sys.stdin, answers)
    jobs.answer({"ready": os.getpid(), "cores": cores})
    while True:
        jobs.answer(perform(jobs.get(), jobs))


if __name__ == "__main__":
    main()
