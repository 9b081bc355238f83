"""Names that people know from Stable-Baselines3, CleanRL, RLlib and Gymnasium, and what says the same here."""

import inspect
from collections.abc import Callable, Iterable, Mapping

from pcpg.config import ConfigError, nearest
from pcpg.other_names import OTHER_NAMES

SETTINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "lr"), ("learning_rate",)),
    **dict.fromkeys(("batch_size", "minibatch_size", "num_minibatches"), ("minibatch_size", "batch")),
    **dict.fromkeys(("n_epochs", "update_epochs", "num_epochs"), ("num_epochs", "updates")),
    **dict.fromkeys(("n_steps", "num_steps", "rollout_fragment_length", "train_batch_size"), ("num_episodes",)),
    **dict.fromkeys(("clip_range", "clip_coef", "clip_eps"), ("clip_eps",)),
    **dict.fromkeys(("ent_coef", "entropy_coef", "target_entropy"), ("entropy_coef", "entropy")),
    **dict.fromkeys(("vf_coef", "value_coef"), ("value_coef",)),
    **dict.fromkeys(("policy_kwargs", "net_arch", "hidden"), ("hidden",)),
    **dict.fromkeys(("gamma",), ("gamma", "discount")),
    **dict.fromkeys(("train_freq", "train_frequency", "gradient_steps", "utd_ratio"), ("updates", "num_updates")),
    **dict.fromkeys(("n_steps_ahead", "n_step"), ("steps_ahead", "gae_lambda")),
    **dict.fromkeys(("int_coef", "bonus_coef", "intrinsic_coef"), ("bonus_coef", "coef")),
    **dict.fromkeys(("norm_obs", "normalize_observations"), ("normalise_observations",)),
    **dict.fromkeys(("norm_reward", "normalize_reward", "normalize_rewards"), ("normalise_rewards",)),
    **{name: (name,) for name in ("gae_lambda", "max_grad_norm", "tau")},
}
"""By the name elsewhere: the last part of what an algorithm's setting may be called here."""


def setting(name: str, paths: Iterable[str]) -> str | None:
    """The setting, such as "ppo.learning_rate", that is meant by a name elsewhere; None: the algorithm has none."""
    paths = list(paths)
    for last in SETTINGS[name]:
        if same := [path for path in paths if path.rpartition(".")[2] == last]:
            return min(same, key=lambda path: path.startswith("explore."))  # that of the task, where both have one
    return None


def in_python(path: str) -> str:
    """A setting as `train` takes it."""
    *groups, last = path.split(".")
    inner = f'{{"{last}": ...}}'
    for group in reversed(groups):
        inner = f'{{"{group}": {inner}}}'
    return f"config={inner}"


NO_SETTING = "nothing: this algorithm has no such setting"
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
BY_BONUS = "nothing: algorithms explore by a bonus or by sampling"
NOISE = (BY_BONUS, BY_BONUS)
FIXED = ("nothing: it is fixed here", "nothing: it is fixed here")
TARGETS = ('nothing: targets move by config={"learn": {"tau": ...}}', "nothing: targets move by --learn.tau")
KEPT = ('nothing: algo="pcpg-replay", "pcpg-deep" or "sac" keep all data', "nothing: --algo sac keeps all data")
VIDEO = ("run.video() afterwards", "pcpg video RUN afterwards")
SAVED = ("nothing: every round is saved in the run folder", "nothing: every round is saved in the run folder")
RESUME = ("pcpg.resume(folder)", "pcpg resume RUN")
NEW = (
    "nothing: runs are never overwritten, choose another out=",
    "nothing: runs are never overwritten, choose another --out",
)
NORMALISED = ('config={"ppo": {"normalise_observations": True}}', "--ppo.normalise-observations")
WRAPPED = ("a function that wraps it: pcpg.train(lambda: Wrapper(Env()))", "a function that wraps it, as FILE.py:NAME")
SEARCH = ("pcpg tune (docs/how-to/tune.md)", "pcpg tune PLAN")

