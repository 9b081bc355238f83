"""The doors of the command line: what it writes to, and what it refuses in one line before any work."""

import math
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pcpg
from pcpg.run_config import RunConfig
from pcpg.training.loop import start_run, train_run

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., dict[str, Any]]) -> Path:
    agent = tiny()["agent"] | {"exploit": {"num_rounds": 1}}
    agent["explore"] = agent["explore"] | {"max_policies": 2}
    folder = start_run(RunConfig.from_json(tiny(agent=agent, seeds=1)), tmp_path_factory.mktemp("doors") / "run")
    assert train_run(folder).finished
    return folder.path


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return shutil.copytree(trained, tmp_path / "run")


# Outputs.

OUTPUTS = {
    "a.html": ("report", "{run}", "--out"),
    "a.png": ("show", "{run}", "--png"),
    "a.gif": ("video", "{run}", "--max-frames", "3", "--out"),
    "a.json": ("theory", "parameters", "--out"),
    "b.png": ("theory", "tree", "--depth", "2", "--png"),
}
"""Commands that write one file, by its name."""


@pytest.fixture(params=OUTPUTS)
def output(request: pytest.FixtureRequest, run: Path, cli: Cli) -> tuple[Path, Callable[[Path], Any]]:
    """The file that a command is to write, and the command."""
    words = [word.format(run=run) for word in OUTPUTS[request.param]]
    return Path(request.param), lambda path: cli(*words, path)


def test_an_output_replaces_one_of_its_own_kind(output: Any) -> None:
    path, write = output
    for _ in range(2):
        assert write(path).code == 0 and path.stat().st_size > 100


def test_an_output_never_replaces_a_file_of_another_kind(output: Any) -> None:
    path, write = output
    path.write_text("precious")
    answer = write(path)
    assert answer.code == 2 and "another kind" in answer.err and path.read_text() == "precious"


def test_an_output_goes_through_no_link_and_replaces_none(output: Any) -> None:
    path, write = output
    victim = Path("victim")
    victim.write_text("precious")
    path.symlink_to(victim.resolve())
    answer = write(path)
    assert answer.code == 2 and "a link" in answer.err
    assert path.is_symlink() and victim.read_text() == "precious"


def test_an_output_replaces_no_pipe_and_no_folder(output: Any) -> None:
    path, write = output
    os.mkfifo(path)
    answer = write(path)
    assert answer.code == 2 and "a pipe" in answer.err and path.is_fifo()
    path.unlink()
    path.mkdir()
    answer = write(path)
    assert answer.code == 2 and "a folder" in answer.err and path.is_dir()


def test_an_output_that_does_not_fit_on_the_disk_is_said_in_one_line_and_the_old_one_stays(output: Any) -> None:
    path, write = output
    assert write(path).code == 0
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        answer = write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.code == 2 and "cannot write" in answer.err.splitlines()[-1] and "Traceback" not in answer.err
    assert path.read_bytes() == before and [one.name for one in Path().iterdir()] == [path.name]


def test_a_device_is_never_replaced(run: Path, cli: Cli) -> None:
    before = os.stat("/dev/full")
    answer = cli("report", run, "--out", "/dev/full")
    assert answer.code == 2 and "/dev/full" in answer.err and "a device" in answer.err
    assert os.stat("/dev/full").st_rdev == before.st_rdev


def test_a_page_of_several_runs_replaces_no_foreign_page(run: Path, cli: Cli) -> None:
    Path("report.html").write_text("<!DOCTYPE html><title>mine</title>")
    answer = cli("report", run, run)
    assert answer.code == 2 and "another kind" in answer.err and "mine" in Path("report.html").read_text()


def test_a_picture_is_a_png_file(run: Path, cli: Cli) -> None:
    answer = cli("show", run, "--png", "x.nope")
    assert answer.code == 2 and "--png must name a .png file" in answer.err and not Path("x.nope").exists()


# Numbers.


def test_more_episodes_than_fit_are_refused(run: Path, cli: Cli) -> None:
    for episodes in (99999999999, 2**31, 10**30):
        answer = cli("evaluate", run, "--episodes", episodes)
        assert answer.code == 2 and f"got {episodes:,}" in answer.err and answer.err.count("\n") == 1
    assert cli("evaluate", run, "--episodes", 1000).code == 0


