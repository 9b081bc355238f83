"""The library in five lines: `train` an environment, `load` a run, use what came out."""

import contextlib
import dataclasses
import functools
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import ALGORITHMS, preset
from pcpg.config import ConfigError, PCPGConfig, check_choice, from_plain
from pcpg.cover.cover import Cover
from pcpg.cover.design import Design, d_optimal
from pcpg.envs.adapters.names import given_function, is_own_function, register_function
from pcpg.envs.given_reward import Reward
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import Recorded, RecordedHost
from pcpg.envs.spaces import Box
from pcpg.features.base import FeatureMap
from pcpg.features.own import Phi, given_features, is_own_features, register_features
from pcpg.policies.host import Actor, choose, draw
from pcpg.policies.networks import ActorCritic
from pcpg.practice.host import visit_program
from pcpg.practice.program import default_lanes
from pcpg.practice.visit import VisitInputs, Visitor
from pcpg.run_config import RunConfig
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import check_loggers
from pcpg.runs.metrics import Logger
from pcpg.state import NonFinite
from pcpg.training.compile_cache import enable_compile_cache
from pcpg.training.exploit import exploit_config, exploit_defaults, make_run_env
from pcpg.training.loop import Observer, start_run, train_run
from pcpg.training.restore import UNSEALED
from pcpg.training.storage import covers_of, read_features, read_policies
from pcpg.training.trust import check_trust, environment_of


class RunWarning(UserWarning):
    """Something about a run that is going on which its owner may want to know."""


EVALUATION_ROUND = 2**30
"""A stream of random numbers that no round of training uses."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A trained policy: observations in, actions out."""

    network: ActorCritic
    env: Environment

    def act(self, observation: Any, *, greedy: bool = False, seed: int | None = None) -> Any:
        """An action for one observation, as the environment takes it: the likeliest, or a sample.

        With a `seed` the sample is a function of it; without, each call draws anew from the policy's own stream.
        """
        seen_space, space = self.env.observation_space, self.env.action_space
        seen = self.env.encode(observation) if isinstance(self.env, HostEnvironment) else observation
        if np.shape(seen) != seen_space.shape:
            raise ConfigError(f"an observation must have shape {seen_space.shape}, got {np.shape(seen)}")
        rng = self._rng if seed is None else np.random.default_rng(seed)
        outputs = self._actor(np.asarray(seen, seen_space.dtype)[None])
        action = choose(space, outputs, draw(rng, space, 1, 1).noise[0], greedy=greedy)[0]
        if isinstance(self.env, HostEnvironment):
            return self.env.decode(action)
        return np.clip(action, space.low, space.high) if isinstance(space, Box) else action

    @functools.cached_property
    def _actor(self) -> Actor:
        return Actor(self.network)

    @functools.cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(0)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Returns of the final policies over fresh episodes."""

    returns: np.ndarray  # [seeds, episodes]
    env_steps: int
    seeds: tuple[int, ...] = ()  # whose policies played: all that did not fail

    @property
    def mean_return(self) -> list[float]:
        """One mean per seed."""
        return [float(x) for x in self.returns.mean(axis=1, dtype=np.float64)]

    @property
    def standard_error(self) -> list[float]:
        """Standard error of each seed's mean."""
        return [float(x) for x in self.returns.std(axis=1, dtype=np.float64) / self.returns.shape[1] ** 0.5]


EnvFn = Callable[..., Any]
"""Makes a gymnasium.Env, or a gymnasium.vector.VectorEnv."""


class Given(NamedTuple):
    """The functions that a run was given again: it uses them, whatever its names stand for in this process."""

    env_fn: EnvFn | None = None
    features: Phi | None = None

    @contextlib.contextmanager
    def used(self, folder: RunFolder) -> Iterator[None]:
        """In here the names in a run's folder stand for these functions."""
        with contextlib.ExitStack() as stack:
            if self.env_fn is not None:
                stack.enter_context(given_function(folder.config["env"], self.env_fn))
            if self.features is not None:
                stack.enter_context(given_features(folder.config["features"], self.features))
            yield


