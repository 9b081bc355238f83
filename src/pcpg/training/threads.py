"""Threads of the host's linear algebra while a run trains."""

import contextlib
import os
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

GIVEN = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")
"""Environment variables by which a user decides."""


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Solve with one thread at a time inside, unless the user's environment says otherwise.

    Seeds fill the cores by threads of their own. If each of those began as many threads of linear algebra as there are
    cores, several runs on one machine would crawl.
    """
    with contextlib.nullcontext() if any(map(os.environ.get, GIVEN)) else threadpool_limits(1, user_api="blas"):
        yield
