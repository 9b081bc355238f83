"""The cells: the first ones, and those that follow from a record.

The tuned factor decides what is run in A and B. Sizes of A are run from the smallest on; after a size at which no seed
got there the larger ones are not run, and count as beyond the budget. Growth is between the ends of a family, so there,
at the first size and at the last that is run, a factor is looked for that suits the size where some seed failed.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pcpg.config import Json
from pcpg_lab.claims.records import Record
from pcpg_lab.table1.problems import MISSPECIFIED, TREE_KINDS, TreeKind
from pcpg_lab.table1.settings import (
    BARE,
    EPSILONS,
    FAMILIES,
    GAPS,
    NOISY,
    ONE_PROBLEM,
    PATIENT,
    TUNING_SEED,
    Experiment,
    Family,
    Table1Settings,
    budget_of,
    has_bonus,
)
from pcpg_theory.learners.registry import COMPARATORS

CellKind = Literal["tuning", "A", "own", "eps", "gap", "bare", "theory", "problem", "B", "C"]


class Table1Cell(NamedTuple):
    """One measurement: its name is that of its file, its arguments are all that it depends on."""

    kind: CellKind
    name: str
    arguments: Json


def first_cells(settings: Table1Settings, algos: Sequence[str], only: Sequence[Experiment]) -> list[Table1Cell]:
    """The cells that depend on no other: tunings, runs with the theorems' constants, and trees."""
    cells = []
    if "A" in only or "B" in only:
        cells += [tuning_cell(settings, algo) for algo in algos]
    if "A" in only:
        stated = [algo for algo in algos if COMPARATORS[algo].theory is not None]
        cells += [theory_cell(settings, algo, family) for algo in stated for family in FAMILIES]
    if "C" in only:
        cells += [tree_cell(settings, kind, depth) for kind in TREE_KINDS for depth in reversed(settings.depths)]
    return cells


def cells_after(
    record: Record, settings: Table1Settings, only: Sequence[Experiment], problems: Sequence[str] = ()
) -> list[Table1Cell]:
    """The cells that a record makes possible; custom `problems`, each FILE:NAME, are run after the tuning."""
    made = record["arguments"]
    if record["kind"] == "tuning":
        return _after_tuning(made["algo"], record["factor"], settings, only, problems)
    if record["kind"] != "A":
        return []
    sizes = settings.sizes[made["family"]]
    after = sizes[sizes.index(made["size"]) + 1 :] if reached(record) else ()
    cells = [size_cell(settings, made["algo"], made["family"], size, made["factor"]) for size in after[:1]]
    at_an_end = made["size"] == sizes[0] or not after
    failed = reached(record) < len(record["samples"])
    return [*cells, own_cell(settings, record)] if at_an_end and failed else cells


def _after_tuning(
    algo: str, factor: float, settings: Table1Settings, only: Sequence[Experiment], problems: Sequence[str]
) -> list[Table1Cell]:
    cells = []
    if "A" in only:
        cells += [size_cell(settings, algo, family, settings.sizes[family][0], factor) for family in FAMILIES]
        cells += [accuracy_cell(settings, algo, family, factor) for family in ONE_PROBLEM]
        asked = {"gaps": list(GAPS), "budget": settings.gap_budget}
        cells += [_cell("gap", algo, **_tuned(settings, algo, factor), **asked)]
        cells += [
            bare_cell(settings, algo, family, size)
            for family in FAMILIES
            for size in settings.sizes[family][0 if family in NOISY else -1 :]
            if has_bonus(algo)
        ]
        cells += [problem_cell(settings, algo, reference, factor) for reference in problems]
    if "B" in only:
        cells += [loss_cell(settings, algo, problem, factor) for problem in MISSPECIFIED]
    return cells


def reached(record: Record) -> int:
    """How many seeds of a record got there."""
    return sum(value is not None for value in record["samples"])


def _cell(kind: CellKind, first: str, *place: object, **arguments: object) -> Table1Cell:
    """A cell that is named after its kind, then its algorithm and its place."""
    return Table1Cell(kind, "-".join([kind, first, *(str(part).replace(" ", "-") for part in place)]), arguments)


def _seeds(settings: Table1Settings) -> list[int]:
    return list(range(settings.seeds))


