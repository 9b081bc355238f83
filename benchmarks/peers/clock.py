"""The clock of every benchmark that counts whole updates, ours or a peer's, and what the programs of peers share.

The standard library alone: it runs in every peer's own environment.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version


def rate(update: Callable[[], object], count: Callable[[], int], seconds: float) -> dict[str, float | int]:
    """Steps per second, by the wall and by the processor, of whole updates until so many seconds have passed.

    `count` says how many steps there were so far.
    """
    first, updates, wall, processor = count(), 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        update()
        updates += 1
    elapsed, busy = time.perf_counter() - wall, time.process_time() - processor
    steps = count() - first
    return {
        "steps_per_second": round(steps / elapsed, 1),
        "steps_per_processor_second": round(steps / busy, 1),
        "steps": steps,
        "updates": updates,
        "seconds": round(elapsed, 3),
    }


def flags(about: str | None, **defaults: int) -> argparse.ArgumentParser:
    """The flags of a peer: the sizes of an update, and how long it is measured and where."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    says = {
        "num_envs": "environments stepped at once",
        "num_steps": "steps of each environment per update",
        "num_epochs": "passes over the samples of an update",
        "num_minibatches": "minibatches of a pass",
        "batch_size": "samples of a minibatch",
    }
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=says[name])
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure, after the warm-up")
    parser.add_argument("--warm-up-updates", type=int, default=3, help="updates before the clock starts")
    parser.add_argument("--core", type=int, default=None, help="core to run on; the last one allowed if not given")
    return parser


def pin_to_one_core(core: int | None) -> int | None:
    """Keep this process on one core and give its number, or None where the system cannot.

    It comes before the first use of a numerical library, whose threads are as many as the cores allowed.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {chosen})
    return chosen


def say(
    system: dict[str, str],
    found: dict[str, float | int],
    arguments: argparse.Namespace,
    core: int | None,
    packages: tuple[str, ...],
) -> None:
    """Print what was measured as a line of JSON, with the setting and the versions of some packages."""
    setting = {name: value for name, value in vars(arguments).items() if name not in ("core", "seconds")}
    about = {"device": "cpu", "threads": 1, "core": core, "network": "64x64 ReLU"}
    versions = {name: version(name) for name in packages} | {"python": platform.python_version()}
    print(json.dumps(system | found | setting | about | {"versions": versions}), flush=True)
