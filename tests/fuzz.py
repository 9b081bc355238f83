"""Random damage to run folders: `python -m tests.fuzz --mutations 2000`.

Folders of several algorithms, finished and unfinished, get one random change in one file. Then everything that reads
them is asked. An answer may be the same as before, another one with a notice, or a refusal in words; an answer that is
another one without a word is a silent change, any other exception a traceback, and more than a minute a hang.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pcpg
from pcpg.envs.adapters.names import Untrusted
from pcpg.reports.page import render
from pcpg.reports.read import read_run
from pcpg.reports.visits import read_visits
from pcpg.runs.errors import RunError
from pcpg.runs.folder import RunFolder
from pcpg.runs.manifest import read_manifest
from pcpg.runs.verify import DAMAGED, verify
from pcpg.training.loop import train_run

PPO = {"num_updates": 1, "num_episodes": 16, "hidden": [8]}
PCPG: dict[str, Any] = {
    "ppo": PPO,
    "explore": {"max_policies": 3, "visit_episodes": 16, "num_groups": 4},
    "exploit": {"num_rounds": 1},
}
LOCK: dict[str, Any] = {"env": "CombinationLock-v0", "horizon": 2, "seeds": 2}
RUNS: dict[str, dict[str, Any]] = {
    "pcpg": LOCK | {"algo": "pcpg", "features": "random-mlp", "feature_options": {"num_features": 8}, "config": PCPG},
    "ppo-rnd": LOCK | {"algo": "ppo-rnd", "config": {"ppo": PPO, "budget": 300, "visit_episodes": 16}},
    "host": {"env": "gymnasium:FrozenLake-v1", "max_steps": 8, "num_envs": 4, "config": PCPG},
    "kept-data": LOCK | {"algo": "pcpg-replay", "config": {"explore": {"num_episodes": 8, "patience": 1}}},
}
SECONDS = 60


class Hang(BaseException):
    """Something took longer than a minute."""


class Enough(Exception):
    """A run is to stop here."""


# The folders.


def make_folders(root: Path, kinds: Sequence[str]) -> dict[str, Path]:
    """A finished and an unfinished run of each kind; the unfinished have a round or two before them."""
    found: dict[str, Path] = {}
    for name, arguments in RUNS.items():
        if name not in kinds:
            continue
        whole = pcpg.train(**arguments, out=root / name)
        found[name] = whole.path
        found[f"{name} unfinished"] = _cut(arguments, root / f"{name}-unfinished", whole.summary["rounds"] - 1)
    if "pcpg" not in found:
        return found
    exploited = pcpg.exploit(found["pcpg"], out=root / "exploit", config={"exploit": {"num_rounds": 2}})
    found["exploit"] = exploited.path
    with contextlib.suppress(Enough):
        cut = {"exploit": {"num_rounds": 2}}
        pcpg.exploit(found["pcpg"], out=root / "exploit-unfinished", config=cut, observer=_stop_at(1))
    found["exploit unfinished"] = root / "exploit-unfinished"
    return found


def _cut(arguments: dict[str, Any], out: Path, step: int) -> Path:
    with contextlib.suppress(Enough):
        pcpg.train(**arguments, out=out, observer=_stop_at(max(step, 1)))
    return out


def _stop_at(step: int) -> Callable[[Any], None]:
    def observer(progress: Any) -> None:
        if progress.step == step:
            raise Enough

    return observer


# The damage.


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def drop(path: Path, rng: random.Random) -> None:
    path.unlink()


def zero(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.randrange(1, 4096))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def digit(path: Path, rng: random.Random) -> None:
    """Another digit in a text; what it says stays well-formed."""
    data = bytearray(path.read_bytes())
    places = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    if places:
        data[rng.choice(places)] = ord(rng.choice("0123456789"))
    path.write_bytes(data)


def lines(path: Path, rng: random.Random) -> None:
    """A line is lost, doubled, or changes places with another."""
    parts = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    place, way = rng.randrange(len(parts)), rng.randrange(3)
    if way == 0:
        del parts[place]
    elif way == 1:
        parts.insert(place, parts[place])
    else:
        other = rng.randrange(len(parts))
        parts[place], parts[other] = parts[other], parts[place]
    path.write_bytes(b"".join(parts))


def grow(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + rng.choice([1, 100, 1 << 20, 10 << 30]))


def link(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice(["/dev/zero", "/etc/hostname", "/nowhere"]))


def pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice([0, 1, 8, 1000])))


WAYS = (flip, flip, flip, cut, cut, drop, zero, digit, digit, lines, grow, link, pipe, folder, noise)


def swap(path: Path, others: list[Path], run: Path, rng: random.Random) -> None:
    """A file of the same name from another run, or another file of the same kind from this one."""
    name = path.relative_to(run)
    same = [other / name for other in others if (other / name).is_file()]
    same += [one for one in run.rglob(f"*{path.suffix}") if one != path and one.is_file()]
    if same:
        shutil.copy(rng.choice(same), path)


# The questions. Each gives an answer that can be compared, and a list of what was said beside it.

Asked = Callable[[Path, list[str]], Any]


def digest(tree: Any) -> str:
    """A hash of all arrays in a tree."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()


