"""Loading a file can never run code: nothing in the library unpickles or evaluates."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "pickletools",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
}
EVALUATORS = {"eval", "exec"}


def offences(source: str) -> Iterator[str]:
    """What in `source` could turn the content of a file into running code."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            yield from _offences_of_call(node)
            loads = _last_name(node.func) in {"import_module", "__import__"}
            constants = [a.value for a in node.args if loads and isinstance(a, ast.Constant)]
            names = [value for value in constants if isinstance(value, str)]
        yield from (f"line {node.lineno}: imports {name}" for name in names if MODULES & set(name.split(".")))


def _offences_of_call(node: ast.Call) -> Iterator[str]:
    builtin = isinstance(node.func, ast.Name) or ast.unparse(node.func).startswith("builtins.")
    if builtin and _last_name(node.func) in EVALUATORS:
        yield f"line {node.lineno}: calls {ast.unparse(node.func)}"
    for keyword in node.keywords:
        refused = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg == "allow_pickle" and not refused:
            yield f"line {node.lineno}: allows pickle"


def _last_name(function: ast.expr) -> str:
    return ast.unparse(function).split(".")[-1]


def test_no_file_of_the_library_unpickles_or_evaluates() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    found = [f"{path}, {offence}" for path in files for offence in offences(path.read_text())]
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import numpy, cloudpickle as cp",
        "def f():\n    from dill import loads",
        "from sklearn.externals import joblib",
        "import multiprocessing.pickle",
        "import importlib\nimportlib.import_module('marshal')",
        "__import__('shelve')",
        "import numpy as np\nnp.load('a', allow_pickle=True)",
        "np.load('a', allow_pickle=flag)",
        "eval('1')",
        "import builtins\nbuiltins.exec('1')",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert list(offences(source))


@pytest.mark.parametrize("source", ["np.load('a', allow_pickle=False)", "a.eval()", "from . import pickles"])
def test_the_search_leaves_harmless_code_alone(source: str) -> None:
    assert not list(offences(source))
