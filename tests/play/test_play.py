"""Videos and datasets of what a run has learned, of our environments and of anybody's."""

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

import pcpg
from pcpg.envs.registry import make, spec
from pcpg.play import CannotPlay, chosen_policies, play, playable_env, record, write_video
from pcpg.run_config import RunConfig
from pcpg.runs.errors import MissingExtra
from pcpg.training.loop import start_run, train_run
from pcpg_lab.minari import export, export_data, storable

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., dict[str, Any]]) -> pcpg.Run:
    """PC-PG on a small lock, seeds 0 and 1."""
    folder = start_run(RunConfig.from_json(tiny()), tmp_path_factory.mktemp("runs") / "lock")
    assert train_run(folder).finished
    return pcpg.load(folder.path)


class Corridor(gymnasium.Env[Any, Any]):
    """Somebody's environment: dictionaries as observations, pictures, and no time limit."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Dict({"place": gymnasium.spaces.Discrete(4)})
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return {"place": self.place}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = min(self.place + int(action), 3)
        return {"place": self.place}, float(self.place == 3), self.place == 3, False, {}

    def render(self) -> Any:
        return np.full((31, 40 + self.place, 3), 80 * self.place % 256, np.uint8)[:, :40]


@pytest.fixture(scope="module")
def corridor() -> pcpg.Run:
    settings = {"ppo": {"num_updates": 1, "num_episodes": 8, "hidden": [8]}, "visit_episodes": 4, "budget": 100}
    return pcpg.train(Corridor, "ppo", config=settings, max_steps=6, num_envs=2)


# Pictures.


@pytest.mark.parametrize("entry", spec(), ids=lambda entry: entry.id)
def test_our_environments_can_be_seen_through_gymnasium(entry: Any) -> None:
    env = gymnasium.make(f"pcpg.envs.gymnasium_bridge:pcpg/{entry.id}", render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert isinstance(first, np.ndarray) and first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3
    env.action_space.seed(1)
    seen = [first]
    for _ in range(40):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(env.render())
        assert seen[-1].shape == first.shape
        if terminated or truncated:
            break
    assert any(not np.array_equal(first, other) for other in seen[1:]), "a move can be seen"


def test_an_environment_without_pictures_says_so() -> None:
    probe = make("ProbeOneStep-v0")
    assert not probe.can_render
    with pytest.raises(TypeError, match="OneStep cannot draw its states"):
        probe.render(probe.instance(0), None)


# Episodes.


def test_episodes_are_those_of_the_policy_and_end_as_they_should(run: pcpg.Run) -> None:
    policies, weights = chosen_policies(run, "cover", 1)
    env = playable_env(run, 1)
    episodes = list(play(env, policies, weights, 40))
    used = {episode.policy for episode in episodes}
    assert used <= set(np.flatnonzero(weights)) and len(used) > 1, "only those with weight, and not just one"
    for episode in episodes:
        assert len(episode.observations) == len(episode.actions) + 1 == 4
        assert episode.terminated == [False, False, True] and not any(episode.truncated)
    again = list(play(env, pcpg.load(run.path).cover_policies(1), weights, 40))
    assert [episode.rewards for episode in again] == [episode.rewards for episode in episodes]


def test_a_limit_of_ours_truncates_an_environment_that_has_none(corridor: pcpg.Run) -> None:
    env = playable_env(corridor, 0)
    (episode,) = play(env, [_Standing()], np.ones(1), 1, max_steps=6)
    assert len(episode.actions) == 6 and episode.truncated == [False] * 5 + [True] and not any(episode.terminated)


class _Standing:
    def act(self, observation: Any, *, greedy: bool) -> int:
        assert set(observation) == {"place"}, "as the environment gives it"
        return 0


# Videos.


def test_a_gif_shows_every_step_of_its_episodes(run: pcpg.Run, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lock.gif"
    answer = cli("video", run.path, "--out", path, "--episodes", 2, "--seed", 1, "--greedy", "--json").json
    assert answer["seed"] == 1 and len(answer["returns"]) == 2
    assert answer["frames"] == 2 * (4 + 5), "a start and three steps, and a moment to look"
    with Image.open(path) as video:
        assert video.format == "GIF" and video.is_animated and video.info["duration"] == 70
        seen = {colour for frame in range(1, 4) for colour in _colours(video, frame)}
        assert any(red > 180 and 60 < green < 120 and blue < 60 for red, green, blue in seen), "the agent is orange"
        assert video.size[0] % 2 == video.size[1] % 2 == 0
    assert cli("video", run.path, "--out", path, "--member", 2, "--max-frames", 3, "--json").json["frames"] == 3


def _colours(video: Any, frame: int) -> set[tuple[int, int, int]]:
    video.seek(frame)
    return {colour for _, colour in video.convert("RGB").getcolors(1 << 20)}


def test_a_video_of_anybodys_environment(corridor: pcpg.Run, tmp_path: Path) -> None:
    frames, returns = record(corridor, corridor.policy, 0)
    assert frames[0].shape == (56, 260, 3) and len(returns) == 1
    write_video(frames, tmp_path / "corridor.gif")
    assert (tmp_path / "corridor.gif").read_bytes().startswith(b"GIF89a")


def test_an_mp4_by_ffmpeg(run: pcpg.Run, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    frames, _ = record(run, run.policy, 0)
    write_video(frames, tmp_path / "lock.mp4", fps=10)
    data = (tmp_path / "lock.mp4").read_bytes()
    assert data[4:8] == b"ftyp" and b"moov" in data and b"avc1" in data
    track = data.index(b"tkhd") + 4 + 76  # width and height as 16.16 fixed point
    assert struct.unpack(">II", data[track : track + 8]) == (frames[0].shape[1] << 16, frames[0].shape[0] << 16)


# Datasets.


def test_the_covers_episodes_become_a_minari_dataset(
    run: pcpg.Run, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    answer = cli("export", run.path, "--out", tmp_path / "sets", "--episodes", 12, "--json").json
    assert answer["dataset"] == "pcpg/CombinationLock-v0/cover-v0"
    assert answer["episodes"] == 12 and answer["steps"] == 36
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    dataset = minari.load_dataset(answer["dataset"])
    policies, weights = chosen_policies(pcpg.load(run.path), "cover")
    expected = list(play(playable_env(run, 0), policies, weights, 12))
    for stored, episode in zip(dataset.iterate_episodes(), expected, strict=True):
        np.testing.assert_array_equal(stored.observations, np.stack(episode.observations))
        np.testing.assert_array_equal(stored.actions, episode.actions)
        np.testing.assert_allclose(stored.rewards, episode.rewards)
        assert stored.terminations.tolist() == episode.terminated
    again = dataset.recover_environment()
    assert again.unwrapped.functional == run.env
    refused = cli("export", run.path, "--out", tmp_path / "sets", "--episodes", 1)
    assert refused.code == 2 and "already exists" in refused.err


def test_the_episodes_that_a_run_kept_become_a_minari_dataset_without_a_step(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    pytest.importorskip("h5py")
    config = {"replay": {"capacity": 1500}, "exploit": {"visit_episodes": 8}}
    kept = pcpg.train("CombinationLock-v0", "pcpg-replay", horizon=2, config=config, out=tmp_path / "kept")
    answer = cli("export", kept.path, "--out", tmp_path / "sets", "--json").json
    assert answer["dataset"] == "pcpg/CombinationLock-v0/kept-v0"
    assert answer["steps"] == kept.summary["env_steps"][0] == 3 * answer["episodes"]
    dataset = export_data(kept, tmp_path / "sets", episodes=5, dataset_id="mine/kept-v0")
    assert dataset.total_episodes == 5
    episode = next(iter(dataset.iterate_episodes()))
    assert kept.env.observation_space.contains(episode.observations[0]) and len(episode.observations) == 4


def test_only_a_run_that_kept_its_episodes_can_export_them(run: pcpg.Run, tmp_path: Path) -> None:
    with pytest.raises(CannotPlay, match="holds no data: pcpg does not keep its episodes"):
        export_data(run, tmp_path)


def test_a_dataset_of_dictionaries(corridor: pcpg.Run, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    pytest.importorskip("h5py")
    before = os.environ.get("MINARI_DATASETS_PATH")
    dataset = export(corridor, tmp_path, which="final", episodes=3, dataset_id="mine/corridor-v2")
    assert os.environ.get("MINARI_DATASETS_PATH") == before
    episode = next(iter(dataset.iterate_episodes()))
    assert episode.observations["place"][0] == 0 and len(episode.observations["place"]) == len(episode.rewards) + 1


class Missions(gymnasium.Space[str]):
    """Text of a kind of its own, as MiniGrid has it."""

    def __init__(self) -> None:
        super().__init__(dtype=str)


def test_text_of_any_kind_is_stored_as_text() -> None:
    own = gymnasium.spaces.Dict({"mission": Missions(), "place": gymnasium.spaces.Discrete(3)})
    space: Any = storable(gymnasium.spaces.Tuple([own, gymnasium.spaces.Text(5)]))
    mission = space[0]["mission"]
    assert isinstance(mission, gymnasium.spaces.Text) and mission.contains("open the door, then go to (3, 4)!")
    assert space[0]["place"] == gymnasium.spaces.Discrete(3) and space[1] == gymnasium.spaces.Text(5)


# What cannot be done.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("video", "--out", "a.avi"), "a video is a .gif or an .mp4 file, got 'a.avi'"),
        (("video", "--out", "absent/a.gif"), "absent/a.gif: the folder "),
        (("video", "--seed", "5"), "the run has seeds 0 to 1, got 5"),
        (("video", "--member", "8"), "the cover has members 0 to 7, got 8"),
        (("video", "--member", "1", "--best"), "--best or --member, not both"),
        (("video", "--episodes", "0"), "episodes must be at least 1, got 0"),
        (("video", "--max-frames", "0"), "max-frames must be at least 1"),
        (("export", "--episodes", "0"), "episodes must be at least 1, got 0"),
        (("export", "--seed", "5"), "the run has seeds 0 to 1, got 5"),
    ],
)
def test_a_mistake_is_named_before_anything_is_played(
    run: pcpg.Run, cli: Cli, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli(arguments[0], run.path, *arguments[1:])
    assert answer.code == 2 and message in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named(run: pcpg.Run, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module, arguments, extra in (
        ("imageio_ffmpeg", ("video", "--out", "a.mp4"), "video"),
        ("minari", ("export",), "minari"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        answer = cli(arguments[0], run.path, *arguments[1:])
        assert answer.code == 2 and f"pip install 'pcpg[{extra}]'" in answer.err
    with pytest.raises(MissingExtra):
        write_video([np.zeros((2, 2, 3), np.uint8)], tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    settings = {"ppo": {"num_updates": 1, "num_episodes": 8, "hidden": [8]}, "visit_episodes": 4, "budget": 8}
    probe = pcpg.train("ProbeOneStep-v0", "ppo", config=settings)
    with pytest.raises(CannotPlay, match="ProbeOneStep-v0 cannot draw its states"):
        record(probe, probe.policy, 0)
