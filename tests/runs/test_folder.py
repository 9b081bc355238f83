"""A run folder belongs to one run and, while it trains, to one process."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pcpg.runs import checkpoints, documents, folder
from pcpg.runs.disk import open_plain
from pcpg.runs.errors import BadValue, DamagedFile, FolderInUse, FolderTaken, NotARun, OtherVersion
from pcpg.runs.folder import RunFolder
from pcpg.runs.lock import LOCK, PAUSE, hold_lock, is_locked
from pcpg.runs.metrics import JsonLines

CONFIG = {"env": "lock", "sizes": (64, 64), "ppo": {"lr": 3e-4, "clip": 0.2}, "seeds": 4}
MEMBER = {"w": np.arange(6, dtype=np.float32)}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "lock", CONFIG)


def test_a_new_run_holds_its_config_and_the_versions(run: RunFolder) -> None:
    again = RunFolder.open(run.path)
    assert again == run
    assert again.config == {**CONFIG, "sizes": [64, 64]}
    assert {
        "python",
        "jax",
        "jaxlib",
        "equinox",
        "optax",
        "numpy",
        "pcpg",
        "platform",
    } == again.versions.keys()
    assert again.versions["numpy"] == np.__version__
    assert not again.is_finished


def test_the_same_config_gives_the_same_bytes(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder.create(tmp_path / "other", CONFIG)
    assert (run.path / "config.json").read_bytes() == (other.path / "config.json").read_bytes()


def test_another_config_in_the_same_folder_is_refused_with_the_difference(run: RunFolder) -> None:
    other = {"env": "lock", "sizes": (64, 64), "ppo": {"lr": 1e-3, "clip": 0.2}, "gamma": 0.9, "seeds": 4.0}
    with pytest.raises(FolderTaken) as caught:
        RunFolder.create(run.path, other)
    message = str(caught.value)
    assert str(run.path) in message and f"`pcpg resume {run.path}`" in message and "another --out" in message
    assert "ppo.lr is 0.0003 there, 0.001 here" in message
    assert "gamma is not set there, 0.9 here" in message
    assert "seeds is 4 there, 4.0 here" in message
    assert "clip" not in message and "sizes" not in message
    assert RunFolder.open(run.path) == run


def test_the_same_config_again_is_told_to_resume(run: RunFolder) -> None:
    with pytest.raises(FolderTaken, match=f"unfinished run of this config: run `pcpg resume {run.path}`"):
        RunFolder.create(run.path, CONFIG)
    run.write_summary({})
    with pytest.raises(FolderTaken, match="a finished run of this config: choose another --out"):
        RunFolder.create(run.path, CONFIG)


def test_a_folder_with_other_files_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(FolderTaken, match=r"is neither empty nor a run \(it holds thesis\.tex\): choose another"):
        RunFolder.create(tmp_path, CONFIG)
    with pytest.raises(FolderTaken, match=r"thesis\.tex is a file: choose another --out"):
        RunFolder.create(tmp_path / "thesis.tex", CONFIG)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_an_empty_folder_or_one_of_a_killed_creation_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".tmp-config.json-77").write_text("{")
    RunFolder.create(tmp_path, CONFIG)
    assert sorted(os.listdir(tmp_path)) == [".lock", "config.json"]


def test_of_two_creations_at_once_the_second_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder = folder.make_folder

    def overtaken(path: Path) -> None:
        monkeypatch.undo()
        RunFolder.create(path, CONFIG)
        make_folder(path)

    monkeypatch.setattr(folder, "make_folder", overtaken)
    with pytest.raises(FolderTaken, match="seeds is 4 there, 5 here"):
        RunFolder.create(tmp_path / "run", {**CONFIG, "seeds": 5})
    assert RunFolder.open(tmp_path / "run").config["seeds"] == 4


def test_a_config_that_cannot_be_stored_is_refused_before_the_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"config\.ppo\.lr is nan"):
        RunFolder.create(tmp_path / "run", {"ppo": {"lr": float("nan")}})
    assert not (tmp_path / "run").exists()


def test_what_is_not_a_run_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="nowhere: no such folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(NotARun, match=r"is not a run folder: it holds no config\.json"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:50], r"config\.json: cut short after 50 bytes"),
        (lambda data: b"", r"config\.json: empty"),
        (lambda data: b"hello", r"config\.json: not a JSON file of a run"),
        (lambda data: b"[" * 100_000, r"config\.json: not a JSON file of a run"),
        (lambda data: b"[1]\n", r"config\.json: not a JSON file of a run: holds a list"),
        (lambda data: data.replace(b"0.2", b"0.3"), r"config\.json: altered since it was written"),
        (
            lambda data: data.replace(b"0.2", b"1e999"),
            r"config\.json: not a JSON file of a run: 1e999 is too large",
        ),
        (lambda data: data.replace(b"  ", b" "), r"config\.json: altered since it was written"),
        (
            lambda data: data.replace(b'format_version": 1', b'format_version": 3'),
            r"config\.json: altered .* \(it says format version 3, not 1\)",
        ),
    ],
)
def test_a_damaged_config_is_named_with_the_cause(run: RunFolder, damage: Any, message: str) -> None:
    path = run.path / "config.json"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedFile, match=message):
        RunFolder.open(run.path)
    with pytest.raises(FolderTaken, match="holds a run whose config cannot be read"):
        RunFolder.create(run.path, CONFIG)


def test_a_run_of_another_format_is_refused_with_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "FORMAT_VERSION", 2)
    RunFolder.create(tmp_path / "run", CONFIG)
    monkeypatch.undo()
    with pytest.raises(OtherVersion, match=r"config\.json: .*version 2, .*format version 1"):
        RunFolder.open(tmp_path / "run")


def test_the_summary_marks_the_end(run: RunFolder) -> None:
    with pytest.raises(NotARun, match=f"is not finished.*pcpg resume {run.path}"):
        run.read_summary()
    run.write_summary({"return": 0.1, "members": ["a"]})
    assert run.is_finished and run.read_summary() == {"return": 0.1, "members": ["a"]}


def test_a_member_is_written_once(run: RunFolder) -> None:
    sha256 = run.write_member(0, MEMBER)
    assert run.write_member(0, MEMBER) == sha256, "a resumed run writes the same again"
    with pytest.raises(FolderTaken, match=r"0000\.safetensors holds a different member 0, and members never change"):
        run.write_member(0, {"w": MEMBER["w"] + 1})
    np.testing.assert_array_equal(run.read_member(0, sha256)["w"], MEMBER["w"])
    with pytest.raises(DamagedFile, match=r"cover/0001\.safetensors: missing"):
        run.read_member(1)
    with pytest.raises(BadValue, match="the index of a member must be at least 0, got -1"):
        run.write_member(-1, MEMBER)


def test_an_altered_member_is_noticed_by_the_hash_in_the_state(run: RunFolder) -> None:
    hashes = [run.write_member(index, {"w": MEMBER["w"] + index}) for index in range(3)]
    checkpoints.save(run.checkpoints, 3, {}, {"members": hashes})
    path = run.member(1)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    latest = checkpoints.load_latest(run.checkpoints)
    assert latest is not None
    run.read_member(0, latest.state["members"][0])
    with pytest.raises(DamagedFile, match=r"cover/0001\.safetensors: altered"):
        run.read_member(1, latest.state["members"][1])


def test_members_that_no_checkpoint_knows_can_be_dropped(run: RunFolder) -> None:
    run.drop_members(0)
    for index in range(4):
        run.write_member(index, MEMBER)
    run.drop_members(2)
    assert sorted(os.listdir(run.cover)) == ["0000.safetensors", "0001.safetensors"]
    run.write_member(2, {"w": MEMBER["w"] + 1})


def test_a_second_writer_is_refused_and_a_reader_is_not(run: RunFolder) -> None:
    with run.lock():
        reader = RunFolder.open(run.path)
        with pytest.raises(FolderInUse, match=f"{run.path}: another process is writing"), reader.lock():
            pass
    with run.lock():
        pass


def test_taking_the_lock_removes_what_a_killed_writer_left(run: RunFolder) -> None:
    run.write_member(0, MEMBER)
    checkpoints.save(run.checkpoints, 1, MEMBER, {})
    for place in (run.path, run.cover, run.checkpoints):
        (place / ".tmp-x-77").mkdir()
        (place / ".tmp-x-77" / "y").touch()
        (place / ".tmp-y-77").touch()
    RunFolder.open(run.path)
    assert len(list(run.path.rglob(".tmp-*"))) == 6, "a reader removes nothing: the writer may be alive"
    with run.lock():
        assert not list(run.path.rglob(".tmp-*"))


def test_a_killed_process_lets_go_of_the_lock(run: RunFolder) -> None:
    script = (
        "import sys, time\nfrom pcpg.runs.folder import RunFolder\n"
        "with RunFolder.open(sys.argv[1]).lock():\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(run.path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match="another process is writing"), run.lock():
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
    with run.lock():
        pass


def train(run: RunFolder, kill_after: int | None = None) -> None:
    """Six steps of a run, from its last checkpoint; if asked, stopped before one of the next."""
    with run.lock():
        latest = checkpoints.load_latest(run.checkpoints)
        done = latest.step if latest else -1
        members = latest.state["members"] if latest else []
        total = latest.arrays["total"] if latest else np.zeros((), np.float64)
        metrics = JsonLines(run.metrics)
        metrics.truncate_to(done)
        run.drop_members(len(members))
        for step in range(done + 1, 6):
            total = total + 0.1 * step
            members = [*members, run.write_member(step, {"total": total})]
            metrics.write({"step": step, "total": total})
            if step == kill_after:
                return
            checkpoints.save(run.checkpoints, step, {"total": total}, {"members": members})
        run.write_summary({"total": total})


def test_a_run_stopped_at_any_step_ends_with_the_files_of_one_that_was_not(tmp_path: Path) -> None:
    def files(run: RunFolder) -> dict[str, bytes]:
        return {str(p.relative_to(run.path)): p.read_bytes() for p in run.path.rglob("*") if p.is_file()}

    whole = RunFolder.create(tmp_path / "whole", CONFIG)
    train(whole)
    for kill_after in range(6):
        run = RunFolder.create(tmp_path / str(kill_after), CONFIG)
        train(run, kill_after)
        assert not run.is_finished
        train(RunFolder.open(run.path))
        assert files(run) == files(whole)


def test_looking_whether_a_folder_is_locked_keeps_no_writer_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_locked(tmp_path) and not is_locked(tmp_path / "nowhere")
    with hold_lock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    looking = open_plain(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    with pytest.raises(FolderInUse), hold_lock(tmp_path):
        pass
    pauses: list[float] = []

    def let_go(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(looking)

    monkeypatch.setattr("pcpg.runs.lock.time", SimpleNamespace(sleep=let_go))
    with hold_lock(tmp_path):
        assert pauses == [0.0, PAUSE, PAUSE]


def test_where_there_is_no_fcntl_the_lock_is_that_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def locking(descriptor: int, mode: int, count: int) -> None:
        if taken:
            raise PermissionError(13, "Permission denied")
        taken.append(descriptor)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    with hold_lock(tmp_path), pytest.raises(FolderInUse, match="another process is writing"), hold_lock(tmp_path):
        pass
    assert len(taken) == 1
