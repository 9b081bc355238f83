"""The library in five lines: `train` an environment, `load` a run, use the result."""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pcpg.algorithms import ALGORITHMS, Algo, taking_data
from pcpg.bonuses.protocol import upgraded
from pcpg.budget import limits_of
from pcpg.config import ConfigError, checked, from_plain, setting_paths
from pcpg.elsewhere import own_keywords, refuse_elsewhere
from pcpg.envs.adapters.names import LOCAL, is_own_function, workers_on
from pcpg.envs.given_reward import Reward
from pcpg.envs.registry import declared_options
from pcpg.features.base import Phi, is_own_features
from pcpg.policies.networks import Network
from pcpg.policy import Policy
from pcpg.run import EnvFn, Evaluation, Given, KeptEpisode, Run, RunWarning, Verdict, warn
from pcpg.run_config import RunConfig, new_config
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import check_loggers
from pcpg.runs.metrics import Logger
from pcpg.settings import Settings
from pcpg.training.display import Display, plan, tell, title_of
from pcpg.training.exploit import exploit_config, exploit_defaults
from pcpg.training.going_on import go_on
from pcpg.training.logged import begun_with
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
    "Verdict",
    "exploit",
    "load",
    "resume",
    "train",
]

PathOrNone = str | os.PathLike[str] | None
Observers = Observer | Sequence[Observer] | None


@checked
def train(
    env: object,
    algo: Algo = "auto",
    *,
    total_steps: float | str | None = None,
    max_time: float | str | None = None,
    until: float | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    features: str | Phi = "auto",
    feature_options: Mapping[str, object] | None = None,
    network: Network | None = None,
    data: str | os.PathLike[str] | None = None,
    config: Settings | None = None,
    on: str = LOCAL,
    feature_seed: int = 0,
    lanes: int = 0,
    observer: Observers = None,
    quiet: bool = False,
    progress: bool | None = None,
    loggers: Iterable[Logger | str] = (),
    **env_options: object,
) -> Run:
    """Train an algorithm on an environment; the run is finished, unless an observer stopped it.

    Args:
        env: a Gymnasium environment: its class, an instance, which is copied, or a function that makes one, or a
            vector of them; or an id, as in "Maze-v0", "gymnasium:FrozenLake-v1", "my_envs:KeyDoor" or "my_env.py:Door".
            Run folders hold no code: pass what is no id again to `load` and `resume`.
        algo: a name in `pcpg.algorithms.ALGORITHMS`; "auto" is "pcpg", or the choice of `pcpg look`.
        total_steps: environment steps per seed, as in 500_000, "500k" or "2.5M"; sets the schedule of rounds.
        max_time: time limit for the whole run, in seconds or as in "10m"; results then depend on the machine's speed.
        until: stop a seed once its mean evaluation return reaches this value.
        seeds, seed, lanes: how many seeds, the first, and how many run in parallel; 0 chooses by the device.
        out: the run folder; by default a new temporary one.
        features: name of the cover's feature map, or phi(observation, action); with `feature_options`, `feature_seed`.
        network: `network(shape, key)` makes an Equinox module from one observation to hidden units.
        data: logged episodes to begin with, for algorithms that learn from all data: an .npz file, or "minari:ID".
        config: changes to the algorithm's preset, as in `{"explore": {"bonus_coef": 2.0}}`; typed `pcpg.Settings`.
        on: where the workers of an environment are (option `workers`): "local", "ray" or "ray://host:port".
        observer: called with a `Progress` before the first round and after each, or several; False stops training.
        quiet: say nothing; by default the log "pcpg" says what the command line says. `progress`: how far it is.
        loggers: get every report that metrics.jsonl gets; "tensorboard" and "wandb" can be named.
        **env_options: the environment's own options, as in `horizon=5`.

    Example:
        >>> import pcpg
        >>> small = {"ppo": {"num_updates": 2, "num_episodes": 64}, "explore": {"max_policies": 2}}
        >>> run = pcpg.train("CombinationLock-v0", horizon=2, config=small | {"exploit": {"num_rounds": 1}})
        >>> run.summary["policies"], run.cover.weights.shape
        ([2], (2,))
    """
    check_loggers(loggers)
    path, limits, options = _path(out), limits_of(total_steps, max_time, until), dict(feature_options or {})
    rest = {"seed": seed, "seeds": seeds, "lanes": lanes, "feature_seed": feature_seed}
    algo = cast(Algo, taking_data()[0]) if data is not None and algo == "auto" else algo
    made = new_config(env, algo, limits, features, options, network, config, env_options, rest, own_keywords(train))
    with workers_on(on):
        return _train(_started(made, data, path, quiet), observer, loggers, quiet=quiet, progress=progress, trust=True)