def ask_load(path: Path, said: list[str]) -> Any:
    run = pcpg.load(path)
    policies = [digest(policy.network) for policy in (*run.policies, *run.best_policies)]
    covers = [digest(cover) for cover in run.covers] if run.config.algo == "pcpg" else []
    features = digest(run.features) if run.config.algo == "pcpg" else ""
    return run.config.to_json(), run.summary, policies, covers, features, run.env.solved_return


def ask_report(path: Path, said: list[str]) -> Any:
    run = read_run(path)
    said += [note for note in run.notes if "not finished" not in note]
    shown = dataclasses.asdict(dataclasses.replace(run, path=Path(), covers={}, notes=()))
    return shown, {seed: digest(tuple(cover)) for seed, cover in run.covers.items()}, run.solved_return


def ask_page(path: Path, said: list[str]) -> Any:
    run = read_run(path)
    said += [note for note in run.notes if "not finished" not in note]
    return render([dataclasses.replace(run, path=Path("run"), notes=())])


def ask_show(path: Path, said: list[str]) -> Any:
    visits = read_visits(RunFolder.open(path), 0, said.append)
    return visits.weights.tolist(), visits.returns.tolist(), visits.counts.tolist()


def ask_verify(path: Path, said: list[str]) -> Any:
    found = verify(RunFolder.open(path))
    said += [one.name for one in found if one.state == DAMAGED]
    return "asked"


def ask_resume(path: Path, said: list[str]) -> Any:
    train_run(RunFolder.open(path), notice=said.append)
    files = [path / name for name in ("metrics.jsonl", "policy.safetensors", "summary.json")]
    return {file.name: file.read_bytes() for file in [*files, *sorted((path / "cover").glob("*"))]}


QUESTIONS: dict[str, Asked] = {"load": ask_load, "report": ask_report, "show": ask_show, "verify": ask_verify}


