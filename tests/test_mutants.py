"""The tests see wrong algorithms: `python -m tests.mutants` tries them all, a few of them are tried here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.mutants import MUTANTS, ROOT, survivors


def test_every_mutant_changes_one_place_of_its_file_and_names_tests_that_there_are():
    for mutant in MUTANTS:
        assert (ROOT / "src" / mutant.file).read_text().count(mutant.old) == 1, mutant.name
        assert mutant.old != mutant.new and all((ROOT / "tests" / t.split("::")[0]).exists() for t in mutant.tests)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 140


def test_a_few_wrong_algorithms_are_killed_and_a_change_of_nothing_survives():
    first, second = (mutant for mutant in MUTANTS if mutant.name in ("exact critic fits Q", "W ignored"))
    same = first._replace(name="nothing", new=first.old + "  # as it was")
    assert survivors((first, second, same), jobs=1) == [same]
