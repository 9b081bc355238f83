"""Imports go one way: cli -> experiments -> api -> training, theory -> practice -> algorithm1 -> learning ... envs."""

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pcpg"
FOUNDATION = {"learning", "cover", "policies", "features", "envs", "shapes", "machine"}
STORAGE = {"runs"}

# What each part may import besides itself. Parts of one level may know each other, but never in a circle.
PAGE = {"algorithm1"}
SETTINGS = {"config", "presets"}
PRACTICE = FOUNDATION | PAGE | SETTINGS | {"state", "practice", "algorithms"}
TRAINING = PRACTICE | STORAGE | {"run_config", "training"}
MAY_IMPORT: dict[str, set[str]] = {
    "shapes": set(),
    "envs": set(),
    "machine": set(),
    "runs": {"machine"},
    "features": FOUNDATION,
    "policies": FOUNDATION,
    "cover": FOUNDATION,
    "learning": FOUNDATION,
    "algorithm1": set(),
    "config": FOUNDATION,
    "presets": FOUNDATION | {"config"},
    "state": FOUNDATION,
    "practice": FOUNDATION | PAGE | SETTINGS | {"state"},
    "algorithms": PRACTICE,
    "run_config": PRACTICE | STORAGE,
    "training": TRAINING,
    "theory": FOUNDATION | STORAGE | PAGE,
    "reports": STORAGE | {"envs", "algorithms"},  # of the algorithms their names and colours
    "run": TRAINING,
    "callbacks": TRAINING | {"run"},
    "api": TRAINING | {"theory", "run"},
    "pcpg": TRAINING | {"theory", "api", "run", "callbacks"},  # the public names
    "sweeps": TRAINING | {"reports"},
    "experiments": TRAINING | {"theory", "api", "pcpg", "reports", "sweeps"},
    "play": FOUNDATION | STORAGE | {"api"},
    "cli": TRAINING | {"theory", "api", "pcpg", "reports", "play", "sweeps", "experiments"},
}
OUTSIDE_ONLY = ("gymnasium", "tyro")  # needed by the bridge and by the command line, never to train


def part_of(module: str) -> str:
    """`pcpg.envs.lock` belongs to `envs`; a public name of the package, `pcpg.train`, to `pcpg`."""
    part = module.split(".")[1] if "." in module else "pcpg"
    return part if (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").exists() else "pcpg"


def files_of(part: str) -> list[Path]:
    """The source files of a part, be it a folder or a single file."""
    if part == "pcpg":
        return [path for path in [SOURCE / "__init__.py"] if path.exists()]
    return [*SOURCE.glob(f"{part}.py"), *(SOURCE / part).rglob("*.py")]


def module_name(path: Path) -> str:
    """The dotted name under which a source file is imported."""
    names = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imported_modules(path: Path) -> Iterator[str]:
    """Every module of the package that a file imports, at its top or inside a function."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            # `from pcpg import envs` names a part; `from pcpg.envs import lock` has named it already.
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "pcpg" else [base]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "pcpg")


@functools.cache
def imports_of_parts() -> dict[str, set[str]]:
    """Which other parts each part imports."""
    known: dict[str, set[str]] = {part: set() for part in MAY_IMPORT}
    for part in MAY_IMPORT:
        for path in files_of(part):
            known[part] |= {part_of(module) for module in imported_modules(path)} - {part}
    return known


def modules_that_train() -> list[str]:
    """Every module but the command line, playing, and what speaks with Gymnasium."""
    outside = ("__main__.", "cli/", "play/", "envs/gymnasium_bridge.", "envs/adapters/")
    return sorted(
        module_name(path)
        for path in SOURCE.rglob("*.py")
        if not path.relative_to(SOURCE).as_posix().startswith(outside)
    )


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    forbidden = imports_of_parts()[part] - MAY_IMPORT[part]
    assert not forbidden, f"pcpg.{part} may not import {sorted(forbidden)}"


def test_no_two_parts_import_each_other_in_a_circle() -> None:
    remaining = imports_of_parts()
    while remaining:
        leaves = {part for part, known in remaining.items() if not known & remaining.keys()}
        assert leaves, f"a circle of imports among {sorted(remaining)}"
        remaining = {part: known for part, known in remaining.items() if part not in leaves}


def test_every_folder_of_the_package_has_its_place_in_the_order() -> None:
    folders = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*/*.py")}
    assert folders <= MAY_IMPORT.keys(), f"say what {sorted(folders - MAY_IMPORT.keys())} may import"


def test_training_imports_neither_gymnasium_nor_tyro() -> None:
    block = [f"sys.modules[{name!r}] = None" for name in OUTSIDE_ONLY]
    load = [f"importlib.import_module({name!r})" for name in modules_that_train()]
    program = "\n".join(["import importlib, sys", *block, *load])
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