def questions_for(name: str, number: int) -> Iterator[tuple[str, Asked]]:
    for question, ask in QUESTIONS.items():
        if question == "load" and "unfinished" in name:
            continue
        yield question, ask
    if number % 10 == 0:
        yield "page", ask_page
    yield "resume", ask_resume  # last: it changes the folder


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def expire(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def answer_of(ask: Asked, path: Path) -> tuple[str, Any, list[str]]:
    """How a question ended (answered, refused, traceback, hang), the answer, and what was said."""
    said: list[str] = []
    try:
        with at_most(SECONDS), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = ask(path, said)
            said += [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
        return "answered", answer, said
    except (RunError, Untrusted) as error:
        return "refused", str(error), said
    except ValueError as error:  # of our own: a config that says something impossible
        ours = "pcpg" in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parts
        return ("refused", str(error), said) if ours else ("traceback", traceback.format_exc(), said)
    except Hang:
        return "hang", traceback.format_exc(), said
    except Exception:
        return "traceback", traceback.format_exc(), said


def fuzz(
    mutations: int,
    seed: int = 0,
    root: Path | None = None,
    say: Callable[[str], None] = print,
    kinds: Sequence[str] = tuple(RUNS),
) -> Counter[str]:
    """Damage folders so many times; how the questions ended."""
    root = root or Path(tempfile.mkdtemp(prefix="pcpg-fuzz-"))
    folders = make_folders(root / "whole", kinds)
    work = root / "work"
    expected: dict[tuple[str, str], Any] = {}
    for name, whole in folders.items():
        for question, ask in questions_for(name, 0):
            shutil.rmtree(work, ignore_errors=True)
            how, answer, said = answer_of(ask, shutil.copytree(whole, work))
            if how != "answered" and question != "show":
                raise AssertionError(f"{name}: {question} of a whole folder: {how} {answer}")
            if said:
                raise AssertionError(f"{name}: {question} of a whole folder says {said}")
            expected[name, question] = answer if how == "answered" else None
    counts: Counter[str] = Counter()
    rng = random.Random(seed)
    began = time.monotonic()
    for number in range(mutations):
        name = rng.choice(list(folders))
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folders[name], work)
        files = sorted(path for path in work.rglob("*") if path.is_file() and path.name != ".lock")
        path, what = rng.choice(files), rng.randrange(len(WAYS) + 2)
        before = path.read_bytes()
        if what < len(WAYS):
            WAYS[what](path, rng)
        else:
            swap(path, list(folders.values()), work, rng)
        manifest = read_manifest(folders[name])
        name_inside = path.relative_to(work).as_posix().replace("arrays.safetensors", "state.json")
        is_sealed = name_inside in {*manifest.files, *manifest.lines, "manifest.json"}  # else of a round not saved yet
        harm = WAYS[what].__name__ if what < len(WAYS) else "swap"
        lines_only = {} if manifest.finished else manifest.lines
        most = lines_only[name_inside].length if name_inside in lines_only else None
        is_same = not path.is_symlink() and path.is_file() and _same(path, before, most)
        for question, ask in questions_for(name, number):
            how, answer, said = answer_of(ask, work)
            if how == "answered" and question != "verify" and answer != expected[name, question] and not said:
                how = "silent"
            if question == "verify" and how == "answered" and not said and not is_same and is_sealed:
                how = "unnoticed"
            counts[f"{question} {how}"] += 1
            counts[how] += 1
            if how in ("silent", "traceback", "hang", "unnoticed"):
                say(f"{how}: {question} of {name} after {harm} of {path.relative_to(work)} (mutation {number})")
                if how in ("traceback", "hang"):
                    say(str(answer)[-1500:])
        if number % 100 == 99:
            say(f"{number + 1} mutations, {time.monotonic() - began:.0f} s: {dict(counts)}")
    shutil.rmtree(root, ignore_errors=True)
    return counts


def _same(path: Path, before: bytes, most: int | None) -> bool:
    """Whether a file is as it was; of reports of an unfinished run, those that count."""
    if most is None and path.stat().st_size != len(before):
        return False
    with path.open("rb") as file:
        return file.read(len(before))[:most] == before[:most]


def peak_memory() -> float:
    """The most memory of this process so far, in GB; the system's `ru_maxrss` has that of whoever started it too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Random damage to run folders.")
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(RUNS), choices=list(RUNS))
    asked = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    counts = fuzz(asked.mutations, asked.seed, kinds=asked.kinds)
    peak = peak_memory()
    bad = sum(counts[how] for how in ("silent", "traceback", "hang", "unnoticed"))
    total = sum(counts[how] for how in ("answered", "refused")) + bad
    print(f"{asked.mutations} mutations, {total} operations: {dict(sorted(counts.items()))}; peak memory {peak:.2f} GB")
    sys.exit(1 if bad or peak > 1 else 0)


if __name__ == "__main__":
    main()
