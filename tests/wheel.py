"""The wheel in clean environments: `make wheel PYTHONS="python3.11 python3.12 python3.13"`.

The wheel is built once. For each Python an environment gets the wheel and its dependencies, nothing else, and uses them
from an empty folder: the three packages, a run from the command line and from Python, its page, a claim, theory.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMALL = "--ppo.num-updates 2 --ppo.num-episodes 64 --explore.max-policies 2 --exploit.num-rounds 1"
COMMANDS = [
    "--version",
    f"train CombinationLock-v0 --env.horizon 2 {SMALL} --out runs/first",
    "train gymnasium:FrozenLake-v1 --steps 20k --out runs/lake",
    "evaluate runs/first --episodes 20",
    "verify runs/first",
    "report runs/first",
    "exploit runs/first --exploit.num-rounds 1 --out runs/again",
    "resume runs/first --steps +20k",
    "theory tree --depth 3",
    "reproduce certificates --scale smoke --out results",
]
PYTHON = """
import pcpg, pcpg_theory, pcpg_lab, pathlib
assert pathlib.Path(pcpg.__file__).is_relative_to({folder!r}), pcpg.__file__
run = pcpg.load("runs/first")
assert len(run.evaluate(episodes=10).returns) == 1 and pcpg.theory.__name__
"""


def run(*words: object, cwd: Path) -> None:
    """A command of a clean environment; what it says where it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(map(str, words))}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
        )


def build(folder: Path) -> Path:
    """The wheel of this tree."""
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("pcpg-*.whl")
    return wheel


def use(python: str, wheel: Path, folder: Path) -> str:
    """Install the wheel in a new environment of a Python, and use it from an empty folder; the versions of both."""
    folder.mkdir()
    run(python, "-m", "venv", folder / "venv", cwd=folder)
    found, here = folder / "venv/bin", folder / "here"
    run(found / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    here.mkdir()
    for line in COMMANDS:
        run(found / "pcpg", *line.split(), cwd=here)
    run(found / "python", "-c", PYTHON.format(folder=str(folder)), cwd=here)
    said = "import platform, jax; print(f'Python {platform.python_version()}, jax {jax.__version__}')"
    return subprocess.check_output([found / "python", "-c", said], text=True).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    with tempfile.TemporaryDirectory(prefix="pcpg-wheel-") as temporary:
        wheel = build(Path(temporary))
        for number, python in enumerate(parser.parse_args().pythons):
            began = time.monotonic()
            said = use(python, wheel, Path(temporary) / str(number))
            print(f"{wheel.name} on {said}: {len(COMMANDS) + 1} uses, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