def refused(answer: Any, *said: str) -> None:
    """One line and exit code 2."""
    assert answer.code == 2 and answer.err.count("\n") == 1, answer
    assert all(words in answer.err for words in said), answer.err


# Words.


@pytest.mark.parametrize("command", [["train", "CombinationLock-v0", "--out", "a\0b"], ["report", "a\0b"]])
def test_a_nul_character_is_refused(command: list[str], run: Path, cli: Cli) -> None:
    refused(cli(*command), "a NUL character")


@pytest.mark.parametrize("name", [":X", "a::b", "a:", ":"])
@pytest.mark.parametrize("command", ["train", "look"])
def test_an_id_with_a_part_missing_is_refused(command: str, name: str, run: Path, cli: Cli) -> None:
    refused(cli(command, f"gymnasium:{name}"), "is not a Gymnasium id")


def test_a_deleted_current_folder_is_said_in_one_line(tmp_path: Path, start_pcpg: Callable[..., Any]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    here = Path.cwd()
    os.chdir(gone)
    try:
        gone.rmdir()
        process = start_pcpg("envs")
    finally:
        os.chdir(here)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 2 and out == ""
    assert err == "error: the current folder no longer exists; change to another one\n"


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
def test_a_number_too_large_for_a_float_is_damage(name: str, run: Path, cli: Cli) -> None:
    text = re.sub(r'("(?:[a-z_]*return|seconds)": )[-0-9.e]+', rf"\g<1>1{'0' * 400}", (run / name).read_text())
    (run / name).write_text(text)
    assert cli("report", run).code == 0, "with what is left"
    assert cli("verify", run).code == 1
    assert cli("resume", run, "--steps", "+100").code in (0, 2)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["train", "CombinationLock-v0", "--seeds", "４"], "４"),
        (["train", "CombinationLock-v0", "--steps", "５00k"], "steps must be a number"),
        (["train", "CombinationLock-v0", "--time", "１m"], "a time must look like"),
        (["reproduce", "lock", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["look", "gymnasium:CartPole-v1", "--env.render-mode", "nope"], "render_mode of CartPole-v1 must be one of"),
        (["show", "{run}", "--png", "{run}"], "must name a .png file"),
    ],
)
def test_a_value_that_nobody_means_is_refused(command: list[str], said: str, run: Path, cli: Cli) -> None:
    refused(cli(*(word.format(run=run) for word in command)), said)
    assert not list(Path().iterdir())


@pytest.mark.parametrize("entry", ["looked", "feature_options", "source", "env_options"])
def test_settings_that_are_nested_too_deeply_are_refused(entry: str, run: Path, cli: Cli) -> None:
    text = '{"a": ' * 900 + "1" + "}" * 900
    Path("deep.json").write_text(f'{{"env": "gymnasium:FrozenLake-v1", "algo": "ppo", "{entry}": {text}}}')
    refused(cli("train", "--config", "deep.json"), "deep.json is nested too deeply")


def test_more_seeds_than_a_run_may_have_are_refused_before_any_work(run: Path, cli: Cli) -> None:
    for seeds in (100_001, 10**9):
        refused(cli("train", "CombinationLock-v0", "--seeds", seeds), f"at most 100,000, got {seeds:,}")


def test_all_layers_of_a_network_count_where_its_memory_is_estimated(run: Path, cli: Cli) -> None:
    sizes = ["--algo", "ppo", "--ppo.hidden", "8", "1000000", "1000000", "8"]
    refused(cli("train", "CombinationLock-v0", *sizes), "GB for networks")


# Environments that do what they must not.


class Odd(gymnasium.Env):
    """Five steps; `way` says what is odd about them."""

    observation_space = spaces.Box(0.0, 1.0, (2,))
    action_space = spaces.Discrete(2)
    max_steps = 5

    def __init__(self, way: str = "", render_mode: str | None = None) -> None:
        self.way = way
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        if self.way == "prints":
            print("from Python")
            os.write(1, b"from C\n")
        if self.way == "moves":
            os.chdir("/")
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        rewards = {"nan reward": math.nan, "inf reward": math.inf}
        return self._seen(), rewards.get(self.way, float(action)), False, self.time == 5, {}

    def _seen(self) -> Any:
        entries = {"nan": math.nan, "inf": math.inf, "far": 1000.0} if self.time == 2 else {}
        return np.full(2, entries.get(self.way, self.time / 5), np.float32)


