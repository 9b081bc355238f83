"""Run folders of an older commit, and what that commit says of them: `python -m tests.old_runs --base 5dad328`.

They lie in tests/fixtures/COMMIT/NAME.tar.gz beside expected.json, for tests/training/test_old_runs.py. Two runs
were killed; the moment is another one whenever they are made, and what they end as does not depend on it.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from pcpg.training.restore import device_kind
from tests.same_bits import BASE, ROOT, kill, plain, printed

FIXTURES = ROOT / "tests" / "fixtures"
LOCK = "CombinationLock-v0 --env.horizon 2"
NETWORK = "--ppo.num-updates 2 --ppo.num-episodes 32 --ppo.hidden 8 8"
COVER = f"{NETWORK} --explore.visit-episodes 16 --explore.num-groups 8"
BASELINE = f"{NETWORK} --visit-episodes 16 --num-rounds 2"
KEPT = "--algo pcpg-replay --explore.num-episodes 8 --exploit.visit-episodes 8 --replay.max-landmarks 64"

RUNS: dict[str, str] = {
    "pcpg": f"train {LOCK} --seeds 2 --algo pcpg {COVER} --explore.max-policies 3 --exploit.num-rounds 2",
    "pcpg-bonus": f"train {LOCK} --algo pcpg-bonus {COVER} --explore.max-policies 3",
    "pcpg-replay": f"train {LOCK} {KEPT} --explore.patience 2 --explore.min-value 0.5",
    "ppo": f"train {LOCK} --algo ppo {BASELINE}",
    "ppo-rnd": f"train {LOCK} --algo ppo-rnd {BASELINE}",
    "ppo-e3b": f"train {LOCK} --algo ppo-e3b {BASELINE}",
    "host-replay": f"train gymnasium:FrozenLake-v1 {KEPT} --env.max-steps 20 --steps 700",
    "pcpg-killed": f"kill train {LOCK} --algo pcpg {COVER} --explore.max-policies 8 --exploit.num-rounds 8",
    "pcpg-replay-killed": f"kill train {LOCK} {KEPT} --explore.patience 20 --explore.min-value 0.5",
}
AFTER: dict[str, dict[str, Any]] = {
    "pcpg": {"do": "exploit", "config": {"ppo": {"num_updates": 2}, "exploit": {"num_rounds": 2}}},
    "pcpg-bonus": {"do": "exploit", "config": {"ppo": {"num_updates": 2}, "exploit": {"num_rounds": 2}}},
    "pcpg-replay": {"do": "exploit"},
    "host-replay": {"do": "exploit"},
    "pcpg-killed": {"do": "resume"},
    "pcpg-replay-killed": {"do": "resume"},
}
"""What is done with copies of the runs: a task is learned on the cover or the data, or the run goes on to its end."""

DRIVER = """
import json, sys, pcpg
for name, how in json.loads(sys.argv[1]).items():
    if how["do"] == "resume":
        pcpg.resume(name)
    else:
        pcpg.exploit(name, out=name + "-task", config=how.get("config"))
"""


def unpacked(commit: str, name: str, folder: Path) -> Path:
    """A copy of a run."""
    with tarfile.open(FIXTURES / commit / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def after(source: Path, folder: Path) -> dict[str, Any]:
    """What the runs in a folder lead to, compiled as users do, in a process of its own: the facts by name."""
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    own |= {"PYTHONPATH": str(source), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", DRIVER, json.dumps(AFTER)]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    ends = {name: folder / (name if how["do"] == "resume" else f"{name}-task") for name, how in AFTER.items()}
    return {name: end_of(run) for name, run in ends.items()}


def end_of(run: Path) -> dict[str, Any]:
    """The facts of a finished run."""
    files = ("metrics.jsonl", "policy.safetensors")
    summary = json.loads((run / "summary.json").read_text())["content"]
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in files} | {
        "summary": {name: summary[name] for name in ("seeds", "env_steps", "policies", "final_return")}
    }


def made_on() -> dict[str, Any]:
    """On what the bits of a run depend: the device, the compiler, and the linear algebra of the host."""
    blas = [[found.get("architecture"), found["version"]] for found in threadpool_info() if found["user_api"] == "blas"]
    return {"device": device_kind(), "jaxlib": version("jaxlib"), "blas": blas, "cores": os.cpu_count()}


def made(source: Path, folder: Path, out: Path) -> dict[str, Any]:
    """Make all runs with a source tree, pack them, and say what it says of them."""
    expected: dict[str, Any] = {}
    for name, line in RUNS.items():
        words = shlex.split(line)
        place = folder / f"{name}-place"
        place.mkdir()
        if words[0] == "kill":
            kill(source, [*words[1:], "--out", "run"], place)
        else:
            printed(source, [*words, "--out", "run"], place)
        run = (place / "run").rename(folder / name)
        with tarfile.open(out / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(run, name)
        verified = json.loads(printed(source, ["verify", name, "--json"], folder))
        expected[name] = {
            "command": line,
            "made on": made_on(),
            "verify": {"whole": verified["whole"], "sealed": verified["sealed"]},
            "evaluate": plain(json.loads(printed(source, ["evaluate", name, "--episodes", "20", "--json"], folder))),
        }
        if words[0] != "kill":
            expected[name]["end"] = end_of(run)
    for name, facts in after(source, folder).items():
        expected[name]["after"] = facts
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the run folders of an older commit.")
    parser.add_argument("--base", default=BASE)
    base = parser.parse_args().base
    out = FIXTURES / base
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tree = folder / "tree"
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", base], check=True)
        (folder / "runs").mkdir()
        expected = made(tree / "src", folder / "runs", out)
    (out / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    for path in sorted(out.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
