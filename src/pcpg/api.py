"""The library in five lines: `train` an environment, `load` a run, use what came out."""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pcpg.algorithms import ALGORITHMS, preset
from pcpg.config import ConfigError, check_choice, from_plain
from pcpg.envs.adapters.names import is_own_function, register_function
from pcpg.envs.adapters.places import LOCAL, workers_on
from pcpg.envs.given_reward import Reward
from pcpg.features.own import Phi, is_own_features, register_features
from pcpg.policies.own import Network, register_network
from pcpg.practice.budget import Limits, read_steps, read_time
from pcpg.run import EnvFn, Evaluation, Given, KeptEpisode, Policy, Run, RunWarning, warn
from pcpg.run_config import RunConfig, chosen_by_a_look
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import check_loggers
from pcpg.runs.metrics import Logger
from pcpg.training.display import Display, title_of
from pcpg.training.exploit import exploit_config, exploit_defaults
from pcpg.training.going_on import go_on
from pcpg.training.loop import Observer, Progress, start_run, train_run
from pcpg.training.trust import check_trust

__all__ = [
    "Algo",
    "Evaluation",
    "KeptEpisode",
    "Policy",
    "Progress",
    "Run",
    "RunWarning",
    "exploit",
    "load",
    "resume",
    "train",
]

Algo = Literal["auto", "pcpg", "pcpg-bonus", "pcpg-replay", "ppo-rnd", "ppo-e3b", "ppo"]
"""The algorithms of the library, and "auto" to have one chosen; of those that are added to
`pcpg.algorithms.ALGORITHMS` a type checker knows nothing."""

Observers = Observer | Sequence[Observer] | None


def train(
    env: str | EnvFn,
    algo: Algo = "auto",
    *,
    total_steps: int | str | None = None,
    max_time: float | str | None = None,
    until: float | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    features: str | Phi = "auto",
    feature_options: Mapping[str, Any] | None = None,
    network: Network | None = None,
    config: Mapping[str, Any] | None = None,
    on: str = LOCAL,
    feature_seed: int = 0,
    lanes: int = 0,
    observer: Observers = None,
    progress: bool | None = None,
    loggers: Iterable[Logger | str] = (),
    **env_options: Any,
) -> Run:
    """Train an algorithm on an environment.

    A run folder holds no code: where `env`, `features` or `network` is a function, `load` and `resume` need it again.

    Args:
        env: the id of an environment, of the library or as in "gymnasium:FrozenLake-v1"; or a function that makes a
            Gymnasium environment, or a vector of them.
        algo: a name in `pcpg.algorithms.ALGORITHMS`; "auto" is "pcpg", but where an environment of somebody else's is
            all that is given, a look at it chooses algorithm and settings (`pcpg look`).
        total_steps: environment steps of each seed, as in 500_000, "500k" or "2.5M"; the schedule of rounds follows.
        max_time: the time of the whole run, in seconds or as in "10m"; the result then depends on the machine.
        until: a seed ends when the mean return of a policy over its counted episodes is at least this.
        seeds: how many seeds; they run side by side, and none depends on the others.
        seed: the first seed.
        out: the run folder; by default a new temporary one.
        features: name of the feature map of the cover, or a function phi(observation, action).
        feature_options: options of the feature map.
        network: `network(shape, key)` makes an Equinox module from one observation to hidden units.
        config: changes to the algorithm's preset, as in `{"explore": {"bonus_coef": 2.0}}`.
        on: where the workers of an environment are (option `workers`): "local", "ray" or "ray://host:port".
        feature_seed: seed of feature maps that are drawn at random.
        lanes: width of the program over seeds; 0 chooses by the device.
        observer: called with a `Progress` before the first round and after each, or several of them; training stops
            after a round where one returns False.
        progress: show how far it is; by default where stderr is a terminal.
        loggers: get every report that metrics.jsonl gets; "tensorboard" and "wandb" can be named.
        **env_options: the environment's own options, as in `horizon=5`.

    Returns:
        The run; finished, unless an observer stopped it.

    Example:
        >>> import pcpg
        >>> small = {"ppo": {"num_updates": 2, "num_episodes": 64}, "explore": {"max_policies": 2}}
        >>> run = pcpg.train("CombinationLock-v0", horizon=2, config=small | {"exploit": {"num_rounds": 1}})
        >>> run.summary["policies"], run.cover.weights.shape
        ([2], (2,))
    """
    check_loggers(loggers)
    check_choice("algorithm", algo, ["auto", *ALGORITHMS])
    env_id, limits = env if isinstance(env, str) else register_function(env), limits_of(total_steps, max_time, until)
    chosen: dict[str, Any] = {"algo": "pcpg" if algo == "auto" else algo}
    if algo == "auto" and not config and network is None and features == "auto":
        chosen = chosen_by_a_look(env_id, env_options, limits, seed)
    name = chosen["algo"]
    agent: Any = from_plain(
        type(ALGORITHMS[name].preset), config or chosen.get("agent", {}), "config", preset(env_id, name)
    )
    if network is not None:
        agent = from_plain(type(agent), {"ppo": {"body": register_network(network)}}, "network", agent)
    made = RunConfig(
        env=env_id,
        algo=name,
        agent=agent,
        env_options=chosen.get("env_options", env_options),
        features=features if isinstance(features, str) else register_features(features),
        feature_options=dict(feature_options or {}),
        seed=seed,
        seeds=seeds,
        lanes=lanes,
        feature_seed=feature_seed,
        limits=Limits(**chosen["limits"]) if "limits" in chosen else limits,
        looked=chosen.get("looked", {}),
    )
    path = Path(tempfile.mkdtemp(prefix="pcpg-")) / "run" if out is None else Path(out)
    with workers_on(on):
        return _train(start_run(made.resolved(), path), observer, loggers, progress=progress, trust=True)


