"""The way to a Ray cluster, for environments and for cells."""

import importlib
import os
import socket
from typing import Any
from urllib.parse import urlsplit

from pcpg.envs.options import InvalidOption

REACH = 5.0
"""Seconds that a cluster has to answer at all."""


def connect(name: str) -> bool:
    """Connect this process to the cluster of a name: ray, or ray://host:port; whether it was not before."""
    ray = imported()
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = name if name != "ray" else os.environ.get("RAY_ADDRESS")
    if address is not None and address not in ("auto", "local"):
        _check_answers(name, address)
    try:
        if address is not None:
            ray.init(address=address, **quiet)
        else:  # the cluster that this machine belongs to, or one of this machine alone
            ray.init(include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
        said = (str(error).splitlines() or [repr(error)])[0]
        hint = "; a cluster that asks for a token needs RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN here as well"
        raise InvalidOption(f"--on {name}: {said}{hint if address is not None else ''}") from error
    return True


def imported() -> Any:
    """The package, where it is installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise InvalidOption(f"--on ray needs Ray, which is not installed ({error}): pip install 'pcpg[ray]'") from error


def _check_answers(name: str, address: str) -> None:
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise InvalidOption(f"--on {name}: expected an address with its port, as in ray://host:10001")
    try:
        socket.create_connection((host, port), timeout=REACH).close()
    except OSError as error:
        raise InvalidOption(
            f"--on {name}: nothing answers at {host}:{port} ({error.strerror or error}); `ray start --head` starts a "
            "cluster, whose clients' port is 10001"
        ) from error
