"""PC-PG on mazes of size 20 with the paper's networks, 5 seeds at once, on a GPU: steps per second, updates included.

    python benchmarks/gpu_maze.py          # writes results/gpu-maze.json

`make bench` measures it as well where there is a GPU.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

SEEDS = 5
FIRST_ROUNDS = 2
"""Not timed: the first has no updates, and in the second they are compiled."""
ROUNDS = 15
FILE = Path(__file__).resolve().parent / "results" / "gpu-maze.json"


def measure() -> dict[str, Any]:
    """The rate, a round's seconds one by one, and what was compiled before; {} where there is no accelerator."""
    import jax
    from rounds import compile_seconds, env_steps, step

    from pcpg.training.loop import build_agent, device_kind
    from pcpg_lab.claims.maze import Flags, make_cell

    if jax.default_backend() == "cpu":
        return {}
    agent = build_agent(make_cell(Flags(scale="paper", seeds=SEEDS), "pcpg").config.resolved())
    states = [agent.init(seed) for seed in range(SEEDS)]
    seconds: list[float] = []
    before = 0
    for number in range(FIRST_ROUNDS + ROUNDS):
        if number == FIRST_ROUNDS:
            before = env_steps(states)
        started = time.perf_counter()
        states = step(agent, states)
        seconds.append(time.perf_counter() - started)
    timed = seconds[FIRST_ROUNDS:]
    return {
        "steps_per_second": round((env_steps(states) - before) / sum(timed), 1),
        "seeds": SEEDS,
        "policies": [FIRST_ROUNDS, FIRST_ROUNDS + ROUNDS],
        "seconds_of_rounds": [round(value, 3) for value in timed],
        "compile_seconds": round(compile_seconds(agent), 2),
        "peak_host_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "device": device_kind(),
    }


def main() -> None:
    """Measure, print and write, or say that there is no GPU."""
    from run import provenance

    results = measure()
    if not results:
        sys.exit("no GPU: nothing is measured")
    FILE.write_text(json.dumps({"provenance": provenance(results["device"]), "pcpg": results}, indent=2) + "\n")
    print(f"{results['steps_per_second']:,.0f} steps/s on {results['device']}, written to {FILE.name}")


if __name__ == "__main__":
    main()
