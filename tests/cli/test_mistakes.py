"""Mistakes as people make them, written down by hand: one line that says what to do, and nothing left behind."""

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import pcpg
from pcpg.budget import read_steps
from pcpg.runs.errors import RunError
from pcpg.runs.folder import differences

LOCK = "CombinationLock-v0"
OWN = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Grid(gymnasium.Env):
    observation_space, action_space, max_steps = spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(2), 5

    def __init__(self, size=3, render_mode=None):
        self.size = size

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class NotAnEnvironment:
    pass


class NoSpaces(gymnasium.Env):
    pass


class NeedsAPath(Grid):
    def __init__(self, path):
        super().__init__()


def without_license():
    raise RuntimeError("no license")


size = 3
"""
FILES = {
    "own.py": OWN,
    "torn.py": "class Grid(\n",
    "needs.py": "import not_installed\n",
    "trailing.json": '{"algo": "ppo",}',
    "list.json": "[1, 2]",
    "words.json": '{"agent": {"ppo": {"hidden": "64"}}}',
    "large.json": '{"agent": {"ppo": {"learning_rate": 1e400}}}',
    "settings.yaml": "algo: ppo\n",
    "plain.py": "x = 1\n",
    "scalar.py": f"SWEEP = {{'base': {{'env': '{LOCK}', 'algo': 'ppo'}}, 'grid': {{'agent.ppo.gamma': 0.9}}}}\n",
    "unknown.py": f"SWEEP = {{'base': {{'env': '{LOCK}', 'algo': 'ppo'}}, 'grid': {{'agent.ppo.lr': [1]}}}}\n",
    "search.py": f"SWEEP = {{'base': {{'env': '{LOCK}'}}, 'tune': {{'search': {{'seed': [1, 2]}}}}}}\n",
    "torn.toml": "[base\n",
}

COMMANDS: list[tuple[str, str]] = [
    # the environment
    ("train own.py", "did you mean 'own.py:NAME'"),
    ("train own.py:grid", "own.py has no 'grid'; did you mean own.py:Grid?"),
    ("train own:Gird", "own has no 'Gird'; did you mean own:Grid?"),
    (
        "train own.py:NotAnEnvironment",
        "must give a gymnasium.Env or a gymnasium.vector.VectorEnv, got Not",
    ),
    ("train own.py:size", "got int"),
    ("train own.py:NoSpaces", "observation_space must be a space of gymnasium.spaces, got None"),
    ("train own.py:NeedsAPath", "missing a required argument: 'path'"),
    ("train own.py:without_license", "cannot be made: RuntimeError: no license ("),
    ("look own.py:without_license", "cannot be made: RuntimeError: no license ("),
    ("train own.py:Grid --env.siz 4", "did you mean 'size'?"),
    ("train own.py:Grid --algo ppo --workers 100000", "workers on this machine must be at most"),
    ("train torn.py:Grid", "torn.py failed: SyntaxError: '(' was never closed (torn.py, line 1)"),
    ("train needs.py:Grid", "No module named 'not_installed'"),
    ("train missing.py:Grid", "there is no file"),
    ("train nowhere:Grid", "there is no module 'nowhere'"),
    ("train gym:CartPole-v1", "did you mean 'gymnasium:CartPole-v1'?"),
    ("train gymnasium:CartPole", "did you mean 'CartPole-v1'?"),
    ("train cartpole", "did you mean 'gymnasium:CartPole-v1'?"),
    ("train CombinationLock", "did you mean 'CombinationLock-v0'?"),
    # the algorithm and its settings
    (f"train ppo {LOCK}", "'ppo' is an algorithm, which a flag names: pcpg train ENV --algo ppo"),
    (f"train {LOCK} ppo", "'ppo' is an algorithm, which a flag names: pcpg train ENV --algo ppo"),
    (f"train {LOCK} --algo pcpg_replay", "did you mean 'pcpg-replay'?"),
    (f"train {LOCK} --algo ppo,sac", "unknown algorithm 'ppo,sac'"),
    (f"train {LOCK} --algo sac --explore.updates 5", "agent.explore.updates: sac is the algorithm without it"),
    (f"train {LOCK} --algo ppo --ppo.hidden x", "--ppo.hidden must be an integer, got 'x'"),
    (f"train {LOCK} --algo ppo --ppo.hidden", "hidden must name a layer or more"),
    (f"train {LOCK} --algo ppo --ppo.gamma 1.5", "gamma must lie between 0.0 and 1.0, got 1.5"),
    (f"train {LOCK} --features random-mlp --phi.num-features 0", "num_features must be at least 1, got 0"),
    (f"train {LOCK} --features random-mlp --phi.hidden 0", "each of hidden must be at least 1, got 0"),
    # budgets
    (f"train {LOCK} --steps 1million", "steps must be a number such as 500k, 1M or 200000, got '1million'"),
    (f"train {LOCK} --steps 0.5", "steps must be a number such as 500k, 1M or 200000, got '0.5'"),
    (f"train {LOCK} --steps 1.5", "got '1.5'"),
    (f"train {LOCK} --time 1:30", "a time must look like 90s, 10m or 1.5h"),
    (f"train {LOCK} --seeds 1,2,3", "--seeds must be an integer, got '1,2,3'"),
    # files
    (f"train {LOCK} --out own.py", "own.py is a file: choose another --out"),
    ("train --config settings.yaml", "is not JSON"),
    ("train --config trailing.json", "is not JSON: Expecting property name"),
    (f"train {LOCK} --config list.json", "must hold a JSON object, got a list"),
    (f"train {LOCK} --algo ppo --config words.json", "agent.ppo.hidden must be a list, got '64'"),
    (f"train {LOCK} --algo ppo --config large.json", "must be finite, got inf"),
    ("train --config RUN", "is a folder, expected a file"),
    ("resume RUN/config.json", "a file, not a run folder"),
    ("resume own.py", "a file, not a run folder"),
    ("resume .", "is not a run folder: it holds no config.json"),
    ("resume RUN --steps 10", "adds none: write +10 to add that many"),
    ("evaluate RUN --episodes 0", "episodes must be at least 1, got 0"),
    ("report RUN --out own.py", "a file of another kind is there and is not replaced"),
    ("report RUN nowhere", "nowhere: no such folder"),
    ("video RUN --out x.avi", "a video is a .gif or an .mp4 file, got 'x.avi'"),
    ("watch RUN --port http", "--port must be an integer, got 'http'"),
    ("sweep plain.py", "plain.py must define SWEEP, a mapping, got None"),
    ("sweep scalar.py", "grid.agent.ppo.gamma must be a list of values, got 0.9"),
    ("sweep unknown.py", "unknown entry of agent.ppo 'lr'; did you mean 'learning_rate'?"),
    ("sweep needs.py", "needs.py, line 1: ModuleNotFoundError: No module named 'not_installed'"),
    ("sweep search.py", "has a table [tune], which a sweep does not read: pcpg tune search.py"),
    ("sweep torn.toml", "is not TOML"),
    ("sweep status RUN", "is not the folder of a sweep: it holds no sweep.json"),
    # commands
    ("version", "did you mean '--version'?"),
    ("-v", "did you mean '--version'?"),
    ("hub export RUN", "did you mean 'pcpg.hub.export(run, folder) in Python'?"),
    ("look own.py:Grid --steps 1k", "Unrecognized options: --steps, 1k (see pcpg look --help)"),
    ("help verfy", "unknown command 'verfy'; did you mean 'verify'?"),
    # habits of other libraries
    ("train own", "did you mean 'own:NAME'"),
    ("train own.Grid", "did you mean 'own:Grid'"),
    ("train own/Grid", "did you mean 'own:Grid'"),
    ("train gymnasium:own:Grid", "It is no id but a name in a module: own:Grid"),
    ("train --env-id CartPole-v1", "the environment is the first word: pcpg train CartPole-v1"),
    ("train PongNoFrameskip-v4", "did you mean 'gymnasium:ALE/Pong-v5'"),
    ("train own.py:Grid --seed -1", "seed must lie between 0 and"),
    ("train own.py:Grid --seeds 0 1 2", "got 0: it is how many, and seed is the first"),
    (f"train {LOCK} --algo dqn", "did you mean 'sac'"),
    (f"train {LOCK} --algo TD3", "did you mean 'sac'"),
    (f"train {LOCK} --algo A2C", "did you mean 'ppo'"),
    (f"train {LOCK} --hyperparams n_steps:512", "here: --config FILE"),
    (f"train {LOCK} --env-kwargs render_mode:human", "here: --env.size 10"),
    (f"train {LOCK} --vec-env subproc", "here: --workers 8"),
    (f"train {LOCK} --render", "here: pcpg video RUN afterwards"),
    (f"train {LOCK} --save-freq 1000", "1000; every round is saved in the run folder"),
    (f"train {LOCK} --trained-agent old", "here: pcpg resume RUN"),
    (f"train {LOCK} --resume", "here: pcpg resume RUN"),
    (f"train {LOCK} -f logs", "here: --out runs/mine"),
    (f"train {LOCK} -i model.zip", "here: pcpg resume RUN"),
    (f"train {LOCK} --overwrite", "runs are never overwritten, choose another --out"),
    (f"train {LOCK} --optimize-hyperparameters", "here: pcpg tune PLAN"),
    (f"train {LOCK} --max-episode-steps 100", "here: --env.max-steps 200"),
    (f"train {LOCK} --max-steps 100", "here: --env.max-steps 200"),
    (f"train {LOCK} --frame-stack 4", "here: a function that wraps it, as FILE.py:NAME"),
    (f"train {LOCK} --algo ppo --normalize", "here: --ppo.normalise-observations"),
    (f"train {LOCK} --policy MlpPolicy", "MlpPolicy; networks follow from the spaces"),
    (f"train {LOCK} --verbose 1", "1; progress goes to stderr"),
    (f"train {LOCK} --algo ppo --ppo.n-steps 128", "did you mean --ppo.num-episodes"),
    (f"train {LOCK} --algo ppo-rnd --bonus.int-coef 1", "did you mean --bonus.coef"),
    (f"train {LOCK} --algo sac --learn.batch-size 64", "did you mean --learn.batch "),
    ("evaluate RUN --n-eval-episodes 10", "here: --episodes"),
    ("evaluate RUN --deterministic", "here: --greedy"),
    ("evaluate RUN --render", "here: pcpg video RUN afterwards"),
    ("video RUN --length 100", "here: --max-frames"),
    ("video RUN -o x.gif", "here: --out"),
    ("resume RUN --total-timesteps 100", "here: --steps"),
    ("report RUN --out page.pdf", "a report is an .html file, got 'page.pdf'"),
    ("predict RUN", "did you mean 'evaluate'"),
    ("config RUN", "unknown command 'config'. Valid: train"),
    ("tune own:Grid", "own:Grid: no such file; a plan is a .toml or a .py file"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = {"ppo": {"num_updates": 1, "num_episodes": 16, "hidden": [8]}, "budget": 100, "visit_episodes": 16}
    return pcpg.train(LOCK, "ppo", horizon=2, config=small, out=tmp_path_factory.mktemp("run") / "run", quiet=True).path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pcpg.envs.adapters.from_module.HERE", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "said"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_a_mistake_is_one_line_and_leaves_nothing(
    words: str, said: str, here: Path, run: Path, cli: Callable[..., Any]
) -> None:
    before = {path.name for path in here.iterdir()} | {"__pycache__"}
    answer = cli(*(word.replace("RUN", str(run)) for word in words.split()))
    assert answer.code == 2 and answer.err.count("\n") == 1, answer.err
    assert said in answer.err, answer.err
    assert {path.name for path in here.iterdir()} <= before


def test_help_of_a_command_can_be_asked_for_in_every_order(cli: Callable[..., Any]) -> None:
    shown = [cli(*words).out for words in (("verify", "--help"), ("help", "verify"), ("--help", "verify"))]
    assert shown[0].startswith("usage: pcpg verify DIR") and shown[1] == shown[2] == shown[0]


def test_lists_can_be_written_with_commas(cli: Callable[..., Any], tmp_path: Path) -> None:
    small = ["--ppo.num-updates", "1", "--ppo.num-episodes", "16", "--steps", "300", "--env.horizon", "2"]
    for number, words in enumerate((["8,4"], ["[8,", "4]"], ["8", "4"], ["[8,4]"])):
        out = tmp_path / str(number)
        answer = cli("train", LOCK, "--algo", "ppo", *small, "--out", out, "--ppo.hidden", *words)
        if number == 1:
            assert answer.code == 2 and "--ppo.hidden must be an integer, got '[8,'" in answer.err
        else:
            assert answer.code == 0 and tuple(pcpg.load(out).config.agent.ppo.hidden) == (8, 4)


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
def test_a_metric_that_no_round_reports_ends_the_search_after_one_trial(
    tmp_path: Path, tiny: Callable[..., Any], cli: Callable[..., Any]
) -> None:
    search = {"agent.ppo.entropy_coef": {"low": 0.0, "high": 0.1}}
    entries = {"base": tiny("ppo"), "tune": {"trials": 9, "metric": "rewrad", "search": search}}
    (tmp_path / "search.py").write_text(f"SWEEP = {entries!r}")
    found = cli("tune", tmp_path / "search.py", "--out", tmp_path / "out", "--slots", "1")
    assert found.code == 2 and "unknown metric 'rewrad'" in found.err and "return" in found.err, found.err
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 1


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
def test_a_search_takes_the_final_return_where_no_round_reports_one(tmp_path: Path, cli: Callable[..., Any]) -> None:
    agent = {"learn": {"hidden": [8], "batch": 8, "updates": 1.0}, "explore": {"num_features": 8}, "budget": 60}
    base = {"env": "PointMass-v0", "env_options": {"steps": 10}, "algo": "pcpg-deep", "agent": agent}
    search = {"agent.learn.learning_rate": {"low": 1e-4, "high": 1e-3}}
    (tmp_path / "search.py").write_text(f"SWEEP = { ({'base': base, 'tune': {'trials': 1, 'search': search}})!r}")
    found = cli("tune", tmp_path / "search.py", "--out", tmp_path / "out", "--slots", "1")
    assert found.code == 0 and "best: return 0" in found.out, found


class Grid(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    max_steps = 5


def without_license() -> Grid:
    raise RuntimeError("no license")


PCPG: Any = pcpg  # whose types would refuse these calls as well
CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda run: pcpg.train(Grid()), "reset"),
    (lambda run: pcpg.train(without_license), "no license"),
    (lambda run: pcpg.train(LOCK, total_steps=0.5), "steps must be a number such as 500k"),
    (lambda run: pcpg.train(LOCK, total_steps="0.5"), "steps must be a number such as 500k"),
    (lambda run: pcpg.train(LOCK, out=__file__), "is a file"),
    (lambda run: pcpg.train(LOCK, "sac", config={"explore": {"updates": 5.0}}), "sac is the algorithm without it"),
    (lambda run: pcpg.load(f"{run.path}/config.json"), "a file, not a run folder"),
    (lambda run: pcpg.load("nowhere"), "no such folder"),
    (lambda run: run.evaluate(episodes=0), "episodes must be at least 1"),
    (lambda run: run.policy.act([0.0]), "shape"),
    (lambda run: pcpg.hub.load("nowhere"), "missing"),
    (lambda run: pcpg.hub.load(run.path), "missing"),
    # habits of other libraries
    (lambda run: PCPG.train("ppo", LOCK), "the second the algorithm"),
    (lambda run: PCPG.train(LOCK, "dqn"), "did you mean 'sac'"),
    (lambda run: pcpg.train(LOCK, seed=-1), "seed must lie between 0 and"),
    (lambda run: pcpg.train(LOCK, "ppo", config={"ppo": {"n_steps": 128}}), "did you mean 'num_episodes'"),
    (lambda run: pcpg.train(Grid, max_episode_steps=100), "here: max_steps=200"),
    (lambda run: pcpg.train(Grid, normalize=True), "normalise_observations"),
    (lambda run: pcpg.exploit(run, total_steps=1000), "here: new_steps"),
    (lambda run: PCPG.load(run.path, env=Grid()), "did you mean 'env_fn'"),
    (lambda run: PCPG.resume(run, total_timesteps=1000), "did you mean 'total_steps'"),
    (lambda run: PCPG.resume(Grid), "path must be a Run, text or a path, got"),
    (lambda run: run.evaluate(n_eval_episodes=5), "did you mean 'episodes'"),
    (lambda run: run.evaluate(5, deterministic=True), "did you mean 'greedy'"),
    (lambda run: run.policy.act([0.0], deterministic=True), "did you mean 'greedy'"),
    (lambda run: run.video(length=100), "did you mean 'max_frames'"),
    (lambda run: run.report("page.pdf"), "a report is an .html file"),
]


@pytest.mark.parametrize(("call", "said"), CALLS, ids=[said for _, said in CALLS])
def test_a_wrong_call_says_so_in_one_line(
    call: Callable[[pcpg.Run], Any], said: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError, RunError, RuntimeError), match=said) as caught:
        call(pcpg.load(run))
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        (pcpg, "wrappers", "a function that wraps it"),
        (pcpg, "EvalCallback", "observer="),
        (pcpg, "env", "gymnasium.Env"),
        (pcpg.callbacks, "EvalCallback", "pcpg.callbacks.Evaluate"),
        (pcpg.callbacks, "StopTrainingOnNoModelImprovement", "StopWhenStuck"),
        (pcpg.callbacks, "CheckpointCallback", "; every round is saved in the run folder"),
    ],
)
def test_a_name_that_is_not_there_leads_to_ours(owner: Any, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(owner, name)


def test_steps_may_be_written_as_people_write_large_numbers() -> None:
    for given in (1e5, "1e5", "+1e5", "100k", 100_000):
        assert read_steps(given)[0] == 100_000


def test_what_is_at_the_out_is_told_by_settings_and_not_by_what_random_play_saw() -> None:
    old = {"seed": 0, "looked": {"saw": ["nothing"], "env_steps": 3}}
    assert differences(old, {"seed": 1, "looked": {"saw": ["much"]}}) == "seed is 0 there, 1 here"


def test_what_a_run_of_the_deep_learner_does_not_hold_is_said(
    tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = {"learn": {"hidden": [8], "batch": 8, "updates": 1.0}, "offline_updates": 4}
    run = pcpg.train(LOCK, "pcpg-deep", horizon=2, config=config, total_steps=100, out=tmp_path / "run", quiet=True)
    shown = cli("show", run.path)
    assert shown.code == 2 and "holds no cover: with its settings pcpg-deep keeps none" in shown.err
    monkeypatch.setitem(sys.modules, "h5py", None)
    exported = cli("export", run.path, "--out", tmp_path / "data")
    assert exported.code == 2 and "needs the extra 'minari'" in exported.err
    learned = cli("exploit", run.path, "--out", tmp_path / "task")
    assert learned.code == 0 and "first after 0 steps" not in learned.err
    row = next(line for line in (learned.out + learned.err).splitlines() if line.startswith("│ 0"))
    assert row.split("│")[-2].strip() == "-", "whether it is solved is not known before it is played"
