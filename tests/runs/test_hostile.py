"""Attacks by a run folder: it runs no code, leads nowhere outside of itself, and is refused in words and in time."""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import pcpg
from pcpg.cli.main import COMMANDS, Command
from pcpg.cli.watch import HERE
from pcpg.config import ConfigError
from pcpg.envs.adapters.names import Untrusted, outside_module
from pcpg.reports.page import render, write_report
from pcpg.reports.read import read_run
from pcpg.run_config import RunConfig
from pcpg.runs.documents import read_json, write_json
from pcpg.runs.errors import RunError
from pcpg.runs.folder import RunFolder
from pcpg.runs.manifest import read_manifest, write_manifest
from pcpg.runs.metrics import first_reward, numbers_of
from pcpg.training.display import printable
from pcpg.training.loop import train_run
from pcpg.training.restore import restore
from pcpg.training.storage import bound_agent
from tests.damage import seal_anew

pytestmark = pytest.mark.usefixtures("compile_once")

PAYLOAD = """
import os, pathlib
pathlib.Path(os.environ["MARK"]).write_text("the payload ran")
import gymnasium
gymnasium.register("Harmful-v0", entry_point="gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv")
"""
HOSTILE = "gymnasium:payload:Harmful-v0"
SMALL = {
    "ppo": {"num_updates": 1, "num_episodes": 16, "hidden": [8]},
    "explore": {"max_policies": 2, "visit_episodes": 16, "num_groups": 4},
    "exploit": {"num_rounds": 1},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run on somebody else's environment."""
    out = tmp_path_factory.mktemp("hostile") / "run"
    options = {"num_envs": 4, "map_name": "4x4", "max_steps": 8}
    return pcpg.train("gymnasium:FrozenLake-v1", config=SMALL, out=out, **options).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What the payload writes when it runs; it lies in the folder and can be imported."""
    path = tmp_path / "mark"
    monkeypatch.setenv("MARK", str(path))
    monkeypatch.syspath_prepend(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    yield path
    sys.modules.pop("payload", None)


@pytest.fixture(autouse=True)
def one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pcpg watch` shows its page once and is done."""

    def serve(server: HTTPServer) -> None:
        url = f"http://{HERE}:{server.server_port}/"
        with ThreadPoolExecutor(1) as browser:
            page = browser.submit(lambda: urlopen(url, timeout=120).read())
            server.handle_request()
            assert page.result()

    monkeypatch.setattr(HTTPServer, "serve_forever", serve)


def forge(run: Path, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change a file as somebody would who knows how folders are sealed: all hashes fit."""
    write_json(run / name, change(read_json(run / name).content), sealed=name == "config.json")
    seal_anew(run, name)


def make_hostile(run: Path, env: str = HOSTILE, **options: Any) -> Path:
    (run / "payload.py").write_text(PAYLOAD)
    forge(run, "config.json", lambda config: config | {"env": env, "env_options": config["env_options"] | options})
    forge(run, "environment.json", lambda content: content | {"env": env})
    return run


def test_no_command_runs_what_a_folder_names(run: Path, mark: Path, cli: Any, tmp_path: Path) -> None:
    make_hostile(run)
    for command in (("report", run), ("show", run), ("verify", run)):
        assert cli(*command).code == 0, command
    loaded = pcpg.load(run)
    assert loaded.policy.act(3) in range(4) and len(loaded.cover.used) == 2 and loaded.features.dim == 64
    video = ("video", run, "--out", tmp_path / "v.gif")
    for command in (
        ("evaluate", run),
        ("resume", run),
        video,
        ("exploit", run),
        ("train", "--config", run / "config.json"),
    ):
        answer = cli(*command)
        if command[0] != "resume":  # a finished run is left alone
            assert answer.code == 2 and "the module 'payload'" in answer.err and "--trust" in answer.err, command
    for call in (loaded.evaluate, lambda: pcpg.exploit(run)):
        with pytest.raises(Untrusted, match="the module 'payload'"):
            call()
    assert not mark.exists() and "payload" not in sys.modules


def test_an_unfinished_folder_runs_nothing_when_it_is_resumed(run: Path, mark: Path, cli: Any) -> None:
    make_hostile(run)
    write_manifest(run, read_manifest(run)._replace(finished=False))
    answer = cli("resume", run)
    assert answer.code == 2 and "'payload'" in answer.err and not mark.exists()


def test_whoever_trusts_the_folder_gets_what_it_names(run: Path, mark: Path, cli: Any) -> None:
    make_hostile(run)
    assert cli("evaluate", run, "--episodes", 2, "--trust", "--json").json["episodes"] == 2
    assert mark.read_text() == "the payload ran", "so it would have, without the question"


@pytest.mark.parametrize(
    ("env", "options", "asked"),
    [
        ("CombinationLock-v0", {}, None),
        ("gymnasium:FrozenLake-v1", {"map_name": "4x4", "desc": ["SF", "FG"], "is_slippery": False}, None),
        ("gymnasium:FrozenLake-v1", {"desc": "/etc/passwd"}, "option 'desc'"),
        ("gymnasium:a.b:X-v0", {}, "'a.b'"),
        ("gymnasium:GymV26Environment-v0", {"env_id": "evil:X-v0"}, "module"),
        ("python:os.system", {}, None),  # looked up among the functions of this process, and never imported
    ],
)
def test_what_making_an_environment_would_import_is_known_before(env: str, options: Any, asked: str | None) -> None:
    found = outside_module(env, options)
    assert found is None if asked is None else asked in str(found)


PATHS = {
    "gymnasium:ALE/Pong-v5": "ale_py",
    "gymnasium:ALE-Pong-v5": "ale_py",
    "gymnasium:dm_control/cartpole-swingup-v0": "shimmy",
    "gymnasium:FetchReach-v4": "gymnasium_robotics",
    "gymnasium:BabyAI/GoToRedBall-v0": "minigrid",
    "gymnasium:MiniGrid/Empty-5x5-v0": "minigrid",
    "gymnasium:MiniGrid-Empty-5x5-v0": "minigrid",
    "gymnasium:evil:Id-v0": "evil",
    "gymnasium:evil/inner:ALE/Pong-v5": "evil/inner",
    "bsuite:deep_sea/0": "bsuite",
    "gymnax:CartPole-v1": "gymnax",
    "payload:Harmful": "payload",
    "run/payload.py:Harmful": "run/payload.py",
}
"""Ids, and the module that making each environment would import; here it lies in the folder."""
READERS = {name for name, command in COMMANDS.items() if isinstance(command, Command)} - {
    *("sweep", "tune", "look", "envs", "reproduce", "theory")  # these take no run folder
}


def as_sealed(run: Path) -> None:
    """The finished run with all its files."""


def as_unfinished(run: Path) -> None:
    write_manifest(run, read_manifest(run)._replace(finished=False))


def as_unsealed(run: Path) -> None:
    (run / "manifest.json").unlink()
    write_json(run / "config.json", read_json(run / "config.json").content)


def as_lone_config(run: Path) -> None:
    for path in run.iterdir():
        if path.name != "config.json" and path.suffix != ".py":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_json(run / "config.json", read_json(run / "config.json").content)


@pytest.mark.parametrize("state", [as_sealed, as_unfinished, as_unsealed, as_lone_config])
@pytest.mark.parametrize("env", PATHS)
def test_no_command_imports_a_module_for_an_id_that_only_the_folder_names(
    run: Path, mark: Path, cli: Any, env: str, state: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = PATHS[env]
    make_hostile(run, env)
    monkeypatch.delitem(sys.modules, module, raising=False)
    (run / f"{module.replace('/', '_')}.py").write_text(PAYLOAD)
    state(run)
    for name in sorted(READERS):
        words = ("train", "--config", run / "config.json") if name == "train" else (name, run)
        more = ("--steps", "+100") if name == "resume" else ()
        answer = cli(*words, *more)
        assert not mark.exists(), (name, answer)
        if name in ("resume", "exploit", "train"):
            assert answer.code == 2 and f"{module!r}" in answer.err and "--trust" in answer.err, (name, answer)


def test_a_package_that_lies_in_the_folder_is_not_taken_for_an_installed_one(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "bsuite.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert "bsuite" in str(outside_module("bsuite:deep_sea/0", {}))


def test_names_of_features_and_rewards_are_looked_up_and_never_imported(run: Path, mark: Path, cli: Any) -> None:
    forge(run, "config.json", lambda config: config | {"features": "python:payload.phi"})
    (run / "payload.py").write_text(PAYLOAD)
    assert cli("report", run).code == 0
    with pytest.raises(ValueError, match="are a Python function, which a run folder does not hold"):
        _ = pcpg.load(run).features
    source = {
        "source": {"run": str(run), "reward": {"name": "payload.reward", "sha256": "0"}, "members": [], "covers": {}}
    }
    forge(run, "config.json", lambda config: config | source)
    with pytest.raises(ConfigError, match="was given the reward"):
        pcpg.load(run)
    assert not mark.exists()


# Links, pipes and devices.


@pytest.fixture
def limit() -> Iterator[None]:
    """Nothing here may take longer than this."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def as_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def as_device(path: Path, victim: Path) -> None:
    path.symlink_to("/dev/zero")


def as_pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def as_socket(path: Path, victim: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


NAMES = ("config.json", "manifest.json", "environment.json", "metrics.jsonl", "timings.jsonl", "policy.safetensors")
NAMES += ("summary.json", "cover/0000.safetensors", "checkpoints/000003/state.json", "report.html", ".lock")


@pytest.mark.parametrize("put", [as_link, as_device, as_pipe, as_socket])
def test_nothing_strange_in_a_folder_is_followed(run: Path, tmp_path: Path, put: Any, limit: None, cli: Any) -> None:
    for name in NAMES:
        own = shutil.copytree(run, tmp_path / f"own-{name.replace('/', '-')}")
        victim = tmp_path / "victim"
        victim.write_bytes((own / name).read_bytes() if (own / name).exists() else b"precious")
        before = victim.read_bytes()
        (own / name).unlink(missing_ok=True)
        put(own / name, victim)
        for read in (pcpg.load, pcpg.resume, RunFolder.open, lambda path: write_report([path])):
            with pytest.raises(RunError, match=r"is a (link|pipe|socket|device)"):
                read(own)
        assert cli("verify", own).code == 2
        assert victim.read_bytes() == before, name


@pytest.mark.parametrize("name", ["checkpoints", "cover", "checkpoints/000003", "tensorboard"])
def test_a_folder_that_is_a_link_is_neither_read_nor_emptied(run: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "000001").mkdir(parents=True)
    (elsewhere / "seed-0").mkdir()
    (elsewhere / "seed-0" / "events.out.tfevents.1").write_text("precious")
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(RunError, match="is a link"):
        train_run(RunFolder(run, {}, {}), loggers=["tensorboard"])
    assert (elsewhere / "000001").is_dir() and (elsewhere / "seed-0" / "events.out.tfevents.1").exists()


@pytest.mark.parametrize("put", [as_link, as_device, as_pipe, as_socket])
def test_a_copy_of_a_run_follows_nothing_and_is_whole_or_not_there(
    run: Path, tmp_path: Path, put: Any, limit: None
) -> None:
    (tmp_path / "victim").write_text("precious")
    loaded = pcpg.load(run)
    (run / "cover" / "inner").mkdir()
    put(run / "cover" / "inner" / "notes.txt", tmp_path / "victim")
    with pytest.raises(RunError, match=r"notes\.txt: is a (link|pipe|socket|device)"):
        loaded.save(tmp_path / "saved")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "victim"]
    (run / "cover" / "inner" / "notes.txt").unlink()
    saved = loaded.save(tmp_path / "saved")
    theirs, ours = ({path.relative_to(at): path for at in [root] for path in root.rglob("*")} for root in (run, saved))
    assert theirs.keys() - ours.keys() == {Path(".lock")} or theirs.keys() == ours.keys()
    assert all(path.read_bytes() == theirs[name].read_bytes() for name, path in ours.items() if path.is_file())


def test_a_planted_temporary_file_is_not_written_through(run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run / f".tmp-report.html-{os.getpid()}").symlink_to(victim)
    write_report([run])
    assert victim.read_text() == "precious" and (run / "report.html").stat().st_size > 1000


# What is too much.


def test_nested_json_and_huge_headers_are_refused_in_words(run: Path, limit: None) -> None:
    (run / "manifest.json").write_bytes(b'{"content": ' + b"[" * 1_000_000 + b"\n")
    with pytest.raises(RunError, match=r"manifest\.json"):
        pcpg.load(run)
    for depth in (70, 500, 990):  # what parses may still be too deep for a walk
        (run / "manifest.json").write_bytes(b'{"content": ' + b"[" * depth + b"]" * depth + b"}\n")
        with pytest.raises(RunError, match="nested too deeply"):
            pcpg.load(run)
    (run / "config.json").write_bytes(b"[" * (17 << 20))
    with pytest.raises(RunError, match=r"config\.json: too large: 17,825,792 bytes, expected at most 16,777,216"):
        pcpg.load(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seeds", None),
        ("final_return", 7),
        ("env_steps", ["a"]),
        ("rounds", []),
        ("failed", ["0"]),
        ("policies", [1] * 9),
    ],
)
def test_a_summary_that_says_something_else_is_refused_in_words(run: Path, name: str, value: Any) -> None:
    forge(run, "summary.json", lambda summary: summary | {name: value})
    with pytest.raises(RunError, match=rf"summary\.json: {name} must"):
        pcpg.load(run)
    assert any(f"{name} must" in note for note in read_run(run).notes)


@pytest.mark.parametrize(
    ("name", "value"),
    [("members", "abc"), ("metrics", "x" * 1000), ("metrics", [1 << 60, "0"]), ("failed", []), ("device", {})],
)
def test_a_checkpoint_that_says_something_else_is_refused_in_words(run: Path, name: str, value: Any) -> None:
    for path in sorted((run / "checkpoints").iterdir()):
        inside = path.relative_to(run).as_posix() + "/state.json"
        forge(run, inside, lambda content: content | {"state": content["state"] | {name: value}})
    with pytest.raises(RunError, match=r"no intact checkpoint .*state\.json"):
        RunFolder.open(run).newest_checkpoint()


def test_a_config_without_its_environment_is_refused_by_whoever_reads(run: Path, cli: Any) -> None:
    forge(run, "config.json", lambda config: {name: value for name, value in config.items() if name != "env"})
    for command in ("show", "report", "evaluate", "exploit", "resume"):
        answer = cli(command, run)
        assert answer.code == 2 and "'env' is missing" in answer.err, (command, answer)


@pytest.mark.parametrize("value", [{}, [1], "x", {"nested": 1}])
def test_a_metric_that_is_no_number_is_left_out_of_the_page(run: Path, value: Any) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name in lines[0].keys() - {"step", "seed", "round", "env_steps", "return", "cells", "phase"}:
        lines[0][name] = value
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "<html" in render([read_run(run)])


@pytest.mark.parametrize(
    "report", [{"seed": 7}, {"seed": [0]}, {}, {"seed": 0, "met_at": "x"}, {"seed": 0, "return": 1.0}]
)
def test_reports_of_another_seed_or_without_numbers_tell_nothing_of_a_first_reward(report: Any) -> None:
    assert first_reward([numbers_of(report)]).at is None


def test_a_line_of_timings_with_another_name_is_left_out_of_the_page(run: Path) -> None:
    text = (run / "timings.jsonl").read_text()
    (run / "timings.jsonl").write_text(text.replace('"seconds"', '"secondz"', 1))
    found = read_run(run)
    assert found.timings == [] and any("line 1 has no number seconds" in note for note in found.notes)


@pytest.mark.parametrize("visits", ["x", 7, [], [1], [None] * 12, [-1] * 12, [10**30] * 12, [[1]] * 12, {}])
def test_visits_that_are_no_number_for_each_cell_are_left_out_of_the_page(tmp_path: Path, visits: Any) -> None:
    small = {"ppo": SMALL["ppo"], "budget": 100, "visit_episodes": 8}
    run = pcpg.train("CombinationLock-v0", "ppo", horizon=2, config=small, out=tmp_path / "run", quiet=True).path
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines[0]["cells"]) == 12 and len(lines) > 1
    lines[1]["cells"] = visits
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal_anew(run, "metrics.jsonl")
    write_report([run])
    assert "line 2 has no number of visits for each cell" in " ".join(read_run(run).notes)


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_name_that_is_too_long_or_has_a_surrogate_is_refused_in_one_line(tmp_path: Path, cli: Any, name: str) -> None:
    for folder in (tmp_path / ("x" * 300), tmp_path / "\udcff" / "y", "x" * 5000):
        answer = cli(*(("train", "--config", folder) if name == "train" else (name, folder)))
        assert answer.code == 2 and answer.err.count("\n") == 1, answer


