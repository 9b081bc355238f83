"""Random damage to folders of runs, sweeps and searches: `python -m tests.fuzz --mutations 2000`.

Folders of several algorithms, of a sweep and of a search, finished and unfinished, get a random change in one file, are
mixed with the files of another, get something added, or are forged (see tests/damage.py). Then everything that reads
them is asked. An answer
may be the same as before, another one with a notice, or a refusal in words; an answer that is another one without a
word is a silent change, any other exception a traceback, and more than a minute a hang. What is forged may change the
answer: its author sealed it.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import gc
import hashlib
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import pcpg
from pcpg.envs.adapters.names import Untrusted
from pcpg.policies.host import Actor
from pcpg.reports.page import render
from pcpg.reports.read import read_run
from pcpg.reports.visits import read_visits
from pcpg.runs.errors import RunError
from pcpg.runs.folder import RunFolder
from pcpg.runs.manifest import MANIFEST, read_manifest
from pcpg.runs.verify import DAMAGED, verify
from pcpg.training.exploit import exploit_defaults
from pcpg.training.loop import train_run
from pcpg_lab.sweeps.crew import Job, Outcome
from pcpg_lab.sweeps.local import Here
from pcpg_lab.sweeps.plan import Plan, plan_of
from pcpg_lab.sweeps.status import SweepFolder, status_of, write_page, write_tables
from pcpg_lab.sweeps.sweep import run_sweep
from pcpg_lab.sweeps.tune import tune
from pcpg_theory.cli.certify import upper_of
from pcpg_theory.optimism import Range
from tests.damage import WAYS, add, forge, forge_plain, mix, swap
from tests.kills import logged
from tests.programs import shared_programs
from tests.small import every
from tests.wrong import Hang, at_most

LOCK: dict[str, Any] = {"env": "CombinationLock-v0", "horizon": 2, "seeds": 2}
SETTINGS = every()
OTHER = SETTINGS["pcpg"] | {"explore": SETTINGS["pcpg"]["explore"] | {"bonus_coef": 3.0}}
FEATURES = {"features": "random-mlp", "feature_options": {"num_features": 8}}
RUNS: dict[str, dict[str, Any]] = {
    **{algo: LOCK | {"algo": algo, "config": config} for algo, config in SETTINGS.items()},
    "pcpg": LOCK | FEATURES | {"algo": "pcpg", "config": SETTINGS["pcpg"]},
    "pcpg-other": LOCK | FEATURES | {"algo": "pcpg", "config": OTHER},
    "host": {"env": "gymnasium:FrozenLake-v1", "max_steps": 8, "num_envs": 4, "config": SETTINGS["pcpg"]},
    "logged": {"env": "PointMass-v0", "steps": 20, "algo": "pcpg-deep", "total_steps": 100}
    | {"config": {"learn": {"hidden": [8], "batch": 8, "updates": 1.0}, "explore": {"num_features": 8}}},
}
"""Arguments of `train`, by the name of a folder; an algorithm of the table is there by being there."""
CELLS: dict[str, Any] = {
    "block": 1,
    "base": {"env": "CombinationLock-v0", "env_options": {"horizon": 2}, "algo": "ppo"}
    | {"agent": SETTINGS["ppo"] | {"budget": 100}},
}
SWEEP = CELLS | {"grid": {"agent.ppo.num_episodes": [16, 8]}}
SEARCH = CELLS | {"tune": {"trials": 3, "search": {"agent.ppo.entropy_coef": {"low": 0.0, "high": 0.1}}}}
KINDS = (*RUNS, "sweep", "study")
SECONDS, MOST_MEMORY, MOST_KEPT = 60, 1.0, 0.7  # of one question; memory in GB, its own and that of the process before
BAD = ("silent", "traceback", "hang", "unnoticed", "memory")
TAKEN: list[tuple[float, float]] = [(0.0, 0.0)]
"""The memory that each question took, and the process with it."""


class Enough(Exception):
    """A run is to stop here."""


# The folders.


def make_folders(root: Path, kinds: Sequence[str]) -> dict[str, Path]:
    """A finished and an unfinished run of each kind; the unfinished have a round or two before them."""
    found: dict[str, Path] = {}
    for name, arguments in RUNS.items():
        if name not in kinds:
            continue
        arguments = arguments | ({"data": logged(root.parent / "log.npz")} if name == "logged" else {})
        whole = pcpg.train(**arguments, out=root / name, quiet=True)
        found[name] = whole.path
        found[f"{name} unfinished"] = _cut(arguments, root / f"{name}-unfinished", whole.summary["rounds"] - 1)
    for name in (one for one in ("sweep", "study") if one in kinds):
        for part, most in ((name, 0), (f"{name} unfinished", 1)):
            found[part] = root / part.replace(" ", "-")
            with contextlib.suppress(Enough):
                ANSWERS[name](found[part], Few(most))
    if "pcpg" not in found:
        return found
    exploited = pcpg.exploit(found["pcpg"], out=root / "exploit", config={"exploit": {"num_rounds": 2}}, quiet=True)
    found["exploit"] = exploited.path
    with contextlib.suppress(Enough):
        cut = {"exploit": {"num_rounds": 2}}
        pcpg.exploit(found["pcpg"], out=root / "exploit-unfinished", config=cut, observer=_stop_at(1), quiet=True)
    found["exploit unfinished"] = root / "exploit-unfinished"
    return found


def _cut(arguments: dict[str, Any], out: Path, step: int) -> Path:
    """A run that was ended by an error some rounds before its end, a round after a checkpoint or later."""
    begun = pcpg.train(**arguments, out=out, observer=lambda progress: progress.step < max(step - 1, 1), quiet=True)
    with contextlib.suppress(Enough):
        pcpg.resume(begun, observer=_stop_at(max(step, 2)), quiet=True)
    return out


def _stop_at(step: int) -> Callable[[Any], None]:
    def observer(progress: Any) -> None:
        if progress.step == step:
            raise Enough

    return observer


# Sweeps and searches, whose cells are run in this process.


class Few(Here):
    """An engine in this process that runs so many cells; 0: all."""

    def __init__(self, most: int = 0) -> None:
        self.most, self.ran = most, 0

    def run(self, job: Job) -> Outcome:
        if self.most and self.ran == self.most:
            raise Enough
        self.ran += 1
        return super().run(job)


@functools.cache
def sweep_plan() -> Plan:
    return plan_of(SWEEP)


def run_cells(path: Path, engine: Any, said: list[str] | None = None) -> Any:
    """Run a sweep, or go on with it; its tables."""
    plan, folder, notice = sweep_plan(), SweepFolder.claimed(path), [].append if said is None else said.append
    swept = run_sweep(plan, folder, engine, notice=notice)
    write_tables(folder, plan, notice)
    write_page(folder, plan)
    return swept.failed, (path / "table.csv").read_bytes(), (path / "table.json").read_bytes()


def run_trials(path: Path, engine: Any, said: list[str] | None = None) -> Any:
    """Run a search, or go on with it; its trials."""
    return tune(SEARCH, path, engine, [].append if said is None else said.append)


ANSWERS: dict[str, Callable[..., Any]] = {"sweep": run_cells, "study": run_trials}


def ask_status(path: Path, said: list[str]) -> Any:
    plan = SweepFolder(path).read_plan()
    status_of(SweepFolder(path), plan).as_json()
    return "asked"


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
    said += [] if run.is_finished else ["it is not finished"]
    policies = [digest(policy.network) for policy in (*run.policies, *run.best_policies)]
    space = run.env.observation_space
    for policy in run.policies:
        Actor(policy.network)(np.zeros((1, *space.shape), space.dtype))
    covers = [digest(cover) for cover in run.covers] if run.config.agent.leaves == "cover" else []
    features = digest(run.features) if run.config.agent.leaves == "cover" else ""
    kept = digest(list(run.kept_episodes())) if run.keeps_data else ""
    return run.config.to_json(), run.summary, policies, covers, features, kept, run.env.solved_return


def ask_report(path: Path, said: list[str]) -> Any:
    run = read_run(path)
    said += run.notes
    shown = dataclasses.asdict(dataclasses.replace(run, path=Path(), covers={}, notes=()))
    return shown, {seed: digest(tuple(cover)) for seed, cover in run.covers.items()}, run.solved_return


def ask_page(path: Path, said: list[str]) -> Any:
    run = read_run(path)
    said += run.notes
    return render([dataclasses.replace(run, path=Path("run"), notes=())])


def ask_show(path: Path, said: list[str]) -> Any:
    visits = read_visits(RunFolder.open(path), 0, said.append)
    return visits.weights.tolist(), visits.returns.tolist(), visits.counts.tolist()


def ask_verify(path: Path, said: list[str]) -> Any:
    found = verify(RunFolder.open(path))
    said += [one.name for one in found if one.state == DAMAGED]
    return "asked"


def ask_exploit(path: Path, said: list[str]) -> Any:
    source = exploit_defaults(RunFolder.open(path)).source
    return {name: value for name, value in source.items() if name != "run"}


def ask_resume(path: Path, said: list[str]) -> Any:
    train_run(RunFolder.open(path), notice=said.append)
    files = [path / name for name in ("metrics.jsonl", "policy.safetensors", "summary.json")]
    return {file.name: file.read_bytes() for file in [*files, *sorted((path / "cover").glob("[0-9]*.safetensors"))]}


def ask_certify(path: Path, said: list[str]) -> Any:
    run = pcpg.load(path)
    return [upper_of(run, seed, Range(-1.0, 5.0), 0.05, 3, markov=True)[0] for seed in run.finished_seeds]


OF_SOME = ("show", "exploit", "certify")
"""Questions that are refused by folders of some algorithms, which have no cover or keep no data."""
OURS = ("pcpg", "pcpg_lab", "pcpg_theory")
QUESTIONS: dict[str, Asked] = {
    "load": ask_load,
    "report": ask_report,
    "show": ask_show,
    "verify": ask_verify,
    "exploit": ask_exploit,
    "certify": ask_certify,
}


def questions_for(name: str, number: int) -> Iterator[tuple[str, Asked]]:
    kind = name.partition(" ")[0]
    if kind in ANSWERS:
        yield "status", ask_status
        yield "again", lambda path, said: ANSWERS[kind](path, Few(), said)  # it changes the folder
        return
    yield from ((asked, ask) for asked, ask in QUESTIONS.items() if asked != "certify" or kind == "pcpg-replay")
    if number % 20 == 0:
        yield "page", ask_page
    yield "resume", ask_resume  # last: it changes the folder


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
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        ours = str(frame.f_globals.get("__name__")).partition(".")[0] in OURS
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
    kinds: Sequence[str] = KINDS,
    first: int = 0,
) -> Counter[str]:
    """Damage folders so many times; how the questions ended, from mutation `first` on."""
    root = root or Path(tempfile.mkdtemp(prefix="pcpg-fuzz-"))
    folders = make_folders(root / "whole", kinds)
    work = root / "work"
    expected: dict[tuple[str, str], Any] = {}
    usual: set[str] = set()  # what is said of the unfinished ones
    for name, whole in folders.items():
        for question, ask in questions_for(name, 0):
            shutil.rmtree(work, ignore_errors=True)
            how, answer, said = answer_of(ask, shutil.copytree(whole, work))
            if how not in ("answered", "refused") or (how == "refused" and question not in OF_SOME):
                raise AssertionError(f"{name}: {question} of a whole folder: {how} {answer}")
            if any("not finished" not in text or "unfinished" not in name for text in said):
                raise AssertionError(f"{name}: {question} of a whole folder says {said}")
            expected[name, question] = answer if how == "answered" else None
            usual |= {f"{name} {text}" for text in said}
    let_go()  # what making the folders took
    counts: Counter[str] = Counter()
    rng = random.Random(seed)
    began = time.monotonic()
    for number in range(mutations):
        name = rng.choice(list(folders))
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folders[name], work)
        harm = damaged(name, folders, work, rng)
        if number < first:
            continue
        for question, ask in questions_for(name, number):
            if harm.way == "forge" and question == "resume" and not harm.file.startswith(TIED):
                continue  # whoever asks for a million updates gets them, and for other weights as well
            with most_memory() as taken:
                how, answer, said = answer_of(ask, work)
            if taken[0] > MOST_MEMORY:
                how = "memory"
            said = [text for text in said if f"{name} {text}" not in usual]
            if how == "answered" and question in harm.compared and not said:
                others = folders if harm.way == "mix" else [name]
                whole = [expected[other, question] for other in others if (other, question) in expected]
                how = "answered" if answer in whole else "silent"
            if question == "verify" and how == "answered" and not said and harm.is_to_be_noticed:
                how = "unnoticed"
            counts[f"{question} {how}"] += 1
            counts[how] += 1
            if how in BAD:
                say(f"{how}: {question} of {name} after {harm.way} of {harm.file} (mutation {number}, seed {seed})")
                if how in ("traceback", "hang"):
                    say(str(answer)[-1500:])
        if number % 25 == 24 or _memory("VmRSS") > MOST_KEPT:
            let_go()
        if number % 100 == 99:
            say(f"{number + 1} mutations, {time.monotonic() - began:.0f} s: {dict(counts)}")
    shutil.rmtree(root, ignore_errors=True)
    return counts


def let_go() -> None:
    """Give memory back that no folder needs: what earlier resumed runs left in JAX's caches and in the allocator."""
    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class Harm(NamedTuple):
    """What was done to a folder."""

    way: str
    file: str
    compared: tuple[str, ...]  # the questions whose answers must be as before, or told
    is_to_be_noticed: bool = False  # by `verify`


