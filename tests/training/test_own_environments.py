"""Training on other people's environments: from a function, by name, interrupted, and what is said about it."""

import functools
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import pcpg
from pcpg.api import RunWarning
from pcpg.config import ConfigError
from pcpg.envs.adapters import names
from pcpg.envs.options import InvalidOption

pytestmark = pytest.mark.slow

RESULTS = ("metrics.jsonl", "policy.safetensors", "summary.json")
PPO = {"num_updates": 2, "num_episodes": 16, "minibatch_size": 16, "hidden": [8]}
PCPG = {
    "ppo": PPO,
    "explore": {"max_policies": 3, "visit_episodes": 16, "num_groups": 4, "patience": 9},
    "exploit": {"num_rounds": 2},
}


class Matching(gymnasium.Env):
    """One decision of two parts, with a reward for each part that equals the cue; the cue is a Dict, text beside it."""

    observation_space = spaces.Dict({"cue": spaces.MultiDiscrete([2, 3]), "mission": spaces.Text(5)})
    action_space = spaces.MultiDiscrete([2, 3])
    max_steps = 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.cue = self.np_random.integers([2, 3])
        return {"cue": self.cue, "mission": "match"}, {}

    def step(self, action: np.ndarray):
        return {"cue": self.cue, "mission": ""}, float(np.sum(action == self.cue)), True, False, {}


def matching_vector() -> SyncVectorEnv:
    return SyncVectorEnv([Matching] * 8, autoreset_mode=AutoresetMode.SAME_STEP)


class Stop(Exception):
    pass


def results(path: Path) -> dict[str, bytes]:
    files = [*(path / name for name in RESULTS), *(path / "cover").glob("*")]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.filterwarnings("ignore::pcpg.api.RunWarning")
def test_a_factored_policy_on_dict_observations_learns_and_acts_in_a_loop(tmp_path):
    config = {"ppo": PPO | {"num_updates": 20, "num_episodes": 64, "num_epochs": 8, "learning_rate": 5e-3},
              "budget": 4000, "visit_episodes": 64}  # fmt: skip
    run = pcpg.train(Matching, "ppo", config=config, out=tmp_path / "run")
    assert run.evaluate(200).mean_return[0] > 1.9
    env, earned = Matching(), 0.0
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        action = run.policy.act(observation, greedy=True)
        assert env.action_space.contains(action)
        earned += env.step(action)[1]
    assert earned > 36


def test_text_is_left_out_with_a_notice():
    with pytest.warns(RunWarning, match="'mission'.: it is text"):
        pcpg.train(Matching, config=PCPG | {"exploit": {"num_rounds": 0}})


@pytest.mark.filterwarnings("ignore::pcpg.api.RunWarning")
@pytest.mark.parametrize("make", [Matching, matching_vector])
def test_an_interrupted_run_ends_as_one_left_alone(tmp_path, make):
    def stop_at_round_3(progress):
        if progress.step == 3:
            raise Stop

    pcpg.train(make, config=PCPG, out=tmp_path / "whole", seed=5)
    with pytest.raises(Stop):
        pcpg.train(make, config=PCPG, out=tmp_path / "cut", seed=5, observer=stop_at_round_3)
    resumed = pcpg.resume(tmp_path / "cut", env_fn=make)
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    assert len(resumed.cover.used) == 3


@pytest.mark.filterwarnings("ignore::pcpg.api.RunWarning")
def test_a_run_of_a_function_needs_the_function_again(tmp_path, monkeypatch):
    path = tmp_path / "run"
    pcpg.train(Matching, "ppo", config={"ppo": PPO, "budget": 10, "visit_episodes": 4}, out=path)
    monkeypatch.setattr(names, "_FUNCTIONS", names.Functions("python", "env_fn"))  # as in another process
    loaded = pcpg.load(path)
    assert Matching.action_space.contains(loaded.policy.act({"cue": np.array([1, 2]), "mission": ""})), "it acts"
    with pytest.raises(InvalidOption, match=r"made by a Python function.*pcpg\.load\(folder, env_fn"):
        loaded.evaluate(4)
    assert pcpg.load(path, env_fn=lambda: Matching()).evaluate(4).returns.shape == (1, 4)


