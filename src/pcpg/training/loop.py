"""Train a run to its end, one round at a time: between two rounds the host saves, reports and may stop."""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import ALGORITHMS
from pcpg.config import ConfigError
from pcpg.envs.given_reward import Reward
from pcpg.envs.host import HostEnvironment
from pcpg.practice.agent import Agent, Covers
from pcpg.practice.budget import Budget
from pcpg.practice.program import default_lanes
from pcpg.run_config import RunConfig
from pcpg.runs import checkpoints
from pcpg.runs.arrays import write_arrays
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import opened
from pcpg.runs.metrics import JsonLines, Logger, read_metrics, repaired
from pcpg.state import DONE, NonFinite, SeedState
from pcpg.training.compile_cache import enable_compile_cache
from pcpg.training.exploit import make_run_env
from pcpg.training.going_on import seconds_of
from pcpg.training.interrupt import Stop, stop_on_interrupt
from pcpg.training.provenance import device_kind
from pcpg.training.restore import Restored, opened_again, restore
from pcpg.training.sealing import Sealer
from pcpg.training.storage import (
    final_policies,
    own_source_covers,
    pack_members,
    pack_states,
    read_source_covers,
    with_saved_features,
)
from pcpg.training.threads import one_blas_thread
from pcpg.training.trust import check_trust, record_environment


class Progress(NamedTuple):
    """What a display of a run is told before the first round and after each."""

    step: int  # rounds done
    max_steps: int  # rounds of the slowest seed, as far as can be told now
    records: list[dict[str, Any]]  # the newest report of each seed that has one, with the size of its cover
    env_steps: int  # of all seeds together, in this process
    seconds: float  # in this process, compilation aside
    seconds_left: float | None  # None as long as there is no round to go by
    compiled: bool  # else the next round compiles before it computes
    spent: float | None = None  # the share of the budget that is used, where there is one
    policies: Mapping[int, Any] = {}  # the network of each seed's newest policy
    env: Any = None  # the environment of the run


class Trained(NamedTuple):
    """How training went in this process."""

    finished: bool
    stopped: bool  # by the observer
    env_steps: int  # of all seeds together, in this process
    seconds: float  # compilation aside
    compile_seconds: float
    compilations: int
    failed: Mapping[int, str] = MappingProxyType({})  # by seed, why it stopped before its end
    signal: int = 0  # the one that asked to stop


Observer = Callable[[Progress], bool | None]
"""Is told how far a run is; training stops after the round where it returns False."""
Say = Callable[[str], None]


def build_agent(config: RunConfig, covers: Covers | None = None, reward: Reward | None = None) -> Agent:
    """The agent of a run; compiles nothing yet. With covers it explores no more."""
    env, algorithm = make_run_env(config, reward), ALGORITHMS[config.algo]
    lanes = config.lanes or default_lanes()
    if algorithm.rounds is None:
        return algorithm.agent(
            env, config.agent, lanes, covers=covers, until=config.limits.until, has_budget=config.limits.steps > 0
        )
    if algorithm.exploit is None:
        return Agent(env, config.agent, algorithm.rounds, lanes)
    if covers is not None:
        return Agent(env, config.agent, algorithm.exploit, lanes, covers=covers)
    return Agent(env, config.agent, algorithm.rounds, lanes, phi=config.make_features(env))


def start_run(config: RunConfig, path: Any, reward: Reward | None = None) -> RunFolder:
    """The folder of a new run; refuses a folder that is taken, and what cannot be built before it makes one."""
    config = config.resolved()
    check_instances(config)
    covers = read_source_covers(RunFolder.open(config.source["run"]), config) if config.source else None
    build_agent(config, covers, reward).init(config.seed)
    return RunFolder.create(path, config.to_json())


def check_instances(config: RunConfig) -> None:
    """Refuse an option that the instance of some seed cannot have, such as a goal inside a wall of its maze."""
    env = config.make_env()
    for seed in config.seed_list:
        try:
            env.instance(seed)
        except ValueError as error:
            raise ConfigError(f"{config.env}, seed {seed}: {error}") from error


