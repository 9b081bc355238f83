"""What a large sweep would cost: a model fitted to measured cells, and a simulation; into results/cost.json.

    python benchmarks/cost.py

Cells of growing budgets are measured here, one at a time: seconds = start + per_step * steps, with the spread that is
left over. The simulation deals out 1,000 seeds x 100 environments in blocks of 32 to the slots of a cluster, first come
first served: durations spread as measured, some cells are stragglers, nodes fail at random, come back after a while,
and what was done since the last checkpoint is done again. It shows how the time depends on the number of slots; the
seconds themselves are those of this machine.
"""

import argparse
import heapq
import json
import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from run import HERE, provenance
from sweep import BASELINE

from pcpg.runs.folder import RunFolder
from pcpg_lab.sweeps.local import LocalEngine
from pcpg_lab.sweeps.plan import plan_of
from pcpg_lab.sweeps.status import SweepFolder
from pcpg_lab.sweeps.sweep import run_sweep

BUDGETS = (40_000, 80_000, 160_000, 320_000, 640_000)
SEEDS, ENVIRONMENTS, BLOCK = 1000, 100, 32
STEPS = 1_000_000
"""Of a seed, in the simulation."""


class Model(NamedTuple):
    """Seconds of a cell: start + per_step * steps of all its seeds, times a factor with this spread."""

    start: float
    per_step: float
    spread: float  # standard deviation of the factor's logarithm


class Cluster(NamedTuple):
    """What cells are dealt out to."""

    slots: int
    slots_of_a_node: int = 16
    hours_between_failures: float = 200.0  # of one node
    minutes_away: float = 10.0
    straggling: float = 0.01  # share of cells ...
    slower: float = 5.0  # ... that take so many times as long
    seconds_between_checkpoints: float = 60.0
    seconds_to_notice: float = 30.0


def measured(root: Path) -> list[tuple[int, float]]:
    """Steps and seconds of cells, one at a time; compiled programs come from the cache."""
    base: dict[str, Any] = {"env": "CombinationLock-v0", "algo": "ppo", "env_options": {"horizon": 5}, "seeds": 1}
    cells = [{"agent": BASELINE | {"budget": budget}, "seed": seed} for seed in range(2) for budget in BUDGETS]
    plan = plan_of({"base": base, "cells": cells})
    swept = run_sweep(plan, SweepFolder(root), LocalEngine(1, 0.0, 1))
    found = []
    for cell in plan.cells:
        steps = sum(RunFolder.open(root / "cells" / cell.id).read_summary()["env_steps"])
        found.append((steps, float(swept.timings[cell.id]["seconds"])))
    return found


def fitted(rows: list[tuple[int, float]]) -> Model:
    """Least squares relative to the seconds, so that short cells count as much as long ones."""
    steps, seconds = np.array(rows, float).T
    design = np.stack([np.ones_like(steps), steps], axis=1) / seconds[:, None]
    (start, per_step), *_ = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)
    start = max(float(start), 0.0)
    left = np.log(seconds / (start + per_step * steps))
    return Model(start, float(per_step), float(left.std(ddof=2)))


def simulated(model: Model, cluster: Cluster, seed: int) -> dict[str, float]:
    """A sweep on a cluster: its hours, the share of the slots' time that was work, and the hours of work lost."""
    rng = np.random.default_rng(seed)
    blocks = [min(BLOCK, SEEDS - first) for first in range(0, SEEDS, BLOCK)] * ENVIRONMENTS
    work = np.array([model.start + model.per_step * STEPS * count for count in blocks])
    work = work * np.exp(rng.normal(0.0, model.spread, len(work)))
    work = work * np.where(rng.random(len(work)) < cluster.straggling, cluster.slower, 1.0)
    nodes = math.ceil(cluster.slots / cluster.slots_of_a_node)
    rate = 1 / (cluster.hours_between_failures * 3600)
    fails = rng.exponential(1 / rate, nodes)
    waiting, lost, end = list(work[::-1]), 0.0, 0.0
    free = [(0.0, slot) for slot in range(cluster.slots)]
    heapq.heapify(free)
    while waiting:
        now, slot = heapq.heappop(free)
        node = slot // cluster.slots_of_a_node
        while fails[node] + cluster.minutes_away * 60 <= now:  # it is back
            fails[node] += rng.exponential(1 / rate)
        if fails[node] <= now:
            heapq.heappush(free, (fails[node] + cluster.minutes_away * 60, slot))
            continue
        need = waiting.pop()
        if now + need <= fails[node]:
            heapq.heappush(free, (now + need, slot))
            end = max(end, now + need)
            continue
        done = fails[node] - now
        kept = done // cluster.seconds_between_checkpoints * cluster.seconds_between_checkpoints
        lost += done - kept + cluster.seconds_to_notice
        waiting.append(need - kept)
        heapq.heappush(free, (fails[node] + cluster.minutes_away * 60, slot))
    return {
        "hours": end / 3600,
        "share_of_work": float(work.sum()) / (cluster.slots * end),
        "hours_of_work_lost": lost / 3600,
        "hours_of_the_longest_cell": float(work.max()) / 3600,
    }


def main() -> None:
    """Measure, fit, simulate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "cost.json", help="file to write")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        rows = measured(Path(root) / "cells")
    model = fitted(rows)
    simulations = {}
    for slots in (2, 16, 64, 256, 1024):
        runs = [simulated(model, Cluster(slots), seed) for seed in range(20)]
        means = {name: round(float(np.mean([run[name] for run in runs])), 4) for name in runs[0]}
        simulations[str(slots)] = means | {"most_hours": round(max(run["hours"] for run in runs), 4)}
    result = {
        "provenance": provenance(),
        "measured": [{"steps": steps, "seconds": round(seconds, 2)} for steps, seconds in rows],
        "model": model._asdict(),
        "sweep": {"seeds": SEEDS, "environments": ENVIRONMENTS, "block": BLOCK, "steps_of_a_seed": STEPS},
        "cluster": Cluster(0)._asdict() | {"slots": "by row"},
        "by_slots": simulations,
    }
    asked.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["model"]), json.dumps(simulations))


if __name__ == "__main__":
    main()
