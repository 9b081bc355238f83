"""The library from Python: train, load, resume, and what a run gives back; and the README's own lines."""

import dataclasses
import json
import pydoc
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcpg
from pcpg.algorithms import ALGORITHMS
from pcpg.api import RunWarning
from pcpg.config import ConfigError
from pcpg.run_config import RunConfig
from pcpg.runs.errors import FolderTaken, NotARun
from pcpg.runs.metrics import read_metrics
from pcpg.training.loop import Progress

pytestmark = pytest.mark.slow

Tiny = Callable[..., dict[str, Any]]
README = Path(__file__).parents[1] / "README.md"


def train(tiny: Tiny, algo: str = "pcpg", **options: Any) -> pcpg.Run:
    """A tiny run by the public function."""
    return pcpg.train("CombinationLock-v0", algo=algo, horizon=2, config=tiny(algo)["agent"], **options)


@pytest.fixture(scope="module")
def run(tiny: Tiny) -> pcpg.Run:
    return train(tiny, seeds=2, seed=5)


def test_the_public_names_are_there() -> None:
    assert all(getattr(pcpg, name) is not None for name in pcpg.__all__)
    assert set(pcpg.__all__) <= set(dir(pcpg))
    assert pcpg.envs.make is pcpg.make
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = pcpg.tarin


def test_help_shows_what_a_newcomer_needs() -> None:
    shown = pydoc.render_doc(pcpg, renderer=pydoc.plaintext)
    assert "pcpg.train(MyEnv)" in shown[:800] and "total_steps: environment steps per seed" in shown
    assert "equinox._module" not in shown and "TYPE_CHECKING" not in dir(pcpg)
    assert shown.count("\n") < 500
    assert {"Cover", "Design", "Environment", "Progress", "Verdict", "d_optimal"} <= set(dir(pcpg))


def test_a_run_gives_policies_covers_and_weights(run: pcpg.Run) -> None:
    assert isinstance(run.policy, pcpg.Policy) and isinstance(run.cover, pcpg.Cover)
    assert len(run.policies) == len(run.covers) == 2
    weights = run.cover.weights
    assert weights.shape == (8,) and weights.min() >= 0 and weights.sum() == pytest.approx(1)
    assert int(run.cover.size) == 8 and run.cover.used.shape[0] == 8
    assert not np.array_equal(run.covers[0].weights, run.covers[1].weights)
    assert run.design.gap < 1e-6
    assert run.summary["seeds"] == [5, 6] and run.path.is_dir()


def test_a_policy_acts(run: pcpg.Run) -> None:
    observation = np.zeros(run.env.observation_space.shape)
    actions = [int(run.policy.act(observation, seed=seed)) for seed in range(30)]
    assert all(run.env.action_space.contains(action) for action in actions) and len(set(actions)) > 3
    assert run.policy.act(observation, seed=3) == run.policy.act(observation, seed=3)
    assert len({int(run.policy.act(list(observation), greedy=True)) for _ in range(3)}) == 1
    with pytest.raises(ConfigError, match=r"an observation must have shape \(7,\), got \(3,\)"):
        run.policy.act([0, 0, 0])


def test_without_a_seed_a_policy_draws_anew_at_each_call(run: pcpg.Run) -> None:
    observation = np.zeros(run.env.observation_space.shape)
    first, again = (
        [int(policy.act(observation)) for _ in range(200)]
        for policy in (pcpg.load(run.path).policy, pcpg.load(run.path).policy)
    )
    assert len(set(first)) > 3
    assert first == again, "the stream of a policy that was loaded anew begins again"
    outputs = np.asarray(run.policy.network.outputs(observation[None].astype(np.float32)))[0]
    likeliest = int(np.argmax(outputs))
    share = float(np.exp(outputs[likeliest]) / np.exp(outputs).sum())
    assert np.mean(np.array(first) == likeliest) == pytest.approx(share, abs=4 * (share * (1 - share) / 200) ** 0.5)


