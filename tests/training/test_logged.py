"""Logged episodes with which a run begins: read, checked, kept, and found again by a resumed run."""

import functools
import io
import itertools
import os
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pcpg
from pcpg.config import ConfigError
from pcpg.envs.adapters.names import register_function
from pcpg.runs.errors import DamagedFile, RunError
from pcpg.runs.folder import RunFolder
from pcpg.training import logged as reading
from pcpg.training.from_minari import check_dataset
from pcpg.training.logged import episodes_of, read_npz

DEEP: dict[str, Any] = {
    "learn": {"hidden": [8], "updates": 0.05, "batch": 8},
    "explore": {"updates": 0.05, "num_features": 8},
    "offline_updates": 4,
}
POINT: dict[str, Any] = {"env": "PointMass-v0", "steps": 20, "algo": "pcpg-deep", "total_steps": 200, "config": DEEP}
LENGTHS = (3, 1, 4)


class Shop(gymnasium.Env[Any, Any]):
    """Observations in two parts, a number that begins at 5, and actions that are not in [-1, 1]."""

    observation_space = spaces.Dict({"shelf": spaces.Discrete(3, start=5), "at": spaces.Box(0.0, 9.0, (2,))})
    action_space = spaces.Box(-2.0, 6.0, (1,))
    max_steps = 4

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return {"shelf": 5, "at": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> Any:
        return {"shelf": 6, "at": np.ones(2, np.float32)}, 0.0, False, False, {}


def logged() -> dict[str, np.ndarray]:
    """Three episodes of a point mass, the last one cut."""
    steps, ends = sum(LENGTHS), np.cumsum(LENGTHS) - 1
    rng, ended = np.random.default_rng(0), np.isin(np.arange(steps), ends)
    return {
        "observations": rng.uniform(-0.9, 0.9, (steps + len(LENGTHS), 4)),
        "actions": rng.uniform(-1, 1, (steps, 2)),
        "rewards": ended * 1.0,
        "terminated": ended & (np.arange(steps) < ends[-1]),
        "truncated": np.arange(steps) == ends[-1],
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "log.npz", **logged())  # pyright: ignore[reportArgumentType]
    return tmp_path / "log.npz"


def test_episodes_with_their_last_observations_and_with_the_next_ones_are_the_same() -> None:
    env, whole = pcpg.make("PointMass-v0"), logged()
    rows = np.delete(np.arange(len(whole["observations"])), [3, 5, 10])
    after = np.delete(np.arange(len(whole["observations"])), [0, 4, 6])
    seen = whole["observations"]
    beside = whole | {"observations": seen[rows], "next_observations": seen[after]}
    one, other = episodes_of(whole, env), episodes_of(beside, env)
    assert one.lengths.tolist() == list(LENGTHS) and one.observations.dtype == np.float32
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_names_of_other_libraries_mean_the_same_and_truncated_may_be_left_out() -> None:
    env, whole = pcpg.make("PointMass-v0"), logged()
    renamed = {name: array for name, array in whole.items() if name not in ("terminated", "truncated")}
    renamed |= {"terminals": whole["terminated"], "timeouts": whole["truncated"]}
    assert np.array_equal(episodes_of(renamed, env).terminated, whole["terminated"])
    ended = {name: array for name, array in whole.items() if name != "truncated"}
    assert episodes_of(ended | {"terminated": whole["rewards"] > 0}, env).lengths.tolist() == list(LENGTHS)


def test_parts_of_a_dict_are_encoded_and_actions_brought_to_the_range_of_policies() -> None:
    env = pcpg.make(register_function(Shop))
    arrays = {
        "observations/shelf": np.array([5, 7, 6]),
        "observations/at": np.arange(6.0).reshape(3, 2),
        "actions": np.array([[-2.0], [4.0]]),
        "rewards": np.zeros(2),
        "terminated": np.array([False, True]),
    }
    found = episodes_of(arrays, env)
    order = [
        env.encode({"shelf": s, "at": np.array(at, np.float32)}) for s, at in ((5, (0, 1)), (7, (2, 3)), (6, (4, 5)))
    ]
    assert np.array_equal(found.observations, order) and found.action.tolist() == [[-1.0], [0.5]]
    for action, column in zip(found.action, arrays["actions"], strict=True):
        assert env.decode(action) == column, "what the environment takes comes back"


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3, start=4), np.array([4, 6, 5])),
        (spaces.MultiDiscrete([3, 2], start=[1, 0]), np.array([[1, 1], [3, 0]])),
        (spaces.MultiDiscrete([[3, 2], [2, 2]]), np.array([[[2, 1], [0, 1]]])),
        (spaces.Box(np.float32([0, -3]), np.float32([1, 5])), np.float32([[0.25, 3.0], [1.0, -3.0]])),
        (spaces.Box(-2, 3, (2,), np.int64), np.array([[-2, 3], [0, 1]])),
    ],
)
def test_an_action_of_the_environment_becomes_the_policys_and_comes_back(space: Any, action: np.ndarray) -> None:
    from pcpg.envs.adapters.spaces import actions_of

    found = actions_of(space)
    encoded = found.encode(action)
    assert all(found.space.contains(one.astype(found.space.dtype)) for one in encoded)
    assert np.array_equal(np.array(found.decode(encoded)), action)


