"""Training on the host: what is saved when, and what happens when files, disk, device or numbers go wrong."""

import contextlib
import dataclasses
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pcpg.config import ConfigError
from pcpg.envs import registry
from pcpg.machine import THREADS
from pcpg.run_config import RunConfig
from pcpg.runs import checkpoints, documents
from pcpg.runs.errors import DamagedFile, DiskFull, FolderInUse, FolderTaken, OtherVersion, RunError
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import read_metrics
from pcpg.state import NonFinite
from pcpg.training import loop as training
from pcpg.training.loop import Progress, Trained, build_agent, start_run, train_run
from pcpg.training.restore import device_kind
from tests.probes import OneStep, ProbeState
from tests.programs import shared_programs

Tiny = Callable[..., dict[str, Any]]
FINAL = ("metrics.jsonl", "policy.safetensors", "summary.json")


COUNTED = ("test_the_first_checkpoint_comes_before", "test_two_programs_are_compiled")


@pytest.fixture(autouse=True)
def programs_are_compiled_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs of one configuration share their compiled programs, but for tests that count compilations."""
    with contextlib.nullcontext() if request.node.name.startswith(COUNTED) else shared_programs():
        yield


class Interrupted(Exception):
    """Raised by an observer to leave a run where it is, as a kill would."""


def stop_at(step: int) -> Callable[[Progress], None]:
    def observe(progress: Progress) -> None:
        if progress.step == step:
            raise Interrupted

    return observe


def begin(path: Path, config: Mapping[str, Any], rounds: int | None = None) -> RunFolder:
    """A run that was left after some rounds, or is finished."""
    folder = start_run(RunConfig.from_json(config), path)
    if rounds is None:
        assert train_run(folder).finished
        return folder
    with pytest.raises(Interrupted):
        train_run(folder, observer=stop_at(rounds))
    return folder


def results(folder: RunFolder) -> dict[str, bytes]:
    files = [*(folder.path / name for name in FINAL), *folder.cover.glob("*")]
    return {path.name: path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> dict[str, bytes]:
    """The results of an undisturbed run."""
    return results(begin(tmp_path_factory.mktemp("expected") / "run", tiny()))


def resume(folder: RunFolder) -> list[str]:
    """Train to the end; what was said on the way."""
    said: list[str] = []
    assert train_run(RunFolder.open(folder.path), notice=said.append).finished
    return said


# What is written, and when.


def test_the_first_checkpoint_comes_before_the_first_compilation(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    seen: list[Progress] = []

    def observe(progress: Progress) -> None:
        seen.append(progress)
        raise Interrupted

    with pytest.raises(Interrupted):
        train_run(folder, observer=observe)
    assert checkpoints.steps(folder.checkpoints) == [0]
    assert seen[0].step == 0 and not seen[0].compiled and seen[0].seconds_left is None
    assert seen[0].max_steps == 8 + 6 and not seen[0].records


def test_metrics_hold_reproducible_fields_only_and_timings_the_rest(tmp_path: Path, tiny: Tiny) -> None:
    first, second = begin(tmp_path / "a", tiny()), begin(tmp_path / "b", tiny())
    assert results(first) == results(second)
    for record in read_metrics(first.metrics):
        assert not [name for name in record if "second" in name or "time" in name]
        assert {"step", "seed", "round", "phase", "env_steps", "return", "coverage"} <= record.keys()
    timings = read_metrics(first.timings)
    assert [line["step"] for line in timings] == list(range(1, 15))
    assert all(line["seconds"] > 0 for line in timings)


def test_every_logger_receives_every_report_of_metrics(tmp_path: Path, tiny: Tiny) -> None:
    class Memory:
        def __init__(self) -> None:
            self.records: list[dict[str, Any]] = []

        def write(self, record: Mapping[str, Any]) -> None:
            self.records.append(dict(record))

    memory, other = Memory(), Memory()
    folder = start_run(RunConfig.from_json(tiny("ppo")), tmp_path / "run")
    train_run(folder, loggers=(memory, other))
    assert memory.records == read_metrics(folder.metrics) == other.records
    assert [record["seed"] for record in memory.records[:2]] == [0, 1]


def test_the_observer_is_told_how_far_the_run_is(tmp_path: Path, tiny: Tiny) -> None:
    seen: list[Progress] = []
    folder = start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    trained = train_run(folder, observer=seen.append)
    assert [progress.step for progress in seen] == list(range(15))
    assert all(progress.step <= progress.max_steps <= 14 for progress in seen)
    assert seen[-1].max_steps == 14 and seen[-1].seconds_left == 0.0 and seen[-1].compiled
    assert [record["policies"] for record in seen[-1].records] == [8, 8], "also in rounds that add none"
    assert seen[-1].env_steps == trained.env_steps == sum(folder.read_summary()["env_steps"])
    assert 0 < trained.seconds < 600


def test_linear_algebra_has_one_thread_while_a_run_trains_unless_the_user_decides(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads() -> dict[str, int]:
        return {entry["filepath"]: entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}

    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    inside: list[dict[str, int]] = []
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        free = [path for path, number in before.items() if number == 2]  # others were built for one
        assert free
        for given in (None, "2"):
            if given:
                monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
            folder = start_run(RunConfig.from_json(tiny("ppo")), tmp_path / str(given))
            train_run(folder, observer=lambda progress: inside.append(threads()))
            assert {path: threads()[path] for path in free} == dict.fromkeys(free, 2), "as before the run"
    assert [inside[0][path] for path in free] == [1] * len(free)
    assert [inside[-1][path] for path in free] == [2] * len(free)


def test_the_rounds_left_of_a_baseline_follow_from_its_budget(tiny: Tiny) -> None:
    agent = build_agent(RunConfig.from_json(tiny("ppo")))
    state = agent.init(0)
    assert agent.left(state) == -(-9000 // (3 * 64 * 3 + 32 * 3)) == 14
    # Episodes that end early make more rounds than that.
    state = state.noted(round=10, env_steps=1000)
    assert agent.left(state) == 80
    assert agent.left(state.noted(env_steps=9000)) == 1


def test_two_programs_are_compiled_and_another_policy_compiles_nothing(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    folder = start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    after_round: list[int] = []
    trained = train_run(folder, observer=lambda progress: after_round.append(len(compiled)))
    # No operation runs by itself, outside the two programs; every round counts, with 1 to 8 policies in the cover.
    assert after_round == [0, 1, *[2] * 13]
    assert trained.compilations == 2 and folder.read_summary()["policies"] == [8, 8]


def test_random_features_do_not_depend_on_which_seeds_run(tiny: Tiny) -> None:
    def weights(**entries: Any) -> np.ndarray:
        config = RunConfig.from_json(tiny(features="fourier", feature_options={"num_examples": 10}, **entries))
        return np.asarray(jax.tree.leaves(config.make_features(config.make_env()))[-1])

    assert np.array_equal(weights(seed=0), weights(seed=7))
    assert not np.array_equal(weights(), weights(feature_seed=1))


# Damage.


def newest(folder: RunFolder) -> Path:
    return folder.checkpoints / f"{checkpoints.steps(folder.checkpoints)[-1]:06d}"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("name", ["arrays.safetensors", "state.json"])
def test_training_goes_back_to_the_last_whole_checkpoint_and_says_so(
    tmp_path: Path, tiny: Tiny, expected: dict[str, bytes], damage: Callable[[Path], None], name: str
) -> None:
    folder = begin(tmp_path / "run", tiny(), rounds=5)
    damage(newest(folder) / name)
    said = resume(folder)
    assert len(said) == 1
    assert str(newest(folder).with_name("000005") / name) in said[0]
    assert "falling back to the checkpoint of step 4" in said[0]
    assert results(folder) == expected


def test_a_run_without_a_whole_checkpoint_is_refused_with_the_cause(tmp_path: Path, tiny: Tiny) -> None:
    folder = begin(tmp_path / "run", tiny(), rounds=5)
    for step in checkpoints.steps(folder.checkpoints):
        cut(folder.checkpoints / f"{step:06d}" / "arrays.safetensors")
    with pytest.raises(DamagedFile, match=r"no intact checkpoint .*cut short"):
        train_run(folder)


def test_a_checkpoint_in_another_format_is_refused_by_name(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begin(tmp_path / "run", tiny(), rounds=3)
    state = newest(folder) / "state.json"
    content = documents.read_json(state).content
    with monkeypatch.context() as patch:
        patch.setattr(documents, "FORMAT_VERSION", 99)
        documents.write_json(state, content)
    with pytest.raises(OtherVersion, match=rf"{state}: written in format version 99, .* reads format version 1"):
        train_run(folder)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_damaged_member_of_the_cover_is_named(tmp_path: Path, tiny: Tiny, damage: Callable[[Path], None]) -> None:
    folder = begin(tmp_path / "run", tiny(), rounds=5)
    before = {path.name: path.read_bytes() for path in folder.checkpoints.glob("*/*")}
    damage(folder.member(2))
    with pytest.raises(DamagedFile, match=r"0002\.safetensors: .*the cover cannot be restored without it"):
        train_run(folder)
    assert {path.name: path.read_bytes() for path in folder.checkpoints.glob("*/*")} == before


def test_members_and_reports_after_the_checkpoint_are_written_again(
    tmp_path: Path, tiny: Tiny, expected: dict[str, bytes]
) -> None:
    folder = begin(tmp_path / "run", tiny(), rounds=5)
    shutil.rmtree(newest(folder))  # as if it had been killed before the last checkpoint was there
    folder.member(7).write_bytes(b"of a future that never was")
    (told,) = resume(folder)
    assert "000005: missing, but listed in the manifest; falling back to the checkpoint of step 4" in told
    assert results(folder) == expected


def test_another_device_or_version_is_said_and_training_goes_on(
    tmp_path: Path, tiny: Tiny, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(training, "device_kind", lambda: "NVIDIA H200")
        patch.setattr(documents, "_version", lambda package: "0.0.1" if package == "jax" else "same")
        folder = begin(tmp_path / "run", tiny(), rounds=3)
    monkeypatch.setattr(documents, "_version", lambda package: "0.0.2" if package == "jax" else "same")
    said = resume(folder)
    assert said == [
        f"saved with NVIDIA H200, here {device_kind()}; jax 0.0.1, here 0.0.2: bit-exact resume is not guaranteed"
    ]
    assert results(folder)["metrics.jsonl"] == expected["metrics.jsonl"]


def test_nothing_is_said_where_nothing_changed(tmp_path: Path, tiny: Tiny, expected: dict[str, bytes]) -> None:
    folder = begin(tmp_path / "run", tiny(), rounds=3)
    assert resume(folder) == []
    assert results(folder) == expected


# A full disk.


class FullDisk:
    """Refuses every write into a folder from the given one on."""

    def __init__(self, patch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self.write = room, os.write
        patch.setattr(os, "write", self.limited)

    def limited(self, descriptor: int, data: Any) -> int:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.write(descriptor, data)


def writes_of(tmp_path: Path, config: Mapping[str, Any]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        disk = FullDisk(patch, room=10**9)
        begin(tmp_path / "counted", config)
    return 10**9 - disk.room


def test_wherever_the_disk_gets_full_the_last_checkpoint_stays_and_the_run_can_go_on(
    tmp_path: Path, tiny: Tiny, expected: dict[str, bytes]
) -> None:
    total = writes_of(tmp_path, tiny())
    folder = start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    # One run through many full disks, each a write further than the one before.
    steps, room = [], 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            FullDisk(patch, room)
            try:
                done = train_run(folder)
            except DiskFull as error:
                assert str(folder.path) in str(error) and "disk full while writing" in str(error)
            else:
                assert done.finished
                break
        room += 1
        assert room < total
        newest = checkpoints.load_latest(folder.checkpoints)
        steps.append(-1 if newest is None else newest.step)
        assert newest is None or not newest.skipped
        assert not list(folder.path.rglob(".tmp-*"))
    assert steps == sorted(steps) and len(set(steps)) >= 5 and len(steps) >= 10
    assert results(folder) == expected


# Folders.


def test_a_folder_that_holds_another_run_is_refused(tmp_path: Path, tiny: Tiny) -> None:
    begin(tmp_path / "run", tiny(), rounds=1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".lock"}
    with pytest.raises(
        FolderTaken, match=r"a different config \(env_options\.horizon is 2 there, 3 here\): use `pcpg resume"
    ):
        start_run(RunConfig.from_json(tiny(env_options={"horizon": 3})), tmp_path / "run")
    with pytest.raises(FolderTaken, match="unfinished run of this config"):
        start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".lock"} == before


def test_what_cannot_be_built_leaves_no_folder_behind(tmp_path: Path, tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="features 'random-conv': random-conv features need image observations"):
        start_run(RunConfig.from_json(tiny(features="random-conv")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_second_process_is_kept_out_of_a_folder_in_use(tmp_path: Path, tiny: Tiny, start_pcpg: Any) -> None:
    folder = begin(tmp_path / "run", tiny(), rounds=2)
    with folder.lock():
        with pytest.raises(FolderInUse, match=f"{folder.path}: another process is writing to this run folder"):
            train_run(RunFolder.open(folder.path))
        other = start_pcpg("resume", folder.path)
        err = other.communicate(timeout=200)[1]
    assert other.returncode == 2
    assert "another process is writing to this run folder" in err and "Traceback" not in err
    resume(folder)


def test_a_run_can_be_trained_outside_the_main_thread(tmp_path: Path, tiny: Tiny, expected: dict[str, bytes]) -> None:
    folder = start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    done: list[Trained] = []
    thread = threading.Thread(target=lambda: done.append(train_run(folder)))
    thread.start()
    thread.join()
    assert done[0].finished
    assert results(folder) == expected


def test_ctrl_c_leaves_the_handlers_as_they_were(tmp_path: Path, tiny: Tiny, interrupt: Callable[[int], None]) -> None:
    import signal

    before = signal.getsignal(signal.SIGINT)
    folder = start_run(RunConfig.from_json(tiny()), tmp_path / "run")
    said: list[str] = []
    trained = train_run(
        folder, observer=lambda p: interrupt(signal.SIGINT) if p.step == 4 else None, notice=said.append
    )
    assert not trained.finished
    assert said and "stopping after this round" in said[0]
    assert signal.getsignal(signal.SIGINT) is before and signal.set_wakeup_fd(-1) == -1
    assert checkpoints.steps(folder.checkpoints)[-1] == 4


# Numbers that are not finite.


@dataclasses.dataclass(frozen=True)
class SometimesNaN(OneStep):
    """One decision; once in two thousand the reward is NaN."""

    def transition(self, key: jax.Array, state: ProbeState, action: jax.Array, params: tuple[()]) -> Any:
        step = super().transition(key, state, action, params)
        return step._replace(reward=jnp.where(jax.random.uniform(key) < 5e-4, jnp.nan, step.reward))


@pytest.fixture
def sometimes_nan(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(registry._ENTRIES, "SometimesNaN-v0", registry.Entry(SometimesNaN, "a rare NaN"))
    return "SometimesNaN-v0"


@pytest.mark.parametrize("algo", ["ppo", "pcpg"])
def test_a_nan_stops_the_run_with_its_step_and_the_last_good_checkpoint_stays(
    tmp_path: Path, tiny: Tiny, sometimes_nan: str, algo: str
) -> None:
    folder = start_run(RunConfig.from_json(tiny(algo, env=sometimes_nan, env_options={}, seeds=1)), tmp_path / "run")
    with pytest.raises(NonFinite) as raised:
        train_run(folder)
    good = checkpoints.load_latest(folder.checkpoints)
    assert good is not None and good.step >= 1 and not good.skipped
    message = str(raised.value)
    assert f"of round {good.step}," in message or f"in round {good.step}," in message
    assert "reward" in message and "environment steps" in message and "the last good checkpoint is kept" in message
    assert {record["step"] for record in read_metrics(folder.metrics)} == set(range(1, good.step + 1))
    with pytest.raises(NonFinite) as again:
        train_run(folder)
    assert str(again.value) == message, "the same step, from the checkpoint"


def test_a_nan_from_the_command_line_is_exit_code_1(tmp_path: Path, config_file: Any, cli: Any) -> None:
    file = config_file("ppo", env="ProbeNonFinite-v0", env_options={"finite_steps": 2})
    answer = cli("train", "--config", file, "--out", tmp_path / "run", "--json")
    assert answer.code == 1
    assert answer.out == ""
    assert "stopped: seed 0: a reward became non-finite in update 0 of round 0" in answer.err
    assert checkpoints.steps(tmp_path / "run" / "checkpoints") == [0]


def test_a_full_disk_on_the_command_line_says_how_to_go_on(
    tmp_path: Path, config_file: Any, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        FullDisk(patch, room=30)
        answer = cli("train", "--config", config_file(), "--out", tmp_path / "run")
    assert answer.code == 1
    assert "stopped: disk full while writing" in answer.err
    assert f"free some disk space, then resume with: pcpg resume {tmp_path / 'run'}" in answer.err
    assert cli("resume", tmp_path / "run", "--json").json["policies"] == [8, 8]


def test_a_run_folder_cannot_be_made_where_nothing_may_be_written(tmp_path: Path, tiny: Tiny) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file"):
        start_run(RunConfig.from_json(tiny()), tmp_path / "file" / "run")
