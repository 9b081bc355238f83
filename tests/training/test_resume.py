"""A run that is killed at any moment and resumed ends with the same bytes as a run left alone."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcpg.runs import checkpoints

pytestmark = pytest.mark.slow

Start = Callable[..., "subprocess.Popen[str]"]
SECONDS = 120.0
RESULTS = ("config.json", "metrics.jsonl", "policy.safetensors", "summary.json")


@pytest.fixture(scope="module")
def cache() -> Path:
    """A compilation cache for these tests alone, so that its entries can be counted."""
    path = Path(os.environ["JAX_COMPILATION_CACHE_DIR"]) / "resume"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@pytest.fixture(scope="module")
def start(start_pcpg: Start, cache: Path) -> Start:
    def start_cached(*arguments: object, cache: Path = cache) -> "subprocess.Popen[str]":
        return start_pcpg(*arguments, JAX_COMPILATION_CACHE_DIR=str(cache))

    return start_cached


@pytest.fixture(scope="module")
def long(config_file: Callable[..., str], tiny: Callable[..., dict[str, Any]]) -> str:
    """A file with a configuration of more than fifty rounds: time enough to be killed, also on a busy machine.

    Other algorithms, and more, are killed by `python -m tests.kills`.
    """
    return config_file("pcpg", agent=tiny("pcpg")["agent"] | {"exploit": {"num_rounds": 48}})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, long: str, start: Start) -> dict[str, bytes]:
    """The results of a run that nobody disturbed."""
    run = tmp_path_factory.mktemp("resume") / "alone"
    finish(start("train", "--config", long, "--out", run))
    return results(run)


def wait_until(happened: Callable[[], Any], process: "subprocess.Popen[str]") -> None:
    """Until something happened, or the process ended."""
    limit = time.monotonic() + SECONDS
    while not happened() and process.poll() is None:
        assert time.monotonic() < limit, "it never happened"
        time.sleep(0.001)


def finish(process: "subprocess.Popen[str]", code: int = 0) -> str:
    """What the process said on stderr, after it ended with `code`."""
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return err


def kill(process: "subprocess.Popen[str]") -> bool:
    """SIGKILL; whether it came in time."""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    return process.returncode == -signal.SIGKILL


def results(run: Path) -> dict[str, bytes]:
    """Every reproducible byte of a finished run: all but the timings and the lock."""
    files = [*(run / name for name in RESULTS), *(run / "cover").glob("*"), *(run / "checkpoints").glob("*/*")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def entries(cache: Path) -> set[str]:
    return {path.name for path in cache.glob("*-cache")}


def test_a_run_killed_at_random_moments_ends_as_one_left_alone(
    tmp_path: Path, long: str, start: Start, cache: Path, alone: dict[str, bytes]
) -> None:
    killed, compiled = tmp_path / "killed", entries(cache)
    rng = random.Random("pcpg")
    moments = sorted(rng.sample(range(1, 12), 2))
    for attempt, step in enumerate(moments):
        process = start(*(("train", "--config", long, "--out", killed) if attempt == 0 else ("resume", killed)))
        # At the same place of every attempt nothing would be learned: within the round it is chance.
        wait_until(lambda step=step: max(checkpoints.steps(killed / "checkpoints"), default=-1) >= step, process)
        time.sleep(rng.uniform(0.0, 0.02))
        assert kill(process), "the run was over before it could be killed: it needs more rounds"
        assert not (killed / "summary.json").exists()
    finish(start("resume", killed))
    assert results(killed) == alone
    assert len(alone) == len(RESULTS) + 8 + 4
    assert entries(cache) == compiled, "resume compiled something that the run had not"


def test_killed_before_the_first_checkpoint_and_during_compilation_and_at_the_end(
    tmp_path: Path, long: str, start: Start, alone: dict[str, bytes]
) -> None:
    killed = tmp_path / "killed"
    for _ in range(20):  # a busy machine may kill it too late
        process = start("train", "--config", long, "--out", killed)
        wait_until((killed / "config.json").exists, process)
        kill(process)
        if not checkpoints.steps(killed / "checkpoints"):
            break
        shutil.rmtree(killed)
    assert not checkpoints.steps(killed / "checkpoints") and (killed / "config.json").exists()

    cold = tmp_path / "cold"
    process = start("resume", killed, cache=cold)
    wait_until((killed / "checkpoints" / "000000").exists, process)
    assert kill(process)  # at once: a fast machine compiles and plays a round in less than half a second
    assert checkpoints.steps(killed / "checkpoints") == [0], "the first checkpoint comes before the first compilation"
    assert not (killed / "metrics.jsonl").read_bytes()

    process = start("resume", killed)
    wait_until((killed / "policy.safetensors").exists, process)
    kill(process)  # in time or not: the summary is written last, and tells whether the run is over
    finish(start("resume", killed))
    assert results(killed) == alone


def test_ctrl_c_saves_says_how_to_go_on_and_the_run_goes_on(
    tmp_path: Path, long: str, start: Start, alone: dict[str, bytes]
) -> None:
    stopped = tmp_path / "stopped"
    process = start("train", "--config", long, "--out", stopped, "--json")
    wait_until((stopped / "checkpoints" / "000002").exists, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, err
    assert out == ""
    assert "stopping after this round" in err and "press Ctrl-C again" in err
    assert f"pcpg resume {stopped}" in err and "Traceback" not in err
    newest = checkpoints.load_latest(stopped / "checkpoints")
    assert newest is not None and newest.step >= 2 and not (stopped / "summary.json").exists()
    lines = (stopped / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2 * newest.step, "the checkpoint is as new as the last report"
    finish(start("resume", stopped))
    assert results(stopped) == alone


def test_a_second_ctrl_c_ends_at_once_even_while_compiling(tmp_path: Path, long: str, start: Start) -> None:
    run = tmp_path / "run"
    process = start("train", "--config", long, "--out", run, cache=tmp_path / "cold")
    wait_until((run / "checkpoints" / "000000").exists, process)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = ""
    while "press Ctrl-C again" not in said:  # the answer comes before the compilation is over
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 130
    assert f"pcpg resume {run}" in err and "Traceback" not in err
    assert checkpoints.steps(run / "checkpoints") == [0]


def test_a_cache_entry_cut_by_a_kill_is_removed_and_compiled_again(
    tmp_path: Path, long: str, start: Start, cache: Path, alone: dict[str, bytes]
) -> None:
    own = tmp_path / "own"
    shutil.copytree(cache, own)
    whole = {path.name: path.read_bytes() for path in own.glob("*-cache")}
    for path in own.glob("jit_visit*-cache"):
        path.write_bytes(whole[path.name][:1000])
    err = finish(start("train", "--config", long, "--out", tmp_path / "run", cache=own))
    assert "Error reading persistent compilation cache" not in err
    left = {path.name: path.stat().st_size for path in own.glob("jit_visit*-cache")}
    assert left and 1000 not in left.values()
    assert results(tmp_path / "run") == alone


def test_resume_of_a_finished_run_is_done_at_once(
    tmp_path: Path, config_file: Callable[..., str], cli: Callable[..., Any]
) -> None:
    run = tmp_path / "run"
    first = cli("train", "--config", config_file("ppo"), "--out", run, "--json").json
    before = results(run)
    again = cli("resume", run, "--json").json
    assert results(run) == before
    same = ("run", "env_steps_per_seed", "env_steps", "final_return", "policies", "seeds")
    assert {name: again[name] for name in same} == {name: first[name] for name in same}
    assert again["seconds"] == again["compile_seconds"] == again["steps_per_second"] == 0.0
    assert os.listdir(run / "checkpoints")
