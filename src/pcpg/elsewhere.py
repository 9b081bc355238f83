"""Names that people know from Stable-Baselines3, CleanRL, RLlib and Gymnasium, and what says the same here."""

import inspect
from collections.abc import Callable, Iterable, Mapping

from pcpg.config import ConfigError, nearest


def _ppo(name: str) -> tuple[str, str]:
    """A setting of PPO, in Python and as a flag."""
    return f'config={{"ppo": {{"{name}": ...}}}}', f"--ppo.{name.replace('_', '-')}"


STEPS, OUT, SEED = (
    ("total_steps=500_000", "--steps 500k"),
    ('out="runs/mine"', "--out runs/mine"),
    ("seed=0", "--seed 0"),
)
PLATFORM = "the environment variable JAX_PLATFORMS=cpu or cuda before the start"
DEVICE = (PLATFORM, PLATFORM)
LOG = ('loggers=["tensorboard"]', "--log tensorboard")
WATCH = ("observer=..., called after every round (docs/how-to/callbacks.md)", "observer=... from Python")
UNTIL = ("until=475.0", "--until 475")
KEPT = ('algo="pcpg-replay", which keeps all data by itself', "--algo pcpg-replay")
VIDEO = ("run.video() afterwards", "pcpg video RUN afterwards")

NAMES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("total_timesteps", "timesteps", "num_timesteps", "n_timesteps", "steps"), STEPS),
    **dict.fromkeys(("learning_rate", "lr"), _ppo("learning_rate")),
    **dict.fromkeys(("batch_size", "minibatch_size", "num_minibatches"), _ppo("minibatch_size")),
    **dict.fromkeys(("n_epochs", "update_epochs", "num_epochs"), _ppo("num_epochs")),
    **dict.fromkeys(("n_steps", "rollout_fragment_length", "train_batch_size"), _ppo("num_episodes")),
    **dict.fromkeys(("clip_range", "clip_coef", "clip_eps"), _ppo("clip_eps")),
    **dict.fromkeys(("ent_coef", "entropy_coef"), _ppo("entropy_coef")),
    **dict.fromkeys(("vf_coef", "value_coef"), _ppo("value_coef")),
    **dict.fromkeys(("policy_kwargs", "net_arch", "hidden"), _ppo("hidden")),
    **{name: _ppo(name) for name in ("gamma", "gae_lambda", "max_grad_norm")},
    **dict.fromkeys(("device", "cuda", "gpu"), DEVICE),
    **dict.fromkeys(("n_envs", "num_cpu"), ("num_envs=16", "--env.num-envs 16")),
    **dict.fromkeys(("num_seeds", "n_seeds"), ("seeds=5", "--seeds 5")),
    **dict.fromkeys(("random_seed", "rng"), SEED),
    **dict.fromkeys(("tensorboard_log", "log", "logger", "tb_log_name"), LOG),
    **dict.fromkeys(("track", "wandb", "wandb_project_name"), ('loggers=["wandb"]', "--log wandb")),
    **dict.fromkeys(("callback", "callbacks", "eval_env", "eval_freq", "n_eval_episodes"), WATCH),
    **dict.fromkeys(("reward_threshold", "target_reward", "stop_reward"), UNTIL),
    **dict.fromkeys(("save_path", "log_dir", "output", "run_dir", "exp_name", "run_name", "save_freq"), OUT),
    **dict.fromkeys(("buffer_size", "learning_starts", "train_freq", "gradient_steps"), KEPT),
    **dict.fromkeys(("capture_video", "record_video"), VIDEO),
    **dict.fromkeys(("verbose", "progress_bar", "silent"), ("quiet=True", "nothing: progress goes to stderr")),
    **dict.fromkeys(("env_id", "gym_id", "environment"), ("the first argument", "the first word: pcpg train ENV")),
    **dict.fromkeys(("algorithm", "agent"), ('algo="ppo"', "--algo ppo")),
    "policy": ("network=..., or nothing: networks follow from the spaces", "nothing: networks follow from the spaces"),
    "env_kwargs": ("the options themselves, as in size=10", "--env.size 10"),
    "num_workers": ("workers=8", "--workers 8"),
    "time_limit": ('max_time="10m"', "--time 10m"),
}
"""By the name elsewhere: how to say it in Python, and on the command line."""

LEARNERS = {
    **dict.fromkeys(("PPO", "A2C", "TRPO", "Trainer", "Agent", "Algorithm"), 'pcpg.train(env, "ppo")'),
    **dict.fromkeys(("DQN", "SAC", "TD3", "DDPG"), "pcpg.train(env), which chooses an algorithm"),
    **dict.fromkeys(("make_vec_env", "DummyVecEnv", "SubprocVecEnv"), "pcpg.train(env, num_envs=16, workers=4)"),
    **dict.fromkeys(("evaluate_policy", "evaluate"), "run.evaluate(episodes=100)"),
    **dict.fromkeys(("check_env",), "pcpg.check_environment(env)"),
    **dict.fromkeys(("learn", "fit"), 'pcpg.train(env), or pcpg.resume(folder, total_steps="+500k")'),
}
"""Names that are asked for in `pcpg` itself."""

OF_A_RUN = {
    "learn": 'pcpg.resume(run, total_steps="+500k")',
    **dict.fromkeys(("predict", "get_action", "compute_single_action", "act"), "run.policy.act(observation)"),
    **dict.fromkeys(("load", "restore", "set_parameters"), "pcpg.load(folder)"),
    **dict.fromkeys(("returns", "rewards", "metrics", "history", "results"), "run.summary, or run.report()"),
    **dict.fromkeys(("get_env", "environment"), "run.env"),
    **dict.fromkeys(("model", "network", "q_net", "actor"), "run.policy.network"),
}
"""Names that are asked for in a run."""

OF_A_POLICY = {
    **dict.fromkeys(("learn", "train"), 'pcpg.resume(run, total_steps="+500k")'),
    **dict.fromkeys(("save", "export"), "policy.save_numpy(path), policy.to_onnx(path), or pickle"),
    **dict.fromkeys(("get_action", "compute_actions", "forward", "sample"), "policy.act(observation, greedy=True)"),
    "load": "pcpg.load(folder).policy",
}
"""Names that are asked for in a policy."""

POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")


def refuse_elsewhere(call: str, names: Iterable[str], own: Iterable[str], declared: Iterable[str] = ()) -> None:
    """Refuse keywords of other libraries, and slips in our own, that would else be options of the environment.

    `own` are the keywords of the call, `declared` the options that the environment says it has.
    """
    for name in names:
        if name in declared:
            continue
        said = NAMES[name][0] if name in NAMES else nearest(name, own, cutoff=0.8)
        if said:
            raise ConfigError(f"{call}() has no argument {name!r}; here: {said}")


def own_keywords(function: Callable[..., object]) -> list[str]:
    """The keywords of a function of ours."""
    return [name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]


def flag_elsewhere(name: str) -> str | None:
    """What says the same as a flag of another library, named without its dashes; None: unknown."""
    return NAMES[name][1] if name in NAMES else None


def missing(owner: str, name: str, known: Mapping[str, str], own: Iterable[str]) -> AttributeError:
    """The error of an attribute that is not there, with what says the same here."""
    hint = known.get(name) or nearest(name, own, cutoff=0.7)
    return AttributeError(f"{owner} has no attribute {name!r}" + (f"; here: {hint}" if hint else ""))
