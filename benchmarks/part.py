"""Measures one part on so many cores and prints a line of JSON: python benchmarks/part.py ours 1."""

import importlib
import json
import os
import sys
from typing import Any


def keep_to(cores: int) -> None:
    """Let this process use `cores` cores, the last ones allowed, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def measure(part: str, cores: int) -> dict[str, Any]:
    """What the part measures on so many cores."""
    keep_to(cores)  # before anything is loaded that counts cores: numpy and jax both do
    module = importlib.import_module(part)
    return module.measure(cores) if part == "ours" else module.measure()


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))), flush=True)