def changed(**arrays: Any) -> dict[str, Any]:
    return {name: array for name, array in (logged() | arrays).items() if array is not None}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (changed(actions=None), "it has no actions"),
        (changed(observations=None), "it has no observations"),
        (changed(rewards=np.float64(1)), "rewards is a single number"),
        (changed(rewards=np.zeros(7)), r"rewards has shape \(7,\), expected \(8,\)"),
        (changed(rewards=np.full(8, np.nan)), r"rewards\[0\] is not a finite number"),
        (changed(rewards=np.full(8, 1e300)), r"rewards\[0\] is not a finite number"),
        (changed(terminated=np.full(8, np.nan)), "terminated must be true or false in each step, got nan"),
        (changed(terminated=np.full(8, 0.5)), "terminated must be true or false in each step, got 0.5"),
        (changed(truncated=np.full(8, 2)), "truncated must be true or false in each step, got 2"),
        (changed(terminals=np.ones(8, bool)), "both terminated and terminals, which mean the same"),
        (changed(**{"observations/x": np.zeros((11, 4))}), "both observations and observations/x are arrays"),
        (changed(truncated=np.zeros(8, bool)), "the episode that begins at step 4 has no end"),
        (changed(observations=np.zeros((8, 4))), "has 8 rows, expected 11 .*or 8 beside next_observations"),
        (changed(observations=np.zeros((11, 3))), r"rows of shape \(3,\), expected \(4,\)"),
        (changed(observations=np.full((11, 4), np.inf)), r"observations\[0\], entry 0, is inf"),
        (changed(observations=np.full((11, 4), 1e6)), r"observations\[0\], entry 0, is 1e\+06"),
        (changed(actions=np.zeros((8, 3))), r"rows of shape \(3,\), expected \(2,\)"),
        (changed(actions=np.full((8, 2), 1.5)), r"actions\[0\] is outside Box.*clip them"),
        (changed(actions=np.full((8, 2), np.nan)), r"actions\[0\] is outside Box"),
        ({name: array[:0] for name, array in logged().items()}, "it holds no steps"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_that_says_where(tmp_path: Path, arrays: Any, said: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ConfigError, match=rf"^--data .*bad.npz: .*{said}"):
        pcpg.train(**POINT, data=tmp_path / "bad.npz", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def npy(shape: tuple[int, ...], data: bytes, kind: str = "<f8") -> bytes:
    """The bytes of an .npy file that says what it likes."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": kind, "fortran_order": False, "shape": shape})
    return out.getvalue() + data


def headed(header: str) -> bytes:
    """The bytes of an .npy file with any text as its header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def archive(path: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made:
        made.writestr("actions.npy", content)
    return path


def test_a_file_cannot_run_code_lead_elsewhere_or_fill_the_memory(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "pickled.npz", actions=np.array([object()]))
    (tmp_path / "link.npz").symlink_to(file)
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "cut.npz").write_bytes(file.read_bytes()[:-100])
    (tmp_path / "text.npz").write_text("observations")
    archive(tmp_path / "huge.npz", npy((1 << 40,), b""))
    archive(tmp_path / "less.npz", npy((-1, 5), bytes(40)))
    archive(tmp_path / "odd.npz", b"\x93NUMPY\x01\x00\x10\x00{'descr': 1}     \n")
    archive(tmp_path / "deep.npz", headed("(" * 9000 + ")" * 900))
    archive(tmp_path / "long.npz", headed("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "-" * 9000 + "1,)}"))
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED):
        path = archive(tmp_path / f"torn{method}.npz", npy((64,), bytes(range(256)) * 2), method)
        whole = path.read_bytes()
        path.write_bytes(whole[:60] + bytes(20) + whole[80:])
    with zipfile.ZipFile(archive(tmp_path / "twice.npz", npy((1,), bytes(8))), "a") as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.writestr("actions.npy", npy((1,), bytes(8)))
    names = ("pickled", "link", "pipe", "cut", "text", "huge", "less", "odd", "missing", "deep", "long", "twice")
    names += tuple(f"torn{method}" for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED))
    for name in names:
        with pytest.raises(DamagedFile) as refused:
            read_npz(tmp_path / f"{name}.npz")
        assert str(refused.value).count("\n") == 0
    archive(tmp_path / "bomb.npz", npy((1 << 20,), bytes(8 << 20)))
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    monkeypatch.setattr("pcpg.training.logged.largest", lambda path: 1 << 20)
    with pytest.raises(DamagedFile, match="too large"):
        read_npz(tmp_path / "bomb.npz")
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as made:  # what nobody reads is not unpacked
        for name in ("junk", "observations" + "/x" * 3000):
            made.writestr(f"{name}.npy", npy((1 << 20,), bytes(8 << 20)))
    assert read_npz(file).keys() == logged().keys()


