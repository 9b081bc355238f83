"""Certificates of many runs: kept, resumed, and summarised as they are."""

import json

import gymnasium
import numpy as np
import pytest
from rich.console import Console

from pcpg_lab.claims import certificates, data_certificates
from pcpg_lab.claims.certificates import CASES, SMOKE, ReproduceCertificates, run_case, summarise
from pcpg_theory.certificate import Recorder


def test_the_command_certifies_runs_keeps_them_and_makes_none_twice(tmp_path, monkeypatch):
    asked = ReproduceCertificates(scale="smoke", out=str(tmp_path), jobs=1)
    assert asked(Console(quiet=True)) == 0
    kept = json.loads((tmp_path / "cases" / "linear.json").read_text())
    assert [run["seed"] for run in kept["runs"]] == [0, 1] and kept["command"].endswith("--scale smoke")
    summary = json.loads((tmp_path / "summary.json").read_text())
    (case,), (alone,) = summary["cases"], summary["from_data"]
    assert alone["hold"] == alone["below_trivial"] == 2 and alone["gap"] <= alone["bound"] < alone["trivial"] == 3.0
    assert case["hold"] == case["below_trivial"] == 2 and case["gap"] <= case["bound"] < case["trivial"]
    assert f"| {case['mdp']} | 50 pairs |" in (tmp_path / "table.md").read_text()
    assert "| random 20 | r in [0, 1] | 900 |" in (tmp_path / "table.md").read_text()
    monkeypatch.setattr(certificates, "certify", None)
    assert asked(Console(quiet=True)) == 0


@pytest.mark.parametrize("size", ["4x4", "8x8"])
def test_the_lake_is_gymnasiums_and_values_by_induction_are_those_of_its_play(size):
    made, steps = data_certificates.make(f"lake {size}", 0), 100
    r = (made.mdp.P * made.paid).sum(-1)
    V, Q = data_certificates.planned(made.mdp.P, r, steps)
    assert V[0] == pytest.approx({"4x4": 0.7442, "8x8": 0.6407}[size], abs=1e-4)  # published: 0.74 within 100 steps
    pi, sim = Q.argmax(-1), Recorder(made.mdp, np.random.default_rng(0), made.paid)
    returns = data_certificates.play(made, sim, pi, 4000)
    assert set(returns) <= {0.0, 1.0} and abs(returns.mean() - V[0]) < 4 * (0.25 / 4000) ** 0.5
    assert data_certificates.planned(made.mdp.P, r, steps, pi)[0][0] == pytest.approx(V[0])
    env = gymnasium.make("FrozenLake-v1", map_name=size, is_slippery=True)
    rng, met = np.random.default_rng(0), set()
    for episode in range(60):
        s, _ = env.reset(seed=episode)
        for _ in range(30):
            a = int(rng.integers(4))
            y, reward, terminated, *_ = env.step(a)
            assert made.mdp.P[s, a, y] > 0 and made.paid[s, a, y] == reward and made.mdp.terminal[y] == terminated
            met.add((s, a, y))
            s = y
            if terminated:
                break
    assert len(met) > 50


def test_policies_act_by_the_bounds_where_states_were_met_and_by_chance_elsewhere():
    Q = np.array([[[0.0, 1.0], [2.0, 0.0]]])
    assert data_certificates.best_by(Q, np.array([1, -1, 0])).tolist() == [[0, -1, 1]]


def test_a_case_goes_on_where_it_stopped_and_refuses_runs_of_other_settings(tmp_path):
    two = run_case(SMOKE[0], 0.05, tmp_path, 1, "command")
    three = run_case(SMOKE[0]._replace(runs=3), 0.05, tmp_path, 1, "command")
    assert three["runs"][:2] == two["runs"] and len(three["runs"]) == 3
    with pytest.raises(ValueError, match="made with other settings"):
        run_case(SMOKE[0], 0.1, tmp_path, 1, "command")


def test_the_share_is_of_runs_whose_bound_holds():
    run = {"mdp": "m", "holds": True, "bound": 1.0, "gap": 0.5, "trivial": 2.0, "optimal": 0.9, "terms": {"bias": 0.1}}
    kept = {
        "name": "n",
        "arguments": {"options": {}, "mdp": "linear", "delta": 0.05},
        "runs": [run, run | {"holds": False}],
    }
    found = summarise(kept | dict.fromkeys(("seconds", "command", "commit", "device", "time")))
    assert (found["hold"], found["runs"], found["below_trivial"], found["below_optimal"]) == (1, 2, 2, 0)


def test_cases_and_numbers_that_there_are_not_are_refused():
    assert sum(case.runs >= 1000 for case in CASES) >= 1
    for bad, message in (({"cases": ("lock-5",)}, "unknown case"), ({"jobs": -1}, "jobs"), ({"delta": 1.0}, "delta")):
        with pytest.raises(ValueError, match=message):
            ReproduceCertificates(**bad)
