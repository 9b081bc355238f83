"""Loggers: every report once, under the names of CleanRL, whatever was interrupted; a missing extra is said at once."""

import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg.run_config import RunConfig
from pcpg.runs.errors import BadValue, MissingExtra
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import named, opened
from pcpg.runs.metrics import read_metrics
from pcpg.training.loop import Progress, start_run, train_run

Tiny = Callable[..., dict[str, Any]]


class Enough(Exception):
    """Stands for a kill."""


def interrupted(folder: RunFolder, step: int, *loggers: str) -> None:
    """Train up to a round and no further."""

    def observe(progress: Progress) -> None:
        if progress.step == step:
            raise Enough

    with pytest.raises(Enough):
        train_run(folder, loggers=loggers, observer=observe)


@pytest.fixture
def folder(tiny: Tiny, tmp_path: Path) -> RunFolder:
    return start_run(RunConfig.from_json(tiny()), tmp_path / "run")


def expected(folder: RunFolder, seed: int, name: str) -> dict[int, float]:
    """What metrics.jsonl has: values by environment steps."""
    records = [record for record in read_metrics(folder.metrics) if record["seed"] == seed]
    return {record["env_steps"]: record[name] for record in records if record.get(name) is not None}


def test_metrics_have_the_names_of_cleanrl() -> None:
    record = {"step": 2, "seed": 0, "round": 1, "phase": "explore", "env_steps": 10, "return": 0.5, "cells": [1, 2]}
    losses = ("approx_kl", "entropy", "policy_loss", "value_loss", "clip_fraction", "return")
    values = named(record | {f"train/{name}": 0.25 for name in losses} | {"train/bonus": None, "log_det": -3.0})
    assert set(values) == {
        *("charts/episodic_return", "charts/rollout_return", "cover/log_det"),
        *("losses/approx_kl", "losses/entropy", "losses/policy_loss", "losses/value_loss", "losses/clipfrac"),
    }
    assert values["charts/episodic_return"] == 0.5


# TensorBoard.


def scalars(folder: RunFolder, seed: int) -> dict[str, list[tuple[int, float]]]:
    """The points of a seed's event files: records of a length, its checksum, the event and its checksum."""
    from tensorboardX.proto import event_pb2

    points: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((folder.path / "tensorboard" / f"seed-{seed}").iterdir()):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = struct.unpack_from("<Q", data, place)
            event = event_pb2.Event.FromString(data[place + 12 : place + 12 + length])
            place += 16 + length
            for value in event.summary.value:
                points.setdefault(value.tag, []).append((event.step, value.simple_value))
    return points


def test_tensorboard_has_every_report_once_after_a_resume(folder: RunFolder) -> None:
    pytest.importorskip("tensorboardX")
    interrupted(folder, 3, "tensorboard")
    assert len(scalars(folder, 0)["charts/episodic_return"]) == 3
    assert train_run(folder, loggers=["tensorboard"]).finished
    for seed in (0, 1):
        points = scalars(folder, seed)
        for name, tag in (("return", "charts/episodic_return"), ("train/value_loss", "losses/value_loss")):
            assert len(points[tag]) == len(dict(points[tag])), "no step twice"
            assert dict(points[tag]) == pytest.approx(expected(folder, seed, name), rel=1e-6)
        assert all(speed > 0 for _, speed in points["charts/SPS"])


def test_tensorboard_can_be_written_when_the_run_is_over(folder: RunFolder, cli: Callable[..., Any]) -> None:
    pytest.importorskip("tensorboardX")
    assert train_run(folder).finished
    assert cli("resume", folder.path, "--log", "tensorboard").code == 0
    assert dict(scalars(folder, 1)["cover/policies"]) == expected(folder, 1, "policies")


# Weights & Biases, whose module is a stand-in here.


class FakeRun:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.logged, self.finished = settings, [], False

    def define_metric(self, name: str, step_metric: str) -> None:
        assert (name, step_metric) == ("*", "global_step")

    def log(self, values: dict[str, float], step: int) -> None:
        assert not self.finished
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """The runs that were started."""
    started: list[FakeRun] = []
    module = types.ModuleType("wandb")

    def init(**settings: Any) -> FakeRun:
        started.append(FakeRun(settings))
        return started[-1]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return started


def test_wandb_has_a_run_for_each_seed_and_every_report_once(folder: RunFolder, wandb: list[FakeRun]) -> None:
    interrupted(folder, 3, "wandb")
    assert train_run(folder, loggers=["wandb"]).finished
    assert len(wandb) == 4 and all(run.finished for run in wandb)
    for seed in (0, 1):
        before, after = wandb[seed], wandb[2 + seed]
        assert before.settings["id"] == after.settings["id"] and after.settings["resume"] == "allow"
        assert after.settings["config"]["seed"] == seed and after.settings["group"] == "run"
        logged = [*before.logged, *after.logged]
        steps = [step for step, _ in logged]
        assert steps == sorted(set(steps))
        values = {entry["global_step"]: entry["charts/episodic_return"] for _, entry in logged}
        assert values == expected(folder, seed, "return")
    assert wandb[0].settings["id"] != wandb[1].settings["id"]


def test_wandb_gets_the_reports_of_before_it_was_asked_for(folder: RunFolder, wandb: list[FakeRun]) -> None:
    interrupted(folder, 3)
    with opened(["wandb"], folder):
        assert [step for step, _ in wandb[0].logged] == [1, 2, 3]


# What is missing.


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_extra_is_named_before_any_work(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any], tmp_path: Path
) -> None:
    import pcpg

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    answer = cli("train", "CombinationLock-v0", "--out", "run", "--log", name)
    assert answer.code == 2 and f"pip install 'pcpg[{name}]'" in answer.err.replace("\n", " ")
    with pytest.raises(MissingExtra, match=name):
        pcpg.train("CombinationLock-v0", out="run", loggers=[name])
    with pytest.raises(BadValue, match="unknown logger 'tensorbord'"):
        pcpg.train("CombinationLock-v0", out="run", loggers=["tensorbord"])
    assert list(tmp_path.iterdir()) == []
