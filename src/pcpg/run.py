"""What training hands back: a run with its policies and covers, finished or as far as it is."""

import contextlib
import dataclasses
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.config import ConfigError, PCPGConfig
from pcpg.cover.cover import Cover
from pcpg.cover.design import Design, d_optimal
from pcpg.envs.adapters.names import given_function
from pcpg.envs.given_reward import Reward
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import Recorded, RecordedHost
from pcpg.envs.spaces import Box
from pcpg.features.base import FeatureMap
from pcpg.features.own import Phi, given_features
from pcpg.policies.host import Actor, choose, draw
from pcpg.policies.kernel import candidate_actions
from pcpg.policies.networks import ActorCritic
from pcpg.policies.own import Network, given_network
from pcpg.practice.host import visit_program
from pcpg.practice.program import default_lanes
from pcpg.practice.visit import VisitInputs, Visitor
from pcpg.run_config import RunConfig
from pcpg.runs.folder import RunFolder
from pcpg.state import NonFinite
from pcpg.training.compile_cache import enable_compile_cache
from pcpg.training.exploit import make_run_env
from pcpg.training.going_on import summary_so_far
from pcpg.training.restore import UNSEALED
from pcpg.training.storage import covers_of, keeps_data, read_data, read_features, read_policies
from pcpg.training.trust import check_trust, environment_of

EVALUATION_ROUND = 2**30
"""A stream of random numbers that no round of training uses."""


class RunWarning(UserWarning):
    """Something about a run that its owner may want to know."""


def warn(text: str) -> None:
    """Tell of it as Python does."""
    if threading.current_thread() is threading.main_thread():
        warnings.warn(text, RunWarning, stacklevel=3)
    else:  # where warnings are errors, one would end the thread that listens for Ctrl-C
        print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Policy:
    """A trained policy: observations in, actions out."""

    network: ActorCritic
    env: Environment

    def act(self, observation: Any, *, greedy: bool = False, seed: int | None = None) -> Any:
        """An action for one observation, as the environment takes it: the likeliest, or a sample.

        With a `seed` the sample is a function of it; without, each call draws anew from the policy's own stream.
        """
        return self._act([observation], self._rng if seed is None else np.random.default_rng(seed), greedy)[0]

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """An action for one observation, or one for each of many, and `state` as it was given.

        This is the interface of Stable-Baselines3, whose `evaluate_policy` and callbacks take a policy by it. Many
        observations have one axis more than one, in each of their parts where they are a Dict or Tuple.
        """
        del episode_start  # policies here keep no memory
        single = self.env.single_observation if isinstance(self.env, HostEnvironment) else self.env.observation_space
        count = number_of(observation, single)
        if count is None:
            return self._act([observation], self._rng, deterministic)[0], state
        seen = [entry_of(observation, index) for index in range(count)]
        return np.stack(self._act(seen, self._rng, deterministic)), state

    def _act(self, observations: list[Any], rng: np.random.Generator, greedy: bool) -> list[Any]:
        seen_space, space = self.env.observation_space, self.env.action_space
        encode = self.env.encode if isinstance(self.env, HostEnvironment) else np.asarray
        seen = [encode(one) for one in observations]
        for one in seen:
            if np.shape(one) != seen_space.shape:
                raise ConfigError(f"an observation must have shape {seen_space.shape}, got {np.shape(one)}")
        outputs = self._actor(np.stack([np.asarray(one, seen_space.dtype) for one in seen]))
        actions = choose(space, outputs, draw(rng, space, 1, len(seen)).noise[0], greedy=greedy)
        if isinstance(self.env, HostEnvironment):
            return [self.env.decode(action) for action in actions]
        return list(np.clip(actions, space.low, space.high) if isinstance(space, Box) else actions)

    @functools.cached_property
    def _actor(self) -> Actor:
        return Actor(self.network)

    @functools.cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(0)


