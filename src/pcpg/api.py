"""The library in five lines: `train` an environment, `load` a run, use what came out."""

import dataclasses
import functools
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pcpg.agents.compile_cache import enable_compile_cache
from pcpg.agents.config import PRESETS, BaselineConfig, PCPGConfig, preset
from pcpg.agents.lanes import Program, default_lanes
from pcpg.agents.run_config import ConfigError, RunConfig, check_choice, from_plain
from pcpg.agents.snapshot import unpack_member
from pcpg.agents.state import NonFinite
from pcpg.agents.training import Observer, start_run, train_run
from pcpg.agents.visit import VisitInputs, Visitor
from pcpg.cover.cover import Cover, add_member, empty_cover, with_weights
from pcpg.cover.design import Design, d_optimal
from pcpg.envs.protocol import Environment
from pcpg.policies.distributions import for_space
from pcpg.policies.networks import ActorCritic, init_actor_critic
from pcpg.runs import checkpoints
from pcpg.runs.arrays import read_arrays, unflatten
from pcpg.runs.errors import NotARun
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import Logger


class RunWarning(UserWarning):
    """Something about a run that is going on which its owner may want to know."""


EVALUATION_ROUND = 2**30
"""A stream of random numbers that no round of training uses."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A trained policy: observations in, actions out."""

    network: ActorCritic
    env: Environment

    def act(self, observation: Any, *, greedy: bool = False, seed: int = 0) -> np.ndarray:
        """An action for one observation: the likeliest, or a sample fixed by `seed`."""
        space = self.env.observation_space
        if np.shape(observation) != space.shape:
            raise ConfigError(f"an observation must have shape {space.shape}, got {np.shape(observation)}")
        distribution = for_space(self.env.action_space)
        outputs = self.network.outputs(np.asarray(observation, space.dtype)[None])
        chosen = distribution.mode(outputs) if greedy else distribution.sample(jax.random.key(seed), outputs)
        return np.asarray(distribution.to_env(chosen))[0]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Returns of the final policies over fresh episodes."""

    returns: np.ndarray  # [seeds, episodes]
    env_steps: int

    @property
    def mean_return(self) -> list[float]:
        """One mean a seed."""
        return [float(x) for x in self.returns.mean(axis=1, dtype=np.float64)]

    @property
    def standard_error(self) -> list[float]:
        """Of each seed's mean."""
        return [float(x) for x in self.returns.std(axis=1, dtype=np.float64) / self.returns.shape[1] ** 0.5]