def test_arrays_in_either_order_and_of_every_kind_of_number_come_back(tmp_path: Path) -> None:
    rows: dict[str, np.ndarray] = {"C": np.arange(6).reshape(2, 3), "F": np.arange(6).reshape(3, 2).T}
    kinds = ("bool", "uint8", "int64", "float16", ">f4")
    arrays = {f"observations/{order}{kind}": rows[order].astype(kind) for order in rows for kind in kinds}
    np.savez_compressed(tmp_path / "some.npz", **arrays)  # pyright: ignore[reportArgumentType]
    found = read_npz(tmp_path / "some.npz")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


@pytest.mark.slow
def test_a_run_begins_with_its_data_which_are_kept_sealed_and_found_again_by_a_resumed_one(
    tmp_path: Path, file: Path
) -> None:
    asked = POINT | {"seeds": 2, "data": file}
    whole = pcpg.train(**asked, out=tmp_path / "whole")
    assert dict(whole.config.data) | {"sha256": ""} == {"from": str(file), "episodes": 3, "steps": 8, "sha256": ""}
    first = [episode.rewards.tolist() for episode in itertools.islice(whole.kept_episodes(1), 3)]
    assert first == [[0, 0, 1], [1], [0, 0, 0, 1]]
    assert whole.summary["env_steps"] == [200, 200], "logged steps are not those of the run"
    pcpg.train(**asked, out=tmp_path / "cut", observer=lambda progress: progress.step < 4)
    file.unlink()  # it has a copy of its own
    again = pcpg.resume(tmp_path / "cut")
    for name in ("metrics.jsonl", "policy.safetensors", "summary.json", "cover/0000.safetensors"):
        assert (again.path / name).read_bytes() == (whole.path / name).read_bytes(), name
    exploited = pcpg.exploit(whole, config={"offline_updates": 4})
    assert exploited.config.data == {} and exploited.config.source["members"][0] == whole.config.data["sha256"]
    damaged = whole.path / "cover" / "0000.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\1")
    with pytest.raises(DamagedFile, match=r"0000\.safetensors"):
        list(pcpg.load(whole.path).kept_episodes())


