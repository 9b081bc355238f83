"""Whether this tree computes the same bits as another commit, on this machine.

    python -m tests.same_bits [--base 5dad328] [--keep FOLDER] [--only lock --only killed,resumed] [--list]

A case is a list of commands, each what one would write after `pcpg`, run in an empty folder. What they leave behind is
compared: metrics, policies, members of the cover and features of every run folder, the JSON that commands print, the
cells of an experiment. Times, versions, paths and the commit are no part of it. The base's results are kept in
FOLDER, by commit, and not computed again. What only the base imports (tyro, up to 5dad328) is found through PYTHONPATH:

    pip install --target extra tyro && PYTHONPATH=extra python -m tests.same_bits
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BASE = "5dad328"

# Parts of commands.
LOCK = "CombinationLock-v0 --env.horizon 3 --seeds 2"
LAKE, CLIFF, HOST_CAR = "gymnasium:FrozenLake-v1", "gymnasium:CliffWalking-v1", "gymnasium:MountainCarContinuous-v0"
CAR = "MountainCarContinuous-v0"
SMALL = "--ppo.num-updates 4 --explore.max-policies 4 --exploit.num-rounds 2"
TINY = "--ppo.num-updates 2 --ppo.num-episodes 64 --ppo.hidden 16 --visit-episodes 32 --num-rounds 3"
KEPT = "--algo pcpg-replay --explore.patience 2 --explore.min-value 0.4 --exploit.visit-episodes 8"
FEW = "--explore.num-episodes 8 --explore.backups 50 --exploit.backups 50 --replay.max-landmarks 128"
LANES = "CombinationLock-v0 --env.horizon 2 --seeds 3 --lanes 4"
CAR_COVER = "--algo pcpg-bonus --ppo.num-updates 4 --explore.max-policies 3 --exploit.num-rounds 1"
SHORT = "--steps 2k"
EVALUATE = "evaluate run --episodes 50"

# `train` makes the folder `run` where no --out is given. `kill train ...` is killed (SIGKILL) when it has a checkpoint
# of step 2.
CASES: dict[str, list[str]] = {
    # PC-PG.
    "lock-pcpg": [f"train {LOCK} --algo pcpg", EVALUATE],
    "lock-pcpg-bonus": [f"train {LOCK} --algo pcpg-bonus", EVALUATE],
    "lock-pcpg-lanes": [f"train {LANES} --algo pcpg {SMALL}", EVALUATE],
    "lock-pcpg-steps-until": [f"train {LOCK} --algo pcpg --steps 400k --until 3.5", EVALUATE],
    "maze-pcpg": ["train Maze-v0 --env.size 5 --algo pcpg", EVALUATE],
    "maze-pcpg-beside": [f"train Maze-v0 --env.size 5 --algo pcpg {SMALL} --explore.episodic beside", EVALUATE],
    "maze-pcpg-times": [f"train Maze-v0 --env.size 5 --algo pcpg {SMALL} --explore.episodic times", EVALUATE],
    "mountain-car-pcpg": [f"train {CAR} --algo pcpg {SMALL} --ppo.num-episodes 64", EVALUATE],
    "mountain-car-pcpg-bonus": [f"train {CAR} {CAR_COVER}", EVALUATE],
    "deep-sea-pcpg": [f"train DeepSea-v0 --env.size 5 --algo pcpg {SMALL}", EVALUATE],
    "host-lake-pcpg": [f"train {LAKE} --algo pcpg {SMALL}", EVALUATE],
    "host-lake-pcpg-reward-first": [f"train {LAKE} --algo pcpg --steps 30k --explore.reward-first 0.4", EVALUATE],
    "host-mountain-car-pcpg": [f"train {HOST_CAR} --algo pcpg {SMALL} --env.max-steps 200", EVALUATE],
    # The baselines.
    "lock-ppo": [f"train {LOCK} --algo ppo --budget 400000", EVALUATE],
    "lock-ppo-rnd": [f"train {LOCK} --algo ppo-rnd --budget 400000", EVALUATE],
    "lock-ppo-e3b": [f"train {LOCK} --algo ppo-e3b --budget 400000", EVALUATE],
    "lock-ppo-lanes": [f"train {LANES} --algo ppo {TINY}", EVALUATE],
    "lock-ppo-autoreset": [f"train {LOCK} --algo ppo --autoreset {TINY}", EVALUATE],
    "mountain-car-ppo-rnd": [f"train {CAR} --algo ppo-rnd {TINY} --ppo.num-episodes 8", EVALUATE],
    "maze-ppo-e3b": [f"train Maze-v0 --env.size 5 --env.goal 2,3 --algo ppo-e3b {TINY}", EVALUATE],
    "host-lake-ppo": [f"train {LAKE} --algo ppo {TINY}", EVALUATE],
    "host-lake-ppo-rnd": [f"train {LAKE} --algo ppo-rnd {TINY}", EVALUATE],
    "host-lake-ppo-e3b": [f"train {LAKE} --algo ppo-e3b {TINY}", EVALUATE],
    "host-mountain-car-ppo": [f"train {HOST_CAR} --algo ppo --env.max-steps 100 {TINY}", EVALUATE],
    # Kept data: observations that are listed, that are not, on the host, with learned features.
    "lock-replay": [f"train {LOCK} {KEPT}", EVALUATE],
    "lock-replay-lanes": [f"train {LANES} {KEPT}", EVALUATE],
    "lock-replay-until": [f"train {LOCK} --algo pcpg-replay --steps 6k --until 3.5", EVALUATE],
    "maze-replay": [f"train Maze-v0 --env.size 5 --env.goal 2,3 {KEPT} --steps 5k", EVALUATE],
    "mountain-car-replay": [f"train {CAR} {KEPT} {FEW} --steps 30k", EVALUATE],
    "host-lake-replay": [f"train {LAKE} {KEPT} --steps 5k", EVALUATE],
    "host-cliff-replay": [f"train {CLIFF} {KEPT} --env.max-steps 50 --steps 5k", EVALUATE],
    "host-mountain-car-replay": [f"train {HOST_CAR} {KEPT} --env.max-steps 100 --steps 8k", EVALUATE],
    "lock-replay-learned": [f"train {LOCK} {KEPT} --replay.features inverse-dynamics --steps 3k", EVALUATE],
    "host-lake-replay-learned": [f"train {LAKE} {KEPT} --replay.features inverse-dynamics --steps 4k", EVALUATE],
    # The deep learner, with an explorer and without, and ranked episodes.
    "point-mass-deep": [f"train PointMass-v0 --algo pcpg-deep {SHORT}", EVALUATE],
    "point-mass-sac": [f"train PointMass-v0 --algo sac {SHORT}", EVALUATE],
    "point-mass-deep-cover": [f"train PointMass-v0 --algo pcpg-deep --explore.cover 4 {SHORT}", EVALUATE],
    "host-lake-deep": [f"train {LAKE} --algo pcpg-deep {SHORT}", EVALUATE],
    "host-lake-ranked": [f"train {LAKE} --algo ppo-ranked {TINY}", EVALUATE],
    "rooms-ranked": [f"train Rooms-v0 --algo ppo-ranked {TINY}", EVALUATE],
    "killed-deep": [f"kill train PointMass-v0 --algo pcpg-deep {SHORT}", "resume run", EVALUATE],
    # What a look chose.
    "host-lake-auto": [f"train {LAKE} --steps 20k", EVALUATE],
    # The task learned on what another run explored.
    "exploit": [
        "train Maze-v0 --env.size 6 --algo pcpg --ppo.num-updates 2 --explore.max-policies 3 --out cover",
        "exploit cover --env.goals 2 --exploit.num-rounds 2 --ppo.num-updates 3 --out run",
    ],
    "exploit-data": [
        f"train Maze-v0 --env.size 5 {KEPT} --steps 6k --out data",
        "exploit data --env.goals 2 --out run",
        "exploit data --env.goal 2,3 --steps 10k --out more",
    ],
    "exploit-data-alone": [
        f"train DeepSea-v0 --env.size 5 {KEPT} --steps 4k --out data",
        "exploit data --out run",
        "exploit data --steps 5k --out more",
    ],
    # Killed, and resumed to the end.
    "killed-pcpg": [f"kill train {LOCK} --algo pcpg", "resume run", EVALUATE],
    "killed-ppo-rnd": [f"kill train {LOCK} --algo ppo-rnd --budget 800000", "resume run", EVALUATE],
    "killed-replay": [f"kill train {LOCK} --algo pcpg-replay", "resume run", EVALUATE],
    "killed-host-replay": [f"kill train {LAKE} --algo pcpg-replay --steps 20k", "resume run", EVALUATE],
    # Finished, and granted more.
    "resumed-pcpg": [f"train {LOCK} --algo pcpg {SMALL}", "resume run --steps +200k", EVALUATE],
    "resumed-host-pcpg": [f"train {LAKE} --algo pcpg --steps 25k", "resume run --steps +10k", EVALUATE],
    "resumed-ppo-e3b": [f"train {LOCK} --algo ppo-e3b --budget 200000", "resume run --steps +200k", EVALUATE],
    "resumed-replay": [f"train {LOCK} {KEPT} --steps 3k", "resume run --steps +2k", EVALUATE],
    # Theory and experiments.
    "theory-lock-sampled": ["theory run --mdp lock --horizon 4 --mode sampled --seeds 2"],
    "theory-lock-exact": ["theory run --mdp lock --horizon 6 --mode exact"],
    "theory-chain-sampled": ["theory run --mdp chain --mode sampled"],
    "theory-kernel": ["theory kernel"],
    "theory-tree": ["theory tree --depth 4"],
    "theory-aggregation": ["theory aggregation"],
    "experiment-lock": ["reproduce lock --scale smoke --out results"],
    "experiment-mountaincar": ["reproduce mountaincar --scale smoke --out results"],
    "experiment-table1": ["reproduce table1 --scale smoke --out results"],
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
KILLED_AT = 2  # the step of the checkpoint


def started(source: Path, words: list[str], folder: Path) -> subprocess.Popen[str]:
    """`pcpg WORDS` of a source tree, in a folder."""
    path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    command, pipe = [sys.executable, "-m", "pcpg", *words], subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=own, stdout=pipe, stderr=pipe, text=True)


def printed(source: Path, words: list[str], folder: Path) -> str:
    """What a command prints on stdout."""
    process = started(source, words, folder)
    out, err = process.communicate()
    if process.returncode:
        raise RuntimeError(f"pcpg {' '.join(words)} with {source}: exit code {process.returncode}\n{err[-2000:]}")
    return out


def kill(source: Path, words: list[str], folder: Path) -> None:
    """Begin a run, and kill it as soon as there is something to resume."""
    process = started(source, words, folder)
    while process.poll() is None and newest_step(folder / "run") < KILLED_AT:
        time.sleep(0.002)
    process.kill()
    _, err = process.communicate()
    if process.returncode >= 0:
        raise RuntimeError(f"pcpg {' '.join(words)} with {source} ended before it was killed\n{err[-2000:]}")


def newest_step(run: Path) -> int:
    """The step of the newest checkpoint of a run; -1: there is none."""
    names = [path.name for path in (run / "checkpoints").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def plain(value: Any) -> Any:
    """A JSON value without what may differ between two equal results."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in sorted(value.items()) if name not in NOT_COMPARED}
    return [plain(part) for part in value] if isinstance(value, list) else value


