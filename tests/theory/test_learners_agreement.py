"""UCBVI, PSRL and UCB Q-learning have the regret of rlberry's, within the noise of 20 seeds: `make agreement` keeps it.

rlberry needs an environment of its own, so its half is read from benchmarks/results; a part of ours is run again here.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def agreement():
    spec = importlib.util.spec_from_file_location("agreement", BENCHMARKS / "agreement.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kept():
    return json.loads((BENCHMARKS / "results" / "rlberry.json").read_text())


def test_what_was_kept_is_of_these_settings_and_says_where_it_comes_from(agreement, kept):
    assert kept["learners"] == agreement.LEARNERS and kept["seeds"] == list(range(agreement.SEEDS))
    assert kept["mdp"]["optimal"] == pytest.approx(agreement.best()) and kept["delta"] == agreement.DELTA
    assert kept["provenance"]["rlberry"]["rlberry"] == "0.6.0"
    assert kept["provenance"]["command"] == "python benchmarks/agreement.py" and kept["provenance"]["commit"]


@pytest.mark.parametrize("name", ["ucbvi", "psrl", "ucb-q"])
def test_the_regrets_of_twenty_seeds_differ_by_noise_only(agreement, kept, name):
    both = kept["regret"][name]
    assert len(both["ours"]) == len(both["rlberry"]) == 20
    found = agreement.compare(both["ours"], both["rlberry"])
    assert found == pytest.approx(kept["difference"][name])
    assert found["low"] < 0.0 < found["high"]
    assert found["high"] - found["low"] < 0.35 * found["rlberry"]  # the noise is small enough to say something


@pytest.mark.parametrize("name", ["ucbvi", "psrl", "ucb-q"])
def test_our_half_run_again_with_other_seeds_agrees_with_what_was_kept_of_rlberry(agreement, kept, name):
    seeds = [100, 101] if name == "ucb-q" else [100, 101, 102, 103]  # it takes the longest
    again, theirs = agreement.ours(name, seeds), kept["regret"][name]["rlberry"]
    noise = np.std(theirs, ddof=1) * np.sqrt(1 / len(seeds) + 1 / len(theirs))
    apart = abs(again.mean() - np.mean(theirs)) / noise
    assert apart < 3.5