def test_a_run_that_was_killed_before_it_had_its_copy_refuses_another_file(tmp_path: Path, file: Path) -> None:
    from pcpg.training.logged import begun_with, given_data
    from pcpg.training.loop import start_run

    config = pcpg.run.RunConfig.from_json(
        {
            "env": "PointMass-v0",
            "env_options": {"steps": 20},
            "algo": "pcpg-deep",
            "limits": {"steps": 200},
            "agent": DEEP,
        }
    )
    config = begun_with(config.resolved(), str(file))
    started = start_run(config, tmp_path / "run")
    np.savez(file, **logged() | {"rewards": np.zeros(8)})  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunError, match="has changed since"):
        given_data(RunFolder.open(started.path), config)


def test_algorithms_that_do_not_keep_data_as_they_are_refuse_them(
    cli: Callable[..., Any], tmp_path: Path, file: Path
) -> None:
    for algo in ("pcpg", "ppo", "pcpg-replay"):
        answer = cli("train", "PointMass-v0", "--algo", algo, "--data", file, "--out", tmp_path / algo)
        assert answer.code == 2 and answer.err.count("\n") == 1 and not (tmp_path / algo).exists()
        assert f"{algo} cannot begin with logged episodes: use pcpg-deep or sac" in answer.err


def test_a_dataset_of_minari_is_read_as_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    from pcpg.training.logged import begun_with
    from pcpg_lab.minari import export_data

    run = pcpg.train(**POINT | {"total_steps": 60}, out=tmp_path / "run")
    export_data(run, tmp_path / "sets", dataset_id="pcpg/point-v0")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    begun = begun_with(run.config, "minari:pcpg/point-v0")
    assert begun.data["steps"] == run.summary["env_steps"][0]
    with pytest.raises(ConfigError, match="Minari cannot load it"):
        begun_with(run.config, "minari:pcpg/other-v0")


def test_a_file_that_is_no_archive_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "a.npz").touch()
    os.truncate(tmp_path / "a.npz", 10 << 30)
    monkeypatch.setattr(reading, "read_file", lambda path: pytest.fail("10 GB were read"))
    with pytest.raises(DamagedFile, match=r"not an \.npz file"):
        read_npz(tmp_path / "a.npz")


class HardLink:
    """What h5py says of a name that is in the file itself."""


class ExternalLink:
    """What it says of a name in another file."""


class Group(dict[str, Any]):
    """A group of an HDF5 file."""

    link: type = HardLink
    """The kind of its names."""

    def get(self, name: str, default: object = None, *, getlink: bool = False) -> Any:
        return self.link()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Array(NamedTuple):
    """What is known of an array before it is read."""

    nbytes: int = 8
    external: Any = None
    is_virtual: bool = False


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Group], Path]:
    """The folder of a dataset of one file that holds a group."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "main_data.hdf5").touch()
    (tmp_path / "data" / "metadata.json").write_text('{"total_episodes": 1}')

    def holding(found: Group) -> Path:
        monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=lambda path, mode: found))
        return tmp_path

    return holding


def test_the_sizes_of_a_dataset_are_known_before_it_is_read(dataset: Any) -> None:
    check_dataset(dataset(Group(episode_0=Group(observations=Group(a=Array()), actions=Array()))))
    linked = Group(observations=Array())
    linked.link = ExternalLink
    for found, said in (
        (Group(a=Array(1 << 60)), "too large: 1,152,921,504,606,846,976 bytes unpacked"),
        (linked, "observations is a link"),
        (Group(a=Array(external=[("/etc/passwd", 0, 9)])), "a is in another file"),
        (Group(a=Array(is_virtual=True)), "a is in another file"),
        (functools.reduce(lambda inside, _: Group(a=inside), range(99), Group()), "nested too deeply"),
    ):
        with pytest.raises(DamagedFile, match=said):
            check_dataset(dataset(found))
    path = dataset(Group(episode_0=Group()))
    (path / "data" / "metadata.json").write_text('{"total_episodes": 1000000000}')
    with pytest.raises(DamagedFile, match="1,000,000,000 episodes, but there are 1"):
        check_dataset(path)


@pytest.mark.parametrize("name", ["main_data.hdf5", "metadata.json"])
def test_nothing_strange_in_a_dataset_is_opened(dataset: Any, name: str) -> None:
    path = dataset(Group())
    (path / "data" / name).unlink()
    os.mkfifo(path / "data" / name)
    with pytest.raises(DamagedFile, match=f"{name}: is a pipe"):
        check_dataset(path)
