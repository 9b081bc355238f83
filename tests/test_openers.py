"""Files are opened in one place: what is read from a folder, a plan or a configuration goes through `runs.disk`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import SOURCE

READING = {"open", "read_text", "read_bytes", "genfromtxt", "loadtxt", "fromfile", "memmap", "imread"}
READING_OF = {(module, "load") for module in ("json", "np", "numpy", "tomllib", "pickle", "torch", "jnp")}
READING_OF |= {("np", "fromfile"), ("shelve", "open"), ("sqlite3", "connect"), ("zipfile", "ZipFile"), ("io", "FileIO")}

ALLOWED = {
    "pcpg/__main__.py: os.open": "the null device",
    "pcpg/cli/main.py: os.open": "the null device",
    "pcpg/machine.py: Path('/proc/meminfo').read_text": "the kernel's",
    "pcpg/training/restore.py: Path('/proc/cpuinfo').read_text": "the kernel's",
    "pcpg/reports/page.py: (folder / name).read_text": "templates of this package",
    "pcpg/training/compile_cache.py: entry.read_bytes": "in a folder of the user's that nobody else may write to",
    "pcpg_lab/sweeps/resources.py: os.open": "a lock in a folder of the user's that nobody else may write to",
}
"""Calls that open something which is no file of ours, with the reason."""


def openings(path: Path) -> Iterator[str]:
    """The calls in a file that open a file by a path."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in ("open", "read_text", "read_bytes"):
            yield ast.unparse(called)
        elif isinstance(called, ast.Attribute):
            owner = ast.unparse(called.value)
            is_run = owner == "RunFolder" or (called.attr == "open" and owner in ("webbrowser", "cls"))
            if not is_run and (called.attr in READING or (owner, called.attr) in READING_OF):
                yield ast.unparse(called)


def test_every_file_is_opened_by_the_one_opener():
    found = {
        f"{path.relative_to(SOURCE).as_posix()}: {call}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() != "pcpg/runs/disk.py"
        for call in openings(path)
    }
    assert not found - ALLOWED.keys(), "use pcpg.runs.disk.read_file"
    assert not ALLOWED.keys() - found, "no longer there"


@pytest.mark.parametrize(
    "code",
    [
        *(
            "open(x)",
            "x.read_text()",
            "(a / b).read_bytes()",
            "json.load(f)",
            "np.load(x)",
            "os.open(x, 0)",
            "x.open()",
        ),
        *("tomllib.load(f)", "np.loadtxt(x)", "pickle.load(f)", "np.memmap(x)"),
    ],
)
def test_any_other_opening_is_found(tmp_path: Path, code: str):
    (tmp_path / "a.py").write_text(f"def f(x):\n    return {code}")
    assert len(list(openings(tmp_path / "a.py"))) == 1