class Run:
    """A finished run; `policy` and `cover` are those of its first seed, `policies` and `covers` of all."""

    def __init__(
        self, folder: RunFolder, reward: Reward | None = None, given: Given | None = None, *, trust: bool = False
    ) -> None:
        self.folder, self.reward, self.trust = folder, reward, trust
        self.given = given or Given()
        with self.given.used(folder):
            env = environment_of(folder)
            self.config = RunConfig.from_json(folder.config, env)
            self.env = make_run_env(self.config, reward, env)
        self.summary = folder.read_summary()
        if not folder.is_sealed:
            _warn(UNSEALED.format(folder.path))

    @contextlib.contextmanager
    def playable(self) -> Iterator[Environment]:
        """The environment of evaluations, to play on; one of a module that the folder names needs trust.

        What is stepped on the host is closed afterwards.
        """
        self.check_trust()
        with self.given.used(self.folder):
            made = make_run_env(self.config, self.reward)
            env = made.evaluation_env
        try:
            yield env
        finally:
            for one in (env, made):
                if isinstance(one, HostEnvironment):
                    one.close()

    def check_trust(self) -> None:
        """Refuse to make an environment from a module that the folder names, unless the run was opened with trust."""
        check_trust(self.folder, self.trust)

    @property
    def finished_seeds(self) -> list[int]:
        """The seeds that came to their end: all but those that failed."""
        return [seed for seed in self.config.seed_list if str(seed) not in self.summary.get("failed", {})]

    @property
    def path(self) -> Path:
        return self.folder.path

    @functools.cached_property
    def policies(self) -> list[Policy]:
        """The final policy of each seed."""
        return self._policies("final")

    @property
    def policy(self) -> Policy:
        return self.policies[0]

    @functools.cached_property
    def best_policies(self) -> list[Policy]:
        """The best policy of each seed, by its evaluations in training."""
        return self._policies("best")

    def cover_policies(self, seed: int | None = None) -> list[Policy]:
        """The policies of a seed's cover (by default the first seed's), in the order of its weights."""
        self.check_seed(seed)
        cover = self.covers[0 if seed is None else self.config.seed_list.index(seed)]
        return [Policy(cover.member(index), self.env) for index in range(int(cover.size))]

    def check_seed(self, seed: int | None) -> None:
        """Refuse a seed that the run does not have."""
        seeds = self.config.seed_list
        if seed is not None and seed not in seeds:
            raise ConfigError(f"the run has seeds {seeds[0]} to {seeds[-1]}, got {seed}")

    @functools.cached_property
    def covers(self) -> list[Cover[ActorCritic]]:
        """The cover of each seed."""
        with self.given.used(self.folder):
            return covers_of(self.folder, self.config, self.config.seed_list, self.env, _warn)

    @property
    def cover(self) -> Cover[ActorCritic]:
        return self.covers[0]

    @functools.cached_property
    def features(self) -> FeatureMap:
        """The feature map with which the cover was made, as it was saved."""
        with self.given.used(self.folder):
            is_drawn = not isinstance(self.env, Recorded | RecordedHost)
            return read_features(self.folder, self.config.make_features(self.env), is_drawn=is_drawn)

    @property
    def design(self) -> Design:
        """The weights of the first seed's cover with the certificate of their optimality."""
        agent = self.config.agent
        # Without the ridge of training, float32 noise in the null space would count as directions.
        return d_optimal(self.cover.used, ridge=agent.explore.ridge if isinstance(agent, PCPGConfig) else 0.0)

    def evaluate(self, episodes: int = 100, *, greedy: bool = False, best: bool = False) -> Evaluation:
        """Play fresh episodes with each seed's final policy (or the best one by its evaluations in training)."""
        if not isinstance(episodes, int) or episodes < 1:
            raise ConfigError(f"episodes must be an integer of at least 1, got {episodes!r}")
        enable_compile_cache()
        seeds, found = self.finished_seeds, self.best_policies if best else self.policies
        policies = [found[self.config.seed_list.index(seed)] for seed in seeds]
        with self.playable() as env:
            program = visit_program(Visitor(env, episodes, greedy), self.config.lanes or default_lanes())
            visits = program(
                [
                    VisitInputs(np.uint32(seed), np.int32(EVALUATION_ROUND), env.instance(seed), policy.network, None)
                    for seed, policy in zip(seeds, policies, strict=True)
                ]
            )
        for seed, seen in zip(seeds, visits, strict=True):
            if not bool(seen.finite):
                raise NonFinite(f"seed {seed}: the evaluation holds a reward or observation that is not finite")
        steps = sum(int(seen.env_steps) for seen in visits)
        return Evaluation(np.stack([seen.returns for seen in visits]), steps, tuple(seeds))

    def _policies(self, kind: str) -> list[Policy]:
        found = read_policies(self.folder, self.config, self.env, kind)
        return [Policy(network, self.env) for network in found]


def train(
    env: str | EnvFn,
    algo: str = "pcpg",
    *,
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    features: str | Phi = "auto",
    feature_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    feature_seed: int = 0,
    lanes: int = 0,
    observer: Observer | None = None,
    loggers: Iterable[Logger | str] = (),
    **env_options: Any,
) -> Run:
    """Train an algorithm on an environment.

    A run folder holds no code: where `env` or `features` is a function, `load` and `resume` need it again.

    Args:
        env: the id of an environment, of the library or as in "gymnasium:FrozenLake-v1"; or a function that makes a
            Gymnasium environment, or a vector of them.
        algo: a name in `pcpg.algorithms.ALGORITHMS`.
        seeds: how many seeds; they run side by side, and none depends on the others.
        seed: the first seed.
        out: the run folder; by default a new temporary one.
        features: name of the feature map of the cover, or a function phi(observation, action).
        feature_options: options of the feature map.
        config: changes to the algorithm's preset, as in `{"explore": {"bonus_coef": 2.0}}`.
        feature_seed: seed of feature maps that are drawn at random.
        lanes: width of the program over seeds; 0 chooses by the device.
        observer: called with a `Progress` before the first round and after each.
        loggers: get every report that metrics.jsonl gets; "tensorboard" and "wandb" can be named.
        **env_options: the environment's own options, as in `horizon=5`.

    Returns:
        The finished run.

    Example:
        >>> import pcpg
        >>> small = {"ppo": {"num_updates": 2, "num_episodes": 64}, "explore": {"max_policies": 2}}
        >>> run = pcpg.train("CombinationLock-v0", horizon=2, config=small | {"exploit": {"num_rounds": 1}})
        >>> run.summary["policies"], run.cover.weights.shape
        ([2], (2,))
    """
    check_loggers(loggers)
    check_choice("algorithm", algo, ALGORITHMS)
    env_id = env if isinstance(env, str) else register_function(env)
    agent = from_plain(type(ALGORITHMS[algo].preset), config or {}, "config", preset(env_id, algo))
    run_config = RunConfig(
        env=env_id,
        algo=algo,
        agent=agent,
        env_options=env_options,
        features=features if isinstance(features, str) else register_features(features),
        feature_options=dict(feature_options or {}),
        seed=seed,
        seeds=seeds,
        lanes=lanes,
        feature_seed=feature_seed,
    ).resolved()
    path = Path(tempfile.mkdtemp(prefix="pcpg-")) / "run" if out is None else Path(out)
    return _train(start_run(run_config, path), observer, loggers, trust=True)


