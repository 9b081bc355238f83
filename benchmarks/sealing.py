"""What it costs to seal a run: the share of a round's time that the manifest takes, on the lock at H = 10.

    python benchmarks/sealing.py

prints it and writes results/sealing.json. A sync takes as long as the disk is busy: the load is kept as well.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path

from run import HERE, provenance

from pcpg.run_config import RunConfig
from pcpg.runs.metrics import read_metrics
from pcpg.training.loop import start_run, train_run
from pcpg.training.sealing import Sealer


class Enough(Exception):
    """As many rounds as were asked for."""


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of sealing a run.")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--horizon", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    spent: list[float] = []
    seal = Sealer.seal

    def timed(*arguments, **named) -> None:
        began = time.perf_counter()
        seal(*arguments, **named)
        spent.append(time.perf_counter() - began)

    Sealer.seal = timed
    config = {"env": "CombinationLock-v0", "env_options": {"horizon": asked.horizon}, "seeds": asked.seeds}
    with tempfile.TemporaryDirectory(dir=".") as out:
        folder = start_run(RunConfig.from_json(config), Path(out) / "run")

        def observer(progress) -> None:
            if progress.step == asked.rounds:
                raise Enough

        with contextlib.suppress(Enough):
            train_run(folder, observer=observer)
        rounds = [record["seconds"] for record in read_metrics(folder.timings)][1:]  # the first has no updates
    seals = spent[2:]
    result = {
        "provenance": provenance(),
        "horizon": asked.horizon,
        "seeds": asked.seeds,
        "rounds": len(rounds),
        "median_round_seconds": statistics.median(rounds),
        "median_seal_seconds": statistics.median(seals),
        "share_of_medians": statistics.median(seals) / (statistics.median(rounds) + statistics.median(seals)),
        "share": sum(seals) / (sum(rounds) + sum(seals)),
    }
    (HERE / "results" / "sealing.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in result.items() if name != "provenance"}))


if __name__ == "__main__":
    main()