def test_an_array_file_with_a_huge_header_is_refused(tmp_path: Path) -> None:
    from pcpg.runs.arrays import read_arrays

    for header in (2**63 - 1, 1 << 30):
        (tmp_path / "a.safetensors").write_bytes(header.to_bytes(8, "little") + b"{" + b" " * 100)
        with pytest.raises(RunError, match=r"a\.safetensors"):
            read_arrays(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("seeds", 10**7, "seeds must be at most 100,000"),
        ("seeds", 0, "seeds must be at least 1"),
        ("seed", -5, "seed must be at least 0"),
        ("seed", 2**62, "seed must be at most 4,294,967,295"),
        ("seeds", "2", "seeds must be a int"),
        ("agent", [], "agent must be a dict"),
        ("env_options", None, "env_options must be a dict"),
    ],
)
def test_a_config_of_nonsense_is_refused_before_it_takes_memory(
    run: Path, entry: str, value: Any, message: str, cli: Any
) -> None:
    forge(run, "config.json", lambda config: config | {entry: value})
    for command in ("report", "show", "resume", "evaluate"):
        answer = cli(command, run)
        assert answer.code == 2 and message in answer.err, command


def test_networks_far_larger_than_the_arrays_of_a_folder_are_refused_before_any_is_made(run: Path, cli: Any) -> None:
    forge(run, "config.json", lambda config: config | {"agent": config["agent"] | {"ppo": HUGE}})
    said = "bytes of arrays, but its settings need networks of"
    for command in ("evaluate", "exploit"):
        answer = cli(command, run)
        assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1, (command, answer)
    folder, notices = RunFolder.open(run), list[str]()
    config = RunConfig.from_json(folder.config, pcpg.load(run).env)
    agent = bound_agent(config, pcpg.load(run).env)
    with pytest.raises(RunError, match=said):
        restore(folder, agent, config, None, notices.append)


