"""Your own learners, problems and theorems in addition to those of Table 1, found again by other processes.

    pcpg_theory.learner("mine", MyLearner)            now --algos mine works, in `compare` and in the table
    pcpg_theory.problem("bandit", make_bandit)        now --mdp bandit works
    pcpg_theory.theorem("mine", "S A / eps^2", lambda size: size.states * size.actions / size.epsilon**2)

A process that measures a cell starts afresh: it imports the file in which a learner is written, by its path, and takes
it from there, so the learner must be defined at the top level of a file, and need not be registered there. What was
measured is kept under a digest of that file and of the library's files that it leads to: who changes the learner
measures it again.
"""

import contextlib
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pcpg.envs.adapters.from_module import put_on_path
from pcpg.runs.disk import read_file
from pcpg_theory.learners import runner
from pcpg_theory.learners.problem import Episodic, timed
from pcpg_theory.learners.registry import COMPARATORS, ROWS, Comparator
from pcpg_theory.mdp import TabularMDP
from pcpg_theory.theorems import THEOREMS, Size, Theorem

MakeProblem = Callable[[Sequence[int]], "Episodic | TabularMDP"]
PROBLEMS: dict[str, MakeProblem] = {}
REFERENCES: dict[str, str | None] = {}
"""FILE:NAME of each learner that is not the library's; None if no other process can find it."""
DECISIONS = 20


def learner(
    name: str, make: Callable[..., object], *, label: str | None = None, row: str = "own", source: str = ""
) -> str:
    """Register a learner under a name; the name.

    Args:
        name: Of the flag `--algos`; a name of the library is refused.
        make: Called with a layout and streams, and with `scale=` if it takes one: a class like those of
            `pcpg_theory.learners`, at the top level of a file.
        label: Its name in the table.
        row: The row of the table: "own", or one of the paper's.
        source: Where it comes from.

    Returns:
        The name.
    """
    if name in COMPARATORS and name not in REFERENCES:
        raise ValueError(f"name must be new: {name!r} belongs to the library")
    if row not in ROWS:
        raise ValueError(f"row must be one of {', '.join(ROWS)}, got {row!r}")
    REFERENCES[name] = reference_of(make)
    COMPARATORS[name] = Comparator(label or name, _with_scale(make), row, source or "own")
    return name


def forget(name: str) -> None:
    """Remove a user's learner or problem, and its theorem."""
    PROBLEMS.pop(name, None)
    if name in REFERENCES:
        REFERENCES.pop(name)
        COMPARATORS.pop(name)
        THEOREMS.pop(name, None)


def problem(name: str, make: MakeProblem) -> str:
    """Register a problem under a name: `make(seeds)` gives an `Episodic`, or a `TabularMDP`; the name."""
    PROBLEMS[name] = make
    return name


def theorem(name: str, text: str, samples: Callable[[Size], float] | None = None, *, lower: bool = False) -> Theorem:
    """Register the theorem of a learner: its samples as text and as a function of the size."""
    if name not in COMPARATORS:
        raise ValueError(f"name must be that of a learner, one of {', '.join(COMPARATORS)}, got {name!r}")
    THEOREMS[name] = Theorem(text, samples, lower)
    return THEOREMS[name]


def episodic(name: str, made: "Episodic | TabularMDP", n: int, decisions: int | None = None) -> Episodic:
    """A problem as learners play it: an MDP is cut after some decisions, 20 unless said."""
    if isinstance(made, TabularMDP):
        return timed(name, made, decisions or DECISIONS, n, high=made.r_max)
    if made.n != n:
        raise ValueError(f"{name}: there must be one instance for each of {n} seeds, got {made.n}")
    return made


def _with_scale(make: Callable[..., object]) -> Callable[..., Any]:
    """The maker, called without a scale where it takes none."""
    takes = inspect.signature(make).parameters
    if "scale" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return make
    return partial(_without_scale, make)


def _without_scale(make: Callable[..., object], layout: object, streams: object, scale: float = 1.0) -> Any:
    return make(layout, streams)


def reference_of(make: Any) -> str | None:
    """FILE:NAME by which another process finds a class or a function; None if it cannot."""
    name, file = getattr(make, "__qualname__", ""), None
    with contextlib.suppress(TypeError, OSError):
        file = inspect.getsourcefile(make)
    if not name or "<" in name or file is None or not Path(file).exists():
        return None
    return f"{Path(file).resolve()}:{name}"


def check_processes(jobs: int) -> None:
    """Raise a ValueError if learners would have to be found by other processes and cannot."""
    lost = [name for name, reference in REFERENCES.items() if reference is None]
    if jobs > 1 and lost:
        raise ValueError(f"with jobs above 1, learners must be defined at the top level of a file: {lost[0]!r} is not")


def load(reference: str) -> Any:
    """The object that FILE:NAME names; imports the file by its path."""
    file, _, name = reference.rpartition(":")
    path = Path(file)
    if not name or not path.is_file():
        raise ValueError(f"expected FILE:NAME with an existing Python file, got {reference!r}")
    module = _imported(path.resolve())
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            valid = ", ".join(key for key in vars(module) if not key.startswith("_"))
            raise ValueError(f"{path} has no {name!r}; it has {valid}")
        found = getattr(found, part)
    return found


def _imported(path: Path) -> ModuleType:
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return module
    alias = f"pcpg_own_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(alias, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    put_on_path(path.parent)
    spec.loader.exec_module(module)
    return module


def load_learner(reference: str) -> str:
    """Register the learner FILE:NAME under NAME; that name."""
    return learner(reference.rpartition(":")[2], load(reference))


def load_problem(reference: str) -> str:
    """Register the problem FILE:NAME under NAME; that name."""
    return problem(reference.rpartition(":")[2], load(reference))


def check_problem(reference: str) -> str:
    """FILE:NAME with the whole path of the file; a ValueError unless it makes a problem of two seeds."""
    file, _, name = reference.rpartition(":")
    episodic(name, load(reference)([0, 1]), 2)
    return f"{Path(file).resolve()}:{name}"


def source_digest(name: str) -> str:
    """A digest of the code of a learner: its file, and the files of `pcpg_theory` that it leads to."""
    make: Any = COMPARATORS[name].make
    while isinstance(make, partial):
        make = make.args[0] if make.args else make.func
    todo, files = [inspect.getmodule(make), runner], {} if reference_of(make) else {"": _bytecode(make)}
    while todo:
        module = todo.pop()
        file = getattr(module, "__file__", None)
        if module is None or file is None or file in files or not Path(file).exists():
            continue
        files[file] = hashlib.sha256(read_file(Path(file))).hexdigest()
        for value in vars(module).values():
            near = value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", "") or "")
            if near is not None and near.__name__.startswith("pcpg_theory"):
                todo.append(near)
    return hashlib.sha256("".join(sorted(files.values())).encode()).hexdigest()[:16]


def _bytecode(make: Any) -> str:
    """A digest of the code of a class or function without a file."""
    parts = [make, *vars(make).values()] if inspect.isclass(make) else [make]
    codes = [part.__code__ for part in parts if hasattr(part, "__code__")]
    text = repr(
        [
            (code.co_name, code.co_code, code.co_names, [c for c in code.co_consts if not hasattr(c, "co_code")])
            for code in codes
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()