TIED = ("manifest.json", "summary.json", "environment.json", "metrics.jsonl", "timings.jsonl")
"""What holds a run together, but nothing that training computes with."""
EVERYTHING = ("load", "report", "show", "page", "exploit", "resume")


def damaged(name: str, folders: dict[str, Path], work: Path, rng: random.Random) -> Harm:
    """Damage a copy of a folder in one of all ways."""
    if name.partition(" ")[0] in ANSWERS:
        return _damaged_cells(folders, work, rng)
    chance = rng.random()
    if chance < 0.2:
        return Harm("forge", forge(work, rng), ())
    if chance < 0.3:
        mix(work, list(folders.values()), rng)
        return Harm("mix", "", ("resume",))  # between two moments of a run the other answers are those of a third
    if chance < 0.4:
        return Harm("add", add(work, rng), EVERYTHING)
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.name != ".lock")
    path, what = rng.choice(files), rng.randrange(len(WAYS) + 2)
    before, manifest = path.read_bytes(), read_manifest(work)
    if what < len(WAYS):
        WAYS[what](path, rng)
    else:
        swap(path, list(folders.values()), work, rng)
    name_inside = path.relative_to(work).as_posix().replace("arrays.safetensors", "state.json")
    is_sealed = name_inside in {*manifest.files, *manifest.lines, MANIFEST}  # else of a round not saved yet
    lines_only = {} if manifest.finished else manifest.lines
    most = lines_only[name_inside].length if name_inside in lines_only else None
    is_same = not path.is_symlink() and path.is_file() and _same(path, before, most)
    way = WAYS[what].__name__ if what < len(WAYS) else "swap"
    is_older = way == "swap" and name_inside == MANIFEST  # one of an earlier moment is a manifest of this run
    return Harm(way, name_inside, EVERYTHING, is_sealed and not is_same and not is_older)


