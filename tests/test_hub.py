"""A folder for a model hub holds policies that act as before, loads without any code of its own, and has a card."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import load, save

import pcpg
from pcpg.runs.documents import read_json, write_json
from pcpg.runs.errors import DamagedFile, FolderTaken, RunError

SMALL = {"ppo": {"num_updates": 1, "num_episodes": 32, "hidden": [8]}, "visit_episodes": 8, "budget": 400}


class Two(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({"at": gymnasium.spaces.Discrete(2)})
    action_space = gymnasium.spaces.Discrete(3, start=5)
    max_steps = 4
    made = 0

    def __init__(self):
        type(self).made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return {"at": 0}, {}

    def step(self, action):
        self.time += 1
        return {"at": self.time % 2}, float(action == 6), False, self.time == 4, {}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[pcpg.Run, Path]:
    place = tmp_path_factory.mktemp("hub")
    run = pcpg.train(Two, "ppo", seeds=2, config=SMALL, out=place / "run", quiet=True)
    return run, pcpg.hub.export(run, place / "model")


def test_policies_come_back_as_they_were_without_their_environment(exported: tuple[pcpg.Run, Path]) -> None:
    run, folder = exported
    before, model = Two.made, pcpg.hub.load(folder)
    assert Two.made == before and model.returns == run.summary["final_return"]
    for old, new in zip(run.policies, model.policies, strict=True):
        for at in (0, 1):
            assert old.act({"at": at}, seed=3) == new.act({"at": at}, seed=3) in (5, 6, 7)
    best = int(np.argmax(model.returns))
    assert model.policy is model.policies[best]
    assert model.config["algo"] == "ppo" and model.config["seeds"] == 2


def test_the_card_has_returns_and_how_to_use_it(exported: tuple[pcpg.Run, Path]) -> None:
    _, folder = exported
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: pcpg\n") and f"# PPO on {Two.__module__}.Two" in card
    assert "pcpg.hub.load" in card and "Environment steps per seed: " in card
    assert all(f"| {seed} | " in card for seed in (0, 1)) and "With 2 seeds" not in card, "no return counts as solved"
    assert {path.name for path in folder.iterdir()} == {"pcpg.json", "policy.safetensors", "README.md"}


def test_a_video_and_the_library_s_own_environments(tmp_path: Path) -> None:
    run = pcpg.train("CombinationLock-v0", "ppo", horizon=2, config=SMALL, out=tmp_path / "run", quiet=True)
    folder = pcpg.hub.export(run, tmp_path / "model", video=True)
    assert (folder / "video.gif").read_bytes().startswith(b"GIF") and "video.gif" in (folder / "README.md").read_text()
    assert "pcpg train --config" in (folder / "README.md").read_text()
    observation = np.zeros(run.env.observation_space.shape)
    assert pcpg.hub.load(folder).policy.act(observation, seed=1) == run.policy.act(observation, seed=1)


def test_nothing_is_written_over(exported: tuple[pcpg.Run, Path]) -> None:
    run, folder = exported
    with pytest.raises(FolderTaken, match="is there already"):
        pcpg.hub.export(run, folder)


@pytest.mark.parametrize("name", ["pcpg.json", "policy.safetensors"])
def test_a_folder_that_was_altered_is_refused(exported: tuple[pcpg.Run, Path], tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported[1], folder)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(DamagedFile, match=name):
        pcpg.hub.load(folder)
    (folder / name).unlink()
    with pytest.raises(RunError, match=name):
        pcpg.hub.load(folder)


def test_a_link_out_of_the_folder_and_other_settings_are_refused(
    exported: tuple[pcpg.Run, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported[1], folder)
    (folder / "policy.safetensors").unlink()
    (folder / "policy.safetensors").symlink_to(exported[1] / "policy.safetensors")
    with pytest.raises(RunError, match="link"):
        pcpg.hub.load(folder)
    (folder / "pcpg.json").write_text(json.dumps({"config": 3}))
    with pytest.raises(RunError, match=r"pcpg\.json"):
        pcpg.hub.load(folder)


@pytest.mark.parametrize("name", ["pcpg.json", "policy.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "sparse", "folder", "nested"])
def test_what_is_no_plain_file_of_its_size_is_refused(
    exported: tuple[pcpg.Run, Path], tmp_path: Path, name: str, kind: str
) -> None:
    path = shutil.copytree(exported[1], tmp_path / "model") / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"[" * 2000 + b"]" * 2000)
        os.truncate(path, 1 << 40 if kind == "sparse" else 4000)
    with pytest.raises(RunError, match=re.escape(name)):
        pcpg.hub.load(path.parent)


FORGED: tuple[tuple[str, Any], ...] = (
    *(("returns", value) for value in ([], [1.0], [1.0] * 3, "12", None, [[1.0], 2.0], ["x", 1.0])),
    *(("config", value) for value in (3, [], {}, {"env": 3}, {"env": "CombinationLock-v0", "env_options": []})),
    *(("config.seeds", value) for value in (0, 10**7, "2", None)),
    *(("config.env", value) for value in (3, "nope", "Maze-v0", None)),
    *(
        ("config.agent", value)
        for value in ([], {"ppo": 3}, {"ppo": {"hidden": [10**9]}}, {"ppo": {"hidden": [8, 30_000, 30_000, 8]}})
    ),
    *(("environment", value) for value in (3, {}, {"cells": [1]})),
    ("sha256", "0" * 64),
)


@pytest.mark.parametrize(("name", "value"), FORGED)
def test_a_forged_description_is_refused_in_words(
    exported: tuple[pcpg.Run, Path], tmp_path: Path, name: str, value: Any
) -> None:
    folder = shutil.copytree(exported[1], tmp_path / "model")
    about = json.loads(json.dumps(read_json(folder / "pcpg.json").content))
    part, _, last = name.rpartition(".")
    (about[part] if part else about)[last] = value
    write_json(folder / "pcpg.json", about)
    with pytest.raises(RunError, match=r"model/(pcpg\.json|policy\.safetensors)"):
        pcpg.hub.load(folder)


def test_arrays_of_a_kernel_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    small = {"replay": {"capacity": 400, "max_landmarks": 64}, "exploit": {"visit_episodes": 16}}
    run = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=2, config=small, out=tmp_path / "run", quiet=True)
    folder = pcpg.hub.export(run, tmp_path / "model")
    whole = load((folder / "policy.safetensors").read_bytes())
    for name in whole:
        if whole[name].ndim and not name.endswith(".root"):  # with which no action is chosen
            arrays = save({**whole, name: whole[name][..., :-1].copy()})
            (folder / "policy.safetensors").write_bytes(arrays)
            about = read_json(folder / "pcpg.json").content
            write_json(folder / "pcpg.json", about | {"sha256": hashlib.sha256(arrays).hexdigest()})
            with pytest.raises(DamagedFile, match=r"policy\.safetensors"):
                pcpg.hub.load(folder)


@pytest.mark.parametrize("env", ["payload:Harm", "payload.py:Harm", "gymnasium:payload:X-v0", "gymnax:payload"])
def test_a_model_imports_no_module_that_it_names(
    exported: tuple[pcpg.Run, Path], tmp_path: Path, env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(exported[1], tmp_path / "model")
    for module in ("payload", "gymnax"):
        (folder / f"{module}.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    about = json.loads(json.dumps(read_json(folder / "pcpg.json").content))
    about["config"]["env"] = env
    write_json(folder / "pcpg.json", about)
    with contextlib.suppress(RunError):
        pcpg.hub.load(folder).policy.act([0.0, 0.0])
    assert "payload" not in sys.modules
