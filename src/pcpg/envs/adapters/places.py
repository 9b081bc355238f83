"""Where things run: processes on this machine, or a Ray cluster. No result depends on it, and no run keeps it."""

import contextlib
import contextvars
from collections.abc import Iterator

from pcpg.envs.options import InvalidOption

LOCAL = "local"
PLACES = "local, ray, or the address of a cluster as in ray://host:10001"

_PLACE = contextvars.ContextVar("pcpg-place", default=LOCAL)


def check_place(name: str) -> None:
    """Refuse what names no place."""
    if name not in (LOCAL, "ray") and not name.startswith("ray://"):
        raise InvalidOption(f"--on must be {PLACES}, got {name!r}")


def place() -> str:
    """Where the workers of environments are started now."""
    return _PLACE.get()


@contextlib.contextmanager
def workers_on(name: str) -> Iterator[None]:
    """In here the workers of environments are started there."""
    check_place(name)
    token = _PLACE.set(name)
    try:
        yield
    finally:
        _PLACE.reset(token)
