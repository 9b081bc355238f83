"""Whether this tree computes the same bits as another commit, on this machine.

    python -m tests.same_bits --base 7f6eab2 [--keep FOLDER] [--only lock]

Every case is a list of commands; what they leave behind is compared: metrics, policies, members of the cover and
evaluations of a run, the JSON that a command prints, the cells of an experiment. Times, versions, paths and the
commit are no part of it. The base's results are kept in FOLDER and not computed again.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ["CombinationLock-v0", "--env.horizon", "3", "--seeds", "2"]
SMALL = ["--ppo.num-updates", "4", "--explore.max-policies", "4", "--exploit.num-rounds", "2"]
TRAINED: dict[str, list[str]] = {
    "lock-pcpg": [*LOCK, "--algo", "pcpg"],
    "lock-pcpg-bonus": [*LOCK, "--algo", "pcpg-bonus"],
    "lock-ppo": [*LOCK, "--algo", "ppo", "--budget", "400000"],
    "lock-ppo-rnd": [*LOCK, "--algo", "ppo-rnd", "--budget", "400000"],
    "maze-pcpg": ["Maze-v0", "--env.size", "5", "--algo", "pcpg"],
    "frozen-lake-pcpg": ["gymnasium:FrozenLake-v1", "--algo", "pcpg", *SMALL],
    "mountain-car-pcpg": ["MountainCarContinuous-v0", "--algo", "pcpg", *SMALL, "--ppo.num-episodes", "64"],
    "mountain-car-pcpg-bonus": ["MountainCarContinuous-v0", "--algo", "pcpg-bonus", *SMALL],
    "gymnasium-mountain-car-pcpg": ["gymnasium:MountainCarContinuous-v0", "--algo", "pcpg", *SMALL],
}
PRINTED: dict[str, list[str]] = {
    "theory-lock-sampled": ["theory", "run", "--mdp", "lock", "--horizon", "4", "--mode", "sampled", "--seeds", "2"],
    "theory-lock-exact": ["theory", "run", "--mdp", "lock", "--horizon", "6", "--mode", "exact"],
    "theory-chain-sampled": ["theory", "run", "--mdp", "chain", "--mode", "sampled"],
    "theory-kernel": ["theory", "kernel"],
    "theory-tree": ["theory", "tree", "--depth", "4"],
    "theory-aggregation": ["theory", "aggregation"],
}
NOT_COMPARED = {
    "seconds",
    "compile_seconds",
    "seconds_of_last_process",
    "time",
    "commit",
    "device",
    "command",
    "run",
    "out",
}
NOT_COMPARED |= {"steps_per_second", "versions", "path", "figure", "figures", "png"}
RENAMED = {"lam": "ridge", "episodes": "rounds"}  # keys of the theory's JSON that have another name since 7f6eab2


def pcpg(source: Path, *words: str) -> str:
    """What `pcpg WORDS` of a source tree prints on stdout."""
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-m", "pcpg", *words], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"pcpg {' '.join(words)} with {source}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def plain(value: Any) -> Any:
    """A JSON value without what may differ between two equal results."""
    if isinstance(value, dict):
        kept = {RENAMED.get(name, name): part for name, part in value.items() if name not in NOT_COMPARED}
        return {name: plain(part) for name, part in sorted(kept.items())}
    return [plain(part) for part in value] if isinstance(value, list) else value


def facts_of_run(folder: Path) -> dict[str, str]:
    """By file, what a run folder says."""
    files = [folder / "metrics.jsonl", folder / "policy.safetensors", *sorted((folder / "cover").glob("*.safetensors"))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.exists()}


def trained(source: Path, words: list[str], out: Path) -> dict[str, Any]:
    """The facts of a run that is trained and evaluated."""
    run = out / "run"
    printed = json.loads(pcpg(source, "train", *words, "--out", str(run), "--json"))
    evaluation = json.loads(pcpg(source, "evaluate", str(run), "--episodes", "50", "--json"))
    return facts_of_run(run) | {"printed": plain(printed), "evaluation": plain(evaluation)}


def exploited(source: Path, out: Path) -> dict[str, Any]:
    """The facts of a goal that is learned on the cover of a maze."""
    cover, run = out / "cover", out / "run"
    maze = ["Maze-v0", "--env.size", "6", "--algo", "pcpg", "--ppo.num-updates", "2", "--explore.max-policies", "3"]
    pcpg(source, "train", *maze, "--out", str(cover))
    words = ["--env.goals", "2", "--exploit.num-rounds", "2", "--ppo.num-updates", "3"]
    printed = pcpg(source, "exploit", str(cover), *words, "--out", str(run), "--json")
    return facts_of_run(run) | {"printed": plain(json.loads(printed))}


def reproduced(source: Path, experiment: str, out: Path) -> dict[str, Any]:
    """The cells of an experiment at smoke scale."""
    pcpg(source, "reproduce", experiment, "--scale", "smoke", "--out", str(out / "results"))
    cells = sorted((out / "results" / "cells").glob("*.json"))
    now = [(path.name.replace("pc-pg", "pcpg"), path.read_text().replace("pc-pg", "pcpg")) for path in cells]
    return {name: plain(json.loads(text)) for name, text in now}  # PC-PG goes by one name in Table 1 since


def facts(case: str, source: Path, out: Path) -> dict[str, Any]:
    """What a case leaves behind."""
    if case in TRAINED:
        return trained(source, TRAINED[case], out)
    if case in PRINTED:
        return {"printed": plain(json.loads(pcpg(source, *PRINTED[case], "--json")))}
    return exploited(source, out) if case == "exploit" else reproduced(source, case, out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="7f6eab2", help="commit to compare with")
    parser.add_argument("--keep", default="", help="folder for the base's results")
    parser.add_argument("--only", default="", help="only the cases whose names contain this")
    flags = parser.parse_args()
    every = [*TRAINED, *PRINTED, "exploit", "lock", "mountaincar", "table1"]
    cases = [case for case in every if flags.only in case]
    if not cases:
        parser.error(f"no case has {flags.only!r} in its name; they are {', '.join(every)}")
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        keep = Path(flags.keep or folder) / "kept"
        keep.mkdir(parents=True, exist_ok=True)
        base = Path(folder) / "base"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(base)], check=True)
        subprocess.run(["git", "-C", str(base), "checkout", "--quiet", flags.base], check=True)
        for case in cases:
            kept = keep / f"{case}.json"
            if not kept.exists():
                kept.write_text(json.dumps(facts(case, base / "src", Path(tempfile.mkdtemp(dir=folder)))))
            before = plain(json.loads(kept.read_text()))
            after = json.loads(json.dumps(facts(case, ROOT / "src", Path(tempfile.mkdtemp(dir=folder)))))
            names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
            different += bool(names)
            print(f"{case}: {'same bits' if not names else 'DIFFERENT: ' + ', '.join(sorted(names))}", flush=True)
    print(f"{different} of the cases differ from {flags.base}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
