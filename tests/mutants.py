"""Whether the tests see an algorithm that is wrong: changes of one line, each of which some named test must kill.

    python -m tests.mutants [--only critic] [--jobs 2]

Every mutant is applied to a copy of the tree in a temporary folder, and only its named tests are run there. A mutant
that no test kills survives: it is printed, and the exit status is 1. A text that is not found exactly once in its file
is an error, so the table in mutants.toml follows the code.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("src", "tests", "pyproject.toml", "benchmarks")


class Mutant(NamedTuple):
    """A change of one line, and the tests that should kill it."""

    name: str
    file: str  # below src
    old: str
    new: str
    tests: tuple[str, ...]  # below tests


def table() -> Iterator[Mutant]:
    """All mutants of mutants.toml."""
    for group in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["mutants"]:
        for name, (old, new) in group["wrong"].items():
            yield Mutant(name, group["file"], old, new, tuple(group["tests"]))


MUTANTS = tuple(table())


def copy_of(folder: Path) -> Path:
    """A copy of what the tests need, in a folder."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".venv*"))
        else:
            shutil.copy(source, folder / name)
    return folder


def killed(mutant: Mutant, tree: Path) -> bool:
    """Whether a named test fails with the mutant in this copy, which is as it was afterwards."""
    path = tree / "src" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(
            f"{mutant.name}: {mutant.old!r} must be in {mutant.file} once, is there {text.count(mutant.old)} times"
        )
    path.write_text(text.replace(mutant.old, mutant.new))
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    tests = [f"tests/{name}" for name in mutant.tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    finally:
        path.write_text(text)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: the tests did not run\n{done.stdout}\n{done.stderr}")
    return done.returncode == 1


def survivors(mutants: tuple[Mutant, ...], jobs: int = 1) -> list[Mutant]:
    """Those that no named test kills; progress is printed."""
    with tempfile.TemporaryDirectory() as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            trees.put(copy_of(Path(folder) / str(job)))

        def one(mutant: Mutant) -> bool:
            tree, began = trees.get(), time.perf_counter()
            try:
                dead = killed(mutant, tree)
            finally:
                trees.put(tree)
            print(
                f"{'killed' if dead else 'SURVIVES'}  {mutant.name} ({time.perf_counter() - began:.1f} s)", flush=True
            )
            return dead

        with ThreadPoolExecutor(jobs) as pool:
            dead = list(pool.map(one, mutants))
    return [mutant for mutant, gone in zip(mutants, dead, strict=True) if not gone]


def main() -> int:
    """Print which mutants survive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="those with this text in their name or file")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    chosen = tuple(mutant for mutant in MUTANTS if asked.only in mutant.name or asked.only in mutant.file)
    left = survivors(chosen, asked.jobs)
    print(f"{len(chosen) - len(left)} of {len(chosen)} killed" + "".join(f"\nsurvives: {mutant}" for mutant in left))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