def train_run(
    folder: RunFolder,
    *,
    observer: Observer | None = None,
    loggers: Iterable[Logger | str] = (),
    notice: Say = lambda text: None,
    leave: Callable[[], None] | None = None,
    reward: Reward | None = None,
    trust: bool = False,
    retry_failed: bool = False,
) -> Trained:
    """Train a run to its end, from its last whole checkpoint or from its config.

    A run that was given a reward in Python needs it again. `loggers` take every report; "tensorboard" and "wandb"
    name those of pcpg.runs.loggers. An environment from a module that the folder names is made with `trust` alone. A
    seed with a number that is not finite is left behind as failed; with `retry_failed` such seeds go on.

    Ctrl-C ends the training after the round, with `finished` false; a second one calls `leave` where it is given.
    """
    folder, is_over = opened_again(folder, notice)
    failed = folder.read_summary().get("failed", {}) if is_over else {}
    if is_over and not (failed and retry_failed):
        with opened(loggers, folder):  # those that are made by name take the reports there are
            return Trained(True, False, 0, 0.0, 0.0, 0, {int(seed): str(cause) for seed, cause in failed.items()})
    check_trust(folder, trust)
    enable_compile_cache()
    config = RunConfig.from_json(folder.config)
    with folder.lock(), one_blas_thread(), stop_on_interrupt(notice, leave) as stop:
        budget = Budget(config.limits, time.monotonic() - seconds_of(folder))
        agent = build_agent(config, own_source_covers(folder, config), reward)
        if budget.is_set and isinstance(agent, Agent):
            agent = dataclasses.replace(agent, budget=budget)
        try:
            for text in agent.env.notices if isinstance(agent.env, HostEnvironment) else ():
                notice(text)
            record_environment(folder, config, agent.env)
            agent, features = with_saved_features(folder, agent)
            restored = restore(folder, agent, config, features, notice)
            run = _Loop(folder, agent, restored, features, observer, notice, budget)
            with opened(loggers, folder) as others:
                run.loggers = (run.metrics, *others)
                run.train(stop, retry_failed=retry_failed)
        finally:
            if isinstance(agent.env, HostEnvironment):
                agent.env.close()
    return run.trained()._replace(signal=stop.signal)


