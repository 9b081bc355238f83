"""A trained policy elsewhere: pickled, copied, as arrays for NumPy, as an ONNX graph; and what a run can do itself."""

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pcpg
from pcpg.portable import act
from pcpg.runs.errors import FolderTaken, RunError

pytestmark = pytest.mark.usefixtures("compile_once")

PPO = {"ppo": {"num_updates": 1, "num_episodes": 8, "hidden": [8, 8]}, "budget": 20, "visit_episodes": 4}


class Anything(gymnasium.Env):
    """Three steps with any observations and actions."""

    max_steps = 3

    def __init__(self, seen: spaces.Space, moved: spaces.Space) -> None:
        self.observation_space, self.action_space = seen, moved

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.at = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return self.observation_space.sample(), float(np.sum(action)), self.at == 3, False, {}


DEEP: dict[str, Any] = {"learn": {"hidden": [8, 8], "updates": 1.0, "batch": 8}}
VECTOR = spaces.Box(-50.0, 150.0, (3,))
CASES = {
    "discrete": (VECTOR, spaces.Discrete(3, start=5), "ppo", PPO),
    "normalised": (VECTOR, spaces.Discrete(3), "ppo", PPO | {"ppo": PPO["ppo"] | {"normalise_observations": True}}),
    "parts": (spaces.Dict({"a": spaces.Discrete(3), "b": VECTOR}), spaces.MultiDiscrete([2, 4]), "ppo", PPO),
    "real": (VECTOR, spaces.Box(-2.0, 1.0, (2,)), "ppo", PPO),
    "kernel": (spaces.Discrete(6), spaces.Discrete(3), "pcpg-replay", {"explore": {"patience": 1}}),
    "off-policy": (VECTOR, spaces.Discrete(3, start=5), "pcpg-deep", DEEP),
    "off-policy, parts": (
        spaces.Dict({"a": spaces.Discrete(3), "b": VECTOR}),
        spaces.MultiDiscrete([2, 4]),
        "sac",
        DEEP,
    ),
    "off-policy, real": (VECTOR, spaces.Box(np.float32([-2, 0]), np.float32([1, 10])), "sac", DEEP),
    "kernel, real": (spaces.Discrete(6), spaces.Box(-2.0, 1.0, (1,)), "pcpg-replay", {"explore": {"patience": 1}}),
}


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest) -> pcpg.Run:
    seen, moved, algo, config = CASES[request.param]
    options: dict[str, Any] = {"total_steps": 400} if algo != "ppo" else {}
    return pcpg.train(lambda: Anything(seen, moved), algo, config=config, num_envs=4, quiet=True, **options)


def observations(run: pcpg.Run, count: int = 40) -> list[Any]:
    space: Any = run.policy.env.single_observation
    space.seed(3)
    return [space.sample() for _ in range(count)]


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.asarray(one, float).reshape(-1), np.asarray(other, float).reshape(-1), atol=1e-4)


def test_a_policy_pickled_or_copied_acts_alike(run: pcpg.Run) -> None:
    for other in (pickle.loads(pickle.dumps(run.policy)), copy.deepcopy(run.policy)):
        for seen in observations(run, 5):
            same(run.policy.act(seen, seed=1), other.act(seen, seed=1))
            same(run.policy.act(seen, greedy=True), other.act(seen, greedy=True))


def test_arrays_alone_act_as_the_policy_does(run: pcpg.Run, tmp_path: Path) -> None:
    file = run.policy.save_numpy(tmp_path / "policy.npz")
    with np.load(file, allow_pickle=False) as loaded:
        arrays = dict(loaded)
    for seen in observations(run):
        same(act(arrays, run.policy.encode(seen)), run.policy.act(seen, greedy=True))


def test_an_onnx_graph_acts_as_the_policy_does(run: pcpg.Run, tmp_path: Path) -> None:
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    graph = evaluator(str(run.policy.to_onnx(tmp_path / "policy.onnx")))
    many = observations(run)
    [actions] = graph.run(None, {"observation": np.stack([run.policy.encode(seen).reshape(-1) for seen in many])})
    for seen, action in zip(many, actions, strict=True):
        same(action, run.policy.act(seen, greedy=True))


def test_what_cannot_be_written_is_refused_in_words(tmp_path: Path) -> None:
    run = pcpg.train("Chain-v0", "ppo", config=PPO, quiet=True)
    picture = Anything(spaces.Box(0, 255, (40, 40, 3), np.uint8), spaces.Discrete(2))
    seen = pcpg.train(picture, "sac", config=DEEP, total_steps=30, quiet=True)
    with pytest.raises(ValueError, match=r"no convolutions: use pcpg\.load\(folder\)\.policy, or pickle it"):
        seen.policy.save_numpy(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match=r"must end in \.npz, got 'policy\.pt'"):
        run.policy.save_numpy(tmp_path / "policy.pt")
    (tmp_path / "a.npz").write_text("precious")
    with pytest.raises(RunError, match="another kind"):
        run.policy.save_numpy(tmp_path / "a.npz")


def test_a_run_reports_is_saved_and_says_what_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pcpg"):
        run = pcpg.train("Chain-v0", "ppo", config=PPO, length=4)
    said = "\n".join(caplog.messages)
    assert "plan: " in said and "ppo on Chain-v0, seed 0: round" in said and f"run folder: {run.path}" in said
    assert str(run.verdict) in said and run.verdict.said
    assert repr(run).startswith(f"<pcpg.Run '{run.path}': ppo on Chain-v0, 1 seed, finished, final return")
    assert repr(run.policy) == f"Policy({run.env.observation_space} -> {run.env.action_space}, ActorCritic)"
    assert run.report().read_text().startswith("<!DOCTYPE html>")
    moved = run.save(tmp_path / "kept")
    assert pcpg.load(moved).summary == run.summary and moved == tmp_path / "kept"
    with pytest.raises(FolderTaken):
        run.save(tmp_path / "kept")
    for name, hint in (("predict", "run.policy.act"), ("learn", "pcpg.resume"), ("polices", "here: policies")):
        with pytest.raises(AttributeError, match=hint):
            getattr(run, name)


def test_a_quiet_run_says_nothing(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, logger="pcpg"):
        pcpg.train("Chain-v0", "ppo", config=PPO, quiet=True)
    assert not caplog.messages and capfd.readouterr() == ("", "")


def test_a_program_that_set_up_logging_decides_what_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("pcpg")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        pcpg.train("Chain-v0", "ppo", config=PPO, progress=False)
    finally:
        logger.setLevel(before)
    assert "run folder" not in capfd.readouterr().err