NAMES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("total_timesteps", "timesteps", "num_timesteps", "n_timesteps", "steps"), STEPS),
    **dict.fromkeys(("device", "cuda", "gpu"), DEVICE),
    **dict.fromkeys(("n_envs", "num_cpu"), ("num_envs=16", "--env.num-envs 16")),
    "num_envs": ("nothing: episodes of a compiled environment run side by side", "--env.num-envs 16"),
    **dict.fromkeys(("num_seeds", "n_seeds"), ("seeds=5", "--seeds 5")),
    **dict.fromkeys(("random_seed", "rng"), SEED),
    **dict.fromkeys(("tensorboard_log", "log", "logger", "tb_log_name", "tensorboard"), LOG),
    **dict.fromkeys(("track", "wandb", "wandb_project_name", "wandb_entity"), ('loggers=["wandb"]', "--log wandb")),
    **dict.fromkeys(("callback", "callbacks", "eval_env", "eval_freq", "n_eval_episodes", "log_interval"), WATCH),
    **dict.fromkeys(("reward_threshold", "target_reward", "stop_reward"), UNTIL),
    **dict.fromkeys(("save_path", "log_dir", "log_folder", "output", "run_dir", "exp_name", "run_name", "f"), OUT),
    **dict.fromkeys(("save_freq", "save_model", "checkpoint_freq"), SAVED),
    **dict.fromkeys(("resume", "load", "trained_agent", "i", "load_path"), RESUME),
    **dict.fromkeys(("overwrite", "force"), NEW),
    **dict.fromkeys(("normalize", "vec_normalize"), NORMALISED),
    **dict.fromkeys(("wrapper", "env_wrapper", "wrapper_class", "frame_stack"), WRAPPED),
    **dict.fromkeys(("optimize_hyperparameters", "optimize"), SEARCH),
    **dict.fromkeys(("hyperparams", "hyperparameters"), ("config={...}", "--config FILE")),
    **dict.fromkeys(("vec_env", "vec_env_cls", "num_cpus"), ("workers=8", "--workers 8")),
    **dict.fromkeys(("max_episode_steps", "episode_length", "max_steps"), ("max_steps=200", "--env.max-steps 200")),
    "render": ("run.video() afterwards", "pcpg video RUN afterwards"),
    **dict.fromkeys(("buffer_size", "learning_starts", "replay_buffer_class", "replay_buffer_kwargs"), KEPT),
    **dict.fromkeys(("action_noise", "use_sde", "exploration_fraction", "exploration_final_eps"), NOISE),
    **dict.fromkeys(("start_e", "end_e", "exploration_initial_eps"), NOISE),
    **dict.fromkeys(
        ("target_kl", "clip_range_vf", "clip_vloss", "anneal_lr", "norm_adv", "normalize_advantage"), FIXED
    ),
    **dict.fromkeys(("target_update_interval", "target_network_frequency"), TARGETS),
    "torch_deterministic": ("nothing: the same seed gives the same bits", "nothing: the same seed gives the same bits"),
    "reset_num_timesteps": ('pcpg.resume(run, total_steps="+500k")', "pcpg resume RUN --steps +500k"),
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
    **dict.fromkeys(("SAC", "TD3", "DDPG"), 'pcpg.train(env, "sac")'),
    "DQN": "pcpg.train(env), which chooses an algorithm",
    **dict.fromkeys(("make_vec_env", "DummyVecEnv", "SubprocVecEnv"), "pcpg.train(env, num_envs=16, workers=4)"),
    **dict.fromkeys(("evaluate_policy", "evaluate"), "run.evaluate(episodes=100)"),
    "check_env": "pcpg.check_environment(env)",
    **dict.fromkeys(("Env", "env", "make_env"), "gymnasium.Env; pcpg.make(id) makes those of this library"),
    **dict.fromkeys(("EvalCallback", "BaseCallback", "CheckpointCallback"), "observer=... of pcpg.train"),
    **dict.fromkeys(("wrappers", "Monitor", "VecNormalize", "VecFrameStack"), WRAPPED[0]),
    **dict.fromkeys(("learn", "fit"), 'pcpg.train(env), or pcpg.resume(folder, total_steps="+500k")'),
}
"""Names that are asked for in `pcpg` itself."""

