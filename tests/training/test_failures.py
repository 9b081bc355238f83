"""Seeds that fail, environments that hang, end or raise, and signals: what is said, and what goes on."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import pcpg
from pcpg.envs import registry
from pcpg.envs.host import EnvironmentFailed
from pcpg.run_config import RunConfig
from pcpg.runs.folder import RunFolder
from pcpg.training.display import Display, say
from pcpg.training.loop import start_run, train_run
from tests.probes import OneStep, ProbeState

pytestmark = pytest.mark.usefixtures("compile_once")

Tiny = Callable[..., dict[str, Any]]
RESULTS = ("metrics.jsonl", "policy.safetensors", "summary.json")
BROKEN = {"is": True}


def results(path: Path) -> dict[str, bytes]:
    files = [*(path / name for name in RESULTS), *sorted((path / "cover").glob("*"))]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


# Memory.


def test_a_run_stops_with_everything_saved_before_memory_runs_out(
    tiny: Tiny, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start_run(RunConfig.from_json(tiny("ppo")), tmp_path / "run")
    left = iter([10**10, 10**10, 10**8])
    monkeypatch.setattr("pcpg.training.loop.free_memory", lambda: next(left, 10**10))
    answer = cli("resume", folder.path)
    assert answer.code == 1 and "stopped: only 100 MB of memory are free; everything is saved" in answer.err, answer.err
    assert RunFolder.open(folder.path).manifest.step == 2  # pyright: ignore[reportOptionalMemberAccess]
    assert (
        train_run(folder).finished and train_run(start_run(RunConfig.from_json(tiny("ppo")), tmp_path / "b")).finished
    )
    assert results(tmp_path / "run") == results(tmp_path / "b")


def test_more_kept_data_than_memory_holds_are_refused_before_anything_changes(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"replay": {"capacity": 400}, "explore": {"num_episodes": 16}, "exploit": {"visit_episodes": 16}}
    lock = {"env": "CombinationLock-v0", "algo": "pcpg-replay", "horizon": 2, "config": small}
    run = pcpg.train(**lock, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    monkeypatch.setattr("pcpg.run_config.free_memory", lambda: 10**7)
    with pytest.raises(ValueError, match=r"the data of one seed may need 5.2 GB of memory, but only 0.0 GB are free"):
        pcpg.train(**lock, total_steps=10**8, out=tmp_path / "more")
    with pytest.raises(ValueError, match=r"the data of one seed may need 0.0 GB"):
        pcpg.train(**lock | {"config": small | {"replay": {"capacity": 250_000}}}, out=tmp_path / "more")
    answer = cli("resume", run.path, "--steps", "+100M")
    assert answer.code == 2 and "the data of one seed may need 5.2 GB of memory" in answer.err, answer.err
    assert not (tmp_path / "more").exists()
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    assert pcpg.resume(run.path, total_steps="+1k").is_finished, "what fits goes on"


# One seed's NaN.


@dataclasses.dataclass(frozen=True)
class NaNInSeed2(OneStep):
    """One decision; in seed 2, once in two thousand, the reward is NaN."""

    def instance(self, seed: int) -> Any:
        return np.float32(2e-3 if seed == 2 and BROKEN["is"] else 0.0)

    def transition(self, key: jax.Array, state: ProbeState, action: jax.Array, params: Any) -> Any:
        step = super().transition(key, state, action, ())
        return step._replace(reward=jnp.where(jax.random.uniform(key) < params, jnp.nan, step.reward))

    def reset(self, key: jax.Array, params: Any) -> Any:
        return super().reset(key, ())


@pytest.fixture
def nan_in_seed_2(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(registry._ENTRIES, "NaNInSeed2-v0", registry.Entry(NaNInSeed2, "a rare NaN in seed 2"))
    monkeypatch.setitem(BROKEN, "is", True)
    return "NaNInSeed2-v0"


def test_of_four_seeds_with_a_nan_in_one_three_finish_and_the_page_says_which_failed(
    tmp_path: Path, tiny: Tiny, config_file: Any, nan_in_seed_2: str, cli: Any, monkeypatch: Any
) -> None:
    agent = tiny()["agent"] | {"exploit": {"num_rounds": 2}}
    env = {"env": nan_in_seed_2, "env_options": {}, "seeds": 4, "agent": agent}
    out, healthy = tmp_path / "run", tmp_path / "healthy"
    answer = cli("train", "--config", config_file(**env), "--out", out, "--json")
    assert answer.code == 3
    assert "seed 2 failed: a reward became non-finite" in answer.err and "--retry-failed" in answer.err
    summary = RunFolder.open(out).read_summary()
    assert list(summary["failed"]) == ["2"] and "round" in summary["failed"]["2"]
    assert [value is None for value in summary["final_return"]] == [False, False, True, False]
    assert cli("report", out).code == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "1 of 4 seeds failed" in page and "Seed 2 failed: seed 2: a reward became non-finite" in page
    assert cli("resume", out).code == 3, "it stays finished, and says so"
    loaded = pcpg.load(out)
    assert loaded.evaluate(4).seeds == (0, 1, 3) and loaded.finished_seeds == [0, 1, 3]

    monkeypatch.setitem(BROKEN, "is", False)  # somebody repairs the environment
    assert cli("resume", out, "--retry-failed", "--json").code == 0
    assert train_run(start_run(RunConfig.from_json(tiny(**env)), healthy)).finished
    ours, theirs = pcpg.load(out), pcpg.load(healthy)
    assert ours.summary["final_return"] == theirs.summary["final_return"] and "failed" not in ours.summary
    for one, other in zip(ours.policies, theirs.policies, strict=True):
        assert jax.tree.all(jax.tree.map(np.array_equal, one.network, other.network))
    for one, other in zip(ours.covers, theirs.covers, strict=True):
        np.testing.assert_array_equal(one.sigmas, other.sigmas)


# Environments that fail.


class Trouble(gymnasium.Env):
    """Ten decisions more than `at`, which is the one with trouble of the kind that the file `broken` says."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, folder: str, at: int = 20) -> None:
        self.folder, self.at, self.max_steps = Path(folder), at, at + 10
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with (self.folder / "children").open("a") as file:
            file.write(f"{self.child.pid}\n")

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any):
        self.steps += 1
        broken = self.folder / "broken"
        kind = broken.read_text() if self.steps == self.at and broken.exists() else ""
        if kind == "raise":
            raise OSError("the simulator is gone")
        if kind == "hang":
            time.sleep(600)
        if kind.startswith("exit"):
            if kind == "exit once":
                broken.unlink()
            os._exit(7)
        return self._seen(), float(action), False, False, {}

    def _seen(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def close(self) -> None:
        self.child.kill()
        self.child.wait()


BRIEF = {"ppo": {"num_updates": 1, "num_episodes": 4, "hidden": [4]}, "budget": 300, "visit_episodes": 2}


def still_running(folder: Path) -> list[int]:
    """Children of environments that are left; a moment may pass before the system has ended them."""
    left = [int(line) for line in (folder / "children").read_text().split()]
    limit = time.monotonic() + 60
    while (left := [pid for pid in left if _is_running(pid)]) and time.monotonic() < limit:
        time.sleep(0.05)
    return left


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def left_alone(folder: Path, **options: Any) -> dict[str, bytes]:
    run = pcpg.train(Trouble, "ppo", config=BRIEF, out=folder / "alone", folder=str(folder), num_envs=2, **options)
    assert not still_running(folder), "environments are closed when training is over"
    return results(run.path)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return left_alone(tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(
    ("kind", "workers", "says"),
    [
        (
            "raise",
            0,
            "OSError: the simulator is gone; seed 0, round 1, update 0, episode seed .*, step 19, environment",
        ),
        ("raise", 2, r"OSError: the simulator is gone \(.*test_failures.py, line .*; seed 0, .*, step 19, worker 0"),
        ("hang", 0, r"did not answer within 3 s \(--env.step-timeout\); seed 0, round 1, update 0, .*, step 19"),
        ("hang", 2, r"did not answer within 3 s \(--env.step-timeout\) and was stopped; seed 0, .*, step 19, worker 0"),
        ("exit", 2, r"its process died twice at the same step \(exit code 7\); seed 0, .*, step 19, worker 0"),
    ],
)
@pytest.mark.filterwarnings("ignore:worker . died")
def test_an_environment_that_fails_stops_with_its_place_leaves_nothing_and_goes_on_the_same(
    tmp_path: Path, alone: dict[str, bytes], kind: str, workers: int, says: str
) -> None:
    def break_it(progress: Any) -> None:
        if progress.step == 1:
            (tmp_path / "broken").write_text(kind)

    # A step of a busy machine is no hang.
    options = {"folder": str(tmp_path), "num_envs": 2, "workers": workers, "step_timeout": 3 if kind == "hang" else 60}
    with pytest.raises(EnvironmentFailed, match=says):
        pcpg.train(Trouble, "ppo", config=BRIEF, out=tmp_path / "run", observer=break_it, **options)
    assert not still_running(tmp_path)
    (tmp_path / "broken").unlink()
    resumed = pcpg.resume(tmp_path / "run", env_fn=Trouble)
    assert results(resumed.path) == alone
    assert not still_running(tmp_path)


def test_an_environment_that_hangs_at_its_thousandth_step_is_ended_in_time(tmp_path: Path) -> None:
    def break_it(progress: Any) -> None:
        (tmp_path / "broken").write_text("hang")

    options = {"folder": str(tmp_path), "at": 1000, "num_envs": 2, "workers": 2, "step_timeout": 3}
    with pytest.raises(EnvironmentFailed, match=r"did not answer within 3 s .*, round 0, .*, step 999, worker 0"):
        pcpg.train(Trouble, "ppo", config=BRIEF, out=tmp_path / "run", observer=break_it, **options)
    assert not still_running(tmp_path)
    (tmp_path / "broken").unlink()
    expected = left_alone(tmp_path, at=1000)
    assert results(pcpg.resume(tmp_path / "run", env_fn=Trouble).path) == expected
    assert not still_running(tmp_path)


def test_a_worker_that_ends_is_replaced_and_its_episode_played_again(tmp_path: Path, alone: dict[str, bytes]) -> None:
    (tmp_path / "broken").write_text("exit once")
    with pytest.warns(RuntimeWarning, match=r"worker \d died \(exit code 7\) and was replaced"):
        run = pcpg.train(Trouble, "ppo", config=BRIEF, out=tmp_path / "run", folder=str(tmp_path), workers=2)
    assert results(run.path) == alone
    assert not still_running(tmp_path)


def test_the_command_line_says_what_failed_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    gymnasium.register("Trouble-v0", entry_point=Trouble, max_episode_steps=30)
    monkeypatch.setattr(Display, "__call__", lambda self, progress: (tmp_path / "broken").write_text("raise"))
    flags = ("--env.folder", tmp_path, "--ppo.num-episodes", 4, "--ppo.num-updates", 1, "--visit-episodes", 2)
    answer = cli("train", "gymnasium:Trouble-v0", "--algo", "ppo", *flags, "--out", tmp_path / "run")
    assert answer.code == 1 and f"resume with: pcpg resume {tmp_path / 'run'}" in answer.err
    assert "stopped: the environment failed: OSError: the simulator is gone; seed 0, round 0" in answer.err
    assert not still_running(tmp_path)
    asked = cli("resume", tmp_path / "run")
    assert asked.code == 2 and "add --trust" in asked.err, "its class was registered by a module, not by us"
    gymnasium.registry.pop("Trouble-v0")


# Signals, and nobody who reads.


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_stops_after_the_round_with_its_code(
    tmp_path: Path,
    config_file: Any,
    cli: Any,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: Callable[[int], None],
    signum: int,
    code: int,
) -> None:
    def send(self: Display, progress: Any) -> None:
        if progress.step == 2:
            interrupt(signum)

    monkeypatch.setattr(Display, "__call__", send)
    before = signal.signal(signum, signal.SIG_DFL)  # under nohup, SIGHUP would be ignored, as it should be
    try:
        answer = cli("train", "--config", config_file("ppo"), "--out", tmp_path / "run")
    finally:
        signal.signal(signum, before)
    assert answer.code == code and "stopping after this round" in answer.err and "pcpg resume" in answer.err
    manifest = RunFolder.open(tmp_path / "run").manifest
    assert manifest is not None and manifest.step == 2 and not manifest.finished


IN_C = """
import ctypes, os
from pcpg.training.interrupt import stop_on_interrupt
lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(256)
with stop_on_interrupt(lambda text: print(text, flush=True), leave=lambda: os._exit(130)):
    print("begun", flush=True)
    lock(mutex)
    lock(mutex)  # as a compilation that never ends
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a lock of zeros is one of Linux")
def test_a_second_ctrl_c_ends_a_process_that_runs_no_python() -> None:
    own = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", IN_C], stdout=subprocess.PIPE, text=True, env=own) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert "press Ctrl-C again" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(200) == 130


class Gone:
    """A stream whose reader has left, or whose disk is full."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 1


def test_training_goes_on_when_nobody_reads_what_it_says(tmp_path: Path, tiny: Tiny) -> None:
    from rich.console import Console

    console = Console(file=Gone(), stderr=True)  # pyright: ignore[reportArgumentType]
    folder = start_run(RunConfig.from_json(tiny("ppo")), tmp_path / "run")
    with Display(console, "title") as display:
        assert train_run(folder, observer=display, notice=lambda text: say(console, text)).finished


def test_spaces_that_cannot_fit_are_refused_before_anything_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Huge(gymnasium.Env):
        observation_space = spaces.Discrete(10**6)
        action_space = spaces.Discrete(2)
        max_steps = 1000

    class Many(Huge):
        observation_space = spaces.Discrete(4)
        action_space = spaces.Discrete(10**7)
        max_steps = 10

    monkeypatch.setattr("pcpg.api.start_run", lambda *_, **__: pytest.fail("it was begun"))
    for env in (Huge, Many):
        with warnings.catch_warnings(), pytest.raises(ValueError, match=r"one seed needs about .* GB of memory"):
            pcpg.train(env)