gymnasium.register("Odd-v0", entry_point=Odd, max_episode_steps=5)
SMALL = ["--env.num-envs", "2", "--ppo.num-episodes", "4", "--ppo.num-updates", "1", "--visit-episodes", "4"]
PYTHON = {"ppo": {"num_episodes": 4, "num_updates": 1}, "budget": 40, "visit_episodes": 4}
PPO = ["--algo", "ppo", "--budget", "40", *SMALL]


def test_an_environment_that_changes_the_folder_moves_no_output(run: Path, cli: Cli) -> None:
    here = Path.cwd()
    answer = cli("train", "gymnasium:Odd-v0", "--env.way", "moves", *PPO, "--out", "runs/a", "--json")
    assert answer.json["run"] == "runs/a" and Path.cwd() == Path("/")
    assert pcpg.load(here / "runs/a").is_finished and not Path("/runs").exists()
    os.chdir(here)
    assert cli("resume", "runs/a", "--trust", "--steps", "+40", "--json").json["run"] == "runs/a"
    os.chdir(here)
    assert pcpg.train("gymnasium:Odd-v0", "ppo", way="moves", config=PYTHON, out="b").path == here / "b"
    assert sorted(path.name for path in here.iterdir()) == ["b", "runs"]
    os.chdir(here)
    assert cli("verify", "b").code == 0


ODD = {
    "nan": "entry 0 of the observation is nan",
    "inf": "entry 0 of the observation is inf",
    "far": "entry 0 of the observation is 1000",
    "nan reward": "the reward is nan",
    "inf reward": "the reward is inf",
}
FIRST = {
    "look": ["look", "gymnasium:Odd-v0"],
    "auto": ["train", "gymnasium:Odd-v0", "--steps", "1000"],
    "ppo": ["train", "gymnasium:Odd-v0", *PPO],
    "pcpg": ["train", "gymnasium:Odd-v0", "--algo", "pcpg", "--env.num-envs", "2"],
    "pcpg-replay": ["train", "gymnasium:Odd-v0", "--algo", "pcpg-replay", "--steps", "1000"],
}


@pytest.mark.parametrize("way", ODD)
@pytest.mark.parametrize("command", FIRST)
def test_what_is_no_number_or_far_off_is_refused_with_its_episode_and_step(
    way: str, command: str, run: Path, cli: Cli
) -> None:
    answer = cli(*FIRST[command], "--env.way", way)
    assert answer.code == 1 and ODD[way] in answer.err, answer
    assert "episode 1, step 1" in answer.err if "reward" in way else re.search(r"episode 1, step [123]", answer.err)


def test_what_an_environment_prints_is_not_beside_the_json_object(run: Path, cli: Cli) -> None:
    answer = cli("train", "gymnasium:Odd-v0", "--env.way", "prints", *PPO, "--out", "a", "--json")
    assert answer.json["run"] == "a" and "from Python" in answer.err and "from C" in answer.err
    assert "from Python" in cli("look", "gymnasium:Odd-v0", "--env.way", "prints").out, "where there is no object"


EXITING = """
import os, gymnasium
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
class Exits(FrozenLakeEnv):
    def step(self, action):
        os._exit(7)
gymnasium.register("Exits-v0", entry_point=Exits, max_episode_steps=5)
"""


@pytest.mark.parametrize("command", [["look"], ["train", *PPO, "--out", "a"]])
def test_an_environment_that_ends_the_process_is_named(
    command: list[str], run: Path, start_pcpg: Callable[..., Any]
) -> None:
    Path("exits.py").write_text(EXITING)
    process = start_pcpg(command[0], "gymnasium:exits:Exits-v0", *command[1:])
    _, err = process.communicate(timeout=200)
    assert process.returncode == 7
    assert err.splitlines()[-1] == "stopped: exits ended the process by os._exit(7); what was saved is intact"
