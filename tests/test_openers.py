"""Files are opened in one place: what is read from a folder, a plan or a configuration goes through `runs.disk`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import SOURCE

READING = {
    *("open", "fdopen", "read_text", "read_bytes", "genfromtxt", "loadtxt", "fromregex", "fromfile", "memmap"),
    *("open_memmap", "imread", "safe_open", "load_file", "tree_deserialise_leaves", "FileIO", "sendfile", "popen"),
    *("spec_from_file_location", "SourceFileLoader", "CDLL", "copyfile", "copy2", "copytree", "Popen"),
    *("__import__", "exec", "eval"),
}
"""Names that open a file, run one or begin a process, whatever they belong to, called or handed on."""
READERS = {
    *("gzip", "bz2", "lzma", "zipfile", "tarfile", "mmap", "pickle", "cloudpickle", "marshal", "shelve", "dbm"),
    *("sqlite3", "linecache", "fileinput", "configparser", "codecs", "xml", "csv", "tokenize", "pandas", "h5py"),
    *("joblib", "torch", "imageio", "ctypes", "yaml", "dotenv"),
}
"""Modules with ways of their own to open files."""
READING_OF = {(module, "load") for module in ("json", "np", "numpy", "jnp", "tomllib")}
READING_OF |= {("shutil", name) for name in ("copy", "move")} | {("runpy", "run_path")}
READING_OF |= {("subprocess", name) for name in ("run", "call", "check_call", "check_output")}
"""Names that do so where they belong to these modules."""

ALLOWED = {
    "pcpg/__main__.py: os.open": "the null device",
    "pcpg/__main__.py: os.fdopen": "the streams of this process",
    "pcpg/cli/main.py: os.open": "the null device",
    "pcpg/machine.py: Path('/proc/meminfo').read_text": "the kernel's",
    "pcpg/training/logged.py: zipfile": "bytes that the opener read",
    "pcpg/training/restore.py: Path('/proc/cpuinfo').read_text": "the kernel's",
    "pcpg/reports/page.py: folder / name.read_text": "templates of this package",
    "pcpg/reports/sections.py: grid.open": "the free cells of a grid",
    "pcpg/reports/visits.py: grid.open": "the free cells of a grid",
    "pcpg/reports/visits.py: open": "the free cells of a grid",
    "pcpg/training/compile_cache.py: entry.read_bytes": "in a folder of the user's that nobody else may write to",
    "pcpg/envs/adapters/from_module.py: importlib.util.spec_from_file_location": "a module that was named or trusted",
    "pcpg/envs/adapters/worker_process.py: ctypes": "the C library of this process",
    "pcpg/envs/adapters/worker_process.py: ctypes.CDLL": "the C library of this process",
    "pcpg/play.py: subprocess.Popen": "ffmpeg, as its package names it",
    "pcpg_lab/claims/records.py: subprocess.run": "git, on the folder of this package",
    "pcpg_lab/sweeps/local.py: subprocess.Popen": "a worker of ours",
    "pcpg_lab/sweeps/plan.py: runpy.run_path": "a plan that the user named",
    "pcpg_lab/sweeps/crew.py: os.open": "a lock in a folder of the user's that nobody else may write to",
    "pcpg_lab/sweeps/crew.py: subprocess.run": "nvidia-smi",
    "pcpg_lab/sweeps/status.py: csv": "it writes",
    "pcpg_lab/sweeps/local.py: os.fdopen": "a stream of this process",
    "pcpg_theory/own.py: importlib.util.spec_from_file_location": "a file that the user named",
}
"""What opens something that is no file of a run, a sweep or a plan, with the reason."""


def openings(path: Path) -> Iterator[str]:
    """What in a file names a way to open another one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                yield from (one.name for one in names if one.name.partition(".")[0] in READERS)
            case ast.ImportFrom(module=str(module), names=names):
                known = any(one.name in READING or (module, one.name) in READING_OF for one in names)
                if module.partition(".")[0] in READERS or known:
                    yield f"from {module}"
            case ast.Name(id=name) if name in READING:
                yield name
            case ast.Attribute(owner, name):
                whose = ast.unparse(owner)
                is_ours = (name == "open" and whose in ("RunFolder", "webbrowser", "cls")) or whose == "self"
                if (name in READING and not is_ours) or (whose, name) in READING_OF:
                    yield f"{whose}.{name}"
            case ast.Call(ast.Name("getattr"), [_, ast.Constant(str(name)), *_]) if name in READING | {"load"}:
                yield f"getattr {name}"


def test_every_file_is_opened_by_the_one_opener():
    found = {
        f"{path.relative_to(SOURCE).as_posix()}: {call}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() != "pcpg/runs/disk.py"
        for call in openings(path)
    }
    assert not found - ALLOWED.keys(), "use pcpg.runs.disk.read_file"
    assert not ALLOWED.keys() - found, "no longer there"


WRITING = {"savefig", "imsave", "write_text", "write_bytes", "tofile", "touch", "symlink_to"}
"""Names that write a file, whatever they belong to."""
WRITES = {
    "pcpg/reports/figures.py: figure.savefig": "into memory",
    "pcpg/training/compile_cache.py: marker.touch": "in a folder of the user's that nobody else may write to",
    "pcpg_lab/sweeps/on_ray.py: self.mark.touch": "a new file of a random name",
}


def test_every_file_is_written_by_the_one_writer():
    found = {
        f"{path.relative_to(SOURCE).as_posix()}: {ast.unparse(node)}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in WRITING
    }
    assert found == WRITES.keys(), "use pcpg.runs.disk.write_file"


AROUND = """
open(x); x.open(); Path.open(x); io.open(x); io.FileIO(x); os.open(x, 0); os.fdopen(x); map(open, [x]); builtins.open(x)
x.read_text(); (a / b).read_bytes(); map(Path.read_text, [x]); getattr(x, "read_text")(); codecs.open(x)
json.load(f); tomllib.load(f); np.load(x); getattr(np, "load")(x); np.loadtxt(x); np.fromfile(x); np.memmap(x)
np.lib.format.open_memmap(x); np.core.records.fromfile(x); safetensors.safe_open(x, "np"); load_file(x)
gzip.open(x); tarfile.open(x); shutil.copy(x, y); shutil.copytree(x, y); subprocess.run(["cat", x]); os.popen(x)
runpy.run_path(x); importlib.util.spec_from_file_location("a", x); SourceFileLoader("a", x); ctypes.CDLL(x)
__import__("mmap"); exec(x); Image.open(x); shelve.open(x)
"""
IMPORTS = """
import mmap; import pickle; import zipfile; import xml.etree.ElementTree as ET; import configparser; import sqlite3
from json import load; from os import open as o; from safetensors.numpy import load_file as l; from shutil import move
from linecache import getlines; from importlib.machinery import SourceFileLoader; from subprocess import check_output
"""
SAFE = """
json.loads(x); RunFolder.open(x); load("a:b"); self.open; pickled(x); x.opened; runner.run(x); csv_of(x)
"""


def listed(text: str) -> list[str]:
    return [code.strip() for line in text.strip().splitlines() for code in line.split(";")]


@pytest.mark.parametrize("code", [*listed(AROUND), *listed(IMPORTS)])
def test_any_other_opening_is_found(tmp_path: Path, code: str):
    (tmp_path / "a.py").write_text(f"def f(x):\n    {code}")
    assert list(openings(tmp_path / "a.py"))


def test_what_opens_nothing_is_left_alone(tmp_path: Path):
    for code in listed(SAFE):
        (tmp_path / "a.py").write_text(code)
        assert not list(openings(tmp_path / "a.py")), code
