"""The resources of a worker: its cores, its threads, its share of a GPU; set before NumPy and JAX load."""

import contextlib
import importlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pcpg.machine import THREADS, available_cores

LEFT = 0.9
"""The part of its share of a GPU's memory that a worker takes: the driver needs some too."""

_HELD: list[int] = []
"""Descriptors of the cores that this process holds; the system closes them when it ends."""


def environment(cores: int, gpus: float) -> dict[str, str]:
    """Environment variables for the process of a worker.

    BLAS has one thread, as in `pcpg train`: seeds fill the cores, and a result must not depend on their number.
    """
    made = dict.fromkeys(THREADS, "1") | {"NPROC": str(cores)}  # the last is XLA's
    if not gpus:
        return made | {"JAX_PLATFORMS": "cpu"}
    if gpus < 1:
        made |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{LEFT * gpus:.3f}"}
    return made


def pin(count: int) -> list[int]:
    """Bind this process to so many cores, preferring free ones; the cores."""
    cores = available_cores()
    if count >= len(cores) or not hasattr(os, "sched_setaffinity"):
        return cores
    try:
        posix: Any = importlib.import_module("fcntl")
        folder = Path(tempfile.gettempdir()) / f"pcpg-cores-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
    except (ImportError, OSError):
        return cores
    mine: list[int] = []
    for core in cores:
        if len(mine) == count:
            break
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                posix.flock(descriptor, posix.LOCK_EX | posix.LOCK_NB)
                mine.append(core)
                _HELD.append(descriptor)
            except OSError:
                os.close(descriptor)
    others = [core for core in cores if core not in mine]
    first = os.getpid() % max(1, len(others))
    mine += (others[first:] + others[:first])[: count - len(mine)]  # more workers than cores: they share
    os.sched_setaffinity(0, mine)
    return mine


def gpu_names() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES has them; found without opening one."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name and name != "-1"]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number, line in enumerate(done.stdout.splitlines()) if line.startswith("GPU ")]