def _damaged_cells(folders: dict[str, Path], work: Path, rng: random.Random) -> Harm:
    """The same to a sweep or a search: its own files are not sealed, and what they say is made anew."""
    cells, chance = sorted((work / "cells").iterdir()), rng.random()
    if chance < 0.1:
        return Harm("forge", forge(rng.choice(cells), rng), ())
    if chance < 0.3:
        return Harm("forge", forge_plain(work, rng), ("again",))
    if chance < 0.4:
        return Harm("add", add(rng.choice([work, *cells]), rng), ("again",))
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.name != ".lock")
    path, what = rng.choice(files), rng.randrange(len(WAYS) + 1)
    if what < len(WAYS):
        WAYS[what](path, rng)
    else:
        swap(path, list(folders.values()), work, rng)
    way = WAYS[what].__name__ if what < len(WAYS) else "swap"
    return Harm(way, path.relative_to(work).as_posix(), ("again",))


def _same(path: Path, before: bytes, most: int | None) -> bool:
    """Whether a file is as it was; of reports of an unfinished run, those that count."""
    if most is None and path.stat().st_size != len(before):
        return False
    with path.open("rb") as file:
        return file.read(len(before))[:most] == before[:most]


@contextlib.contextmanager
def most_memory() -> Iterator[list[float]]:
    """The most memory, in GB, that this process took in here on top of what it had; 0 where the system does not tell.

    What resumed runs leave in JAX's caches adds up over thousands of them, and is no matter of folders.
    """
    reset, taken = Path("/proc/self/clear_refs"), [0.0]
    if not reset.exists():
        yield taken
        return
    reset.write_text("5")  # the peak begins anew
    before = _memory("VmRSS")
    yield taken
    peak = _memory("VmHWM")
    taken[0] = max(peak - before, 0.0)
    TAKEN.append((taken[0], peak))


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1e6 for line in lines if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description="Random damage to folders of runs, sweeps and searches.")
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the mutation to begin with, as in a run that was stopped")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    asked = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    with shared_programs():
        counts = fuzz(asked.mutations, asked.seed, kinds=asked.kinds, first=asked.first)
    bad = sum(counts[how] for how in BAD)
    memory = f"at most {max(TAKEN)[0]:.2f} GB in one of them, {max(peak for _, peak in TAKEN):.2f} GB of the process"
    total = sum(counts[how] for how in ("answered", "refused")) + bad
    done = f"{asked.mutations - asked.first} mutations, {total} operations"
    print(f"{done}: {dict(sorted(counts.items()))}; memory {memory}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