def _started(config: RunConfig, data: PathOrNone, path: Path, quiet: bool) -> RunFolder:
    """The folder of a new run, whose plan is told."""
    config = config.resolved() if data is None else begun_with(config.resolved(), os.fspath(data))
    folder = start_run(config, path)
    if not quiet:
        tell(*plan(config, path))
    return folder


def _path(out: PathOrNone) -> Path:
    """The folder of a new run, absolute: an environment may change the current folder."""
    return Path(tempfile.mkdtemp(prefix="pcpg-")) / "run" if out is None else Path(out).absolute()


@checked
def exploit(
    run: Run | str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    config: Settings | None = None,
    lanes: int = 0,
    new_steps: float | str = 0,
    observer: Observers = None,
    quiet: bool = False,
    progress: bool | None = None,
    loggers: Iterable[Logger | str] = (),
    trust: bool = False,
    **env_options: object,
) -> Run:
    """Train policies on the covers of a finished run, for its reward or a new one.

    Run folders hold no code: pass `reward` to `load` and `resume` again.

    Args:
        run: a finished run with a cover, or its folder.
        reward: `reward(observation, action)` or `reward(observation, action, next_observation)`, a function that JAX
            can compile; by default the environment's own reward.
        seeds, seed: as in `train`; by default those of the run.
        config: changes to the settings, as in `{"exploit": {"num_rounds": 20}}`.
        out, lanes, observer, quiet, progress, loggers: as in `train`.
        new_steps: if the run kept its data, environment steps allowed per task, as in "50k"; 0: use the data alone.
        trust: whether to import an environment module named in the folder.
        **env_options: options that only change the environment's reward, as in `goal=(3, 7)` of a maze.

    Example:
        >>> import pcpg
        >>> small = {"ppo": {"num_updates": 2, "num_episodes": 64}, "explore": {"max_policies": 2}}
        >>> explored = pcpg.train("CombinationLock-v0", horizon=2, config=small | {"exploit": {"num_rounds": 0}})
        >>> same = pcpg.exploit(explored, config={"exploit": {"num_rounds": 1}})
        >>> same.evaluate(episodes=8).returns.shape
        (1, 8)
    """
    check_loggers(loggers)
    folder = RunFolder.open(run.path if isinstance(run, Run) else Path(run))
    given, trust = (run.given, trust or run.trust) if isinstance(run, Run) else (Given(), trust)
    row, path = ALGORITHMS.get(folder.config["algo"]), _path(out)
    settings = [] if row is None else setting_paths(row.settings)
    refuse_elsewhere("exploit", env_options, own_keywords(exploit), declared_options(folder.config["env"]), settings)
    with given.used(folder):
        defaults = exploit_defaults(folder, trust)
        run_config = exploit_config(
            defaults,
            agent=from_plain(type(defaults.agent), upgraded(config or {}), "config", defaults.agent),
            env_options=env_options,
            seed=seed,
            seeds=seeds,
            lanes=lanes,
            new_steps=new_steps,
            reward=reward,
        )
        made = start_run(run_config, path, reward)
    return _train(made, observer, loggers, reward, given, quiet=quiet, progress=progress, trust=True)


