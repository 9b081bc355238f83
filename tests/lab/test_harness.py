"""The harness that all experiments share: kept results, flags, and what a new experiment costs."""

import dataclasses
import json
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from pcpg.budget import Limits
from pcpg.run_config import RunConfig
from pcpg.runs.errors import DamagedFile
from pcpg_lab.claims import EXPERIMENTS, control, environments, harness, levels, lock, maze, maze_goals, mountaincar
from pcpg_lab.claims.harness import Cell, Claim, changed, read_records, reproduce
from pcpg_lab.claims.records import markdown
from pcpg_lab.sweeps.local import Here as InProcess

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "results"
KEPT = {
    "lock": lock.CLAIM,
    "environments": environments.CLAIM,
    "maze": maze.CLAIM,
    "maze/goals": maze_goals.CLAIM,
    "mountaincar": mountaincar.CLAIM,
    "control": control.CLAIM,
    "levels": levels.CLAIM,
}


@pytest.mark.parametrize("name", KEPT)
def test_the_kept_results_follow_from_their_cells(name):
    out, experiment = RESULTS / name, KEPT[name]
    kept = json.loads((out / "summary.json").read_text())
    assert json.loads(json.dumps(experiment.summarise(read_records(experiment, out)))) == kept
    assert (out / "table.md").read_text() == experiment.table(kept)


@pytest.mark.parametrize(
    ("claim", "flags"),
    [
        (lock.CLAIM, lock.Flags()),
        (mountaincar.CLAIM, mountaincar.Flags()),
        (maze.CLAIM, maze.Flags(scale="paper")),
    ],
)
def test_the_command_as_it_stands_reads_the_records_that_are_kept(claim, flags):
    out, records = RESULTS.parent / flags.out, []
    for cell in claim.cells(flags, records):
        assert (out / "cells" / f"{cell.name}.json").exists()
        records.append(harness.run_or_read(cell, out, claim.measure))
    assert records


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_help_with_the_flags_that_all_share(cli, name):
    answer = cli("reproduce", name, "--help")
    assert answer.code == 0
    shared = {"--scale {smoke,laptop,paper}", "--algos", "--seeds INT", "--out", "--json"}
    for flag in shared - ({"--algos", "--seeds INT"} if name == "certificates" else set()):  # runs of PC-PG alone
        assert flag in answer.out, flag


def test_a_record_that_was_cut_is_measured_again_or_named(tmp_path):
    path = tmp_path / "cells" / "one.json"
    path.parent.mkdir()
    for cut in (b"", b'{"seeds": [0], "con', b"[]"):
        path.write_bytes(cut)
        assert harness.read_record(path) is None
    path.write_bytes(b"")
    with pytest.raises(DamagedFile, match=r"one\.json: .*rerun its cell, or remove it"):
        read_records(lock.CLAIM, tmp_path)


def test_seeds_below_zero_are_refused():
    with pytest.raises(ValueError, match=r"seeds must be at least 1, got -1"):
        harness.Flags(seeds=-1)


def test_a_table_in_markdown_may_have_empty_entries():
    assert markdown(["a", "b"], [["1", ""], ["2", "3"]]) == "| a | b |\n|---|---|\n| 1 | |\n| 2 | 3 |\n"


def test_the_steps_of_a_baseline_are_the_most_that_a_seed_of_pcpg_used_on_the_same_task():
    records = [
        {"algo": "pcpg", "task": "a", "env_steps": [3, 5]},
        {"algo": "pcpg-bonus", "task": "b", "env_steps": [7]},
        {"algo": "ppo", "task": "a", "env_steps": [9]},
    ]
    assert [harness.steps_used(records, task=task) for task in "abc"] == [5, 7, 0]


# A new experiment: constants, cells, what is measured, and a table.


@dataclasses.dataclass(frozen=True)
class ToyFlags(harness.Flags):
    """Steps on a small lock."""

    algos: tuple[str, ...] = ("pcpg", "ppo")
    horizon: int = 2


@pytest.fixture
def toy(tiny):
    """An experiment with the settings of the other tests."""

    def cells(flags, records):
        for algo in flags.chosen(("pcpg", "ppo")):
            config = RunConfig.from_json(tiny(algo, seeds=1))
            agent = changed(config.agent, {}, harness.steps_used(records))
            yield Cell(f"{algo}-toy", dataclasses.replace(config, agent=agent), "pcpg reproduce toy")

    return Claim(
        flags=ToyFlags,
        cells=cells,
        measure=harness.facts_of,
        order=lambda record: record["algo"],
        about={},
        rows=lambda records: [{name: r[name] for name in ("algo", "env_steps")} for r in records],
        columns={"algorithm": lambda row: row["algo"], "steps": lambda row: str(row["env_steps"][0])},
    )