def files_of(folder: Path) -> dict[str, Any]:
    """By file, what run folders and experiments left behind."""
    patterns = ("metrics.jsonl", "policy.safetensors", "features.safetensors", "cover/*.safetensors")
    files = sorted(path for pattern in patterns for path in folder.glob(f"*/{pattern}"))
    found: dict[str, Any] = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }
    cells = sorted(folder.glob("results/cells/*.json"))
    return found | {str(path.relative_to(folder)): plain(json.loads(path.read_text())) for path in cells}


def facts(case: str, source: Path, folder: Path) -> dict[str, Any]:
    """What a case leaves behind."""
    said: dict[str, Any] = {}
    for number, line in enumerate(CASES[case], 1):
        words = shlex.split(line)
        is_killed = words[0] == "kill"
        words = words[1:] if is_killed else words
        words += ["--out", "run"] if words[0] == "train" and "--out" not in words else []
        if is_killed:
            kill(source, words, folder)
        elif words[0] == "reproduce":
            printed(source, words, folder)
        else:
            said[f"{number}: {words[0]}"] = plain(json.loads(printed(source, [*words, "--json"], folder)))
    return files_of(folder) | said


def of_base(case: str, source: Path, kept: Path, folder: Path) -> dict[str, Any]:
    """What a case of the base leaves behind: kept, unless the case is another one now."""
    written = json.loads(kept.read_text()) if kept.exists() else {}
    if written.get("commands") != CASES[case]:
        written = {"commands": CASES[case], "facts": facts(case, source, Path(tempfile.mkdtemp(dir=folder)))}
        kept.write_text(json.dumps(written, indent=1))
    return plain(written["facts"])