class Run:
    """A finished run; `policy` and `cover` are those of its first seed, `policies` and `covers` of all."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.config = RunConfig.from_json(folder.config)
        self.env = self.config.make_env()
        self.summary = folder.read_summary()

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
    def covers(self) -> list[Cover[ActorCritic]]:
        """The cover of each seed."""
        return [cover_of(self.folder, self.config, seed) for seed in self.config.seed_list]

    @property
    def cover(self) -> Cover[ActorCritic]:
        return self.covers[0]

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
        policies = self._policies("best") if best else self.policies
        env = self.env.evaluation_env
        program = Program(Visitor(env, episodes, greedy).visit, self.config.lanes or default_lanes())
        visits = program(
            [
                VisitInputs(np.uint32(seed), np.int32(EVALUATION_ROUND), env.instance(seed), policy.network, None)
                for seed, policy in zip(self.config.seed_list, policies, strict=True)
            ]
        )
        for seed, seen in zip(self.config.seed_list, visits, strict=True):
            if not bool(seen.finite):
                raise NonFinite(f"seed {seed}: the evaluation holds a reward or observation that is not finite")
        steps = sum(int(seen.env_steps) for seen in visits)
        return Evaluation(np.stack([seen.returns for seen in visits]), steps)

    def _policies(self, kind: str) -> list[Policy]:
        arrays = read_arrays(self.folder.policy)
        like = policy_template(self.config, self.env)
        policies = []
        for seed in self.config.seed_list:
            prefix = f"{seed}/{kind}"
            own = {name[len(prefix) :]: leaf for name, leaf in arrays.items() if name.startswith(prefix)}
            policies.append(Policy(unflatten(like, own), self.env))
        return policies


def train(
    env: str,
    algo: str = "pcpg",
    *,
    seeds: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    features: str = "auto",
    feature_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    feature_seed: int = 0,
    lanes: int = 0,
    observer: Observer | None = None,
    loggers: tuple[Logger, ...] = (),
    **env_options: Any,
) -> Run:
    """Train `algo` on an environment and give back the finished run.

    `config` overrides entries of the algorithm's preset, as in `{"explore": {"bonus_coef": 2.0}}`; `env_options` are
    the environment's own, as in `horizon=5`. Without `out` the run lies in a new temporary folder. `observer` is told
    of each round, `loggers` get every report that metrics.jsonl gets.
    """
    check_choice("algorithm", algo, PRESETS)
    agent = from_plain(type(PRESETS[algo]), config or {}, "config", preset(str(env), algo))
    run_config = RunConfig(
        env=env,
        algo=algo,
        agent=agent,
        env_options=env_options,
        features=features,
        feature_options=dict(feature_options or {}),
        seed=seed,
        seeds=seeds,
        lanes=lanes,
        feature_seed=feature_seed,
    ).resolved()
    path = Path(tempfile.mkdtemp(prefix="pcpg-")) / "run" if out is None else Path(out)
    return _train(start_run(run_config, path), observer, loggers)


def load(path: str | os.PathLike[str]) -> Run:
    """The finished run in a folder; nothing in a run folder can execute code."""
    return Run(RunFolder.open(Path(path)))


def resume(path: str | os.PathLike[str], *, observer: Observer | None = None, loggers: tuple[Logger, ...] = ()) -> Run:
    """Train an interrupted run to its end: the same result as if it had never been interrupted."""
    return _train(RunFolder.open(Path(path)), observer, loggers)


def _train(folder: RunFolder, observer: Observer | None, loggers: tuple[Logger, ...]) -> Run:
    def notice(text: str) -> None:
        warnings.warn(text, RunWarning, stacklevel=2)

    # Python's own way: the notices are warnings, and Ctrl-C is a KeyboardInterrupt, after the checkpoint.
    trained = train_run(folder, observer=observer, loggers=loggers, notice=notice)
    if not trained.finished:
        raise KeyboardInterrupt(f"training stopped; pcpg.resume({str(folder.path)!r}) goes on")
    return load(folder.path)


def policy_template(config: RunConfig, env: Environment) -> ActorCritic:
    """A policy of the shape that the run trains."""
    ppo = config.agent.ppo
    return init_actor_critic(
        np.random.default_rng(0),
        env.observation_space,
        env.action_space,
        hidden=ppo.hidden,
        shared_body=ppo.shared_body,
    )


def cover_of(folder: RunFolder, config: RunConfig, seed: int) -> Cover[ActorCritic]:
    """The cover of one seed as of the last checkpoint."""
    checkpoint = checkpoints.load_latest(folder.checkpoints)
    name = f"{seed}/.cover"
    if isinstance(config.agent, BaselineConfig):
        raise NotARun(f"{folder.path} holds no cover: {config.algo} keeps none")
    size = 0 if checkpoint is None else int(checkpoint.arrays[f"{name}.size"])
    if checkpoint is None or size == 0:
        raise NotARun(f"{folder.path}: the cover of seed {seed} has no member yet")
    like = policy_template(config, config.make_env())
    members = [
        unpack_member(seed, like, folder.read_member(index, sha256))
        for index, sha256 in enumerate(checkpoint.state["members"][:size])
    ]
    cover = empty_cover(like, members[0].sigma.shape[0], size)
    for member in members:
        cover = add_member(cover, member.policy, member.sigma)
    return with_weights(cover, checkpoint.arrays[f"{name}.weights"][:size])
