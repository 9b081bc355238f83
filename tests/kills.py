"""Real kills at random moments: `python -m tests.kills --kills 300`.

Runs of all algorithms, an exploitation, an environment in worker processes, a reproduction, a sweep, a search and the
page of a run are killed by SIGKILL again and again, each time resumed, until they are done; every reproducible byte
must be that of a run left alone, and no process may be left. The processes are forked from one that has imported
everything but computed nothing: a kill costs a second. `--ways` adds what else ends a run: SIGTERM, SIGHUP, a closed
pipe, a full and a read-only disk.
"""

import argparse
import contextlib
import importlib
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pcpg.algorithms import ALGORITHMS
from tests.small import SMALL, every, small

MARK = "PCPG_KILLS"
"""An environment variable by which every process that was started from here can be found."""

LONGER: dict[str, Any] = SMALL | {
    "ppo": SMALL["ppo"] | {"num_updates": 2, "num_episodes": 32},
    "budget": 2500,
    "num_rounds": 20,
    "explore": SMALL["explore"] | {"max_policies": 6, "patience": 6},
    "exploit": SMALL["exploit"] | {"num_rounds": 6},
}
"""Settings of runs that last long enough to be killed in each of their parts."""
SETTINGS = every(LONGER)
LEAVING = [algo for algo, row in ALGORITHMS.items() if row.settings.leaves]
LOCK: dict[str, Any] = {"env": "CombinationLock-v0", "horizon": 2, "seeds": 2}
RUNS: dict[str, dict[str, Any]] = {
    **{algo: LOCK | {"algo": algo, "config": config} for algo, config in SETTINGS.items()},
    **{f"exploit {algo}": {} for algo in LEAVING},
    "workers": {"env": "gymnasium:FrozenLake-v1", "max_steps": 8, "workers": 2, "config": SETTINGS["pcpg"]},
    "logged": {"env": "PointMass-v0", "steps": 20, "seeds": 2, "algo": "pcpg-deep", "total_steps": 800}
    | {"config": {"learn": {"hidden": [8], "batch": 8, "updates": 1.0}, "explore": {"num_features": 16}}},
    "reproduce": {},
    "sweep": {},
    "tune": {},
    "report": {},
}
"""What is killed, by its name; an algorithm of the table is there by being there."""
SWEEP = {"base": {"env": LOCK["env"], "env_options": {"horizon": 2}, "algo": "ppo", "agent": SETTINGS["ppo"]}}
PLANS: dict[str, dict[str, Any]] = {
    "sweep": SWEEP | {"grid": {"agent.ppo.num_epochs": [1, 2, 3]}},
    "tune": SWEEP | {"tune": {"trials": 3, "search": {"agent.ppo.entropy_coef": {"low": 0.0, "high": 0.1}}}},
}
RESULTS = ("config.json", "metrics.jsonl", "policy.safetensors", "summary.json", "features.safetensors")


def train(name: str, root: Path) -> None:
    """Begin a run, or go on where it was killed."""
    import pcpg
    from pcpg.reports.page import write_report

    out, arguments = root / name, RUNS[name]
    if name == "reproduce":
        from pcpg_lab.claims.harness import reproduce
        from pcpg_lab.claims.lock import CLAIM

        flags = CLAIM.flags(scale="smoke", horizons=(2,), seeds=1, out=str(out))  # pyright: ignore
        assert reproduce(CLAIM, flags) is not None
    elif name in PLANS:
        from pcpg.cli.main import main

        plan = root / f"{name}.py"
        plan.write_text(f"SWEEP = {PLANS[name]!r}")
        try:
            main([name, str(plan), "--out", str(out), *(["--slots", "1"] if name == "tune" else [])])
        except SystemExit as ended:
            assert not ended.code, ended.code
    elif name == "report":
        if not out.exists():
            shutil.copytree(root.parent / "alone" / "pcpg", root / "copying")
            (root / "copying").rename(out)
        write_report([out])
    elif (out / "config.json").exists():
        pcpg.resume(out)
    elif name.startswith("exploit "):
        explored = name.removeprefix("exploit ")
        config = small(ALGORITHMS[explored].settings, {"exploit": {"num_rounds": 12}})
        pcpg.exploit(root.parent / "alone" / explored, out=out, config=config)
    else:
        data = {"data": logged(root.parent / "log.npz")} if name == "logged" else {}
        pcpg.train(**arguments, **data, out=out)