HUGE = {"num_updates": 1, "num_episodes": 16, "hidden": [8, 30_000, 30_000, 8]}
"""Settings of which only the layers in the middle are large."""


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
@pytest.mark.parametrize(
    "space",
    [
        {"kind": "Box", "shape": [10_000, 10_000], "low": 0, "high": 1},
        {"kind": "Discrete", "n": 10**9},
        {"kind": "MultiDiscrete", "sizes": [10**6] * 100},
    ],
)
def test_spaces_that_no_network_has_are_refused(run: Path, name: str, space: dict[str, Any], cli: Any) -> None:
    forge(run, "environment.json", lambda content: content | {name: space})
    answer = cli("evaluate", run)
    assert answer.code == 2 and "environment.json: not a description" in answer.err and answer.err.count("\n") == 1


def test_recorded_spaces_of_nonsense_are_refused_where_they_are_needed(run: Path) -> None:
    forge(run, "environment.json", lambda content: content | {"spaces": {"observation": 5, "action": []}})
    with pytest.raises(ValueError, match="not the spaces of gymnasium:FrozenLake-v1"):
        pcpg.load(run).policy.act(3)


@pytest.mark.parametrize(
    "source",
    [
        {"a": 1},
        {"run": 5, "members": [], "covers": {}},
        {"run": "x", "members": [5], "covers": {}},
        {"run": "x", "members": [], "covers": 5},
        {"run": "x", "members": [], "covers": {}},
        {"run": "x", "members": [], "covers": {"0": {"weights": "x"}}},
    ],
)
def test_a_source_of_nonsense_is_refused_in_words(run: Path, source: dict[str, Any], cli: Any) -> None:
    forge(run, "config.json", lambda config: config | {"source": source})
    write_manifest(run, read_manifest(run)._replace(finished=False))
    answer = cli("resume", run, "--trust")
    assert answer.code == 2 and answer.err.count("\n") == 1, answer


