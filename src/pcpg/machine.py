"""Resources of this machine: cores, free memory, processes, and the threads of its linear algebra."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from threadpoolctl import threadpool_limits

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
"""Environment variables that bound the threads of BLAS; they are read when NumPy loads."""


def available_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def free_memory() -> int | None:
    """Bytes of free memory, if the system reports them."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


@contextlib.contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Inside, an environment variable has this value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


SAFE_PATH, OURS = "PYTHONSAFEPATH", "pcpg"


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """In here Python begins processes that import nothing from the current folder, which may be a stranger's."""
    os.environ.setdefault(SAFE_PATH, OURS)
    try:
        yield
    finally:
        leave_safe_path()


def leave_safe_path() -> None:
    """What this process begins from now on has Python's usual path, unless the user's environment says otherwise."""
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Solve with one thread at a time inside, unless the user's environment says otherwise.

    Seeds fill the cores by threads of their own. If each of those began as many threads of linear algebra as there are
    cores, several runs on one machine would crawl.
    """
    with contextlib.nullcontext() if any(map(os.environ.get, THREADS)) else threadpool_limits(1, user_api="blas"):
        yield