def exploit(
    run: Run | str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    lanes: int = 0,
    observer: Observer | None = None,
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
        observer: called with a `Progress` before the first round and after each.
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
            reward=reward,
        )
        path = Path(tempfile.mkdtemp(prefix="pcpg-")) / "run" if out is None else Path(out)
        made = start_run(run_config, path, reward)
    return _train(made, observer, loggers, reward, given, trust=True)


def load(
    path: str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    env_fn: EnvFn | None = None,
    features: Phi | None = None,
    trust: bool = False,
) -> Run:
    """The finished run in a folder; loading builds no outside environment and imports nothing that the folder names.

    Args:
        path: the run folder.
        reward: the reward that the run was given in Python, if it was.
        env_fn: the function that made its environment, if one did.
        features: the function that made its features, if one did.
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
    given = Given(env_fn, features)
    return Run(_open(path, given), reward, given, trust=trust)


def resume(
    path: str | os.PathLike[str],
    *,
    reward: Reward | None = None,
    env_fn: EnvFn | None = None,
    features: Phi | None = None,
    observer: Observer | None = None,
    loggers: Iterable[Logger | str] = (),
    trust: bool = False,
    retry_failed: bool = False,
) -> Run:
    """Train an interrupted run to its end: the same result as if it had never been interrupted.

    Args:
        path: the run folder.
        reward: the reward that the run was given in Python, if it was.
        env_fn: the function that made its environment, if one did.
        features: the function that made its features, if one did.
        observer: called with a `Progress` before the first round and after each.
        loggers: get every report that metrics.jsonl gets.
        trust: whether an environment from a module that the folder names may be made.
        retry_failed: whether seeds that failed go on from where they did.

    Returns:
        The finished run.

    Example:
        >>> import pcpg, tempfile
        >>> small = {"ppo": {"num_updates": 2, "num_episodes": 64}, "budget": 500, "visit_episodes": 16}
        >>> run = pcpg.train("CombinationLock-v0", algo="ppo", horizon=2, config=small)
        >>> pcpg.resume(run.path).summary == run.summary  # a finished run stays as it is
        True
    """
    given = Given(env_fn, features)
    return _train(_open(path, given), observer, loggers, reward, given, trust=trust, retry_failed=retry_failed)


def _open(path: str | os.PathLike[str], given: Given) -> RunFolder:
    """A run folder; refuses functions that its run has no use for."""
    folder = RunFolder.open(Path(path))
    config = folder.config
    if given.env_fn is not None and not is_own_function(config["env"]):
        raise ConfigError(f"{folder.path} was trained on {config['env']}, not on a function's environment")
    if given.features is not None and not is_own_features(config["features"]):
        raise ConfigError(f"{folder.path} was trained with {config['features']} features, not a function's")
    return folder


def _train(
    folder: RunFolder,
    observer: Observer | None,
    loggers: Iterable[Logger | str],
    reward: Reward | None = None,
    given: Given | None = None,
    *,
    trust: bool = False,
    retry_failed: bool = False,
) -> Run:
    # Python's own way: the notices are warnings, and Ctrl-C is a KeyboardInterrupt, after the checkpoint.
    asked: dict[str, Any] = {"reward": reward, "trust": trust, "retry_failed": retry_failed}
    with (given or Given()).used(folder):
        trained = train_run(folder, observer=observer, loggers=loggers, notice=_warn, **asked)
    if not trained.finished:
        raise KeyboardInterrupt(f"training stopped; resume with pcpg.resume({str(folder.path)!r})")
    return Run(RunFolder.open(folder.path), reward, given, trust=trust)


def _warn(text: str) -> None:
    if threading.current_thread() is threading.main_thread():
        warnings.warn(text, RunWarning, stacklevel=3)
    else:  # where warnings are errors, one would end the thread that listens for Ctrl-C
        print(text, file=sys.stderr, flush=True)