def exploit(
    run: Run | str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    lanes: int = 0,
    new_steps: int | str = 0,
    observer: Observers = None,
    progress: bool | None = None,
    loggers: Iterable[Logger | str] = (),
    trust: bool = False,
    **env_options: Any,
) -> Run:
    """Train policies on the covers of a finished run, for a reward that may be another one.

    A run folder holds no code: `load` and `resume` need a `reward` again.

    Args:
        run: a finished run that keeps a cover, or its folder.
        reward: `reward(observation, action)` or `reward(observation, action, next_observation)`, a function that JAX
            can compile; by default the environment's own reward.
        seeds: how many seeds; by default those of the run.
        seed: the first seed.
        out: the new run folder; by default a new temporary one.
        config: changes to the settings, as in `{"exploit": {"num_rounds": 20}}`.
        lanes: width of the program over seeds; 0 chooses by the device.
        new_steps: where the run kept its data, steps that each task may take in the environment, as in "50k"; 0: the
            data alone.
        observer: called with a `Progress` before the first round and after each; as in `train`.
        progress: show how far it is; by default where stderr is a terminal.
        loggers: get every report that metrics.jsonl gets.
        trust: whether an environment from a module that the folder names may be made.
        **env_options: options that change the environment's reward alone, as in `goal=(3, 7)` of a maze.

    Returns:
        The new run.

    Example:
        >>> import pcpg
        >>> small = {"ppo": {"num_updates": 2, "num_episodes": 64}, "explore": {"max_policies": 2}}
        >>> explored = pcpg.train("CombinationLock-v0", horizon=2, config=small | {"exploit": {"num_rounds": 0}})
        >>> same = pcpg.exploit(explored, config={"exploit": {"num_rounds": 1}})
        >>> same.evaluate(episodes=8).returns.shape
        (1, 8)
    """
    check_loggers(loggers)
    folder = run.folder if isinstance(run, Run) else RunFolder.open(Path(run))
    given, trust = (run.given, trust or run.trust) if isinstance(run, Run) else (Given(), trust)
    check_trust(folder, trust)
    with given.used(folder):
        defaults = exploit_defaults(folder)
        run_config = exploit_config(
            defaults,
            agent=from_plain(type(defaults.agent), config or {}, "config", defaults.agent),
            env_options=env_options,
            seed=seed,
            seeds=seeds,
            lanes=lanes,
            new_steps=new_steps,
            reward=reward,
        )
        path = Path(tempfile.mkdtemp(prefix="pcpg-")) / "run" if out is None else Path(out)
        made = start_run(run_config, path, reward)
    return _train(made, observer, loggers, reward, given, progress=progress, trust=True)


def load(
    path: str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    env_fn: EnvFn | None = None,
    features: Phi | None = None,
    network: Network | None = None,
    trust: bool = False,
) -> Run:
    """The run in a folder, finished or as of its last checkpoint.

    Loading builds no outside environment and imports nothing that the folder names.

    Args:
        path: the run folder.
        reward: the reward that the run was given in Python, if it was.
        env_fn: the function that made its environment, if one did.
        features: the function that made its features, if one did.
        network: the function that made its networks, if one did.
        trust: whether an environment from a module that the folder names may be made, for what plays on it.

    Returns:
        The run, with its policies, covers and settings.

    Example:
        >>> import pcpg
        >>> pcpg.load("no/such/run")
        Traceback (most recent call last):
        ...
        pcpg.runs.errors.NotARun: ...
    """
    given = Given(env_fn, features, network)
    return Run(_open(path, given), reward, given, trust=trust)