@checked
def load(
    path: str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    env_fn: EnvFn | None = None,
    features: Phi | None = None,
    network: Network | None = None,
    trust: bool = False,
) -> Run:
    """Load the run in a folder, finished or as of its last checkpoint.

    Loading creates no external environment and imports nothing that the folder names.

    Args:
        path: the run folder.
        reward: the reward function of the run, if it was given one in Python.
        env_fn: the function that made its environment, if one did.
        features: the function that made its features, if one did.
        network: the function that made its networks, if one did.
        trust: whether to import an environment module named in the folder, in order to play on it.

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


@checked
def resume(
    path: Run | str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    env_fn: EnvFn | None = None,
    features: Phi | None = None,
    network: Network | None = None,
    total_steps: float | str | None = None,
    max_time: float | str | None = None,
    until: float | None = None,
    observer: Observers = None,
    quiet: bool = False,
    progress: bool | None = None,
    loggers: Iterable[Logger | str] = (),
    trust: bool = False,
    retry_failed: bool = False,
    on: str = LOCAL,
) -> Run:
    """Resume an interrupted run; the result is the same as without the interruption.

    New limits extend any run, even a finished one: `total_steps="+500k"` adds 500,000 steps to those used.

    Args:
        path: the run folder, or the run, which is brought up to date.
        reward, env_fn, features, network: as in `load`; by default what the run was given.
        total_steps: new total of environment steps per seed, or with a plus sign the steps to add.
        max_time: new time limit for the whole run, or with a plus sign the time to add.
        until: a mean return at which a seed ends.
        observer, quiet, progress, loggers, on: as in `train`.
        trust: whether to import an environment module named in the folder.
        retry_failed: retry failed seeds from their last checkpoint.

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
    old = path if isinstance(path, Run) else None
    if old is not None:
        given = Given(*(new or before for new, before in zip(given, old.given, strict=True)))
        reward, trust = reward or old.reward, trust or old.trust
    folder = _open(path.path if isinstance(path, Run) else path, given)
    if total_steps is not None or max_time is not None or until is not None:
        check_trust(folder, trust)
        with given.used(folder):
            folder = go_on(folder, steps=total_steps, time=max_time, until=until)
    asked: dict[str, Any] = {"trust": trust, "retry_failed": retry_failed}
    with workers_on(on):
        more = _train(folder, observer, loggers, reward, given, quiet=quiet, progress=progress, **asked)
    if old is not None:
        vars(old).clear()  # what it had read is no longer what the folder holds
        vars(old).update(vars(more))
    return more


def _open(path: str | os.PathLike[str], given: Given) -> RunFolder:
    """Open a run folder; refuses functions that its run does not use."""
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
    quiet: bool,
    progress: bool | None = None,
    trust: bool = False,
    retry_failed: bool = False,
) -> Run:
    given = given or Given()
    observers = [] if observer is None else [observer] if callable(observer) else list(observer)
    asked: dict[str, Any] = {"reward": reward, "trust": trust, "retry_failed": retry_failed}
    # Python's own way: the notices are warnings, and Ctrl-C is a KeyboardInterrupt, after the checkpoint.
    with (
        given.used(folder),
        Display.of_python(title_of(folder.config), progress, quiet) as display,
    ):
        watching = [*observers, *([display] if display else [])]

        def watch(seen: Progress) -> bool:
            return all([one(seen) is not False for one in watching])  # a list: call every one

        trained = train_run(folder, observer=watch, loggers=loggers, notice=warn, **asked)
    if not trained.finished and not trained.stopped:
        raise KeyboardInterrupt(f"training stopped; resume with pcpg.resume({str(folder.path)!r})")
    run = Run(RunFolder.open(folder.path), reward, given, trust=trust)
    if not quiet:
        tell(*str(run.verdict).splitlines(), f"run folder: {run.path}")
    return run
