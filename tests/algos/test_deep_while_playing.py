"""Learning while episodes are played: what comes out depends on the lag of a round alone, and both go on at once."""

import threading
from pathlib import Path
from typing import Any

import pytest

import pcpg
from pcpg.algos.auto import look_and_choose
from pcpg.algos.deep_learn import Learning
from pcpg.algos.deep_play import Playing
from pcpg.algos.deep_settings import DeepConfig, DeepLearnConfig
from pcpg.budget import NO_LIMITS
from pcpg.runs.metrics import read_metrics

CAR = "gymnasium:MountainCarContinuous-v0"
LEARN = {"hidden": [8], "batch": 8, "updates": 8.0, "while_playing": True}
SMALL = {"learn": LEARN, "explore": {"num_features": 8, "updates": 8.0}, "num_episodes": 3}


def trained(out: Path, workers: int = 0, **options: Any) -> pcpg.Run:
    given = {"max_steps": 20, "workers": workers, "seeds": 2, "total_steps": 400, "config": SMALL, "quiet": True}
    return pcpg.train(CAR, "pcpg-deep", out=out, **given, **options)


def told(run: pcpg.Run) -> tuple[list[Any], bytes]:
    return read_metrics(run.path / "metrics.jsonl"), (run.path / "policy.safetensors").read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> pcpg.Run:
    return trained(tmp_path_factory.mktemp("alone") / "run")


def test_workers_and_their_speed_change_nothing(
    alone: pcpg.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learns, plays = threading.Event(), Playing._alone
    waited: list[bool] = []

    def wait_for_the_learner(playing: Playing, inputs: Any) -> Any:
        if int(inputs.round) == 2:  # ends only once its learner is at work
            waited.append(learns.wait(60))
        return plays(playing, inputs)

    updated = Learning._updated

    def note(*given: Any) -> Any:
        if given[1].round == 2:
            learns.set()
        return updated(*given)

    monkeypatch.setattr(Playing, "_alone", wait_for_the_learner)
    monkeypatch.setattr(Learning, "_updated", note)
    assert told(trained(tmp_path / "run", workers=2)) == told(alone)
    assert waited == [True, True], "both seeds learned while their episodes were played"


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(alone: pcpg.Run, tmp_path: Path) -> None:
    trained(tmp_path / "run", observer=lambda seen: seen.step < 3)
    assert told(pcpg.resume(tmp_path / "run", quiet=True)) == told(alone)


def test_a_round_learns_from_the_data_before_it(alone: pcpg.Run) -> None:
    rounds = [row for row in told(alone)[0] if row["seed"] == 0]
    assert "explore/loss" not in rounds[0] and "explore/loss" in rounds[2]
    assert alone.config.agent.learn.while_playing


def test_a_look_at_slow_workers_chooses_it_with_rounds_of_eight_episodes() -> None:
    few = {"max_steps": 20, "workers": 2, "num_envs": 4}
    for busy, expected in ((1e9, {"learn": {"while_playing": True}}), (0, {})):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pcpg.algos.auto.BUSY", busy)
            choice = look_and_choose(CAR, few, 200).choice
        assert choice is not None and choice.algo == "pcpg-deep" and choice.agent == expected
    sized = DeepConfig(learn=DeepLearnConfig(while_playing=True))
    assert sized.sized(pcpg.make(CAR), NO_LIMITS).num_episodes == 8
