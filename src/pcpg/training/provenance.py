"""What computes: the device and the versions on which the bits of a result depend."""

import functools
from collections.abc import Mapping
from pathlib import Path

import jax

from pcpg.runs.documents import versions


@functools.cache
def device_kind() -> str:
    """The kind of device that computes, with the processor's name on a CPU: XLA's code depends on its instructions."""
    kind = jax.devices()[0].device_kind
    if jax.default_backend() != "cpu":
        return kind
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{kind} ({names[0]})" if names else kind


def what_changed(device: str | None, saved: Mapping[str, str]) -> str:
    """What differs here from a saved device and saved versions, as text to follow `saved with`; empty: nothing."""
    here = {"device": device_kind()} | versions()
    there = {"device": device or "an unknown device"} | dict(saved)
    names = [name for name in here if there.get(name, "nothing") != here[name]]
    return "; ".join(f"{_said(name, there.get(name, 'nothing'))}, here {here[name]}" for name in names)


def _said(name: str, value: str) -> str:
    return value if name == "device" else f"{name} {value}"