def test_a_run_gives_the_best_policies_and_those_of_its_covers(run: pcpg.Run) -> None:
    assert len(run.best_policies) == 2 and len(run.cover_policies()) == 8
    observation = np.zeros(run.env.observation_space.shape)
    member = run.cover_policies(6)[2]
    np.testing.assert_array_equal(member.network.actor_head.bias, run.covers[1].member(2).actor_head.bias)
    assert run.env.action_space.contains(int(member.act(observation)))
    with pytest.raises(ConfigError, match="the run has seeds 5 to 6, got 7"):
        run.cover_policies(7)


def test_a_member_of_the_cover_is_a_policy(run: pcpg.Run) -> None:
    member = run.cover.member(3)
    assert jax.tree.structure(member) == jax.tree.structure(run.policy.network)
    with pytest.raises(IndexError, match="members 0 to 7, got 8"):
        run.cover.member(8)


def test_evaluate_plays_fresh_episodes_and_repeats_itself(run: pcpg.Run) -> None:
    played = run.evaluate(30)
    assert played.returns.shape == (2, 30) and played.env_steps == 2 * 30 * 3
    assert np.array_equal(played.returns, run.evaluate(30).returns)
    assert played.mean_return == [pytest.approx(row.mean()) for row in played.returns]
    assert played.standard_error == [pytest.approx(row.std() / 30**0.5) for row in played.returns]
    assert not np.array_equal(played.returns, run.evaluate(30, greedy=True).returns)
    for episodes in (0, -3, 2.5):
        with pytest.raises(ConfigError, match=rf"episodes must be .*, got {episodes}"):
            run.evaluate(episodes)


def test_an_evaluation_does_not_depend_on_other_seeds(tiny: Tiny, run: pcpg.Run) -> None:
    alone = train(tiny, seeds=1, seed=6)
    assert np.array_equal(alone.evaluate(30).returns[0], run.evaluate(30).returns[1])


def test_load_gives_the_same_run(run: pcpg.Run) -> None:
    again = pcpg.load(str(run.path))
    assert again.summary == run.summary and again.config == run.config
    for own, other in zip(jax.tree.leaves(run.policy.network), jax.tree.leaves(again.policy.network), strict=True):
        assert own.dtype == other.dtype and np.array_equal(own, other)


def test_resume_goes_on_to_the_same_end(tmp_path: Path, tiny: Tiny, run: pcpg.Run) -> None:
    class Enough(Exception):
        pass

    def observe(progress: Progress) -> None:
        if progress.step == 6:
            raise Enough

    with pytest.raises(Enough):
        train(tiny, seeds=2, seed=5, out=tmp_path / "run", observer=observe)
    so_far = pcpg.load(tmp_path / "run")
    assert not so_far.is_finished and so_far.summary["rounds"] == 6 and so_far.summary["phase"] == ["explore"] * 2
    assert so_far.evaluate(episodes=4).returns.shape == (2, 4) and len(so_far.cover_policies()) == 6
    seen: list[int] = []
    resumed = pcpg.resume(tmp_path / "run", observer=lambda progress: seen.append(progress.step))
    assert seen == list(range(6, 15))
    for name in ("metrics.jsonl", "policy.safetensors", "summary.json"):
        assert (resumed.path / name).read_bytes() == (run.path / name).read_bytes()
    assert pcpg.resume(tmp_path / "run").summary == run.summary, "a finished run is given back"


def test_ctrl_c_is_a_keyboard_interrupt_that_names_the_way_on_and_no_warning_in_the_thread_that_heard_it(
    tmp_path: Path, tiny: Tiny, capfd: pytest.CaptureFixture[str], interrupt: Callable[[int], None]
) -> None:
    def observe(progress: Progress) -> None:
        if progress.step == 3:
            interrupt(signal.SIGINT)

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match=re.escape(f"resume with pcpg.resume('{out}')")):
        train(tiny, out=out, observer=observe)  # warnings are errors here, as everywhere in these tests
    assert "stopping after this round" in capfd.readouterr().err
    assert pcpg.resume(out).summary["seeds"] == [0]


