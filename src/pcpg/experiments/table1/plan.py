"""Which cells there are: the first ones, and those that follow from a record.

The tuned factor decides what is run in A and B. Sizes of A are run from the smallest on; after a size at which no seed
got there the larger ones are not run, and count as beyond the budget. Growth is between the ends of a family, so there,
at the first size and at the last that is run, a factor is looked for that suits the size.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pcpg.experiments.harness import Record
from pcpg.experiments.table1.problems import MISSPECIFIED, TREE_KINDS
from pcpg.experiments.table1.settings import (
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
    has_bonus,
)
from pcpg.theory.learners.registry import COMPARATORS

CellKind = Literal["tuning", "A", "own", "eps", "gap", "bare", "theory", "problem", "B", "C"]


class Table1Cell(NamedTuple):
    """One measurement: its name is that of its file, its arguments are all that it depends on."""

    kind: CellKind
    name: str
    arguments: dict[str, Any]


def first_cells(settings: Table1Settings, algos: Sequence[str], only: Sequence[Experiment]) -> list[Table1Cell]:
    """The cells that depend on no other: tunings, runs with the theorems' constants, and trees."""
    cells = []
    if "A" in only or "B" in only:
        cells += [tuning_cell(settings, algo) for algo in algos]
    if "A" in only:
        cells += [
            theory_cell(settings, algo, family)
            for algo in algos
            for family in FAMILIES
            if COMPARATORS[algo].theory is not None
        ]
    if "C" in only:
        cells += [
            Table1Cell(
                "C",
                f"C-{kind}-{depth}",
                {
                    "features": kind,
                    "depth": depth,
                    "seeds": list(range(settings.tree_seeds)),
                    "policies": settings.tree_policies,
                    "pairs": settings.tree_pairs,
                },
            )
            for kind in TREE_KINDS
            for depth in reversed(settings.depths)
        ]
    return cells


def cells_after(
    record: Record, settings: Table1Settings, only: Sequence[Experiment], problems: Sequence[str] = ()
) -> list[Table1Cell]:
    """The cells that a record makes possible; `problems` of one's own, each FILE:NAME, are run after the tuning."""
    made = record["arguments"]
    if record["kind"] == "tuning":
        algo, factor, cells = made["algo"], record["factor"], []
        if "A" in only:
            cells += [size_cell(settings, algo, family, settings.sizes[family][0], factor) for family in FAMILIES]
            cells += [accuracy_cell(settings, algo, family, factor) for family in ONE_PROBLEM]
            cells += [gap_cell(settings, algo, factor)]
            cells += [
                bare_cell(settings, algo, family, size)
                for family in FAMILIES
                for size in settings.sizes[family][0 if family in NOISY else -1 :]
                if has_bonus(algo)
            ]
        if "A" in only:
            cells += [problem_cell(settings, algo, reference, factor) for reference in problems]
        if "B" in only:
            cells += [loss_cell(settings, algo, problem, factor) for problem in MISSPECIFIED]
        return cells
    if record["kind"] != "A":
        return []
    sizes = settings.sizes[made["family"]]
    after = sizes[sizes.index(made["size"]) + 1 :] if reached(record) else ()
    cells = [size_cell(settings, made["algo"], made["family"], size, made["factor"]) for size in after[:1]]
    at_an_end = made["size"] == sizes[0] or not after
    return [*cells, own_cell(settings, record)] if at_an_end else cells


def reached(record: Record) -> int:
    """How many seeds of a record got there."""
    return sum(value is not None for value in record["samples"])


def tuning_cell(settings: Table1Settings, algo: str) -> Table1Cell:
    """The tuning of an algorithm."""
    arguments = {
        "algo": algo,
        "sizes": dict(settings.tuning_sizes),
        "budget": settings.tuning_budget * PATIENT.get(algo, 1),
        "seeds": [TUNING_SEED + i for i in range(settings.tuning_seeds)],
    }
    return Table1Cell("tuning", f"tuning-{algo}", arguments)