def resume(
    path: str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    env_fn: EnvFn | None = None,
    features: Phi | None = None,
    network: Network | None = None,
    total_steps: int | str | None = None,
    max_time: float | str | None = None,
    until: float | None = None,
    observer: Observers = None,
    progress: bool | None = None,
    loggers: Iterable[Logger | str] = (),
    trust: bool = False,
    retry_failed: bool = False,
    on: str = LOCAL,
) -> Run:
    """Train an interrupted run to its end: the same result as if it had never been interrupted.

    With other limits any run goes on, a finished one too: `total_steps="+500k"` are 500,000 more than it has used.

    Args:
        path: the run folder.
        reward: the reward that the run was given in Python, if it was.
        env_fn: the function that made its environment, if one did.
        features: the function that made its features, if one did.
        network: the function that made its networks, if one did.
        total_steps: environment steps of each seed in all, or with a plus sign more than so far.
        max_time: the time of the whole run, or with a plus sign more than so far.
        until: a mean return at which a seed ends.
        observer: called with a `Progress` before the first round and after each; as in `train`.
        progress: show how far it is; by default where stderr is a terminal.
        loggers: get every report that metrics.jsonl gets.
        trust: whether an environment from a module that the folder names may be made.
        retry_failed: whether seeds that failed go on from where they did.
        on: where the workers of its environment are, as in `train`.

    Returns:
        The run; finished, unless an observer stopped it.

    Example:
        >>> import pcpg, tempfile
        >>> small = {"ppo": {"num_updates": 2, "num_episodes": 64}, "budget": 500, "visit_episodes": 16}
        >>> run = pcpg.train("CombinationLock-v0", algo="ppo", horizon=2, config=small)
        >>> pcpg.resume(run.path).summary == run.summary  # a finished run stays as it is
        True
    """
    given = Given(env_fn, features, network)
    folder = _open(path, given)
    if total_steps is not None or max_time is not None or until is not None:
        check_trust(folder, trust)
        with given.used(folder):
            folder = go_on(folder, steps=total_steps, time=max_time, until=until)
    asked: dict[str, Any] = {"trust": trust, "retry_failed": retry_failed}
    with workers_on(on):
        return _train(folder, observer, loggers, reward, given, progress=progress, **asked)


def limits_of(steps: int | str | None, time: float | str | None, until: float | None) -> Limits:
    """The limits of a new run, as people write them."""
    number, more = (0, False) if steps is None else read_steps(steps)
    seconds, longer = (0.0, False) if time is None else read_time(time)
    if more or longer:
        raise ConfigError(f"a plus sign adds to what a run has used: a new one has used nothing, got {steps or time!r}")
    return Limits(number, seconds, until)


def _open(path: str | os.PathLike[str], given: Given) -> RunFolder:
    """A run folder; refuses functions that its run has no use for."""
    folder = RunFolder.open(Path(path))
    config = folder.config
    if given.env_fn is not None and not is_own_function(config["env"]):
        raise ConfigError(f"{folder.path} was trained on {config['env']}, not on a function's environment")
    if given.features is not None and not is_own_features(config["features"]):
        raise ConfigError(f"{folder.path} was trained with {config['features']} features, not a function's")
    if given.network is not None and not config["agent"].get("ppo", {}).get("body"):
        raise ConfigError(f"{folder.path} was trained with the library's networks, not a function's")
    return folder


def _train(
    folder: RunFolder,
    observer: Observers,
    loggers: Iterable[Logger | str],
    reward: Reward | None = None,
    given: Given | None = None,
    *,
    progress: bool | None = None,
    trust: bool = False,
    retry_failed: bool = False,
) -> Run:
    given = given or Given()
    observers = [] if observer is None else [observer] if callable(observer) else list(observer)
    asked: dict[str, Any] = {"reward": reward, "trust": trust, "retry_failed": retry_failed}
    # Python's own way: the notices are warnings, and Ctrl-C is a KeyboardInterrupt, after the checkpoint.
    with given.used(folder), Display.on_stderr(title_of(folder.config), progress) as display:
        watching = [*observers, *([display] if display else [])]

        def watch(seen: Progress) -> bool:
            return all([one(seen) is not False for one in watching])  # a list: each of them is told

        trained = train_run(folder, observer=watch, loggers=loggers, notice=warn, **asked)
    if not trained.finished and not trained.stopped:
        raise KeyboardInterrupt(f"training stopped; resume with pcpg.resume({str(folder.path)!r})")
    return Run(RunFolder.open(folder.path), reward, given, trust=trust)