def test_an_experiment_is_a_few_functions_and_its_baseline_comes_after_pcpg_with_as_many_steps(toy, tmp_path):
    said: list[str] = []
    results = reproduce(toy, ToyFlags(out=str(tmp_path)), notice=said.append)
    assert results is not None
    ours, ppo = read_records(toy, tmp_path)
    assert ppo["config"]["budget"] == ours["env_steps"][0] <= ppo["env_steps"][0]
    assert (ours["command"], ours["seeds"]) == ("pcpg reproduce toy", [0])
    assert [line.split(":")[0] for line in said] == ["pcpg-toy", "ppo-toy"] and "steps per seed" in said[0]
    assert results.table == (tmp_path / "table.md").read_text()
    assert f"| ppo | {ppo['env_steps'][0]} |" in results.table
    again = reproduce(toy, ToyFlags(out=str(tmp_path)))
    assert again == results, "nothing is run twice"


class Here(InProcess):
    """An engine that runs cells in this process, and notes which."""

    def __init__(self):
        self.ran = []

    def run(self, job):
        self.ran.append(job["cell"])
        return super().run(job)


def test_on_an_engine_an_experiment_has_the_same_records_and_its_baseline_still_comes_after_pcpg(toy, tmp_path):
    engine = Here()
    results = reproduce(toy, ToyFlags(out=str(tmp_path / "there")), engine=lambda out: engine)
    alone = reproduce(toy, ToyFlags(out=str(tmp_path / "here")))
    assert results is not None and alone is not None and results.summary == alone.summary
    assert engine.ran == ["pcpg-toy", "ppo-toy"]
    for name in engine.ran:
        metrics = [(tmp_path / place / "runs" / name / "metrics.jsonl").read_bytes() for place in ("here", "there")]
        assert metrics[0] == metrics[1]


def test_an_interrupted_experiment_has_no_results_and_resumes(toy, tmp_path, interrupt):
    seen: list[int] = []

    @contextmanager
    def interrupted(name):
        def observe(progress):
            seen.append(progress.step)
            if len(seen) == 1:
                interrupt(signal.SIGINT)

        yield observe

    flags = ToyFlags(algos=("pcpg",), out=str(tmp_path))
    assert reproduce(toy, flags, watch=interrupted) is None
    assert not (tmp_path / "summary.json").exists()
    assert reproduce(toy, flags) is not None


@pytest.mark.parametrize("arm", levels.ARMS)
def test_an_arm_of_the_levels_has_settings_that_its_algorithm_takes(arm):
    algo, agent = levels.settings(arm)
    assert (algo == levels.OURS) == (agent.bonus is not None and agent.bonus.name == "ranked")
    assert RunConfig("Maze-v0", algo, agent, {}, limits=Limits(steps=20_000)).resolved().algo == algo


def test_the_table_of_levels_shows_greedy_and_drawn_episodes_and_older_records_without_the_latter():
    one = read_records(levels.CLAIM, RESULTS / "levels")[0]
    older = {name: value for name, value in one.items() if name != "drawn_return"}
    newer = one | {"greedy_return": [0.25], "drawn_return": [0.75]}
    for records, drawn in (([older], "-"), ([newer], "0.75"), ([older, newer, newer], "0.75, 0.75")):
        row = levels.CLAIM.summarise(records)["cells"][0]
        assert levels.COLUMNS["100 unseen levels, drawn"](row) == drawn
    assert levels.COLUMNS["100 unseen levels, greedy, each seed"](row).endswith("0.25, 0.25")


@pytest.mark.parametrize("arm", control.ARMS)
def test_an_arm_of_control_has_settings_that_its_algorithm_takes(arm):
    world = control.WORLDS["point-mass"]
    agent = control.settings(world, arm)
    resolved = RunConfig(world.env, control.ARMS[arm].algo, agent, {}, limits=Limits(steps=20_000)).resolved()
    for part, changes in control.ARMS[arm].changes.items():
        assert {name: getattr(getattr(resolved.agent, part), name) for name in changes} == changes
