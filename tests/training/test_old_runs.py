"""Run folders that commit 5dad328 made: they are read, evaluated, resumed and exploited as by that commit.

`python -m tests.old_runs` made them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcpg
from tests.old_runs import AFTER, FIXTURES, RUNS, after, made_on, unpacked
from tests.same_bits import BASE, ROOT, plain

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_once")]
EXPECTED: dict[str, Any] = json.loads((FIXTURES / BASE / "expected.json").read_text())
IS_FINISHED = {name: not line.startswith("kill") for name, line in RUNS.items()}


def is_made_here(name: str) -> bool:
    """Whether bits can be expected: everything they depend on is that with which the run was made."""
    return EXPECTED[name]["made on"] == made_on()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_old_is_whole_and_can_be_loaded_shown_and_reported(name: str, tmp_path: Path, cli: Any) -> None:
    run, expected = unpacked(BASE, name, tmp_path), EXPECTED[name]
    verified = cli("verify", run, "--json").json
    assert {key: verified[key] for key in expected["verify"]} == expected["verify"]
    if not IS_FINISHED[name]:
        assert not (run / "summary.json").exists()
    else:
        ended = expected["end"]["summary"]
        summary = pcpg.load(run).summary
        assert {key: summary[key] for key in ended} == ended
    assert len(pcpg.load(run).policies) == len(expected["evaluate"]["seeds"])
    if not name.startswith("ppo"):  # which has no cover to show
        assert cli("show", run, "--json").code == 0
    assert cli("report", run).code == 0
    assert (run / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_old_is_evaluated_to_the_same_returns(name: str, tmp_path: Path, cli: Any) -> None:
    run, expected = unpacked(BASE, name, tmp_path), EXPECTED[name]["evaluate"]
    found = plain(cli("evaluate", run, "--episodes", "20", "--json").json)
    assert {key: found[key] for key in ("seeds", "episodes", "env", "algo")} == {
        key: expected[key] for key in ("seeds", "episodes", "env", "algo")
    }
    # A policy that is played: an action at the edge of its probability is all that rounding could change.
    np.testing.assert_allclose(found["mean_return"], expected["mean_return"], atol=1e-6 if is_made_here(name) else 0.5)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What copies of the runs lead to, in a process that compiles as users do."""
    folder = tmp_path_factory.mktemp("after")
    for name in AFTER:
        unpacked(BASE, name, folder)
    return after(ROOT / "src", folder)


@pytest.mark.parametrize("name", AFTER)
def test_a_run_of_old_goes_on_or_is_exploited_to_the_same_end(name: str, ends: dict[str, Any]) -> None:
    expected, found = EXPECTED[name]["after"], ends[name]
    if is_made_here(name):
        assert found == expected
        return
    assert found["summary"]["seeds"] == expected["summary"]["seeds"]
    for one, other in zip(found["summary"]["final_return"], expected["summary"]["final_return"], strict=True):
        assert (one is None) == (other is None)