def logged(file: Path) -> Path:
    """A file of logged episodes of the point mass."""
    import numpy as np

    if not file.exists():
        rng, ended = np.random.default_rng(0), np.arange(60) % 20 == 19
        seen, acted = rng.uniform(-0.9, 0.9, (63, 4)), rng.uniform(-1, 1, (60, 2))
        np.savez(file, observations=seen, actions=acted, rewards=ended * 1.0, terminated=ended)
    return file


def results(name: str, root: Path) -> dict[str, bytes]:
    """Every reproducible byte."""
    out = root / name
    if name == "reproduce":
        return {path.name: _without_provenance(path) for path in sorted((out / "cells").glob("*.json"))}
    if name in PLANS:
        cells = {f"{cell.name}/{file}": data for cell in (out / "cells").iterdir() for file, data in files_of(cell)}
        tables = ("table.csv", "table.json", "best.json", "study.jsonl")
        found = {file: (out / file).read_bytes() for file in tables if (out / file).exists()}
        return cells | found | ({} if name == "tune" else page_of(out))
    return dict(files_of(out)) | (page_of(out) if name == "report" else {})


def page_of(out: Path) -> dict[str, bytes]:
    """The page of a run or a sweep, without where it lies and how long it took."""
    text = (out / "report.html").read_text().replace(str(out), "OUT")
    text = re.sub(r"[\d.]+(?= (s|min|h)\b)", "TIME", text)
    return {"report.html": re.sub(r"(?<=<dt>Steps per second</dt><dd>)[\d,]+", "SPEED", text).encode()}


def files_of(out: Path) -> Iterator[tuple[str, bytes]]:
    """The reproducible files of a run."""
    newest = sorted((out / "checkpoints").glob("*"))[-1:]  # when others were saved may depend on the time
    files = [
        *(out / file for file in RESULTS),
        *(out / "cover").glob("*"),
        *(f for one in newest for f in one.glob("*")),
    ]
    yield from ((str(path.relative_to(out)), path.read_bytes()) for path in files if path.exists())


def _without_provenance(path: Path) -> bytes:
    record = json.loads(path.read_text())
    own = ("seconds", "seconds_of_last_process", "time", "command", "commit")
    return json.dumps({key: value for key, value in record.items() if key not in own}).encode()