COMMANDS = {
    **dict.fromkeys(("learn", "fit", "run", "start"), "train"),
    **dict.fromkeys(("enjoy", "eval", "test", "predict", "evaluate_policy"), "evaluate"),
    **dict.fromkeys(("info", "describe", "inspect"), "look"),
    **dict.fromkeys(("optimize", "hyperparams", "search"), "tune"),
    **dict.fromkeys(("play", "render", "record", "watch_policy"), "video"),
    **dict.fromkeys(("plot", "plot_train", "tensorboard", "results"), "report"),
    **dict.fromkeys(("continue", "load"), "resume"),
    **dict.fromkeys(("benchmark", "experiment"), "reproduce"),
    **dict.fromkeys(("list", "ls", "environments"), "envs"),
    **dict.fromkeys(("version", "-v", "-V"), "--version"),
    **dict.fromkeys(("hub", "push", "upload"), "pcpg.hub.export(run, folder) in Python"),
}
"""Commands elsewhere, and ours."""

OF_A_RUN = {
    **dict.fromkeys(("learn", "train", "resume", "fit"), 'pcpg.resume(run, total_steps="+500k")'),
    **dict.fromkeys(("predict", "get_action", "compute_single_action", "act"), "run.policy.act(observation)"),
    **dict.fromkeys(("load", "restore", "set_parameters"), "pcpg.load(folder)"),
    **dict.fromkeys(("returns", "rewards", "metrics", "history", "results", "plot"), "run.summary, or run.report()"),
    **dict.fromkeys(("mean_return", "mean_reward", "ep_rewards"), "run.evaluate(episodes=100).mean_return"),
    **dict.fromkeys(("best_model", "best_policy"), "run.best_policies[0]"),
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


def refuse_elsewhere(
    call: str,
    names: Iterable[str],
    own: Iterable[str],
    declared: Iterable[str] = (),
    settings: Iterable[str] = (),
) -> None:
    """Refuse keywords of other libraries, and slips in our own, that would else be options of the environment.

    `own` are the keywords of the call, `declared` the options that the environment says it has, `settings` the dotted
    names of what can be set for the algorithm.
    """
    settings, own = list(settings), list(own)
    for name in names:
        if name in declared:
            continue
        if name in SETTINGS:
            path = setting(name, settings)
            said = in_python(path) if path else NO_SETTING
        else:
            same = next((one for one in OTHER_NAMES.get(name, ()) if one in own), None)
            said = NAMES[name][0] if name in NAMES else same or nearest(name, own, cutoff=0.8)
        if said:
            raise ConfigError(f"{call}() has no argument {name!r}; {hint_of(said)}")


def hint_of(said: str) -> str:
    """An entry of the tables in a sentence: what to write here, or why nothing is needed."""
    return said.removeprefix("nothing: ") if said.startswith("nothing: ") else f"here: {said}"


def own_keywords(function: Callable[..., object]) -> list[str]:
    """The keywords of a function of ours."""
    return [name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]


def flag_elsewhere(name: str, settings: Iterable[str]) -> str | None:
    """What says the same as a flag of another library, named without its dashes; None: unknown.

    `settings` are the dotted names of the flags that there are.
    """
    name = {"n": "total_timesteps", "env": "env_id"}.get(name, name)  # as in RL Baselines3 Zoo
    if name in SETTINGS:
        path = setting(name, settings)
        return f"--{path.replace('_', '-')}" if path else NO_SETTING
    return NAMES[name][1] if name in NAMES else None


def missing(owner: str, name: str, known: Mapping[str, str], own: Iterable[str]) -> AttributeError:
    """The error of an attribute that is not there, with what says the same here."""
    hint = known.get(name) or nearest(name, own, cutoff=0.7)
    return AttributeError(f"{owner} has no attribute {name!r}" + (f"; {hint_of(hint)}" if hint else ""))