def size_cell(settings: Table1Settings, algo: str, family: Family, size: int, factor: float) -> Table1Cell:
    """The run of an algorithm with its tuned factor at a size."""
    arguments = {
        "algo": algo,
        "family": family,
        "size": size,
        "factor": factor,
        "budget": settings.budget,
        "seeds": list(range(settings.seeds)),
    }
    return Table1Cell("A", f"A-{algo}-{family.replace(' ', '-')}-{size}", arguments)


def own_cell(settings: Table1Settings, record: Record) -> Table1Cell:
    """The run with a factor of its own at the size of a record, as long as the one factor took there."""
    made = record["arguments"]
    slowest = max((value for value in record["samples"] if value is not None), default=made["budget"] / 3.0)
    tuning_seeds = [TUNING_SEED + i for i in range(settings.tuning_seeds)]
    arguments = made | {"limit": int(max(slowest, 300)), "tuning_seeds": tuning_seeds}
    return Table1Cell("own", f"own-{made['algo']}-{made['family'].replace(' ', '-')}-{made['size']}", arguments)


def accuracy_cell(settings: Table1Settings, algo: str, family: Family, factor: float) -> Table1Cell:
    """The run against epsilon, at the size of the tuning."""
    made = size_cell(settings, algo, family, settings.tuning_sizes[family], factor).arguments
    return Table1Cell("eps", f"eps-{algo}-{family.replace(' ', '-')}", made | {"shares": list(EPSILONS)})


def gap_cell(settings: Table1Settings, algo: str, factor: float) -> Table1Cell:
    """The runs on trees of smaller and smaller gaps."""
    asked = {"gaps": list(GAPS), "budget": settings.gap_budget}
    return Table1Cell("gap", f"gap-{algo}", _tuned(settings, algo, factor) | asked)


def problem_cell(settings: Table1Settings, algo: str, reference: str, factor: float) -> Table1Cell:
    """The run on a problem of one's own."""
    asked = {"reference": reference, "budget": settings.budget}
    name = f"problem-{algo}-{reference.rpartition(':')[2]}"
    return Table1Cell("problem", name, _tuned(settings, algo, factor) | asked)


def _tuned(settings: Table1Settings, algo: str, factor: float) -> dict[str, Any]:
    """What a cell is told that finds its factor on problems of its own kind."""
    return {
        "algo": algo,
        "factor": factor,
        "tuning_budget": settings.tuning_budget * PATIENT.get(algo, 1),
        "seeds": list(range(settings.seeds)),
        "tuning_seeds": [TUNING_SEED + i for i in range(settings.tuning_seeds)],
    }


def bare_cell(settings: Table1Settings, algo: str, family: Family, size: int) -> Table1Cell:
    """The run with next to no bonus: at every size of a problem with noise, at the largest of the lock."""
    made = size_cell(settings, algo, family, size, BARE).arguments | {"budget": settings.bare_budget}
    return Table1Cell("bare", f"bare-{algo}-{family.replace(' ', '-')}-{size}", made)


def theory_cell(settings: Table1Settings, algo: str, family: Family) -> Table1Cell:
    """The run of an algorithm with the constants of its own theorem, at the smallest size."""
    arguments = {
        "algo": algo,
        "family": family,
        "size": settings.sizes[family][0],
        "factor": None,
        "budget": settings.theory_budget,
        "seeds": list(range(settings.theory_seeds)),
    }
    return Table1Cell("theory", f"theory-{algo}-{family.replace(' ', '-')}", arguments)


def loss_cell(settings: Table1Settings, algo: str, problem: str, factor: float) -> Table1Cell:
    """The losses of an algorithm on an aggregated problem."""
    arguments = {
        "algo": algo,
        "problem": problem,
        "kappas": list(settings.errors),
        "factor": factor,
        "budget": settings.error_budget * PATIENT.get(algo, 1),
        "seeds": list(range(settings.seeds)),
        "tuning_seeds": [TUNING_SEED + i for i in range(settings.tuning_seeds)],
    }
    return Table1Cell("B", f"B-{algo}-{problem}", arguments)
