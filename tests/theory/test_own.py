"""Learners, problems and theorems of one's own: the page's thirty lines, by command; measured again when changed."""

import re
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

import pcpg_theory
from pcpg_lab.table1 import plan
from pcpg_lab.table1.command import ReproduceTable1, Store, run_cells, source_of
from pcpg_lab.table1.settings import SETTINGS
from pcpg_lab.table1.summary import summarise
from pcpg_lab.table1.table import main_table, short_table
from pcpg_theory import own
from pcpg_theory.cli.compare import CompareCommand
from pcpg_theory.learners import problem, runner
from pcpg_theory.learners.layout import Streams
from pcpg_theory.learners.registry import COMPARATORS
from pcpg_theory.learners.reward_free import Curious
from pcpg_theory.theorems import THEOREMS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-learner.md"


@pytest.fixture
def file(tmp_path):
    """The file of the page, written out; what was registered is forgotten afterwards."""
    text = re.search(r"```python\n(# own\.py.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert len([line for line in text.splitlines() if line.strip()]) <= 32
    path = tmp_path / "own.py"
    path.write_text(text)
    yield path
    for name in [*own.REFERENCES, *own.PROBLEMS]:
        own.forget(name)


def test_the_learner_and_the_problem_of_the_page_are_compared_by_command(file, capsys):
    asked = {"horizon": 12, "seeds": 3, "budget": 6000, "points": 40}
    references = {"learner": (f"{file}:MyLearner",), "problem": f"{file}:make"}
    command = CompareCommand(algos=("ucbvi", "psrl"), scales=(0.001, 1.0, 0.01), **references, **asked)
    found = command()
    assert list(found["algos"]) == ["ucbvi", "psrl", "MyLearner"] and found["mdp"] == "make"
    assert found["algos"]["MyLearner"]["solved"] == 3
    command.render(found)
    assert "MyLearner" in capsys.readouterr().err


def test_the_learner_of_the_page_stands_in_the_table_and_is_measured_again_when_its_file_changes(file, tmp_path):
    name = own.load_learner(f"{file}:MyLearner")
    cell = plan.size_cell(SETTINGS["smoke"], name, "chain", 2, 0.1)
    store = Store(tmp_path / "out", "command")
    [record] = run_cells([cell], lambda record: [], store, 1, lambda record: None)
    assert store.read(cell) is not None
    file.write_text(file.read_text().replace("0.3 * (target", "0.2 * (target"))
    assert store.read(cell) is None
    pcpg_theory.theorem(name, "S A / eps^2", lambda size: size.timed * size.actions / size.epsilon**2)
    made = summarise([record], SETTINGS["smoke"])
    assert "| own, beside the table | MyLearner |" in short_table(made) and "S A / eps^2" in main_table(made)


def test_a_process_of_its_own_finds_the_learner_by_its_file(file, tmp_path):
    name = own.load_learner(f"{file}:MyLearner")
    cell = plan.size_cell(SETTINGS["smoke"], name, "chain", 2, 0.1)
    [found] = run_cells([cell], lambda record: [], Store(tmp_path / "out", ""), 2, lambda record: None)
    assert len(found["samples"]) == SETTINGS["smoke"].seeds


def test_a_learner_that_only_this_process_has_is_refused_before_work_where_others_would_need_it(file, tmp_path):
    class Local(own.load(f"{file}:MyLearner")):
        pass

    Local.__qualname__ = "somewhere.<locals>.Local"
    pcpg_theory.learner("local", Local)
    with pytest.raises(ValueError, match="top level of a file: 'local' is not"):
        ReproduceTable1(scale="smoke", out=str(tmp_path), jobs=2)(Console(quiet=True))
    assert not list(tmp_path.glob("cells"))


def test_wrong_registrations_are_refused(file):
    with pytest.raises(ValueError, match=r"row must be one of .*, got 'mine'"):
        pcpg_theory.learner("x", own.load(f"{file}:MyLearner"), row="mine")
    with pytest.raises(ValueError, match="belongs to the library"):
        pcpg_theory.learner("ucbvi", own.load(f"{file}:MyLearner"))
    with pytest.raises(ValueError, match="has no 'Other'; it has"):
        own.load(f"{file}:Other")
    with pytest.raises(ValueError, match="expected FILE:NAME"):
        own.load("nowhere.py:MyLearner")
    with pytest.raises(ValueError, match="must be that of a learner"):
        pcpg_theory.theorem("nobody", "S")


def test_every_learner_of_the_table_has_a_theorem_and_a_digest_of_its_own_code():
    assert set(THEOREMS) == set(COMPARATORS)
    digests = {name: own.source_digest(name) for name in COMPARATORS}
    assert digests["ucbvi"] == digests["r-max"] != digests["psrl"]  # one file, and another


def test_bonuses_without_a_guarantee_by_hand():
    """(s0, 0) was met four times and led to x three times, to y once; two states in the next layer."""
    layout = problem.noisy_lock(2, [0], static=1).layout
    learner = {kind: Curious(layout, Streams([0], 1), kind=kind) for kind in ("count", "icm", "rnd")}
    for made in learner.values():
        made.counts.visits[0, 0, 0], made.counts.successors[0, 0, 0, :2] = 4.0, [3.0, 1.0]
        made.arrivals[0, 1:3] = [3.0, 1.0]
    assert learner["count"].intrinsic()[0, 0, 0] == pytest.approx(0.5)
    assert learner["icm"].intrinsic()[0, 0, 0] == pytest.approx((1 - 10 / 16 + 1 / 4) / 2)
    assert learner["rnd"].intrinsic()[0, 0, 0] == pytest.approx(0.75 * 0.8**6 + 0.25 * 0.8**2)


def test_prediction_error_stays_with_the_noise_where_counts_and_random_targets_move_on():
    made = problem.noisy_lock(4, [0, 1, 2])
    assert made.optimal() == pytest.approx([0.5] * 3)
    found = {}
    for kind in ("icm", "rnd"):
        history = runner.run(made, partial(Curious, kind=kind), [0, 1, 2], 3_000, points=10)
        found[kind] = history.returns[:, -1]
    assert found["rnd"].min() == pytest.approx(0.5) and found["icm"].max() < 0.2


def test_the_learner_and_the_problem_of_the_page_are_in_the_table_by_command(file, tmp_path):
    references = {"learners": (f"{file}:MyLearner",), "problems": (f"{file}:make",)}
    asked = ReproduceTable1(scale="smoke", only=("A",), algos=("ucbvi",), **references, out=str(tmp_path), jobs=1)
    assert asked(Console(quiet=True)) == 0
    text = (tmp_path / "table.md").read_text()
    own_part = text[text.index("## Problems of your own") :].split("\n\n")[2]
    assert own_part.splitlines()[0] == "| algorithm | make |" and len(own_part.splitlines()) == 4
    assert own_part.splitlines()[3].startswith("| MyLearner | ") and f"--problems {file}:make" in asked.command
    cell = plan.problem_cell(SETTINGS["smoke"], "ucbvi", f"{file}:make", 0.1)
    before = source_of(cell)
    file.write_text(file.read_text().replace("r[0, 1], r[5, 0] = 0.05", "r[0, 1], r[5, 0] = 0.06"))
    assert source_of(cell) != before