def number_of(observation: Any, space: Any) -> int | None:
    """How many observations of a space there are; None: it is one, without an axis in front."""
    if isinstance(observation, Mapping):
        key = next(iter(observation))
        return number_of(observation[key], space[key])
    if isinstance(observation, tuple) and not isinstance(getattr(space, "shape", None), tuple):
        return number_of(observation[0], space[0])
    shape = np.shape(observation)
    return shape[0] if len(shape) == len(space.shape or ()) + 1 else None


def entry_of(observations: Any, index: int) -> Any:
    """One of many observations."""
    if isinstance(observations, Mapping):
        return {key: entry_of(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(entry_of(part, index) for part in observations)
    return observations[index]


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
    network: Network | None = None

    @contextlib.contextmanager
    def used(self, folder: RunFolder) -> Iterator[None]:
        """In here the names in a run's folder stand for these functions."""
        with contextlib.ExitStack() as stack:
            if self.env_fn is not None:
                stack.enter_context(given_function(folder.config["env"], self.env_fn))
            if self.features is not None:
                stack.enter_context(given_features(folder.config["features"], self.features))
            if self.network is not None:
                stack.enter_context(given_network(folder.config["agent"]["ppo"]["body"], self.network))
            yield


class KeptEpisode(NamedTuple):
    """An episode of exploration, as the library has it: parts of a Dict side by side as numbers."""

    observations: np.ndarray  # [t + 1, ...]
    actions: np.ndarray  # [t, ...]
    rewards: np.ndarray  # [t]
    terminated: np.ndarray  # [t] bool
    truncated: np.ndarray  # [t] bool


class Run:
    """A run; `policy` and `cover` are those of its first seed, `policies` and `covers` of all.

    One that is not finished is what it was at its last checkpoint, the newest policy in place of the final one.
    """

    def __init__(
        self, folder: RunFolder, reward: Reward | None = None, given: Given | None = None, *, trust: bool = False
    ) -> None:
        self.folder, self.reward, self.trust = folder, reward, trust
        self.given = given or Given()
        with self.given.used(folder):
            env = environment_of(folder)
            self.config = RunConfig.from_json(folder.config, env)
            self.env = make_run_env(self.config, reward, env)
        self.summary = summary_so_far(folder, warn)
        self.is_finished = folder.is_finished
        if not folder.is_sealed:
            warn(UNSEALED.format(folder.path))

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
        """The seeds that came to their end, or may yet: all but those that failed."""
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

    @property
    def keeps_data(self) -> bool:
        """Whether the run kept the episodes it played."""
        return keeps_data(self.config)

    def kept_episodes(self, seed: int | None = None) -> Iterator[KeptEpisode]:
        """The episodes that a seed kept (by default the first seed), in the order in which they began."""
        self.check_seed(seed)
        kept = read_data(self.folder, self.config, self.config.seed if seed is None else seed)
        agent: Any = self.config.agent
        candidates = candidate_actions(self.env.action_space, agent.replay.num_actions)
        for places in kept.episodes():
            codes = np.append(kept.column("code")[places], kept.column("next_code")[places[-1]])
            rest = (kept.column(name)[places] for name in ("reward", "terminated", "truncated"))
            yield KeptEpisode(kept.observations[codes], candidates[kept.column("action")[places]], *rest)

    def check_seed(self, seed: int | None) -> None:
        """Refuse a seed that the run does not have."""
        seeds = self.config.seed_list
        if seed is not None and seed not in seeds:
            raise ConfigError(f"the run has seeds {seeds[0]} to {seeds[-1]}, got {seed}")

    @functools.cached_property
    def covers(self) -> list[Cover[ActorCritic]]:
        """The cover of each seed."""
        with self.given.used(self.folder):
            return covers_of(self.folder, self.config, self.config.seed_list, self.env, warn)

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
        with self.given.used(self.folder):
            found = read_policies(self.folder, self.config, self.env, kind)
        return [Policy(network, self.env) for network in found]
