"""The result of training: a run with its policies and covers, finished or as of its last checkpoint."""

import contextlib
import dataclasses
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import Assets
from pcpg.config import ConfigError, checked
from pcpg.cover.cover import Cover
from pcpg.cover.design import Design, d_optimal
from pcpg.elsewhere import OF_A_RUN, missing
from pcpg.engine.play import VisitInputs, Visitor, visit_program
from pcpg.engine.program import default_lanes
from pcpg.envs.adapters.names import given_function
from pcpg.envs.given_reward import Reward
from pcpg.envs.options import load
from pcpg.envs.protocol import Environment
from pcpg.envs.recorded import Recorded, RecordedHost
from pcpg.features.base import FeatureMap, Phi, given_features
from pcpg.learners.transitions import Transitions
from pcpg.policies.networks import ActorCritic, Network, given_network
from pcpg.policy import Policy
from pcpg.reports.page import write_report
from pcpg.reports.read import read_run
from pcpg.reports.verdict import Verdict, verdict
from pcpg.run_config import RunConfig, check_episodes_fit
from pcpg.runs.disk import copy_folder, exists
from pcpg.runs.errors import FolderTaken, NotARun
from pcpg.runs.folder import RunFolder
from pcpg.runs.lock import LOCK
from pcpg.state import NonFinite
from pcpg.training.compile_cache import enable_compile_cache
from pcpg.training.exploit import make_run_env
from pcpg.training.going_on import summary_so_far
from pcpg.training.restore import UNSEALED
from pcpg.training.storage import assets_of, read_features, read_policies
from pcpg.training.trust import check_trust, environment_of

EVALUATION_ROUND = 2**30
"""A stream of random numbers that no round of training uses."""
VIDEO, PORTRAIT = "pcpg.play:film", "pcpg.play:portrait"
"""Loaded when a video or a report is asked for."""


class RunWarning(UserWarning):
    """A notice about a run."""


def warn(text: str) -> None:
    """Issue a notice as a Python warning."""
    if threading.current_thread() is threading.main_thread():
        warnings.warn(text, RunWarning, stacklevel=3)
    else:  # where warnings are errors, one would end the thread that listens for Ctrl-C
        print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Returns of the final policies over fresh episodes."""

    returns: np.ndarray  # [seeds, episodes]
    env_steps: int
    seeds: tuple[int, ...] = ()  # all that did not fail

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
    """The functions passed again to a run; they take precedence over names registered in this process."""

    env_fn: EnvFn | None = None
    features: Phi | None = None
    network: Network | None = None

    @contextlib.contextmanager
    def used(self, folder: RunFolder) -> Iterator[None]:
        """A context in which the names in a run's folder stand for these functions."""
        with contextlib.ExitStack() as stack:
            if self.env_fn is not None:
                stack.enter_context(given_function(folder.config["env"], self.env_fn))
            if self.features is not None:
                stack.enter_context(given_features(folder.config["features"], self.features))
            if self.network is not None:
                stack.enter_context(given_network(folder.config["agent"]["ppo"]["body"], self.network))
            yield


class KeptEpisode(NamedTuple):
    """An episode of exploration, in the library's format: the parts of a Dict concatenated as numbers."""

    observations: np.ndarray  # [t + 1, ...]
    actions: np.ndarray  # [t, ...]
    rewards: np.ndarray  # [t]
    terminated: np.ndarray  # [t] bool
    truncated: np.ndarray  # [t] bool


