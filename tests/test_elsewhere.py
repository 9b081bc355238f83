"""What somebody writes who knows Stable-Baselines3, CleanRL or Gymnasium: one line, with the right name."""

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import pcpg
from pcpg.elsewhere import NAMES

CART, LOCK = "gymnasium:CartPole-v1", "CombinationLock-v0"

WRONG_CALLS = [
    (dict(env=CART, total_timesteps=100_000), "train() has no argument 'total_timesteps'; here: total_steps=500_000"),
    (dict(env=LOCK, timesteps=1000), "total_steps="),
    (dict(env=CART, learning_rate=3e-4), 'config={"ppo": {"learning_rate": ...}}'),
    (dict(env=CART, n_steps=128), '{"num_episodes": ...}'),
    (dict(env=CART, batch_size=64), '{"minibatch_size": ...}'),
    (dict(env=CART, ent_coef=0.01), '{"entropy_coef": ...}'),
    (dict(env=CART, gamma=0.9), '{"gamma": ...}'),
    (dict(env=CART, device="cuda"), "JAX_PLATFORMS"),
    (dict(env=CART, verbose=1), "quiet=True"),
    (dict(env=CART, tensorboard_log="logs"), 'loggers=["tensorboard"]'),
    (dict(env=CART, n_envs=4), "num_envs=16"),
    (dict(env=CART, policy_kwargs={"net_arch": [64]}), '{"hidden": ...}'),
    (dict(env=CART, policy="MlpPolicy"), "networks follow from the spaces"),
    (dict(env=CART, callback=print), "observer="),
    (dict(env=CART, buffer_size=10_000), '"sac" keep all data'),
    (dict(env=CART, algo="sac", learning_rate=1e-3), 'config={"learn": {"learning_rate": ...}}'),
    (dict(env=CART, algo="sac", gamma=0.9), 'config={"learn": {"discount": ...}}'),
    (dict(env=CART, algo="sac", ent_coef="auto"), 'config={"learn": {"entropy": ...}}'),
    (dict(env=CART, algo="sac", tau=0.005), 'config={"learn": {"tau": ...}}'),
    (dict(env=CART, algo="sac", gradient_steps=1), 'config={"learn": {"updates": ...}}'),
    (dict(env=CART, algo="pcpg-replay", learning_rate=1e-3), "; this algorithm has no such setting"),
    (dict(env=CART, n_epochs=4), '{"num_epochs": ...}'),
    (dict(env=CART, num_steps=128), '{"num_episodes": ...}'),
    (dict(env=CART, clip_range=0.1), '{"clip_eps": ...}'),
    (dict(env=CART, vf_coef=0.5), '{"value_coef": ...}'),
    (dict(env=CART, target_kl=0.01), "it is fixed here"),
    (dict(env=CART, anneal_lr=True), "it is fixed here"),
    (dict(env=CART, exploration_fraction=0.1), "explore by a bonus"),
    (dict(env=CART, reset_num_timesteps=False), 'pcpg.resume(run, total_steps="+500k")'),
    (dict(env=CART, progress_bar=True), "quiet=True"),
    (dict(env=LOCK, num_envs=8), "side by side"),
    (dict(env=CART, env_kwargs={"size": 3}), "the options themselves"),
    (dict(env=CART, total_step=1000), "here: total_steps"),
    (dict(env=CART, observers=print), "here: observer"),
    (dict(env=LOCK, horizn=3), "no option 'horizn'; did you mean 'horizon'"),
    (dict(env=CART, render_modes="human"), "render_modes"),
    (dict(env="CartPole-v1"), "did you mean 'gymnasium:CartPole-v1'"),
    (dict(env="MlpPolicy", algo=CART), "the first argument is the environment"),
    (dict(env=CART, algo=100_000), "steps are total_steps=100000"),
    (dict(env=CART, algo="PPO"), "did you mean 'ppo'"),
    (dict(env=CART, algo="ppo", config={"learning_rate": 1e-3}), "did you mean 'ppo.learning_rate'"),
    (dict(env=CART, algo="ppo", config={"ppo": {"lr": 1e-3}}), "did you mean 'learning_rate'"),
    (dict(env=CART, algo="ppo", config={"ppo": {"n_epochs": 4}}), "did you mean 'num_epochs'"),
    (dict(env=None), "an environment must be an id, a class"),
    (dict(env=lambda: gymnasium.make("CartPole-v1"), learning_rate=1e-3), 'config={"ppo"'),
    (dict(env=lambda: gymnasium.make("CartPole-v1"), anything=1), "it has no options"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG_CALLS, ids=[said[:40] for _, said in WRONG_CALLS])
def test_a_call_in_the_words_of_another_library_gets_one_line_with_ours(
    arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        pcpg.train(**arguments, out=tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


WRONG_COMMANDS = [
    (["train", CART, "--total-timesteps", "100000"], "here: --steps 500k"),
    (["train", CART, "--learning-rate", "1e-3", "--algo", "ppo"], "here: --ppo.learning-rate"),
    (["train", CART, "--algo", "sac", "--learning-rate", "1e-3"], "here: --learn.learning-rate"),
    (["train", CART, "--algo", "ppo", "--num-steps", "128"], "here: --ppo.num-episodes"),
    (["train", CART, "--algo", "ppo", "--num_minibatches", "4"], "here: --ppo.minibatch-size"),
    (["train", CART, "--algo", "ppo", "--update-epochs", "4"], "here: --ppo.num-epochs"),
    (["train", CART, "--algo", "ppo", "--clip-coef", "0.2"], "here: --ppo.clip-eps"),
    (["train", CART, "--algo", "ppo", "--ent-coef=0.01"], "here: --ppo.entropy-coef"),
    (["train", CART, "--num-envs", "4"], "here: --env.num-envs 16"),
    (["train", CART, "--cuda", "False"], "JAX_PLATFORMS"),
    (["train", CART, "--wandb-project-name", "x"], "here: --log wandb"),
    (["train", CART, "--env", "X"], "the first word"),
    (["train", CART, "-n", "100000"], "here: --steps 500k"),
    (["train", CART, "--env-id", "X"], "here: the first word: pcpg train ENV"),
    (["train", CART, "--track"], "here: --log wandb"),
    (["train", CART, "--capture-video"], "here: pcpg video RUN afterwards"),
    (["train", CART, "--device", "cuda"], "here: the environment variable JAX_PLATFORMS"),
    (["train", CART, "--n-envs", "4"], "here: --env.num-envs 16"),
    (["train", CART, "--save-path", "x"], "here: --out runs/mine"),
    (["train", CART, "--tensorboard-log", "x"], "here: --log tensorboard"),
    (["train", CART, "--eval-freq", "100"], "observer=... from Python"),
    (["train", "CartPole-v1"], "did you mean 'gymnasium:CartPole-v1'"),
    (["learn", CART], "did you mean 'train'"),
    (["train", CART, "--algo", "PPO"], "did you mean 'ppo'"),
    (["evaluate"], "Missing from pcpg evaluate: DIR"),
    (["enjoy", "runs/x"], "did you mean 'evaluate'"),
    (["play", "runs/x"], "did you mean 'video'"),
    (["test", "runs/x"], "did you mean 'evaluate'"),
    (["plot", "runs/x"], "did you mean 'report'"),
    (["run", CART], "did you mean 'train'"),
]


@pytest.mark.parametrize(("words", "said"), WRONG_COMMANDS, ids=[" ".join(words)[:40] for words, _ in WRONG_COMMANDS])
def test_a_command_in_the_words_of_another_library_gets_one_line_with_ours(
    words: list[str], said: str, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli(*words)
    assert answer.code == 2 and answer.err.count("\n") == 1 and said in answer.err, answer
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PPO", 'here: pcpg.train(env, "ppo")'),
        ("SAC", 'here: pcpg.train(env, "sac")'),
        ("make_vec_env", "num_envs=16"),
        ("evaluate_policy", "run.evaluate(episodes=100)"),
        ("tarin", "here: train"),
        ("nothing_like_it_at_all", "has no attribute 'nothing_like_it_at_all'"),
    ],
)
def test_a_name_of_another_library_leads_to_ours(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(pcpg, name)


def test_the_number_of_wrong_calls_and_commands_is_that_of_the_page() -> None:
    assert len(WRONG_CALLS) + len(WRONG_COMMANDS) >= 70


def test_an_option_that_the_environment_declares_is_its_own() -> None:
    class Timed(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

        def __init__(self, gamma: float = 0.0, time_limit: int = 3) -> None:
            self.gamma, self.max_steps = gamma, time_limit

    from pcpg.elsewhere import own_keywords, refuse_elsewhere
    from pcpg.envs.adapters.names import register_function
    from pcpg.envs.registry import declared_options

    declared = declared_options(register_function(Timed))
    refuse_elsewhere("train", ["gamma", "time_limit", "max_steps", "num_envs"], own_keywords(pcpg.train), declared)
    with pytest.raises(ValueError, match="learning_rate"):
        refuse_elsewhere("train", ["gamma", "learning_rate"], own_keywords(pcpg.train), declared)


def test_no_name_of_another_library_is_one_of_ours() -> None:
    from pcpg.elsewhere import own_keywords

    assert not NAMES.keys() & set(own_keywords(pcpg.train))
