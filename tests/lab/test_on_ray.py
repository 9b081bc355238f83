"""A cluster of three nodes on this machine: the bytes of plain runs, though a node is killed in the middle."""

import contextlib
import importlib.util
import ipaddress
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcpg.api import train
from pcpg.envs.adapters.names import workers_on
from pcpg_lab.sweeps.on_ray import RayEngine
from pcpg_lab.sweeps.plan import plan_of
from pcpg_lab.sweeps.status import SweepFolder
from pcpg_lab.sweeps.sweep import run_sweep
from pcpg_lab.table1.command import Store, measure, run_cells
from pcpg_lab.table1.plan import first_cells
from pcpg_lab.table1.settings import SETTINGS
from tests.envs.test_workers import env_of, played, same
from tests.lab.jobs import cells_that, waits
from tests.lab.test_sweep import KEPT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a cluster starts a dozen processes: minutes on a machine that has other work
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'pcpg[ray]'"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes of one core each."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made: Any = Cluster()

    def add_node(**more: object) -> Any:
        for left in reversed(range(5)):
            try:
                return made.add_node(num_cpus=1, object_store_memory=100 << 20, **more)
            except Exception:  # Ray gives a node half a minute to start, which may be too little on a busy machine
                if not left:
                    raise

    add_node(include_dashboard=False)
    made.others = [add_node() for _ in range(2)]
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


def test_workers_on_a_cluster_play_the_episodes_of_local_ones_though_two_are_killed(cluster: Any):
    import ray

    local, away = env_of(1), env_of(3)
    try:
        alone = played(local)
        with workers_on("ray"):
            assert same(played(away), alone)
            for worker in away.players._workers[:2]:
                ray.kill(worker.actor)
            assert same(played(away), alone)
    finally:
        local.close()
        away.close()
    assert alone.alive.any() and np.isfinite(alone.observations).all()


def test_cells_of_table_1_measure_the_same_on_a_cluster(cluster: Any, tmp_path: Path):
    cells = [cell for cell in first_cells(SETTINGS["smoke"], ["psrl"], ["A"]) if cell.kind == "theory"][:2]
    found = run_cells(cells, lambda record: [], Store(tmp_path, ""), 0, lambda record: None, "ray")
    assert len(found) == 2
    assert {record["name"]: record["samples"] for record in found} == {
        cell.name: measure(cell)[0]["samples"] for cell in cells
    }


def test_a_sweep_on_three_nodes_has_the_bytes_of_plain_runs_though_one_is_killed(cluster: Any, tmp_path: Path, tiny):
    plan, folder = plan_of({"block": 1, "base": tiny("ppo", seeds=3)}), SweepFolder(tmp_path / "out")
    meet = tmp_path / "meet"

    def kill() -> None:
        """Take a node away when all cells have begun: what came here of its cell stays, the rest is done again."""
        while not all((meet / cell.id).exists() and folder.step(cell.id) > 0 for cell in plan.cells):
            time.sleep(0.02)
        while not (at_work := [one for one in cluster.others if f"node {one.node_id[:8]}" in working_in(folder)]):
            time.sleep(0.02)
        cluster.remove_node(at_work[0], allow_graceful=False)
        (meet / "go on").touch()

    with pytest.MonkeyPatch.context() as patch:
        cells_that(waits, meet, patch)
        engine = RayEngine("ray", folder.path, storage="ray")
        threading.Thread(target=kill, daemon=True).start()
        swept = run_sweep(plan, folder, engine)
    engine.close()
    assert swept.finished and not swept.failed and swept.losses >= 1 and swept.lost_seconds > 0
    again = [cell for cell in plan.cells if swept.timings[cell.id]["attempts"] > 1]
    assert again, "a cell was lost with its node"
    for cell in again:
        config = cell.config
        options = {name: config[name] for name in ("algo", "seeds", "seed", "features", "feature_options")}
        train(config["env"], config=config["agent"], out=tmp_path / cell.id, **options, **config["env_options"])
        for name in KEPT:
            assert (folder.cell(cell.id) / name).read_bytes() == (tmp_path / cell.id / name).read_bytes(), name


def working_in(folder: SweepFolder) -> set[str]:
    """Where cells are at work."""
    return set((folder.working() or {}).values())


def test_a_cluster_that_is_started_here_listens_on_the_loopback_address_alone():
    """In a process of its own: this one belongs to another cluster."""
    code = "from pcpg_lab.cluster import connect, imported; connect('ray'); print('up', flush=True); input()"
    own, pipe = os.environ | {"PCPG_MARK": "loopback"}, subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True, env=own)
    try:
        assert process.stdout is not None
        while (said := process.stdout.readline()) != "up\n":
            assert said, "it ended before it had connected"
        started = time.monotonic()
        while len(found := listening("PCPG_MARK=loopback")) < 3 or time.monotonic() < started + 10:
            assert process.poll() is None  # some of its processes begin to listen later
            time.sleep(0.2)
    finally:
        process.communicate("\n")
    assert all(ipaddress.ip_address(address).is_loopback for address in found), found


def listening(mark: str) -> list[str]:
    """The addresses at which the processes with a mark in their environment wait for connections."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A":
                sockets[f"socket:[{rest[5]}]"] = address_of(local.partition(":")[0])
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                found += [sockets[name] for one in (process / "fd").iterdir() if (name := os.readlink(one)) in sockets]
    return found


def address_of(text: str) -> str:
    """An address as the kernel writes it: words of four bytes, each in the order of the machine."""
    data = bytes.fromhex(text)
    data = b"".join(data[start : start + 4][::-1] for start in range(0, len(data), 4))
    address = ipaddress.ip_address(data)
    return str(getattr(address, "ipv4_mapped", None) or address)