@pytest.mark.parametrize(
    "env", [{"env": "Maze-v0", "env_options": {"size": 10**7}}, {"env": "DeepSea-v0", "env_options": {"size": 10**6}}]
)
def test_a_size_that_cannot_fit_is_refused(env: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="size must be at most 1,000"):
        pcpg.make(env["env"], **env["env_options"])


# What reaches a page or a terminal.


def test_text_of_a_folder_is_text_on_the_page_the_terminal_and_in_formulas(run: Path, tmp_path: Path, cli: Any) -> None:
    odd = tmp_path / "$x_{1}^$ run[/b][red]\x1b[2J<script>alert(1)</script>"[:60]
    odd = Path(str(odd).replace("/script", "").replace("[/b]", "[b]"))
    shutil.move(run, odd)
    answer = cli("report", odd, "--json")
    assert answer.code == 0 and "\x1b[2J" not in answer.err
    text = (odd / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    forge(odd, "config.json", lambda config: config | {"env": "gymnasium:<img src=x onerror=alert(1)>"})
    other = shutil.copytree(odd, tmp_path / "$\\frac{1}{0$ and $")  # two of one algorithm: their names are in a figure
    write_report([odd, other], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img src=x" not in text and "$\\frac{1}{0$ and $" in text


def test_what_steers_a_terminal_is_shown_as_its_code(cli: Any, tmp_path: Path) -> None:
    assert printable("a\x1b[31mb\x07\u202ec\nd\té") == "a\\x1b[31mb\\x07\\u202ec\nd\té"
    answer = cli("evaluate", tmp_path / "no\x1b]0;title\x07[/x]such")
    assert answer.code == 2 and "\x1b]0" not in answer.err and "[/x]such" in answer.err


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_line_break_in_a_name_begins_no_line(tmp_path: Path, cli: Any, name: str) -> None:
    folder = tmp_path / "no\nerror: all is well"
    answer = cli(*(("train", "--config", folder) if name == "train" else (name, folder)))
    assert answer.code == 2 and answer.err.count("\n") == 1 and "no\\nerror: all is well" in answer.err


def test_a_name_with_markup_trains_and_says_its_name(cli: Any, tmp_path: Path, config_file: Any, tiny: Any) -> None:
    agent = tiny("ppo")["agent"] | {"budget": 1}
    out = tmp_path / "run[/x][bold]"
    answer = cli("train", "--config", config_file("ppo", agent=agent), "--out", out)
    assert answer.code == 0 and json.dumps(str(out))[1:-1] in answer.out