def test_damage_is_a_warning_and_training_goes_back(tmp_path: Path, tiny: Tiny) -> None:
    def observe(progress: Progress) -> None:
        if progress.step == 3:
            raise ZeroDivisionError

    out = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        train(tiny, out=out, observer=observe)
    (out / "checkpoints" / "000003" / "arrays.safetensors").write_bytes(b"")
    with pytest.warns(RunWarning, match="falling back to the checkpoint of step 2"):
        assert pcpg.resume(out).summary["policies"] == [8]


def test_loggers_and_output_folder_are_arguments(tmp_path: Path, tiny: Tiny) -> None:
    class Memory:
        records: list[Any] = []  # noqa: RUF012

        def write(self, record: Any) -> None:
            self.records.append(record)

    made = train(tiny, "ppo", out=tmp_path / "run", loggers=(Memory(),))
    assert made.path == tmp_path / "run"
    assert Memory.records == read_metrics(made.folder.metrics)
    with pytest.raises(NotARun, match="holds no cover: ppo does not build one"):
        _ = made.cover
    with pytest.raises(FolderTaken, match="holds a finished run of this config"):
        train(tiny, "ppo", out=tmp_path / "run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": "CombinationLok-v0"}, "did you mean 'CombinationLock-v0'"),
        ({"algo": "pppo"}, "unknown algorithm 'pppo'; did you mean 'ppo'"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"horizn": 3}, "no option 'horizn'; did you mean 'horizon'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": 2.0}, "seeds must be an integer, got 2.0"),
        ({"seed": -1}, "seed must lie between 0 and"),
        ({"features": "fourir"}, "unknown features 'fourir'; did you mean 'fourier'"),
        ({"features": "fourier", "feature_options": {"num_feature": 3}}, "did you mean 'num_features'"),
        ({"config": {"explor": {}}}, "unknown entry of config 'explor'; did you mean 'explore'"),
        ({"config": {"ppo": {"num_updates": 0}}}, "config.ppo: num_updates must be positive, got 0"),
        ({"config": {"ppo": {"num_updates": 1.5}}}, "config.ppo.num_updates must be an integer, got 1.5"),
        ({"config": {"autoreset": True}}, "unknown entry of config 'autoreset'"),
        (
            {"env": "gymnasium:CartPole-v1", "algo": "ppo", "config": {"autoreset": True}},
            "autoreset requires a compiled environment; this one is stepped on the host",
        ),
    ],
)
def test_a_mistake_is_refused_before_a_folder_is_made(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        pcpg.train(**({"env": "CombinationLock-v0", "out": tmp_path / "run"} | arguments))
    assert not (tmp_path / "run").exists()


def test_autoreset_survives_json_and_a_configuration_from_before_it_was_there_is_without() -> None:
    agent = dataclasses.replace(ALGORITHMS["ppo"].presets.compiled, autoreset=True)
    config = RunConfig("CombinationLock-v0", "ppo", agent).resolved()
    data = json.loads(json.dumps(config.to_json()))
    assert RunConfig.from_json(data) == config
    del data["agent"]["autoreset"]
    assert RunConfig.from_json(data).agent == dataclasses.replace(config.agent, autoreset=False)


def test_a_partial_configuration_is_completed_by_the_preset() -> None:
    config = RunConfig.from_json({"env": "Chain-v0", "algo": "pcpg-bonus", "agent": {"explore": {"ridge": 1}}})
    preset = ALGORITHMS["pcpg-bonus"].presets.compiled
    expected = dataclasses.replace(preset, explore=dataclasses.replace(preset.explore, ridge=1.0))
    assert config.agent == expected and config.env_options == {"length": 8, "horizon": 16}
    assert config.features == "identity" and config.feature_options == {"with_actions": False}


def test_an_environment_with_a_preset_of_its_own_is_trained_with_it(monkeypatch):
    class Started(Exception):
        pass

    def start(config, path):
        raise Started(config)

    monkeypatch.setattr("pcpg.api.start_run", start)
    with pytest.raises(Started) as caught:
        pcpg.train("MountainCarContinuous-v0", "pcpg-bonus")
    config = caught.value.args[0]
    assert config.features == "fourier"
    assert config.agent.ppo.num_episodes == 32 and config.agent.explore.max_policies == 6
