"""The command line: its answers, its help, and its refusals, each with exit code 2 and nothing left behind."""

import io
import json
import re
import subprocess
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from pcpg.algorithms import ALGORITHMS
from pcpg.cli.display import shade, visits_table
from pcpg.cli.main import main
from pcpg.cli.train import start_in
from pcpg.run_config import RunConfig
from pcpg.runs.folder import RunFolder
from pcpg.training.display import Display, clock_time, duration, title_of
from pcpg.training.loop import Progress, start_run, train_run

Cli = Callable[..., Any]
ConfigFile = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., dict[str, Any]]) -> Path:
    """A finished run of PC-PG with seeds 3 and 4."""
    folder = start_run(RunConfig.from_json(tiny(seed=3)), tmp_path_factory.mktemp("runs") / "pcpg")
    assert train_run(folder).finished
    return folder.path


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a command leaves behind lies here."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def left_behind() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


def squeezed(text: str) -> str:
    """A message without the lines and boxes into which a terminal breaks it."""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", text)


# Answers.


def test_train_answers_with_one_json_object_and_leaves_a_run(cli: Cli, config_file: ConfigFile) -> None:
    answer = cli("train", "--config", config_file(), "--out", "runs/a", "--json")
    result = answer.json
    assert result["run"] == "runs/a"
    assert result["env"] == "CombinationLock-v0" and result["algo"] == "pcpg" and result["seeds"] == [0, 1]
    assert result["env_steps_per_seed"] == max(result["env_steps"])
    # Every step is counted: 8 covers and 6 evaluations of 32 episodes, 13 rounds of 3 updates of 64, of 3 steps each.
    assert result["env_steps"] == [(14 * 32 + 13 * 3 * 64) * 3] * 2
    assert result["seconds"] > result["compile_seconds"] > 0
    trained = result["seconds"] - result["compile_seconds"]
    assert result["steps_per_second"] == pytest.approx(sum(result["env_steps"]) / trained, rel=0.01)
    assert "run folder: runs/a" in answer.err and "solved" in answer.err
    files = {path.name for path in Path("runs/a").iterdir()} - {".lock"}
    assert files == {
        *("config.json", "environment.json", "metrics.jsonl", "timings.jsonl", "cover", "checkpoints"),
        *("policy.safetensors", "summary.json", "manifest.json"),
    }


def test_without_json_the_table_goes_to_stdout_and_progress_to_stderr(cli: Cli, config_file: ConfigFile) -> None:
    answer = cli("train", "--config", config_file("ppo"))
    assert answer.code == 0
    assert "final return" in answer.out and "run folder: runs/CombinationLock-v0-ppo-1" in answer.out
    assert "ppo on CombinationLock-v0, seeds 0 to 1: round 0 of at most 14; compiling" in answer.err
    again = cli("train", "--config", config_file("ppo"), "--json")
    assert again.json["run"] == "runs/CombinationLock-v0-ppo-2"


def test_evaluate_answers_with_the_return_of_each_seed(cli: Cli, run: Path) -> None:
    result = cli("evaluate", run, "--episodes", 20, "--json").json
    assert result["env"] == "CombinationLock-v0" and result["algo"] == "pcpg"
    assert result["seeds"] == [3, 4] and result["episodes"] == 20 and result["greedy"] is False
    assert len(result["mean_return"]) == len(result["standard_error"]) == 2
    assert all(-1 <= mean <= 4 for mean in result["mean_return"])
    assert result["env_steps"] == 2 * 20 * 3
    assert cli("evaluate", run, "--episodes", 20, "--json").json == result
    table = cli("evaluate", run, "--episodes", 20)
    assert f"{result['mean_return'][1]:.3f}" in table.out


def test_evaluate_can_be_greedy(cli: Cli, run: Path) -> None:
    result = cli("evaluate", run, "--episodes", 20, "--greedy", "--best", "--json").json
    assert result["greedy"] is True and result["best"] is True
    # Without chance in the actions only that of the environment is left: the good states of a level.
    assert all(error < 0.5 for error in result["standard_error"])


def test_show_answers_with_the_visits_of_every_policy(cli: Cli, run: Path) -> None:
    result = cli("show", run, "--json").json
    assert result["run"] == str(run) and result["seed"] == 3
    assert len(result["visits"]) == len(result["weights"]) == len(result["returns"]) == 8
    assert sum(result["weights"]) == pytest.approx(1.0)
    assert 0.5 < result["covered"] <= 1.0
    table = cli("show", run, "--seed", 4)
    assert "Visits of the cover, seed 4" in table.out and "lock 0" in table.out and "█" in table.out


