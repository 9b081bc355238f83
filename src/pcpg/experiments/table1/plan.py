"""Which cells there are: the first ones, and those that follow from a record."""

from collections.abc import Sequence

from pcpg.experiments.common import Record
from pcpg.experiments.table1 import exploration, misspecification, tree, tuning
from pcpg.experiments.table1.cells import Cell
from pcpg.experiments.table1.problems import MISSPECIFIED
from pcpg.experiments.table1.settings import FAMILIES, Experiment, Family, Settings
from pcpg.theory.learners.registry import COMPARATORS


def first_cells(settings: Settings, algos: Sequence[str], only: Sequence[Experiment]) -> list[Cell]:
    """Return the cells that depend on no other: tunings, runs with the theorems' constants, and trees."""
    cells = []
    if "A" in only or "B" in only:
        shared = tuning.arguments(settings)
        cells += [Cell("tuning", f"tuning-{algo}", {"algo": algo} | shared) for algo in algos]
    if "A" in only:
        cells += [
            Cell(
                "theory",
                f"theory-{algo}-{family.replace(' ', '-')}",
                {"algo": algo} | exploration.theory_arguments(settings, family),
            )
            for algo in algos
            for family in FAMILIES
            if COMPARATORS[algo].theory is not None
        ]
    if "C" in only:
        cells += [
            Cell("C", f"C-{kind}-{depth}", tree.arguments(settings, kind, depth))
            for kind in tree.KINDS
            for depth in reversed(settings.depths)
        ]
    return cells


def cells_after(record: Record, settings: Settings, only: Sequence[Experiment]) -> list[Cell]:
    """Return the cells that a record makes possible."""
    if record["kind"] == "tuning":
        algo, factor, cells = record["arguments"]["algo"], record["factor"], []
        if "A" in only:
            cells += [_size(settings, algo, family, settings.sizes[family][0], factor) for family in FAMILIES]
        if "B" in only:
            cells += [
                Cell("B", f"B-{algo}-{name}", {"algo": algo} | misspecification.arguments(settings, name, factor))
                for name in MISSPECIFIED
            ]
        return cells
    if record["kind"] == "A" and exploration.reached(record):
        made = record["arguments"]
        sizes = settings.sizes[made["family"]]
        after = sizes[sizes.index(made["size"]) + 1 :]
        return [_size(settings, made["algo"], made["family"], size, made["factor"]) for size in after[:1]]
    return []


def _size(settings: Settings, algo: str, family: Family, size: int, factor: float) -> Cell:
    name = f"A-{algo}-{family.replace(' ', '-')}-{size}"
    return Cell("A", name, {"algo": algo} | exploration.arguments(settings, family, size, factor))
