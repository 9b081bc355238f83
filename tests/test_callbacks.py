"""What users of other libraries reach for: callbacks, `predict`, networks of their own, progress."""

from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import pcpg
from pcpg.callbacks import Evaluate, StopWhenStuck
from pcpg.envs.options import InvalidOption
from pcpg.policies.networks import init_actor_critic, register_network
from pcpg.training.loop import Progress

pytestmark = pytest.mark.slow

PPO = {"num_updates": 2, "num_episodes": 16, "minibatch_size": 16, "hidden": [8]}
BRIEF = {"ppo": PPO, "budget": 120, "visit_episodes": 8}


class Match(gymnasium.Env[Any, Any]):
    """One decision that pays where it equals the cue, which is shown in a Dict."""

    observation_space = spaces.Dict({"cue": spaces.Discrete(3), "noise": spaces.Box(-1.0, 1.0, (2,))})
    action_space = spaces.Discrete(3, start=1)
    max_steps = 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.cue = int(self.np_random.integers(3))
        return self.seen(), {}

    def seen(self) -> dict[str, Any]:
        return {"cue": self.cue, "noise": np.zeros(2, np.float32)}

    def step(self, action: Any) -> Any:
        return self.seen(), float(action == self.cue + 1), True, False, {}


@pytest.fixture(scope="module")
def evaluate() -> Evaluate:
    return Evaluate(Match, every=2, episodes=5)


@pytest.fixture(scope="module")
def run(evaluate: Evaluate) -> pcpg.Run:
    return pcpg.train(Match, "ppo", config=BRIEF, seeds=2, observer=[evaluate])


def test_predict_takes_one_observation_or_many_in_all_their_parts(run: pcpg.Run) -> None:
    one, _ = Match().reset(seed=0)
    action, memory = run.policy.predict(one, state="mine", deterministic=True)
    assert action == run.policy.act(one, greedy=True) and memory == "mine"
    many = {"cue": np.arange(3), "noise": np.zeros((3, 2), np.float32)}
    actions, _ = run.policy.predict(many, deterministic=True)
    each = [run.policy.act({"cue": cue, "noise": np.zeros(2, np.float32)}, greedy=True) for cue in range(3)]
    assert actions.tolist() == each and actions.min() >= 1, "as the environment takes them"
    assert set(run.policy.predict({"cue": np.zeros(200, int), "noise": np.zeros((200, 2))})[0]) <= {1, 2, 3}


def test_an_evaluation_on_an_environment_of_its_own_changes_nothing(run: pcpg.Run, evaluate: Evaluate) -> None:
    alone = pcpg.train(Match, "ppo", config=BRIEF, seeds=2)
    assert (alone.path / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()
    assert [found.round for found in evaluate.found] == list(range(2, run.summary["rounds"] + 1, 2))
    assert all(set(found.mean_return) == {0, 1} for found in evaluate.found)
    assert evaluate.found[-1].env_steps <= sum(run.summary["env_steps"])


def test_an_observer_that_returns_false_stops_the_run_which_goes_on_by_resume(tmp_path: Path) -> None:
    told: list[int] = []
    stop = Evaluate(Match, episodes=1, until=-1.0)  # any return is above
    out = tmp_path / "run"
    cut = pcpg.train(Match, "ppo", config=BRIEF, out=out, observer=(stop, lambda progress: told.append(progress.step)))
    assert not cut.is_finished and told == [0, 1], "every observer is told of every round"
    assert cut.evaluate(8).returns.shape == (1, 8)
    assert pcpg.resume(out).is_finished


def test_stuck_is_when_no_seed_improves() -> None:
    stop = StopWhenStuck(2, by=0.1)

    def goes_on(phase: str, *returns: float) -> bool:
        records = [{"seed": seed, "phase": phase, "return": value} for seed, value in enumerate(returns)]
        return stop(Progress(1, 9, records, 0, 0.0, None, True))

    assert goes_on("explore", 0.0, 0.0) and goes_on("exploit", 0.0, 0.0)
    assert goes_on("exploit", 0.05, 0.0), "not by enough, once"
    assert goes_on("exploit", 0.05, 0.2)
    assert goes_on("exploit", 0.0, 0.2) and not goes_on("exploit", 0.0, 0.25)


def test_progress_is_shown_in_python_where_it_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    pcpg.train(Match, "ppo", config=BRIEF, progress=True)
    assert "ppo on python:" in (shown := capfd.readouterr().err) and "round 0 of at most" in shown
    pcpg.train(Match, "ppo", config=BRIEF, progress=False)
    assert "round 0" not in capfd.readouterr().err


# Networks.


def network(shape: tuple[int, ...], key: jax.Array) -> eqx.Module:
    return eqx.nn.MLP(shape[0], 12, width_size=16, depth=1, activation=jax.nn.tanh, key=key)


def test_a_network_of_ones_own_is_trained_saved_and_given_again(tmp_path: Path) -> None:
    config = {
        "ppo": PPO | {"shared_body": False, "learning_rate": 0.02, "num_updates": 12, "num_episodes": 64},
        "explore": {"max_policies": 2, "num_groups": 8, "visit_episodes": 8},
        "exploit": {"num_rounds": 1},
    }
    run = pcpg.train(Match, network=network, config=config, out=tmp_path / "run")
    assert run.evaluate(50, greedy=True).mean_return[0] == 1.0
    assert run.policy.network.actor_head.weight.shape == (12, 3)
    again = pcpg.load(run.path, network=network)
    many = {"cue": np.arange(3), "noise": np.zeros((3, 2), np.float32)}
    assert again.policy.predict(many, deterministic=True)[0].tolist() == [1, 2, 3]
    assert len(again.cover_policies()) == 2


def test_a_network_that_gives_no_vector_or_is_not_there_is_named() -> None:
    with pytest.raises(InvalidOption, match="must give a vector for an observation"):
        pcpg.train(Match, "ppo", network=lambda shape, key: eqx.nn.Lambda(lambda x: x[None]), config=BRIEF)
    with pytest.raises(InvalidOption, match="failed on an observation of shape"):
        pcpg.train(Match, "ppo", network=lambda shape, key: eqx.nn.Linear(99, 3, key=key), config=BRIEF)
    with pytest.raises(InvalidOption, match="which a run folder does not hold"):
        pcpg.train("Chain-v0", "ppo", config={"ppo": PPO | {"body": "python:absent"}})


def test_policies_of_a_compiled_environment_have_such_networks_and_predict_too() -> None:
    env = pcpg.make("Chain-v0")
    spaces, options = (env.observation_space, env.action_space), {"hidden": (8,), "shared_body": True}
    drawn = init_actor_critic(np.random.default_rng(0), *spaces, **options, body=register_network(network))
    assert drawn.critic_head.weight.shape == (12, 1)
    for made in (drawn, init_actor_critic(np.random.default_rng(0), *spaces, **options)):
        policy = pcpg.Policy(made, env)
        assert np.shape(policy.predict(np.zeros(8))[0]) == ()
        assert policy.predict(np.zeros((5, 8)), deterministic=True)[0].shape == (5,)
    with pytest.raises(ValueError, match=r"must have shape \(8,\), got \(3,\)"):
        policy.predict(np.zeros(3))
