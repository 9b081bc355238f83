"""Sweeps on two engines: the same bytes, what a lost node costs, what the engine itself costs; into results/sweep.json.

    python benchmarks/sweep.py cells        24 cells on `local`, on a Ray cluster of three nodes, and with one killed
    python benchmarks/sweep.py overhead     cells of some 20 s: the share of the time that is neither training nor
                                            compiling, on both engines
    python benchmarks/sweep.py gpu          cells that share one GPU beside the same cells one after the other

The nodes of the cluster are those of `ray.cluster_utils.Cluster`, all on this machine.
"""

import argparse
import dataclasses
import hashlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from run import HERE, provenance

from pcpg_lab.sweeps.local import LocalEngine
from pcpg_lab.sweeps.on_ray import RayEngine
from pcpg_lab.sweeps.plan import Plan, plan_of
from pcpg_lab.sweeps.status import SweepFolder
from pcpg_lab.sweeps.sweep import Swept, run_sweep

PPO = {"num_updates": 4, "num_episodes": 128, "hidden": [32, 32]}
BASELINE = {"ppo": PPO, "visit_episodes": 64}
PCPG = {
    "ppo": PPO,
    "explore": {"visit_episodes": 64, "num_groups": 16, "max_policies": 8, "patience": 8},
    "exploit": {"num_rounds": 8},
}
KEPT = (
    "config.json",
    "environment.json",
    "features.safetensors",
    "metrics.jsonl",
    "policy.safetensors",
    "summary.json",
)
NODES = 3


def cells_plan() -> Plan:
    """Two horizons, three algorithms, four blocks of two seeds."""
    budgets = {"budget": 60_000}
    return plan_of(
        {
            "block": 2,
            "base": {"env": "CombinationLock-v0", "seeds": 8},
            "grid": {"env_options.horizon": [2, 5]},
            "cells": [
                {"algo": "pcpg", "agent": PCPG},
                {"algo": "ppo-rnd", "agent": BASELINE | budgets},
                {"algo": "ppo", "agent": BASELINE | budgets},
            ],
        }
    )


def overhead_plan(cells: int, budget: int) -> Plan:
    """Equal cells of one seed."""
    base = {"env": "CombinationLock-v0", "algo": "ppo", "env_options": {"horizon": 5}, "seeds": cells}
    return plan_of({"block": 1, "base": base | {"agent": BASELINE | {"budget": budget}}})


def digests(out: Path) -> dict[str, str]:
    """Of every file whose bytes are a function of the settings, by cell and name, its hash."""
    found = {}
    for cell in sorted((out / "cells").iterdir()):
        for path in [*(cell / name for name in KEPT), *sorted(cell.glob("cover/*"))]:
            if path.exists():
                found[f"{cell.name}/{path.relative_to(cell)}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def on_a_cluster(
    plan: Plan, out: Path, storage: str = "auto", kill: Callable[[Any, list[Any]], None] | None = None
) -> Swept:
    """A sweep on a cluster of three nodes of one core; `kill` is called beside it."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES - 1)]
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        engine = RayEngine("ray", out, plan.cores, 0.0, storage=storage)
        if kill is not None:
            threading.Thread(target=kill, args=(cluster, nodes), daemon=True).start()
        swept = run_sweep(plan, SweepFolder(out), engine)
        engine.close()
        return swept
    finally:
        ray.shutdown()
        cluster.shutdown()


def cells(root: Path) -> dict[str, Any]:
    """The same sweep in four ways."""
    plan = cells_plan()
    local = run_sweep(plan, SweepFolder(root / "local"), LocalEngine(plan.cores, 0.0))
    whole = digests(root / "local")
    rows: dict[str, Any] = {"local": row(local, whole, whole)}

    def kill_at(out: Path, share: float) -> Callable[[Any, list[Any]], None]:
        def kill(cluster: Any, nodes: list[Any]) -> None:
            while sum(1 for path in out.glob("cells/*/summary.json")) < share * len(plan.cells):
                time.sleep(0.1)
            cluster.remove_node(nodes[0], allow_graceful=False)

        return kill

    for name, storage, share in (
        ("ray", "shared", None),
        ("ray, one node of three killed in the middle", "shared", 0.5),
        ("ray without shared storage, one node of three killed in the middle", "ray", 0.5),
    ):
        out = root / name.replace(" ", "-").replace(",", "")
        kill = None if share is None else kill_at(out, share)
        rows[name] = row(on_a_cluster(plan, out, storage, kill), digests(out), whole)
        print(name, json.dumps(rows[name]), flush=True)
    return {"cells": len(plan.cells), "seeds_of_a_cell": 2, "engines": rows}


def row(swept: Swept, found: dict[str, str], whole: dict[str, str]) -> dict[str, Any]:
    """A sweep in the table, and whether its bytes are the local ones'."""
    return {
        "finished": swept.finished,
        "cells_run": len(swept.ran),
        "failed": len(swept.failed),
        "seconds": round(swept.seconds, 1),
        "workers_lost": swept.losses,
        "seconds_of_work_lost": round(swept.lost_seconds, 1),
        "files": len(found),
        "files_with_the_same_bytes": sum(found.get(name) == digest for name, digest in whole.items()),
        "same_bytes": found == whole,
    }