class Run:
    """A run; `policy` and `cover` belong to its first seed, `policies` and `covers` to all seeds.

    An unfinished run is loaded as of its last checkpoint, with the newest policy in place of the final one.
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
        self.summary = summary_so_far(folder, self.config, warn)
        self.is_finished = folder.is_finished
        if not folder.is_sealed:
            warn(UNSEALED.format(folder.path))

    @contextlib.contextmanager
    def playable(self) -> Iterator[Environment]:
        """The environment for evaluations; if only the folder names its module, it requires trust.

        Environments stepped on the host are closed afterwards.
        """
        self.check_trust()
        with self.given.used(self.folder):
            made = make_run_env(self.config, self.reward)
            env = made.evaluation_env
        try:
            yield env
        finally:
            for one in (env, made):
                one.close()

    def check_trust(self) -> None:
        """Refuse to import an environment module that the folder names, unless the run was opened with trust."""
        check_trust(self.folder, self.trust)

    @property
    def finished_seeds(self) -> list[int]:
        """All seeds except failed ones."""
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
        cover = self._covers[0 if seed is None else self.config.seed_list.index(seed)]
        return [Policy(cover.member(index), self.env) for index in range(int(cover.size))]

    @property
    def keeps_data(self) -> bool:
        """Whether the run kept the episodes it played."""
        return self.config.agent.leaves == "data"

    def kept_episodes(self, seed: int | None = None) -> Iterator[KeptEpisode]:
        """The episodes kept by a seed (by default the first seed), in the order in which they began."""
        self.check_seed(seed)
        seeds = [self.config.seed if seed is None else seed]
        [assets] = assets_of(self.folder, self.config, seeds, self.env, warn)
        if assets.data is None:
            raise ConfigError(f"{self.path} holds no data: {self.config.algo} does not keep its episodes")
        if isinstance(assets.data, Transitions):
            yield from (KeptEpisode(*episode) for episode in assets.data.logged())
            return
        kept, candidates = assets.data, assets.candidates
        assert candidates is not None, "numbers of actions come with the actions"
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
    def _assets(self) -> list[Assets]:
        if self.config.agent.leaves != "cover":
            what = "keeps data instead (run.kept_episodes())" if self.keeps_data else "does not build one"
            raise NotARun(f"{self.path} holds no {'policies of a ' * self.keeps_data}cover: {self.config.algo} {what}")
        with self.given.used(self.folder):
            return assets_of(self.folder, self.config, self.config.seed_list, self.env, warn)

    @property
    def covers(self) -> list[Any]:
        """The cover of each seed: a `Cover`, or its weights, visits and returns where the run keeps data instead."""
        if self.keeps_data and (shown := read_run(self.path).covers):
            return list(shown.values())
        return self._covers

    @property
    def _covers(self) -> list[Cover[ActorCritic]]:
        return [assets.cover for assets in self._assets if assets.cover is not None]

    @property
    def cover(self) -> Any:
        return self.covers[0]

    @functools.cached_property
    def features(self) -> FeatureMap:
        """The saved feature map of the cover."""
        with self.given.used(self.folder):
            is_drawn = not isinstance(self.env, Recorded | RecordedHost)
            return read_features(self.folder, self.config.make_features(self.env), is_drawn=is_drawn)

    @property
    def design(self) -> Design:
        """The weights of the first seed's cover with their certificate of optimality."""
        # Without the ridge of training, float32 noise in the null space would count as directions.
        return d_optimal(self._covers[0].used, ridge=self._assets[0].ridge)

    @checked
    def evaluate(self, episodes: int = 100, *, greedy: bool = False, best: bool = False) -> Evaluation:
        """Play fresh episodes with each seed's final policy (or the best one by its evaluations in training)."""
        if episodes < 1:
            raise ConfigError(f"episodes must be at least 1, got {episodes}")
        enable_compile_cache()
        seeds, found = self.finished_seeds, self.best_policies if best else self.policies
        policies = [found[self.config.seed_list.index(seed)] for seed in seeds]
        with self.playable() as env:
            check_episodes_fit(env, episodes)
            program = visit_program(Visitor(env, episodes, greedy), self.config.lanes or default_lanes())
            visits = program(
                [
                    VisitInputs(np.uint32(seed), np.int32(EVALUATION_ROUND), env.instance(seed), policy.network, None)
                    for seed, policy in zip(seeds, policies, strict=True)
                ]
            )
        for seed, seen in zip(seeds, visits, strict=True):
            if not bool(seen.finite):
                raise NonFinite(f"seed {seed}: the evaluation contains a non-finite reward or observation")
        steps = sum(int(seen.env_steps) for seen in visits)
        return Evaluation(np.stack([seen.returns for seen in visits]), steps, tuple(seeds))

    @property
    def verdict(self) -> Verdict:
        """What came out, in sentences, and a command to try next."""
        return verdict(read_run(self.path))

    @checked
    def report(self, out: str | os.PathLike[str] | None = None) -> Path:
        """Write the report as one HTML page, by default report.html in the run folder; its path."""
        return write_report([self.path], out, [load(PORTRAIT)(self)])[0]

    @checked
    def video(
        self,
        out: str | os.PathLike[str] = "video.gif",
        *,
        seed: int | None = None,
        best: bool = False,
        episodes: int = 1,
        greedy: bool = False,
        fps: float = 15.0,
        max_frames: int = 600,
    ) -> Path:
        """Record episodes of a seed's policy as a .gif, or an .mp4 with the extra `video`; the path."""
        return load(VIDEO)(self, Path(out), seed, best, episodes, greedy, fps, max_frames)

    @checked
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the run folder, which is always complete, to a new place; its path."""
        target = Path(path).absolute()
        if exists(target):
            raise FolderTaken(f"{target} is there already; choose another name")
        copy_folder(self.path, target, leave=[LOCK])
        return target

    def __repr__(self) -> str:
        seeds, what = len(self.config.seed_list), "finished" if self.is_finished else "not finished"
        named = f"{self.config.algo} on {self.config.env}, {seeds} seed{'s' * (seeds != 1)}"
        returns = [f"{value:.4g}" for value in self.summary["final_return"][:5] if value is not None]
        earned = f", final return {', '.join(returns)}{', ...' * (seeds > 5)}" if returns else ""
        return f"<pcpg.Run {str(self.path)!r}: {named}, {what}{earned}>"

    def __getattr__(self, name: str) -> Any:
        raise missing("a run", name, OF_A_RUN, [one for one in dir(type(self)) if not one.startswith("_")])

    def _policies(self, kind: str) -> list[Policy]:
        with self.given.used(self.folder):
            found = read_policies(self.folder, self.config, self.env, kind)
        return [Policy(network, self.env) for network in found]