class Paying(gymnasium.Env):
    """One decision that always pays the same."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Discrete(2)
    max_steps = 1

    def __init__(self, pay: float) -> None:
        self.pay = pay

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any):
        return np.zeros(1, np.float32), self.pay, True, False, {}


def paying(pay: float):
    return lambda: Paying(pay)


def scaled(scale: float):
    return lambda observation, action: jnp.append(observation, scale + action)


def pay_of(run: pcpg.Run) -> float:
    return run.evaluate(3).mean_return[0]


def scale_of(run: pcpg.Run) -> float:
    return float(run.features(jnp.zeros(1), jnp.asarray(0))[1])


BRIEF = {"ppo": PPO, "budget": 10, "visit_episodes": 4}


def test_functions_of_one_name_keep_their_runs_apart():
    first, second = (pcpg.train(paying(pay), "ppo", config=BRIEF) for pay in (1.0, 2.0))
    assert second.config.env == f"{first.config.env}#2"
    assert [pay_of(run) for run in (first, pcpg.load(first.path), pcpg.load(second.path))] == [1.0, 1.0, 2.0]
    partials = [pcpg.train(functools.partial(Paying, pay), "ppo", config=BRIEF) for pay in (3.0, 4.0)]
    assert [pay_of(pcpg.load(run.path)) for run in partials] == [3.0, 4.0]


def test_feature_functions_of_one_name_keep_their_runs_apart():
    make = paying(1.0)
    runs = [pcpg.train(make, config=PCPG, features=scaled(scale)) for scale in (2.0, 3.0)]
    assert [scale_of(run) for run in runs] == [2.0, 3.0]
    assert [scale_of(pcpg.load(run.path)) for run in runs] == [2.0, 3.0]


def test_a_function_keeps_its_id_and_so_does_a_method():
    class Maker:
        def make(self):
            return Paying(1.0)

    maker = Maker()
    assert names.register_function(maker.make) == names.register_function(maker.make)
    assert names.register_function(Maker().make) == f"{names.register_function(maker.make)}#2"


def test_a_run_uses_the_functions_that_it_is_given_and_the_names_stay():
    run = pcpg.train(paying(1.0), config=PCPG, features=scaled(2.0))
    other = pcpg.load(run.path, env_fn=paying(5.0), features=scaled(6.0))
    assert (pay_of(other), scale_of(other), len(other.cover.used)) == (5.0, 6.0, 3)
    exploited = pcpg.exploit(other)
    assert (pay_of(exploited), scale_of(exploited)) == (5.0, 6.0)
    assert pay_of(pcpg.resume(run.path, env_fn=paying(7.0))) == 7.0
    again = pcpg.load(run.path)
    assert (pay_of(again), scale_of(again)) == (1.0, 2.0)


def test_a_function_given_for_a_name_that_is_nobodys_is_known_from_then_on(monkeypatch):
    run = pcpg.train(paying(1.0), "ppo", config=BRIEF)
    monkeypatch.setattr(names, "_FUNCTIONS", names.Functions("python", "env_fn"))  # as in another process
    with pytest.raises(ConfigError, match="env_fn must be a function or None, got 3"):
        pcpg.load(run.path, env_fn=3)  # pyright: ignore[reportArgumentType]
    pcpg.load(run.path, env_fn=paying(2.0))
    assert pay_of(pcpg.load(run.path)) == 2.0


@pytest.mark.filterwarnings("ignore:.*ERROR")  # how Gymnasium tells of the failure
def test_training_goes_on_after_a_worker_process_failed(tmp_path):
    broken = tmp_path / "broken"

    class Failing(Paying):
        def step(self, action: Any):
            if broken.exists():
                raise RuntimeError("the simulator is gone")
            return super().step(action)

    def make():
        return Failing(1.0)

    def train(name: str, observer=None):
        return pcpg.train(make, "ppo", config=BRIEF, out=tmp_path / name, observer=observer, workers=2)

    with pytest.raises(RuntimeError, match="the simulator is gone"):
        train("cut", lambda progress: broken.touch())
    broken.unlink()
    assert pay_of(pcpg.resume(tmp_path / "cut")) == 1.0
    assert pay_of(train("new")) == 1.0


def traced_phi(observation, action):
    return jnp.concatenate([observation, action / 2.0])


def host_phi(observation, action):
    return [float(entry) for entry in np.concatenate([observation, action / 2.0])]  # no tracer has a float


@pytest.mark.filterwarnings("ignore::pcpg.api.RunWarning")
def test_a_feature_function_may_be_traced_or_plain_python(tmp_path):
    explore_only = PCPG | {"exploit": {"num_rounds": 0}}
    covers = [pcpg.train(Matching, config=explore_only, features=phi).cover for phi in (traced_phi, host_phi)]
    assert covers[0].sigmas.shape == (3, 7, 7)
    np.testing.assert_allclose(covers[0].sigmas, covers[1].sigmas, rtol=1e-5, atol=1e-7)


def test_a_feature_function_that_fails_is_named_before_any_work():
    with pytest.raises(ValueError, match=r"python:.*must give a finite vector"):
        pcpg.train(Matching, features=lambda observation, action: np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("gymnasium:CartPole-v7", "did you mean 'CartPole-v1'"),
        ("gymnasium:", "is not an environment id"),
        ("gymnasium:nosuchmodule:X-v0", "nosuchmodule"),
        ("bsuite:deep_see", "bsuite has no environment 'deep_see'; valid: .*deep_sea"),
    ],
)
def test_a_wrong_name_gets_the_nearest(env, message):
    if env.startswith("bsuite"):
        pytest.importorskip("bsuite")
    with pytest.raises(InvalidOption, match=message):
        pcpg.train(env)


def test_the_command_line_shows_the_defaults_and_evaluates(cli, tmp_path):
    out = tmp_path / "run"
    flags = ("--env.map_name", "4x4", "--env.is_slippery=false", "--env.max_steps", 10)
    small = ("--ppo.num-updates", 1, "--ppo.num-episodes", 16, "--explore.max-policies", 2, "--exploit.num-rounds", 1)
    trained = cli("train", "gymnasium:FrozenLake-v1", *flags, *small, "--out", out, "--json")
    assert trained.json["env"] == "gymnasium:FrozenLake-v1" and trained.json["env_steps_per_seed"] > 0
    spaces = "observations Box(low=0.0, high=1.0, shape=(16,)), actions Discrete(n=4)"
    assert f"{spaces}, up to 10 steps per episode" in trained.err
    assert "is_slippery False" in trained.err and "features one-hot, up to 2 policies of 1 updates" in trained.err
    assert "at most" in trained.err and "config.json" in trained.err
    before = trained.err.splitlines()[: next(i for i, line in enumerate(trained.err.splitlines()) if "plan:" in line)]
    assert len(before) == 1, "two lines before it starts"
    # Training is cut at 10 steps; the evaluation has the environment's own 100.
    assert cli("evaluate", out, "--episodes", 4, "--json").json["env_steps"] > 0
    assert len(cli("show", out, "--json").json["weights"]) == 2
    drawn = cli("show", out, "--png", tmp_path / "visits.png")
    assert drawn.code == 2 and "no grid cells to draw" in drawn.err


def test_gymnax_trains_like_our_own():
    pytest.importorskip("gymnax")
    config = {"ppo": PPO, "budget": 100, "visit_episodes": 4}
    run = pcpg.train("gymnax:DeepSea-bsuite", "ppo", config=config, max_steps=8)
    assert run.env.max_steps == 8 and run.summary["env_steps"][0] > 100
    with pytest.raises(InvalidOption, match="no parameter 'gravitty'; did you mean 'gravity'"):
        pcpg.make("gymnax:CartPole-v1", gravitty=1.0)