def test_show_begins_with_the_heaviest_policies_and_sums_up_the_rest() -> None:
    weights = np.array([0.0, 0.1, 0.6, 0.0001, 0.2999])
    grid, counts = types.SimpleNamespace(size=0, rows=(), panels=()), np.zeros((5, 0))
    visits: Any = types.SimpleNamespace(seed=0, covered=0.0, grid=grid, weights=weights, counts=counts)
    visits.returns, visits.mixture = np.array([0.0, 0.0, 0.5, 1.0, 0.0]), np.zeros(0)
    shown = io.StringIO()
    Console(file=shown, width=100).print(visits_table(visits, most=12))
    rows = [line.split("│")[1].strip() for line in shown.getvalue().splitlines() if line.startswith("│")]
    assert rows == ["2", "4", "1", "2 more", "cover"] and "0.00 to 1.00" in shown.getvalue()


def test_verify_of_a_whole_folder_is_one_line(cli: Cli, run: Path) -> None:
    answer = cli("verify", run)
    assert re.fullmatch(r".*: intact \(\d+ files\)\n", answer.out) and not answer.err


def test_show_draws_a_picture(cli: Cli, run: Path) -> None:
    answer = cli("show", run, "--png", "visits.png", "--json")
    assert answer.json["png"] == "visits.png"
    assert Path("visits.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "picture: visits.png" in answer.err


def test_envs_lists_environments_with_their_options(cli: Cli) -> None:
    listing = {entry["id"]: entry for entry in cli("envs", "--json").json["envs"]}
    assert listing["CombinationLock-v0"]["options"] == {"horizon": 10}
    table = cli("envs").out
    assert "CombinationLock-v0" in table and "--env.horizon 10" in table
    assert max(len(line) for line in table.splitlines()) <= 100 and "…" not in table


# Settings.


def test_flags_override_the_file_and_the_resolved_config_is_written(cli: Cli, config_file: ConfigFile) -> None:
    flags = ("--seeds", 1, "--seed", 5, "--env.horizon", 1, "--explore.bonus-coef", 2.5, "--exploit.num-rounds", 0)
    result = cli("train", "--config", config_file(), "--out", "run", *flags, "--json").json
    assert result["seeds"] == [5]
    config = RunFolder.open("run").config
    assert config["seed"] == 5 and config["seeds"] == 1 and config["env_options"] == {"horizon": 1}
    assert config["agent"]["explore"]["bonus_coef"] == 2.5 and config["agent"]["exploit"]["num_rounds"] == 0
    assert config["agent"]["explore"]["visit_episodes"] == 32, "from the file"
    assert config["agent"]["ppo"]["gamma"] == 0.99 and config["features"] == "identity", "defaults are written out"
    assert RunConfig.from_json(config).to_json() == RunConfig.from_json(json.loads(json.dumps(config))).to_json()


def test_the_config_of_a_run_is_a_config_file(cli: Cli, run: Path) -> None:
    assert cli("train", "--config", run / "config.json", "--out", "again", "--json").json["seeds"] == [3, 4]
    assert Path("again/metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert Path("again/policy.safetensors").read_bytes() == (run / "policy.safetensors").read_bytes()


def test_the_environment_may_come_after_the_flags(cli: Cli) -> None:
    answer = cli("train", "--algo", "ppo", "CombinationLock-v0", "--budget", 0)
    assert answer.code == 2 and "budget must be positive, got 0" in answer.err


def test_settings_of_another_algorithm_in_the_file_are_left_out_aloud(cli: Cli, config_file: ConfigFile) -> None:
    answer = cli("train", "--config", config_file("pcpg"), "--algo", "ppo", "--budget", 0)
    assert answer.code == 2 and "budget must be positive" in answer.err
    assert "ignoring 'agent' in" in answer.err and "it belongs to pcpg, not ppo" in answer.err


def test_options_of_a_feature_map_are_flags(cli: Cli, config_file: ConfigFile) -> None:
    file = config_file(seeds=1)
    flags = ("--features", "fourier", "--phi.num-features", 6, "--phi.num-examples", 20, "--exploit.num-rounds", 0)
    assert cli("train", "--config", file, "--out", "run", *flags, "--explore.max-policies", 1).code == 0
    config = RunFolder.open("run").config
    assert config["features"] == "fourier" and config["feature_options"]["num_features"] == 6


# Help.


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_the_help_names_every_command(cli: Cli, arguments: tuple[str, ...]) -> None:
    answer = cli(*arguments)
    assert answer.code == 0
    for command in ("train", "resume", "evaluate", "show", "envs"):
        assert f"pcpg {command}" in answer.out
    assert max(len(line) for line in answer.out.splitlines()) <= 100


@pytest.mark.parametrize("command", ["resume", "evaluate", "show", "report", "video", "export", "envs"])
def test_every_command_has_a_help(cli: Cli, command: str) -> None:
    answer = cli(command, "--help")
    assert answer.code == 0
    assert f"usage: pcpg {command}" in answer.out and "--json" in answer.out
    assert ("DIR" in answer.out) == (command != "envs")


def test_the_help_of_train_depends_on_environment_and_algorithm(cli: Cli) -> None:
    default = cli("train", "--help").out
    for flag in (
        "ENV",
        f"--algo {{{','.join(['auto', *ALGORITHMS])}}}",
        "--seeds",
        "--out",
        "--config",
        "--env.horizon",
    ):
        assert flag in default
    assert "--features" in default and "--explore.max-policies" not in default and "--help-all" in default
    assert len(default.splitlines()) <= 64
    whole = cli("train", "--help-all").out
    assert "--explore.max-policies" in whole and "--budget" not in whole
    ppo = cli("train", "CombinationLock-v0", "--algo", "ppo", "--help-all").out
    assert "--budget" in ppo and "Environment steps per seed" in squeezed(ppo)
    assert "--explore" not in ppo and "--features" not in ppo and "--rnd" not in ppo
    assert "--bonus.coef" in cli("train", "CombinationLock-v0", "--algo", "ppo-rnd", "--help-all").out
    assert "--env.size" in cli("train", "Maze-v0", "--help").out
    fourier = squeezed(cli("train", "Chain-v0", "--features", "fourier", "--help-all").out)
    assert "--phi.num-features INT Number of features" in fourier and "width of the kernel" in fourier
    assert left_behind() == []


def test_the_version(cli: Cli) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", cli("--version").out)


# Mistakes.

LOCK = "CombinationLock-v0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trian",), "unknown command 'trian'; did you mean 'train'?"),
        (("train",), "name an environment first, as in `pcpg train CombinationLock-v0`; `pcpg envs` lists them"),
        (("train", "--seeds", "2"), "name an environment first"),
        (("train", "CombinatonLock-v0"), "unknown environment 'CombinatonLock-v0'; did you mean 'CombinationLock-v0'?"),
        (
            ("train", LOCK, "--algo", "pppo"),
            "unknown algorithm 'pppo'; did you mean 'ppo'? Valid: pcpg, pcpg-bonus, pcpg-replay, pcpg-deep",
        ),
        (("train", LOCK, "--algo"), "--algo needs a value"),
        (
            ("train", LOCK, "--explore.bonus-form", "rot"),
            "unknown value of --explore.bonus-form 'rot'; did you mean 'root'?",
        ),
        (("train", LOCK, "--features", "fourir"), "unknown features 'fourir'; did you mean 'fourier'?"),
        (("train", LOCK, "--env.horizon", "0"), "horizon must be at least 1, got 0"),
        (("train", LOCK, "--env.horizon", "ten"), "--env.horizon"),
        (("train", LOCK, "--seeds", "0"), "seeds must be at least 1, got 0"),
        (("train", LOCK, "--seeds", "many"), "--seeds"),
        (("train", LOCK, "--seed", "-1"), "seed must lie between 0 and 4294967295, got -1"),
        (("train", LOCK, "--seed", "4294967295", "--seeds", "2"), "seed must lie between 0 and 4294967294, got 42949"),
        (("train", LOCK, "--ppo.num-episodes", "-64"), "num_episodes must be 0 (by the formula) or more, got -64"),
        (("train", LOCK, "--ppo.num-episodes", "100"), "num_episodes (100) must be a multiple of num_groups (64)"),
        (("train", LOCK, "--ppo.hidden", "-3"), "hidden must name a layer or more, each of at least 1 unit, got (-3,)"),
        (("train", LOCK, "--ppo.hidden"), "hidden must name a layer or more"),
        (("train", LOCK, "--ppo.learning-rate", "nan"), "--ppo.learning-rate must be finite, got nan"),
        (("train", LOCK, "--ppo.entropy-coef", "inf"), "--ppo.entropy-coef must be finite, got inf"),
        (("train", LOCK, "--lanes", "-1"), "lanes must be 0 (by the device) or more, got -1"),
        (("train", LOCK, "--config", "absent.json"), "--config absent.json: missing"),
        (("train", LOCK, "more"), "Unrecognized options: more"),
        (("train", LOCK, "--ppo.lr", "1e-3"), "did you mean --ppo.learning-rate for --ppo.lr?"),
        (("train", LOCK, "--budget", "1000"), "here: --steps"),
        (("train", LOCK, "--sedes", "3"), "did you mean --seeds for --sedes?"),
        (("train", "gymnasium:ALE/Pong-v5"), "pip install 'pcpg[atari]'"),
        (("train", "gymnasium:Nothing-like-it-v0"), "gymnasium:my_package:Nothing-like-it-v0"),
        (("resume",), "Missing from pcpg resume: DIR"),
        (("resume", "absent"), "absent: no such folder"),
        (("resume", "."), ". is not a run folder: it holds no config.json"),
        (("evaluate", "absent"), "absent: no such folder"),
        (("evaluate", "absent", "--episodes", "-5"), "episodes must be at least 1, got -5"),
        (("show", "absent"), "absent: no such folder"),
        (("envs", "more"), "Unrecognized options: more"),
    ],
)
def test_a_mistake_is_named_and_leaves_nothing_behind(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    answer = cli(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert message in squeezed(answer.err)
    assert left_behind() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"env":', "--config file.json is not JSON: Expecting value: line 1 column 8"),
        ("[1]", "--config file.json must hold a JSON object, got a list"),
        ("\ufeff{}", "--config file.json is not JSON"),
        ('{"seeds": 2}', "name an environment first"),
        ('{"env": "CombinationLock-v0", "seeds": "3"}', "seeds must be an integer, got '3'"),
        ('{"env": "CombinationLock-v0", "seeds": true}', "seeds must be an integer, got True"),
        ('{"env": ["CombinationLock-v0"]}', "env must be text, got ['CombinationLock-v0']"),
        ('{"env": "CombinationLock-v0", "sedes": 3}', "unknown configuration entry 'sedes'; did you mean 'seeds'?"),
        ('{"env": "CombinationLock-v0", "env_options": [3]}', "env_options must be an object, got [3]"),
        ('{"env": "CombinationLock-v0", "env_options": {"horzon": 3}}', "no option 'horzon'; did you mean 'horizon'?"),
        ('{"env": "CombinationLock-v0", "agent": null}', "agent must be an object, got None"),
        (
            '{"env": "CombinationLock-v0", "agent": {"ppo": {"gama": 1}}}',
            "entry of agent.ppo 'gama'; did you mean 'gamma'",
        ),
        (
            '{"env": "CombinationLock-v0", "agent": {"ppo": {"gamma": "1"}}}',
            "agent.ppo.gamma must be a number, got '1'",
        ),
        (
            '{"env": "CombinationLock-v0", "agent": {"ppo": {"gamma": 2}}}',
            "agent.ppo: gamma must lie between 0.0 and 1.0",
        ),
        ('{"env": "CombinationLock-v0", "agent": {"ppo": {"hidden": 64}}}', "agent.ppo.hidden must be a list, got 64"),
        ('{"env": "CombinationLock-v0", "agent": {"ppo": {"value_coef": NaN}}}', "agent.ppo.value_coef must be finite"),
        (
            '{"env": "CombinationLock-v0", "algo": "ppo", "agent": {"bonus": "rdn"}}',
            "unknown bonus 'rdn'; did you mean 'rnd'?",
        ),
        (
            '{"env": "CombinationLock-v0", "algo": "ppo-rnd", "agent": {"rnd": null}}',
            "the bonus of ppo-rnd is rnd, got none",
        ),
        ('{"env": "CombinationLock-v0", "algo": "ppo-rnd", "agent": {"bonus": "e3b"}}', "is rnd, got e3b"),
        ('{"env": "CombinationLock-v0", "features": "aggregation"}', "features 'aggregation':"),
    ],
)
def test_a_broken_config_file_is_refused_with_the_entry(cli: Cli, content: str, message: str) -> None:
    Path("file.json").write_text(content, encoding="utf-8")
    answer = cli("train", "--config", "file.json")
    assert answer.code == 2
    assert message in squeezed(answer.err)
    assert left_behind() == ["file.json"]


