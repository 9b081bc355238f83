"""Threads of the host's linear algebra while a run trains."""

import contextlib
import os
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from pcpg.machine import THREADS


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Solve with one thread at a time inside, unless the user's environment says otherwise.

    Seeds fill the cores by threads of their own. If each of those began as many threads of linear algebra as there are
    cores, several runs on one machine would crawl.
    """
    with contextlib.nullcontext() if any(map(os.environ.get, THREADS)) else threadpool_limits(1, user_api="blas"):
        yield
