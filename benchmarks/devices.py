"""Seeds spread over eight devices, beside the same on one: into results/devices.json.

    python benchmarks/devices.py

The devices are eight that XLA is told to see in this machine's processor: what is shown is that the bytes are the same.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

KEPT = ("metrics.jsonl", "policy.safetensors", "summary.json")
PPO = {"num_updates": 3, "num_episodes": 64, "hidden": [16, 16]}
AGENTS: dict[str, Any] = {
    "pcpg": {
        "ppo": PPO,
        "explore": {"visit_episodes": 32, "num_groups": 16, "max_policies": 4, "patience": 4},
        "exploit": {"num_rounds": 2},
    },
    "ppo": {"ppo": PPO, "visit_episodes": 32, "budget": 4000},
}


def run(algo: Any, seeds: int, count: int, lanes: int, out: Path) -> dict[str, Any]:
    """Train on so many devices; the bytes of what came out, and which devices computed."""
    import pcpg
    from pcpg.engine.program import Program, on_devices

    used: set[str] = set()
    compile_for = Program._compile

    def noted(self: Any, arguments: Any, device: Any) -> Any:
        used.add(str(device))
        return compile_for(self, arguments, device)

    Program._compile = noted
    began = time.perf_counter()
    with on_devices(count):
        pcpg.train(
            "CombinationLock-v0",
            algo,
            horizon=2,
            seeds=seeds,
            lanes=lanes,
            config=AGENTS[algo],
            out=out,
        )
    Program._compile = compile_for
    files = {name: (out / name).read_bytes() for name in KEPT}
    members = {path.name: path.read_bytes() for path in sorted(out.glob("cover/*"))}
    return {"devices": len(used), "seconds": time.perf_counter() - began, "files": files | members}


def compare(algo: str, seeds: int, lanes: int) -> dict[str, Any]:
    """One device and all eight."""
    with tempfile.TemporaryDirectory() as root:
        one, all_ = (run(algo, seeds, count, lanes, Path(root) / str(count)) for count in (1, 8))
    same = [name for name, data in one["files"].items() if all_["files"].get(name) == data]
    return {
        "algo": algo,
        "seeds": seeds,
        "lanes": lanes,
        "devices": [one["devices"], all_["devices"]],
        "files": len(one["files"]),
        "files_with_the_same_bytes": len(same),
        "same_bytes": one["files"] == all_["files"],
    }


def main() -> None:
    """Compare, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two seeds of PPO, printed")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "devices.json")
    asked = parser.parse_args()
    if asked.small:
        print(json.dumps([compare("ppo", 2, 1)]))
        return
    from run import provenance

    rows = [compare("ppo", 8, 1), compare("pcpg", 8, 1), compare("ppo", 8, 2)]
    asked.out.write_text(json.dumps({"provenance": provenance(), "runs": rows}, indent=2) + "\n")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
