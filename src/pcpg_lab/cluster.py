"""The way to a Ray cluster, for environments and for cells."""

import contextlib
import importlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from pcpg.envs.adapters.from_module import HERE
from pcpg.envs.adapters.worker_process import Answer, Beat, Player, Stage, said
from pcpg.envs.adapters.workers import EnvWorker, WorkerEnded, WorkerPlayers
from pcpg.envs.options import InvalidOption
from pcpg.machine import environment_variable

REACH = 5.0
"""Seconds that a cluster has to answer at all."""


def connect(name: str) -> bool:
    """Connect this process to the cluster of a name, whether it was not before.

    `ray` starts a cluster of this machine alone, which only this machine can reach; a cluster that runs already is
    used by its address alone: ray://host:port, or RAY_ADDRESS (`auto` for the one that this machine belongs to).
    """
    ray = imported()
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, object] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = name if name != "ray" else os.environ.get("RAY_ADDRESS", "local")
    if address not in ("auto", "local"):
        _check_answers(name, address)
    try:
        if address == "local":
            with _on_loopback(), _not_in_this_folder():
                ray.init(address="local", include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except Exception as error:  # of many kinds: one that starts too slowly is told by an Exception
        said = (str(error).splitlines() or [repr(error)])[0]
        hint = "; if the cluster requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        raise InvalidOption(f"--on {name}: {said}{hint if address != 'local' else ''}") from error
    return True


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """In here Ray starts clusters whose ports listen on the loopback address, as it does on macOS and Windows.

    It takes no such address as an argument; what it calls a cluster on those systems decides.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    variable, before = constants.ENABLE_RAY_CLUSTERS_ENV_VAR, constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False  # of this process; the variable is for those it starts
    try:
        with environment_variable(variable, "0"):
            yield
            address = imported().util.get_node_ip_address()
        if not ipaddress.ip_address(address).is_loopback:
            imported().shutdown()
            raise InvalidOption(
                f"--on ray: this version of Ray listens on {address}, not on the loopback address alone"
            )
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _not_in_this_folder() -> Iterator[None]:
    """Ray puts the current folder first on the path of its workers: in here it is one that no stranger can fill."""
    with contextlib.nullcontext() if HERE in sys.path else contextlib.chdir(os.sep):
        yield


def imported() -> Any:
    """The package, if it is installed."""
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
            "cluster with client port 10001"
        ) from error


SHARE = 0.9
"""Of the cores of a cluster, for environments where there are more of these than cores."""


def ray_players(on: str, stage: Stage, count: int, timeout: float, steps: int) -> WorkerPlayers:
    """So many environments on a cluster; no step can be watched there, so an episode has the time of all its steps."""
    connect(on)
    ray = imported()
    cores = min(1.0, round(SHARE * ray.cluster_resources().get("CPU", 1.0) / count, 4))
    actor = ray.remote(num_cpus=cores, max_restarts=0, scheduling_strategy="SPREAD")(Simulator)

    def hire(stage: Stage, number: int) -> "RayEnvWorker":
        return RayEnvWorker(ray, actor.remote(stage))

    def ready(workers: list[RayEnvWorker], patience: float | None) -> list[RayEnvWorker]:
        by_ref = {worker.asked[0]: worker for worker in workers}
        found, _ = ray.wait(list(by_ref), num_returns=1, timeout=patience)
        return [by_ref[ref] for ref in found]

    return WorkerPlayers(stage, count, timeout * (steps + 1), hire, ready)


class Simulator:
    """The actor."""

    def __init__(self, stage: Stage) -> None:
        try:
            self.player, self.wrong = Player(stage), ""
        except Exception as error:
            self.wrong = said(error)

    def do(self, what: str, value: Any) -> Answer:
        """Answer as the process of a worker does."""
        if self.wrong:
            return False, self.wrong, {}
        if what == "close":
            self.player.close()
        return (True, Beat(0), {}) if what in ("start", "close") else self.player.answer(what, value)


class RayEnvWorker(EnvWorker):
    """An environment on some node, and what it was asked."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self.ray, self.actor = ray, actor
        self.asked: list[Any] = []
        self.send("start", None)

    def send(self, what: str, value: Any) -> None:
        self.asked.append(self.actor.do.remote(what, value))

    def next_answer(self, seconds: float | None) -> Answer | None:
        try:
            found = self.ray.get(self.asked[0], timeout=seconds)
        except self.ray.exceptions.GetTimeoutError:
            return None
        except self.ray.exceptions.RayActorError as error:
            raise WorkerEnded from error
        del self.asked[0]
        return found

    def end(self, patience: float) -> str:
        with contextlib.suppress(Exception):
            self.ray.get(self.asked[-1], timeout=patience)
        self.kill()
        return "its actor is gone"

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.kill(self.actor)
