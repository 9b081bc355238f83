"""Certificates of many runs: kept, resumed, and summarised as they are."""

import json

import pytest
from rich.console import Console

from pcpg_lab.claims import certificates
from pcpg_lab.claims.certificates import CASES, SMOKE, ReproduceCertificates, run_case, summarise


def test_the_command_certifies_runs_keeps_them_and_makes_none_twice(tmp_path, monkeypatch):
    asked = ReproduceCertificates(scale="smoke", out=str(tmp_path), jobs=1)
    assert asked(Console(quiet=True)) == 0
    kept = json.loads((tmp_path / "cases" / "linear.json").read_text())
    assert [run["seed"] for run in kept["runs"]] == [0, 1] and kept["command"].endswith("--scale smoke")
    (case,) = json.loads((tmp_path / "summary.json").read_text())["cases"]
    assert case["hold"] == case["below_trivial"] == 2 and case["gap"] <= case["bound"] < case["trivial"]
    assert f"| {case['mdp']} | 50 pairs |" in (tmp_path / "table.md").read_text()
    monkeypatch.setattr(certificates, "certify", None)
    assert asked(Console(quiet=True)) == 0


def test_a_case_goes_on_where_it_stopped_and_refuses_runs_of_other_settings(tmp_path):
    two = run_case(SMOKE[0], 0.05, tmp_path, 1, "command")
    three = run_case(SMOKE[0]._replace(runs=3), 0.05, tmp_path, 1, "command")
    assert three["runs"][:2] == two["runs"] and len(three["runs"]) == 3
    with pytest.raises(ValueError, match="made with other settings"):
        run_case(SMOKE[0], 0.1, tmp_path, 1, "command")


def test_the_share_is_of_runs_whose_bound_holds():
    run = {"mdp": "m", "holds": True, "bound": 1.0, "gap": 0.5, "trivial": 2.0, "optimal": 0.9, "terms": {"bias": 0.1}}
    kept = {"name": "n", "arguments": {"options": {}, "delta": 0.05}, "runs": [run, run | {"holds": False}]}
    found = summarise(kept | dict.fromkeys(("seconds", "command", "commit", "device", "time")))
    assert (found["hold"], found["runs"], found["below_trivial"], found["below_optimal"]) == (1, 2, 2, 0)


def test_cases_and_numbers_that_there_are_not_are_refused():
    assert sum(case.runs >= 1000 for case in CASES) >= 1
    for bad, message in (({"cases": ("lock-5",)}, "unknown case"), ({"jobs": -1}, "jobs"), ({"delta": 1.0}, "delta")):
        with pytest.raises(ValueError, match=message):
            ReproduceCertificates(**bad)