class _Loop:
    """The rounds of one run in this process."""

    def __init__(
        self,
        folder: RunFolder,
        agent: Agent,
        restored: Restored,
        features: str | None,
        observer: Observer | None,
        notice: Say,
        budget: Budget,
    ) -> None:
        self.folder, self.agent, self.notice, self.budget = folder, agent, notice, budget
        self.is_stopped = False  # by the observer
        self.states, self.step, self.hashes, self.failed = restored
        step, self.features = self.step, features
        lost = repaired(folder.timings)
        if lost:
            notice(f"{lost}; timings are for information only, those from there on are dropped")
        self.metrics, self.timings = JsonLines(folder.metrics), JsonLines(folder.timings)
        # What was reported after the checkpoint is reported again.
        self.metrics.truncate_to(step)
        self.timings.truncate_to(step)
        self.loggers: tuple[Logger, ...] = (self.metrics,)
        self.observer = observer
        self.latest = {record["seed"]: record for record in read_metrics(folder.metrics)}
        self.began = time.perf_counter()
        self.compiled_before = [(program.compilations, program.compile_seconds) for program in self._programs]
        self.recent: deque[float] = deque(maxlen=5)  # seconds of the last rounds with updates
        self.steps_before = self._env_steps()
        self.saved, self.saved_at, self.save_seconds = step, self.began, 0.0
        self.sealer = Sealer(folder)
        for index, sha256 in enumerate(self.hashes):
            self.sealer.add(folder.member(index), sha256)

    def train(self, stop: Stop, *, retry_failed: bool = False) -> None:
        """Rounds until every seed is done or has failed, or `stop` is set."""
        if self.failed and retry_failed:
            self.notice(f"trying again: {', '.join(f'seed {seed}' for seed in sorted(self.failed))}")
            self.failed = {}
        if self.step == 0:
            self._save()  # before the first compilation, which may take long
        else:
            self._seal(finished=False)
        self._report_progress()
        while not self.is_done and not stop.is_set() and not self.is_stopped:
            self._round()
        if self.saved != self.step:
            self._save()
        if self.is_done:
            self._finish()

    @property
    def is_done(self) -> bool:
        return not self._active

    @property
    def _active(self) -> list[int]:
        """The places of the seeds that go on."""
        return [i for i, state in enumerate(self.states) if state.phase != DONE and int(state.seed) not in self.failed]

    def trained(self) -> Trained:
        steps = self._env_steps() - self.steps_before
        compilations = sum(p.compilations - n for p, (n, _) in zip(self._programs, self.compiled_before, strict=True))
        spent = self._seconds(), self._compile_seconds()
        return Trained(self.is_done, self.is_stopped, steps, *spent, compilations, dict(self.failed))

    def _round(self) -> None:
        began = self._seconds()
        active = self._active
        results = self.agent.try_step([self.states[index] for index in active])
        self._leave_behind(results)
        self.step += 1
        members = {}
        for index, result in zip(active, results, strict=True):
            if isinstance(result, NonFinite):
                self.failed[int(self.states[index].seed)] = str(result)
                continue
            state, report = result
            self.states[index] = self.budget.after_round(state)
            record = {"step": self.step} | report.metrics
            self.latest[int(state.seed)] = record
            for logger in self.loggers:
                logger.write(record)
            if report.member is not None:
                members[int(state.seed)] = report.member
        if members:
            self.hashes.append(self.folder.write_member(len(self.hashes), pack_members(members)))
            self.sealer.add(self.folder.member(len(self.hashes) - 1), self.hashes[-1])
        seconds = self._seconds() - began
        self.timings.write({"step": self.step, "seconds": seconds, "compile_seconds": self._compile_seconds()})
        now = time.perf_counter()
        if (now - self.saved_at) * self.agent.checkpoint_share >= self.save_seconds * (self.agent.checkpoint_share < 1):
            self._save()
        if self._compiled:  # the first round of PC-PG has no updates: nothing to go by
            self.recent.append(self._seconds() - began)
        self._report_progress()

    def _leave_behind(self, results: list[Any]) -> None:
        """Tell of the seeds that failed in a round; where none is left that has not, the run stops before it."""
        errors = [result for result in results if isinstance(result, NonFinite)]
        if errors and len(errors) + len(self.failed) == len(self.states):
            raise errors[0]
        for error in errors:
            self.notice(f"failed, the other seeds go on: {error}")

    def _report_progress(self) -> None:
        if self.observer is None:
            return
        going = [state for state in self.states if int(state.seed) not in self.failed]
        left = max((self._rounds_left(state) for state in going), default=0)
        seconds_left = left * sum(self.recent) / len(self.recent) if self.recent else None
        covers = {int(state.seed): state.cover for state in self.states if state.cover is not None}
        records = [
            ({"policies": int(covers[seed].size)} if seed in covers else {}) | self.latest[seed]
            for seed in sorted(self.latest)
        ]
        env_steps = self._env_steps() - self.steps_before
        spent = max((self.budget.spent(state) for state in going), default=1.0) if self.budget.is_set else None
        if spent is not None and self.budget.limits.seconds and seconds_left is not None:
            seconds_left = min(seconds_left, max(0.0, self.budget.limits.seconds * (1 - spent)))
        policies = {int(state.seed): state.policy for state in going}
        progress = Progress(
            *(self.step, self.step + left, records, env_steps, self._seconds(), seconds_left, self._compiled),
            spent=spent,
            policies=policies,
            env=self.agent.env,
        )
        self.is_stopped |= self.observer(progress) is False

    def _rounds_left(self, state: SeedState) -> int:
        by_budget = self.budget.rounds_left(state) if self.budget.is_set and state.phase != DONE else 0
        return by_budget or self.agent.rounds_left(state)

    def _save(self) -> None:
        began = time.perf_counter()
        self.metrics.sync()
        state = {
            "members": self.hashes,
            "features": self.features,
            "device": device_kind(),
            "metrics": self.metrics.seal,
            "config": self.sealer.config,
        }
        state |= {"failed": {str(seed): cause for seed, cause in self.failed.items()}} if self.failed else {}
        checkpoints.save(self.folder.checkpoints, self.step, pack_states(self.states), state)
        self._seal(finished=False)
        self.saved, self.saved_at = self.step, time.perf_counter()
        self.save_seconds = self.saved_at - began

    def _seal(self, *, finished: bool) -> None:
        """Tie the files together; last, so that what the manifest knows is on disk."""
        lines = {log.path.name: log for log in (self.metrics, self.timings)}
        self.sealer.seal(self.step, lines, finished=finished)

    def _finish(self) -> None:
        write_arrays(self.folder.policy, final_policies(self.states))
        self.folder.write_summary(
            {
                "rounds": self.step,
                "seeds": [int(state.seed) for state in self.states],
                "env_steps": [int(state.env_steps) for state in self.states],
                "policies": [0 if state.cover is None else int(state.cover.size) for state in self.states],
                "final_return": [self._reached(state, state.last_return) for state in self.states],
                "best_return": [self._reached(state, state.best_return) for state in self.states],
            }
            | ({"failed": {str(seed): cause for seed, cause in self.failed.items()}} if self.failed else {})
        )
        self._seal(finished=True)

    def _reached(self, state: SeedState, value: np.ndarray) -> float | None:
        """A return at the end; a seed that failed has none."""
        return float(value) if np.isfinite(value) and int(state.seed) not in self.failed else None

    @property
    def _programs(self) -> tuple[Any, ...]:
        return self.agent.programs

    @property
    def _compiled(self) -> bool:
        return any(program.compilations for program in self._programs) and self.step > 1

    def _compile_seconds(self) -> float:
        return sum(p.compile_seconds - s for p, (_, s) in zip(self._programs, self.compiled_before, strict=True))

    def _seconds(self) -> float:
        return time.perf_counter() - self.began - self._compile_seconds()

    def _env_steps(self) -> int:
        return sum(int(state.env_steps) for state in self.states)