def test_a_taken_folder_is_refused_and_stays_as_it_was(cli: Cli, config_file: ConfigFile, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    answer = cli("train", "--config", config_file(seed=3), "--out", run)
    assert answer.code == 2 and f"{run} holds a finished run of this config" in answer.err
    answer = cli("train", LOCK, "--out", run)
    assert answer.code == 2 and "holds a run with a different config (" in answer.err and "pcpg resume" in answer.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    Path("notes.txt").write_text("mine")
    answer = cli("train", LOCK, "--out", ".")
    assert answer.code == 2 and "is neither empty nor a run (it holds notes.txt)" in answer.err


def test_what_a_run_does_not_have_is_said(cli: Cli, config_file: ConfigFile, run: Path) -> None:
    assert cli("train", "--config", config_file("ppo"), "--out", "ppo").code == 0
    answer = cli("show", "ppo")
    assert answer.code == 2 and "ppo holds no cover: ppo does not build one" in answer.err
    answer = cli("show", run, "--seed", 7)
    assert answer.code == 2 and "the run has seeds 3 to 4, got 7" in answer.err
    answer = cli("show", run, "--png", "absent/a.png")
    assert answer.code == 2 and "the folder absent does not exist" in answer.err


def test_an_unfinished_run_can_be_shown_and_evaluated_as_far_as_it_is(
    cli: Cli, tiny: Callable[..., dict[str, Any]]
) -> None:
    class Enough(Exception):
        pass

    def observe(progress: Progress) -> None:
        if progress.step == 3:
            raise Enough

    folder = start_run(RunConfig.from_json(tiny()), "run")
    answer = cli("show", "run")
    assert answer.code == 2 and "the cover of seed 0 is still empty" in answer.err
    with pytest.raises(Enough):
        train_run(folder, observer=observe)
    assert len(cli("show", "run", "--json").json["weights"]) == 3
    answer = cli("evaluate", "run")
    assert answer.code == 0 and "run is not finished; showing its last checkpoint (round 3, " in answer.err


def test_a_bug_is_not_hidden_behind_a_message(monkeypatch: pytest.MonkeyPatch, config_file: ConfigFile) -> None:
    from pcpg.cli.main import main
    from pcpg.training import loop as training

    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("shapes do not match")

    monkeypatch.setattr(training, "train_run", broken)
    with pytest.raises(ValueError, match="shapes do not match"):
        main(["train", "--config", config_file(), "--out", "run"])


def test_running_out_of_memory_names_what_needs_less(
    monkeypatch: pytest.MonkeyPatch, config_file: ConfigFile, cli: Cli
) -> None:
    from pcpg.training import loop as training

    def hungry(*_: Any, **__: Any) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes")

    monkeypatch.setattr(training, "train_run", hungry)
    answer = cli("train", "--config", config_file(), "--out", "run")
    assert answer.code == 1 and "out of memory; try fewer --ppo.num-episodes" in answer.err


# In a process of its own.


def test_python_m_pcpg_is_the_same_and_help_does_not_wait_for_jax(start_pcpg: Any) -> None:
    process = start_pcpg("--help")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0 and "pcpg train" in out and err == ""
    program = "import sys, pcpg.cli.main; sys.exit('jax' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0


def test_a_reader_who_leaves_early_is_no_error(start_pcpg: Any) -> None:
    process = start_pcpg("envs", "--json")
    process.stdout.close()
    err = process.stderr.read()
    process.wait(timeout=200)
    assert process.returncode in (0, 1) and "Traceback" not in err and "BrokenPipe" not in err


def test_a_broken_pipe_that_is_not_stdout_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(arguments: list[str], console: Any) -> int:
        raise BrokenPipeError("the simulator has gone")

    monkeypatch.setattr("pcpg.cli.main.run_command", gone)
    monkeypatch.setattr("pcpg.cli.main.reader_has_gone", lambda stream: False)
    with pytest.raises(BrokenPipeError, match="the simulator has gone"):
        main(["envs"])


# The display.


def progress_of(step: int, **entries: Any) -> Progress:
    records = [
        {"seed": seed, "phase": "explore", "policies": 3, "env_steps": 1000, "train/bonus": 0.5 + seed}
        | {"return": -0.25, "coverage": 0.75}
        for seed in (0, 1)
    ]
    values = {"records": records, "env_steps": 2000, "seconds": 0.5, "seconds_left": 42.0, "compiled": True}
    return Progress(step=step, max_steps=14, **(values | entries))


def screen(progress: Progress | None) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    display = Display(console, title_of({"algo": "pcpg", "env": "CombinationLock-v0", "seed": 0, "seeds": 2}))
    if progress is not None:
        display(progress)
    with console.capture() as capture:
        console.print(display.live.get_renderable())
    return capture.get()


def test_the_live_display_tells_what_one_wants_to_know() -> None:
    text = screen(progress_of(3))
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "pcpg on CombinationLock-v0, seeds 0 to 1" in text and "round 3 of at most 14" in text
    heads, values = (line for line in text.splitlines() if "policies" in line or "1,000" in line)
    for head in ("policies", "steps per seed", "steps/s", "bonus", "return", "coverage"):
        assert head in heads
    for value in ("3", "1,000", "4,000", "0.5 to 1.5", "-0.25", "75%"):
        assert value in values
    assert "at most 42 s left" in text and "0:00 elapsed" in text


def test_the_live_display_says_that_it_compiles_and_when_it_is_done() -> None:
    assert "starting" in screen(None)
    empty = screen(progress_of(0, records=[], env_steps=0, compiled=False, seconds_left=None))
    assert "compiling" in empty and "policies" not in empty
    assert "done" in screen(progress_of(14))
    assert "unknown until the first round finishes" in screen(progress_of(1, seconds_left=None))


def test_the_time_left_never_rises_unsaid_and_a_late_run_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr("pcpg.training.display.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    display = Display(Console(file=io.StringIO()), "a run", said.append)
    for step, left in ((1, 80.0), (2, 75.0), (3, 50.0), (4, 45.0)):
        now[0] = 10.0 * step
        display(progress_of(step, seconds_left=left))
        said.append(display.left)
    assert [line for line in said if line.startswith("at most")] == [
        *("at most 80 s left", "at most 70 s left", "at most 50 s left", "at most 40 s left")
    ]
    now[0] = 200.0
    display(progress_of(5, seconds_left=1700.0))
    assert display.left == "taking longer than estimated: about 28 min left"
    now[0] = 300.0
    display(progress_of(6, seconds_left=1600.0))
    assert display.left == "at most 27 min left"


def test_progress_says_whether_the_reward_was_met() -> None:
    display = Display(Console(file=io.StringIO(), force_terminal=True), "a run")
    for met, said in (
        ({}, ""),  # nothing is known, or nothing is paid
        ({0: None, 1: None}, "reward not met yet"),
        ({0: 12_000, 1: None}, "reward met by 1 of 2 seeds, first after 12k steps"),
        ({0: 12_000, 1: 2100}, "reward met, first after 2.1k steps"),
        ({0: 0}, "reward met"),  # in the data that were given
    ):
        display(progress_of(1, met=met))
        assert display.reward == said


def test_a_baseline_shows_no_cover() -> None:
    records = [{"seed": 0, "phase": "exploit", "env_steps": 10, "return": 1.0}]
    text = screen(progress_of(2, records=records))
    assert "policies" not in text and "coverage" not in text and "1.00" in text


def test_the_live_display_gives_the_cursor_back() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Display(console, title_of({"algo": "ppo", "env": "Chain-v0", "seed": 7, "seeds": 1})) as display:
        display(progress_of(1))
        assert display.live.is_started
    assert not display.live.is_started
    text = console.file.getvalue()
    assert "seed 7" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_times_and_shades_are_short() -> None:
    assert [duration(s) for s in (-1, 4.4, 89, 600, 9000)] == ["0 s", "4 s", "89 s", "10 min", "2.5 h"]
    assert [clock_time(s) for s in (5, 65, 3723)] == ["0:05", "1:05", "1:02:03"]
    assert [shade(x) for x in (0, 0.1, 0.3, 0.6, 1.0)] == ["·", "░", "▒", "▓", "█"]


def test_runs_without_a_folder_of_their_own_begin_at_once_each_in_another(
    tmp_path: Path, tiny: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig.from_json(tiny("ppo"))
    with ThreadPoolExecutor(3) as pool:
        began = [pool.submit(start_in, "", config) for _ in range(6)]
    names = sorted(one.result().path.name for one in began)
    assert names == [f"CombinationLock-v0-ppo-{number}" for number in range(1, 7)]
