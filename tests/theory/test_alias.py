"""`pcpg.theory` is another name of the package `pcpg_theory`, loaded only when it is asked for."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import pcpg
import pcpg_theory


def names():
    """Every module of the theory, without the package's own name."""
    prefix = "pcpg_theory"
    return [""] + [one.name.removeprefix(prefix) for one in pkgutil.walk_packages(pcpg_theory.__path__, f"{prefix}.")]


@pytest.mark.parametrize("name", names())
def test_a_module_under_its_old_name_is_the_module_itself(name):
    module = importlib.import_module(f"pcpg.theory{name}")
    assert module is importlib.import_module(f"pcpg_theory{name}") is sys.modules[f"pcpg.theory{name}"]
    assert module.__name__ == module.__spec__.name == f"pcpg_theory{name}"


def test_old_imports_give_the_same_functions_and_classes():
    from pcpg.theory import exact
    from pcpg.theory.learners.registry import Comparator  # pyright: ignore[reportMissingImports]
    from pcpg.theory.tabular import run  # pyright: ignore[reportMissingImports]
    from pcpg_theory import exact as new_exact
    from pcpg_theory.learners.registry import Comparator as NewComparator
    from pcpg_theory.tabular import run as new_run

    assert (exact, Comparator, run) == (new_exact, NewComparator, new_run)
    assert pcpg.theory is pcpg_theory and pcpg.theory.exact is new_exact


@pytest.mark.parametrize(
    "program",
    [
        "import pcpg, sys; assert 'pcpg_theory' not in sys.modules",
        "import pcpg; pcpg.theory.learner; pcpg.theory.tabular.run",
        "import pcpg.theory; pcpg.theory.exact.value",
        "import pcpg.theory.tabular as tabular, pcpg_theory.tabular; assert tabular is pcpg_theory.tabular",
    ],
)
def test_in_a_fresh_process_the_theory_is_there_when_asked_for_and_not_before(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