def _tuning_seeds(settings: Table1Settings) -> list[int]:
    return [TUNING_SEED + i for i in range(settings.tuning_seeds)]


def _tuned(settings: Table1Settings, algo: str, factor: float) -> Json:
    """The arguments of a cell that finds its factor on problems of its own kind."""
    return {
        "algo": algo,
        "factor": factor,
        "tuning_budget": settings.tuning_budget * PATIENT.get(algo, 1),
        "seeds": _seeds(settings),
        "tuning_seeds": _tuning_seeds(settings),
    }


def tuning_cell(settings: Table1Settings, algo: str) -> Table1Cell:
    """The tuning of an algorithm."""
    budget = settings.tuning_budget * PATIENT.get(algo, 1)
    sizes = dict(settings.tuning_sizes)
    return _cell("tuning", algo, **{"algo": algo, "sizes": sizes, "budget": budget, "seeds": _tuning_seeds(settings)})


def _at_size(algo: str, family: Family, size: int, factor: float | None, budget: int, seeds: list[int]) -> Record:
    return {"algo": algo, "family": family, "size": size, "factor": factor, "budget": budget, "seeds": seeds}


def size_cell(settings: Table1Settings, algo: str, family: Family, size: int, factor: float) -> Table1Cell:
    """The run of an algorithm with its tuned factor at a size."""
    arguments = _at_size(algo, family, size, factor, budget_of(settings, algo), _seeds(settings))
    return _cell("A", algo, family, size, **arguments)


def own_cell(settings: Table1Settings, record: Record) -> Table1Cell:
    """The run with a factor of its own at the size of a record, as long as the one factor took there."""
    made = record["arguments"]
    slowest = max((value for value in record["samples"] if value is not None), default=made["budget"] / 3.0)
    more = {"limit": int(max(slowest, 300)), "tuning_seeds": _tuning_seeds(settings)}
    return _cell("own", made["algo"], made["family"], made["size"], **made, **more)


def accuracy_cell(settings: Table1Settings, algo: str, family: Family, factor: float) -> Table1Cell:
    """The run against epsilon, at the size of the tuning."""
    made = size_cell(settings, algo, family, settings.tuning_sizes[family], factor).arguments
    return _cell("eps", algo, family, **made, shares=list(EPSILONS))


def problem_cell(settings: Table1Settings, algo: str, reference: str, factor: float) -> Table1Cell:
    """The run on a custom problem."""
    asked = {"reference": reference, "budget": settings.budget}
    return _cell("problem", algo, reference.rpartition(":")[2], **_tuned(settings, algo, factor), **asked)


def bare_cell(settings: Table1Settings, algo: str, family: Family, size: int) -> Table1Cell:
    """The run with next to no bonus: at every size of a problem with noise, at the largest of the lock."""
    arguments = _at_size(algo, family, size, BARE, settings.bare_budget, _seeds(settings))
    return _cell("bare", algo, family, size, **arguments)


def theory_cell(settings: Table1Settings, algo: str, family: Family) -> Table1Cell:
    """The run of an algorithm with the constants of its own theorem, at the smallest size."""
    seeds = list(range(settings.theory_seeds))
    arguments = _at_size(algo, family, settings.sizes[family][0], None, settings.theory_budget, seeds)
    return _cell("theory", algo, family, **arguments)


def loss_cell(settings: Table1Settings, algo: str, problem: str, factor: float) -> Table1Cell:
    """The losses of an algorithm on an aggregated problem."""
    arguments = {
        "algo": algo,
        "problem": problem,
        "kappas": list(settings.errors),
        "factor": factor,
        "budget": settings.error_budget * PATIENT.get(algo, 1),
        "seeds": _seeds(settings),
        "tuning_seeds": _tuning_seeds(settings),
    }
    return _cell("B", algo, problem, **arguments)


def tree_cell(settings: Table1Settings, kind: TreeKind, depth: int) -> Table1Cell:
    """The values on trees of a kind and a depth."""
    arguments = {
        "features": kind,
        "depth": depth,
        "seeds": list(range(settings.tree_seeds)),
        "policies": settings.tree_policies,
        "pairs": settings.tree_pairs,
    }
    return _cell("C", kind, depth, **arguments)