def chosen_cases(parser: argparse.ArgumentParser, asked: list[str]) -> list[str]:
    """The cases whose names contain one of the words; a word that no case has is refused."""
    words = [word for text in asked for word in text.split(",") if word]
    for word in words:
        if not any(word in case for case in CASES):
            parser.error(f"no case has {word!r} in its name; they are {', '.join(CASES)}")
    return [case for case in CASES if not words or any(word in case for word in words)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default=BASE, help="commit to compare with")
    parser.add_argument("--keep", default="", help="folder for the base's results")
    parser.add_argument("--only", action="append", default=[], help="only the cases whose names contain this or, a,b")
    parser.add_argument("--list", action="store_true", help="print the cases and do nothing")
    flags = parser.parse_args()
    cases = chosen_cases(parser, flags.only)
    if flags.list:
        for case in cases:
            print(f"{case}: {'; '.join(CASES[case])}")
        return 0
    different = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        commit = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", f"{flags.base}^{{commit}}"], text=True)
        keep = Path(flags.keep or folder).resolve() / commit.strip()[:12]
        keep.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(keep.parent / "jax"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).mkdir(mode=0o700, parents=True, exist_ok=True)
        base = folder / "base"
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(base)], check=True)
        subprocess.run(["git", "-C", str(base), "checkout", "--quiet", commit.strip()], check=True)
        for case in cases:
            began = time.monotonic()
            try:
                before = of_base(case, base / "src", keep / f"{case}.json", folder)
                took = time.monotonic() - began
                after = json.loads(json.dumps(facts(case, ROOT / "src", Path(tempfile.mkdtemp(dir=folder)))))
            except RuntimeError as error:
                different.append(case)
                print(f"{case}: FAILED: {error}", flush=True)
                continue
            names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            different += [case] if names else []
            seconds = f"({took:.0f} s, {time.monotonic() - began - took:.0f} s)"
            print(f"{case}: {'DIFFERENT: ' + ', '.join(names) if names else 'same bits'} {seconds}", flush=True)
    print(
        f"{len(different)} of {len(cases)} cases differ from {flags.base} or failed: {', '.join(different) or 'none'}"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
