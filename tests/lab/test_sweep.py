"""Sweeps: every cell runs once to its end, whatever is lost on the way, and what fails is told at the end."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg.api import train
from pcpg.config import ConfigError
from pcpg.runs.errors import DiskFull, FolderInUse
from pcpg.runs.lock import hold_lock
from pcpg.state import NonFinite
from pcpg_lab.sweeps.crew import ATTEMPTS, Boss, WorkerLost, environment, perform
from pcpg_lab.sweeps.local import LocalEngine, engine_of
from pcpg_lab.sweeps.on_ray import Parcel, unpack
from pcpg_lab.sweeps.plan import Plan, plan_of
from pcpg_lab.sweeps.status import SweepFolder, status_of, write_page, write_tables
from pcpg_lab.sweeps.sweep import job_of, run_sweep
from tests.lab.conftest import Engine
from tests.lab.jobs import cells_that, dies_once

KEPT = ("config.json", "metrics.jsonl", "policy.safetensors", "summary.json")


def plan_from(tiny: Callable[..., Any], seeds: int = 4, block: int = 1) -> Plan:
    return plan_of({"block": block, "base": tiny("ppo", seeds=seeds)})


class Puppets(Engine):
    """Workers that do what a function says."""

    def __init__(self, act: Callable[[dict[str, Any], int], dict[str, Any]], slots: int = 2) -> None:
        self.act, self.count, self.times, self.active = act, slots, Counter[str](), Counter[str]()
        self.most = 0

    def work(self, job: dict[str, Any], stopped: threading.Event) -> dict[str, Any]:
        cell = job["cell"]
        self.times[cell] += 1
        self.active[cell] += 1
        self.most = max(self.most, *self.active.values())
        try:
            time.sleep(0.01)
            return {"cell": cell, "again": False} | self.act(job, self.times[cell])
        finally:
            self.active[cell] -= 1


def test_a_cell_whose_worker_is_lost_runs_again_and_no_cell_runs_beside_itself(tmp_path: Path, tiny):
    plan = plan_from(tiny)
    victim = plan.cells[1].id

    def act(job: dict[str, Any], times: int) -> dict[str, Any]:
        if job["cell"] == victim and times < ATTEMPTS:
            raise WorkerLost("its process ended (signal 9)")
        return {"state": "done"}

    engine = Puppets(act)
    swept = run_sweep(plan, SweepFolder(tmp_path), engine)
    assert swept.finished and not swept.failed and swept.losses == ATTEMPTS - 1
    assert engine.times == {cell.id: ATTEMPTS if cell.id == victim else 1 for cell in plan.cells}
    assert engine.most == 1


def test_cells_that_fail_are_reported_at_the_end_and_the_others_complete(tmp_path: Path, tiny):
    plan = plan_from(tiny)
    fails, crashes = plan.cells[0].id, plan.cells[2].id

    def act(job: dict[str, Any], times: int) -> dict[str, Any]:
        if job["cell"] == fails:
            return {"state": "failed", "cause": "NonFinite: seed 0"}
        if job["cell"] == crashes:
            raise WorkerLost("its process ended (exit code 1)")
        return {"state": "done"}

    engine = Puppets(act)
    swept = run_sweep(plan, SweepFolder(tmp_path), engine)
    assert swept.finished and swept.failed == {
        fails: "NonFinite: seed 0",
        crashes: "its process ended (exit code 1)",
    }
    assert engine.times[fails] == 1 and engine.times[crashes] == ATTEMPTS
    assert sorted(swept.ran) == sorted(cell.id for cell in plan.cells if cell.id not in (fails, crashes))
    status = status_of(SweepFolder(tmp_path), plan)
    assert status.failed == swept.failed
    assert [row["cell"] for row in write_tables(SweepFolder(tmp_path), plan)["failed"]] == [fails, crashes]


def test_cells_are_running_while_a_process_holds_the_folder_whatever_the_clock_says(tmp_path: Path, tiny):
    plan, folder = plan_from(tiny, seeds=2), SweepFolder(tmp_path)
    folder.write_plan(plan)
    folder.write_working({plan.cells[0].id: "process 1 on a machine"})
    for moment in (0.0, time.time(), time.time() + 1e6):
        os.utime(tmp_path / "working.json", (moment, moment))
        assert not status_of(folder, plan).running, "what a process left that was killed"
        with hold_lock(tmp_path):
            assert status_of(folder, plan).running == {plan.cells[0].id: 0}


def test_a_full_disk_is_tried_again_and_told(tmp_path: Path, tiny):
    plan = plan_from(tiny, seeds=2)
    full = {"state": "failed", "cause": "DiskFull: disk full", "again": True}
    engine = Puppets(lambda job, times: full if job["cell"] == plan.cells[0].id else {"state": "done"})
    swept = run_sweep(plan, SweepFolder(tmp_path), engine)
    assert engine.times[plan.cells[0].id] == ATTEMPTS and swept.failed == {plan.cells[0].id: "DiskFull: disk full"}


def test_whatever_goes_wrong_in_a_cell_is_an_outcome(tmp_path: Path, tiny, monkeypatch: pytest.MonkeyPatch):
    job = job_of(plan_from(tiny, seeds=1).cells[0], tmp_path / "a") | {"shared": True}

    def wrong(error: Exception) -> dict[str, Any]:
        def start(*arguments: Any) -> None:
            raise error

        monkeypatch.setattr("pcpg_lab.sweeps.sweep.start_run", start)
        return perform(job, Boss())

    full, broken = wrong(DiskFull(tmp_path / "x")), wrong(NonFinite("seed 0: not finite"))
    assert (full["state"], full["again"]) == ("failed", True) and "disk full while writing" in full["cause"]
    assert (broken["state"], broken["again"], broken["cause"]) == ("failed", False, "NonFinite: seed 0: not finite")
    assert not list(tmp_path.iterdir())


def test_a_sweep_that_is_stopped_starts_no_further_cell(tmp_path: Path, tiny):
    plan, stop, both = plan_from(tiny), threading.Event(), threading.Barrier(2)

    class Stoppable(Engine):
        count, began = 2, list[str]()

        def work(self, job: dict[str, Any], stopped: threading.Event) -> dict[str, Any]:
            self.began.append(job["cell"])
            both.wait(60)
            stop.set()
            assert stopped.wait(60), "a cell at work is asked to stop"
            return {"cell": job["cell"], "again": False, "state": "stopped"}

    swept = run_sweep(plan, SweepFolder(tmp_path), Stoppable(), stop=stop)
    assert not swept.finished and len(Stoppable.began) == 2


def test_a_folder_in_use_is_refused_and_one_whose_driver_was_killed_is_free(tmp_path: Path, tiny):
    plan, folder = plan_from(tiny), SweepFolder(tmp_path)
    code = f"""