def started(work: Callable[[], None], log: Path) -> int:
    """A process that does some work; what it says goes to a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with log.open("ab", buffering=0) as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        warnings.simplefilter("ignore")
        os.setpgid(0, 0)
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code) if code else _exit_as_python_does()
    return 0


def _exit_as_python_does() -> None:
    import atexit

    atexit._run_exitfuncs()
    os._exit(0)


def left_running() -> list[int]:
    """Processes that were started from here and are still there."""
    mark, found = f"{MARK}={os.environ[MARK]}".encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_zombie = path.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if mark in path.joinpath("environ").read_bytes().split(b"\0") and not is_zombie:
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid()]


def orphans(patience: float = 60.0) -> list[int]:
    """Processes that are left after a while."""
    limit = time.monotonic() + patience
    while (left := left_running()) and time.monotonic() < limit:
        time.sleep(0.05)
    return left


def kill_at_random(name: str, root: Path, kills: int, rng: random.Random, seconds: float) -> tuple[int, list[str]]:
    """Kill a run so many times, beginning anew when it is done; how many came in time, and what went wrong."""
    expected, done, wrong = results(name, root / "alone"), 0, []
    while done < kills:
        shutil.rmtree(root / "killed" / name, ignore_errors=True)
        while True:
            log = root / "log.txt"
            pid = started(lambda: train(name, root / "killed"), log)
            if done < kills:
                time.sleep(rng.uniform(0.0, seconds))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if os.WIFSIGNALED(status):
                done += 1
                left = orphans()
                if left:
                    wrong.append(f"{name}: processes {left} are left after a kill")
                    for other in left:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(other, signal.SIGKILL)
                continue
            if os.WEXITSTATUS(status):
                wrong.append(f"{name}: {log.read_text()[-2000:]}")
                return done, wrong
            break
        found = results(name, root / "killed")
        if found != expected:
            other = sorted(file for file in {*found, *expected} if found.get(file) != expected.get(file))
            kept = root / f"wrong-{name}-{len(wrong)}"
            shutil.copytree(root / "killed" / name, kept)
            wrong.append(f"{name}: other results than those of a run left alone: {', '.join(other)}; see {kept}")
    return done, wrong


def import_everything() -> None:
    """Import all that a run imports, so that no process that is killed spends its time on it."""
    import pcpg
    import pcpg_lab

    for package in (pcpg, pcpg_lab):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                if not module.name.endswith("__main__"):
                    importlib.import_module(module.name)


def kills(count: int, root: Path, names: list[str], seed: int) -> tuple[int, list[str]]:
    """Kill runs of all kinds, so many times in all; how many kills there were and what went wrong."""
    import_everything()
    rng, wrong, total = random.Random(seed), [], 0
    for name in names:
        times, twice = [], []
        for _ in range(2):  # the second time its programs are compiled
            shutil.rmtree(root / "alone" / name, ignore_errors=True)
            began = time.monotonic()
            pid = started(lambda name=name: train(name, root / "alone"), root / "log.txt")
            _, status = os.waitpid(pid, 0)
            if status:
                return total, [f"{name}: {(root / 'log.txt').read_text()[-2000:]}"]
            times.append(time.monotonic() - began)
            twice.append(results(name, root / "alone"))
        if twice[0] != twice[1]:
            other = sorted(file for file in twice[0] if twice[0][file] != twice[1].get(file))
            wrong.append(f"{name}: two runs left alone differ in {', '.join(other)}, so that a kill is not the cause")
            print(wrong[-1], flush=True)
        share = count // len(names) + (names.index(name) < count % len(names))
        began = time.monotonic()
        done, found = kill_at_random(name, root, share, rng, times[-1])
        total, wrong = total + done, wrong + found
        took = time.monotonic() - began
        print(f"{name}: {done} kills in {took:.0f} s, {len(found)} wrong (alone {times[-1]:.1f} s)", flush=True)
        for text in found:
            print(text, flush=True)
    return total, wrong


# What else ends a run: through the command line, as people start it.

COMMAND = [sys.executable, "-m", "pcpg"]
SMALL_DISK = ["unshare", "--map-root-user", "--mount", "sh", "-c"]


def ways(root: Path, say: Callable[[str], None] = print) -> list[str]:
    """SIGTERM, SIGHUP, closed pipes, a full and a read-only disk: identical after resume; what went wrong."""
    config = root / "config.json"
    config.write_text(
        json.dumps({"algo": "pcpg", "env": LOCK["env"], "env_options": {"horizon": 2}, "agent": SETTINGS["pcpg"]})
    )
    alone = root / "ways" / "pcpg"
    subprocess.run([*COMMAND, "train", "--config", str(config), "--out", str(alone)], check=True, capture_output=True)
    expected, wrong = results("pcpg", root / "ways"), []

    def check(what: str, run: Path, code: int, wanted: int, *, resume: bool = True) -> None:
        if code != wanted:
            wrong.append(f"{what}: exit code {code}, expected {wanted}")
        if resume:
            done = subprocess.run([*COMMAND, "resume", str(run)], capture_output=True, text=True, check=False)
            if done.returncode:
                wrong.append(f"{what}: resume: {done.stderr[-500:]}")
        same = results(run.name, run.parent) == expected
        say(f"{what}: exit code {code}, identical: {same}")
        if not same:
            wrong.append(f"{what}: other results")

    for signum, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)):
        run = root / signal.Signals(signum).name
        process = subprocess.Popen(
            [*COMMAND, "train", "--config", str(config), "--out", str(run)], stderr=subprocess.DEVNULL
        )
        while not (run / "checkpoints" / "000002").exists() and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signum)
        check(signal.Signals(signum).name, run, process.wait(), code)
    for what, streams in (
        ("closed stderr and stdout", "2>&- >&-"),
        ("full stderr and stdout", "2>/dev/full >/dev/full"),
    ):
        run = root / what.replace(" ", "-")
        train = f"exec {' '.join(COMMAND)} train --config {config} --out {run} {streams}"
        code = subprocess.run(["sh", "-c", train], check=False, stderr=subprocess.DEVNULL).returncode
        check(what, run, code, 0 if "closed" in what else 1, resume=False)
    run = root / "pipe"
    process = subprocess.Popen([*COMMAND, "train", "--config", str(config), "--out", str(run)], stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.close()  # nobody reads what it says
    check("a pipe that is closed", run, process.wait(), 0, resume=False)
    for what, options in (("a full disk", "size=60k"), ("a read-only disk", "")):
        wrong += _on_small_disk(root, config, what, options, expected, say)
    return wrong


def _on_small_disk(
    root: Path, config: Path, what: str, options: str, expected: dict[str, bytes], say: Callable[[str], None]
) -> list[str]:
    """Train where the disk gets full, or go on where it is read-only; then resume a copy where there is room."""
    disk, copy = root / "disk", root / what.replace(" ", "-")
    disk.mkdir(exist_ok=True)
    train = f"{' '.join(COMMAND)} train --config {config} --out {disk}/run"
    if options:
        script = f"mount -t tmpfs -o {options} tmpfs {disk} && ({train}; echo code $?; cp -r {disk}/run {copy})"
    else:
        # No disk becomes read-only under files that are open: the run is killed, and resumed where it cannot write.
        saved = f"ls {disk}/run/checkpoints 2>/dev/null | grep -q '^0*[2-9]'"
        killed = f"{train} 2> /dev/null & run=$!; while ! {saved}; do sleep 0.01; done; kill -9 $run; wait $run"
        resume = f"mount -o remount,ro {disk} && {' '.join(COMMAND)} resume {disk}/run; echo code $?"
        script = f"mount -t tmpfs tmpfs {disk} && ({killed}; {resume}; cp -r {disk}/run {copy})"
    done = subprocess.run([*SMALL_DISK, script], capture_output=True, text=True, check=False)
    if "code" not in done.stdout:
        say(f"{what}: cannot be mounted here: {done.stderr[-200:]}")
        return []
    code = int(done.stdout.split()[-1])
    resumed = subprocess.run([*COMMAND, "resume", str(copy)], capture_output=True, text=True, check=False)
    same = resumed.returncode == 0 and results(copy.name, copy.parent) == expected
    last = done.stderr.strip().splitlines()[-1:] or [""]
    say(f"{what}: exit code {code} ({last[0][:150]}), identical after resume: {same}")
    bad = code not in (1, 2) or not same or "Traceback" in done.stderr
    return [f"{what}: exit code {code}, {done.stderr[-500:]} {resumed.stderr[-300:]}"] if bad else []


def main() -> None:
    parser = argparse.ArgumentParser(description="Real kills at random moments.")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--ways", action="store_true", help="signals, closed pipes, full and read-only disks as well")
    asked = parser.parse_args()
    if MARK not in os.environ:  # the environment of a process can only be seen if it started with it
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.kills", *sys.argv[1:]], os.environ | {MARK: str(os.getpid())}
        )
    root = Path(tempfile.mkdtemp(prefix="pcpg-kills-"))
    sources = {name: name.removeprefix("exploit ") for name in RUNS} | {"report": "pcpg"}
    wanted = {*asked.only, *(sources[name] for name in asked.only)}
    names = [name for name in RUNS if name in wanted]
    total, wrong = kills(asked.kills, root, names, asked.seed) if asked.kills else (0, [])
    wrong += ways(root) if asked.ways else []
    print(f"{total} kills over {', '.join(names)}: {len(wrong)} wrong")
    for text in wrong:
        print(text)
    if not wrong:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