def overhead(root: Path, count: int, budget: int) -> dict[str, Any]:
    """How much of the workers' time is neither training nor compiling."""
    plan, rows = overhead_plan(count, budget), {}
    warm = plan_of({"base": json.loads(json.dumps(plan.cells[0].config)) | {"seed": 10_000}})
    run_sweep(warm, SweepFolder(root / "warm"), LocalEngine(1, 0.0, 1))  # the compilations, once for both
    for name in ("local", "ray"):
        out = root / name
        if name == "local":
            swept, slots = run_sweep(plan, SweepFolder(out), LocalEngine(1, 0.0)), LocalEngine(1, 0.0).slots()
        else:
            engine = RayEngine("ray", out, 1, 0.0)
            swept, slots = run_sweep(plan, SweepFolder(out), engine), engine.slots()
            engine.close()
        timings = list(swept.timings.values())
        busy = sum(one["training_seconds"] + one["compile_seconds"] for one in timings)
        inside = sum(one["seconds"] for one in timings)
        rows[name] = {
            "slots": slots,
            "seconds": round(swept.seconds, 1),
            "seconds_of_a_cell": round(inside / len(timings), 1),
            "seconds_of_training": round(sum(one["training_seconds"] for one in timings), 1),
            "seconds_of_compilation": round(sum(one["compile_seconds"] for one in timings), 1),
            "share_that_is_neither": round(1 - busy / (slots * swept.seconds), 4),
            "share_inside_cells_that_is_neither": round(1 - busy / inside, 4),
        }
        print(name, json.dumps(rows[name]), flush=True)
    return {"cells": count, "budget": budget} | rows


def gpu(root: Path, count: int, budget: int) -> dict[str, Any]:
    """Cells packed on one GPU, and one after the other."""
    rows = {}
    warm = dataclasses.replace(overhead_plan(1, budget), gpus=1.0)
    run_sweep(warm, SweepFolder(root / "warm"), LocalEngine(1, 1.0))  # the compilations, once for all
    for share in (1.0, 0.5, 0.25):
        plan = dataclasses.replace(overhead_plan(count, budget), gpus=share)
        swept = run_sweep(plan, SweepFolder(root / str(share)), LocalEngine(1, share))
        rows[f"{round(1 / share)} at a time"] = {"seconds": round(swept.seconds, 1), "failed": len(swept.failed)}
        rows[f"{round(1 / share)} at a time"]["same_bytes"] = digests(root / str(share)) == digests(root / "1.0")
        print(json.dumps(rows), flush=True)
    return {"cells": count, "budget": budget, "cells_at_a_time": rows}


def main() -> None:
    """Measure one part and write it beside the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("cells", "overhead", "gpu"))
    parser.add_argument("--count", type=int, default=8, help="cells of `overhead` and `gpu`")
    parser.add_argument("--budget", type=int, default=1_200_000, help="environment steps of such a cell")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "sweep.json", help="file to write")
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="pcpg-sweep-"))
    try:
        found = cells(root) if asked.part == "cells" else globals()[asked.part](root, asked.count, asked.budget)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    kept = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    kept[asked.part] = {"provenance": provenance()} | found
    asked.out.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