import time
from pathlib import Path
from pcpg_lab.sweeps.status import SweepFolder
with SweepFolder(Path({str(tmp_path)!r})).driving():
    print("held", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match="in use by another sweep"):
            run_sweep(plan, folder, Puppets(lambda job, times: pytest.fail("a cell ran")))
        driver.kill()
    assert run_sweep(plan, folder, Puppets(lambda job, times: {"state": "done"})).finished


def test_an_error_of_the_engine_ends_the_sweep(tmp_path: Path, tiny):
    class Broken(Puppets):
        def hire(self, slot: int, is_over: Callable[[], bool]) -> Any:
            raise ConfigError("no worker could start")

    with pytest.raises(ConfigError, match="no worker"):
        run_sweep(plan_from(tiny), SweepFolder(tmp_path), Broken(lambda job, times: {}))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, tiny) -> tuple[Path, Plan, Any]:
    """A sweep of two budgets, a worker of which was killed in the middle."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    cells = [tiny("ppo", seeds=2), tiny("ppo", seeds=1)]
    cells[0]["agent"]["budget"] = 12_000
    plan = plan_of({"block": 1, "cells": cells})
    with pytest.MonkeyPatch.context() as patch:
        cells_that(dies_once, out.parent / "meet", patch)
        done = run_sweep(plan, SweepFolder(out), LocalEngine(1, 0.0, 1))
    assert (out.parent / "meet" / "killed").exists()
    return out, plan, done


def test_a_sweep_on_processes_has_the_bytes_of_plain_runs_though_a_worker_was_killed(swept, tmp_path: Path):
    out, plan, done = swept
    assert done.finished and not done.failed and done.losses == 1 and done.lost_seconds >= 0
    for cell in plan.cells[1:]:
        config = dict(cell.config)
        options = {name: config[name] for name in ("algo", "seeds", "seed", "features", "feature_options")}
        train(config["env"], config=config["agent"], out=tmp_path / cell.id, **options, **config["env_options"])
        for name in KEPT:
            assert (out / "cells" / cell.id / name).read_bytes() == (tmp_path / cell.id / name).read_bytes(), name
    assert not (out / "working.json").exists()


def test_finished_cells_are_not_run_again(swept):
    out, plan, _ = swept
    before = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/*")}
    again = run_sweep(plan, SweepFolder(out), Puppets(lambda job, times: pytest.fail("a cell ran twice")))
    assert again.finished and not again.ran
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("cells/*/*")}


def test_the_tables_and_the_page_show_all_cells_with_intervals(swept):
    out, plan, _ = swept
    folder = SweepFolder(out)
    table = write_tables(folder, plan)
    assert [(row["algo"], row["seeds"]) for row in table["groups"]] == [("ppo", 2), ("ppo", 1)]
    value, low, high = table["groups"][0]["final_return"]
    assert low <= value <= high and table["groups"][1]["final_return"][1:] == [None, None]
    lines = (out / "table.csv").read_text().splitlines()
    assert len(lines) == 4 and lines[0].startswith("cell,env,algo,agent.budget,seed,")
    page = write_page(folder, plan).read_text()
    assert "PPO" in page and plan.cells[2].id in page


def test_damage_to_a_finished_cell_is_told_when_the_tables_are_written(swept, tmp_path: Path):
    out, plan, _ = swept
    shutil.copytree(out, tmp_path / "out")
    folder, said = SweepFolder(tmp_path / "out"), list[str]()
    write_tables(folder, plan, said.append)
    assert said == []
    metrics = folder.cell(plan.cells[0].id) / "metrics.jsonl"
    metrics.unlink()
    metrics.mkdir()
    write_tables(folder, plan, said.append)
    assert any(plan.cells[0].id in text and "metrics.jsonl: is a folder" in text for text in said), said


def test_the_command_goes_on_and_says_how_far_a_sweep_is(swept, cli, tmp_path: Path):
    out, plan, _ = swept
    entries = {"block": 1, "cells": [cell.config for cell in plan.cells]}
    (tmp_path / "sweep.py").write_text(f"SWEEP = {entries!r}")
    said = cli("sweep", tmp_path / "sweep.py", "--out", out, "--json").json
    assert (said["ran"], said["done"], said["cells"]) == (0, 3, 3)
    said = cli("sweep", "status", out, "--json").json
    assert (len(said["done"]), said["running"], said["failed"], said["waiting"]) == (3, {}, {}, 0)


def test_mistakes_are_told_before_any_work(cli, tmp_path: Path, tiny):
    good = {"base": tiny("ppo")}
    (tmp_path / "good.py").write_text(f"SWEEP = {good!r}")
    (tmp_path / "bad.py").write_text(f"SWEEP = {good | {'cells': [{}, {'seeds': 'x'}]}!r}")
    for words, said in (
        (("good.py", "--on", "ray://127.0.0.1:1"), "nothing answers at 127.0.0.1:1"),
        (("good.py", "--on", "ray://nowhere"), "an address with its port"),
        (("good.py", "--on", "slurm"), "--on must be local, ray"),
        (("bad.py",), "cell 2 of 2 (seeds x)"),
        (("none.toml",), "none.toml: no such file"),
        (("status", "."), "is not the folder of a sweep"),
        (("status",), "name the folder of a sweep"),
    ):
        path = [str(tmp_path / word) if word.endswith((".py", ".toml")) else word for word in words]
        found = cli("sweep", *path, *(("--out", tmp_path / "out") if words[0] != "status" else ()))
        assert found.code == 2 and said in found.err.replace("\n", " "), found.err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_not_written_into(tmp_path: Path, tiny):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(Exception, match="neither empty nor the folder of a sweep"):
        SweepFolder.claimed(tmp_path)


def test_cells_that_share_a_gpu_leave_each_other_memory_and_cells_without_one_open_none():
    assert environment(2, 0.0)["JAX_PLATFORMS"] == "cpu" and environment(2, 0.0)["NPROC"] == "2"
    shared, whole = environment(1, 0.25), environment(1, 1.0)
    assert shared["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false" and "JAX_PLATFORMS" not in shared
    assert float(shared["XLA_PYTHON_CLIENT_MEM_FRACTION"]) < 0.25
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in whole


def test_gpus_are_dealt_out_to_slots(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    made: list[dict[str, str]] = []
    monkeypatch.setattr("pcpg_lab.sweeps.local.Process", lambda cores, variables: made.append(variables))
    monkeypatch.setattr("pcpg_lab.sweeps.local.available_cores", lambda: list(range(16)))
    for gpus, slots in ((0.5, 4), (1.0, 2), (2.0, 1), (0.0, 16)):
        engine = LocalEngine(1, gpus)
        assert engine.slots() == slots
        for slot in range(min(slots, 4)):
            engine.hire(slot, lambda: False)
    assert [one.get("CUDA_VISIBLE_DEVICES") for one in made] == ["4", "4", "6", "6", "4", "6", "4,6", *[None] * 4]


def test_more_cores_for_a_cell_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pcpg_lab.sweeps.local.available_cores", lambda: [0, 1])
    assert engine_of("local", "out", 2, 0.0).slots() == 1
    with pytest.raises(ConfigError, match="cores must be at most 2, which this machine has, got 10000"):
        engine_of("local", "out", 10000, 0.0)


def test_an_engine_without_gpus_refuses_cells_that_need_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ValueError, match="without GPUs"):
        engine_of("local", "out", 1, 0.5)


def test_a_run_folder_that_travels_arrives_as_it_was(swept, tmp_path: Path):
    out, plan, _ = swept
    sent = out / "cells" / plan.cells[2].id
    parcel = Parcel.of(sent)
    assert parcel is not None
    (tmp_path / "cell" / "cover").mkdir(parents=True)
    (tmp_path / "cell" / "cover" / "9999.safetensors").touch()  # of a future that was left behind
    unpack(parcel, tmp_path / "cell")
    files = {path.relative_to(sent): path.read_bytes() for path in sent.rglob("*") if path.is_file()}
    found = {p.relative_to(tmp_path / "cell"): p.read_bytes() for p in (tmp_path / "cell").rglob("*") if p.is_file()}
    assert found == {path: data for path, data in files.items() if path.name != ".lock"}
    with pytest.raises(Exception, match="have no file"):
        unpack(Parcel(["../x"], {"../x": b""}), tmp_path / "cell")
