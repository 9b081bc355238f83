"""The rules of the house, as tests/house.py has them: imports go one way, and nobody asks which algorithm it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import house

OUTSIDE_ONLY = ("gymnasium", "tyro")  # needed by the bridge and by the command line, never to train
OUTSIDE = ("__main__.", "cli/", "play.py", "envs/gymnasium_bridge.", "envs/adapters/")


def test_a_part_imports_only_what_lies_below_it() -> None:
    assert house.wrong_imports() == []


def test_no_two_parts_import_each_other_in_a_circle() -> None:
    assert house.circles() == []


def test_every_part_of_the_package_has_its_place_in_the_order() -> None:
    assert house.without_place() == []


def test_nobody_outside_algos_asks_which_algorithm_it_is() -> None:
    assert house.places() == ()


def test_an_exception_is_there_only_as_long_as_it_is_needed() -> None:
    assert house.unused_exceptions() == []


def test_the_files_of_a_round_are_those_that_there_are() -> None:
    assert house.missing_files() == []


def test_a_place_that_asks_is_found() -> None:
    source = """
if isinstance(config.agent, PCPGConfig) or config.algo == "ppo" or algo.startswith("pcpg"):
    size = arrays[".log_dets"] if hasattr(state, "kept") else {"algo": "pcpg-replay"}
"""
    found = {place.what for place in house.asking("pcpg/somewhere.py", house.ast.parse(source))}
    assert found == {
        "names PCPGConfig",
        "asks isinstance(config.agent, PCPGConfig)",
        "asks hasattr(state, 'kept')",
        "names the id 'ppo'",
        "names the id 'pcpg'",
        "names the id 'pcpg-replay'",
        "names the array '.log_dets'",
    }
    innocent = "['pcpg', 'train']; versions['pcpg']; agent['ppo']; isinstance(state, dict); '.json'; getattr(own, name)"
    assert list(house.asking("pcpg/somewhere.py", house.ast.parse(innocent))) == []


def test_training_imports_neither_gymnasium_nor_tyro() -> None:
    own = sorted(file for file in house.files() if file.startswith("pcpg/"))
    modules = [house.module_of(file) for file in own if not file.removeprefix("pcpg/").startswith(OUTSIDE)]
    block = [f"sys.modules[{name!r}] = None" for name in OUTSIDE_ONLY]
    program = "\n".join(["import importlib, sys", *block, f"for name in {modules}: importlib.import_module(name)"])
    environment = os.environ | {"PYTHONPATH": str(house.SOURCE)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_whatever_is_installed_is_locked_with_its_hash() -> None:
    root = Path(__file__).parents[1]
    for line in (root / "Makefile").read_text().splitlines():
        assert " -r " not in line or "pip install" not in line or "--require-hashes" in line, line
    files = [*root.glob("requirements*.lock"), *(root / "benchmarks" / "peers").glob("*.txt")]
    assert len(files) == 7
    for path in files:
        packages = [line for line in path.read_text().splitlines() if re.match(r"[a-z0-9]", line, re.IGNORECASE)]
        assert packages and all(line.endswith("\\") for line in packages), path
