"""Train a run to its end, one round at a time: between two rounds the host saves, reports and may stop."""

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
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
from pcpg.runs.metrics import JsonLines, Logger, read_metrics
from pcpg.state import DONE, SeedState
from pcpg.training.compile_cache import enable_compile_cache
from pcpg.training.exploit import make_run_env
from pcpg.training.going_on import seconds_of
from pcpg.training.interrupt import stop_on_interrupt
from pcpg.training.provenance import device_kind, what_changed
from pcpg.training.storage import (
    check_features,
    final_policies,
    needing_all,
    own_source_covers,
    pack_members,
    pack_states,
    read_source_covers,
    unpack_states,
    with_saved_features,
)


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


Observer = Callable[[Progress], bool | None]
"""Is told how far a run is; training stops after the round where it returns False."""
Say = Callable[[str], None]


def build_agent(config: RunConfig, covers: Covers | None = None, reward: Reward | None = None) -> Agent:
    """The agent of a run; compiles nothing yet. With covers it explores no more."""
    env, algorithm = make_run_env(config, reward), ALGORITHMS[config.algo]
    lanes = config.lanes or default_lanes()
    if algorithm.rounds is None:
        return algorithm.agent(env, config.agent, lanes, covers=covers)
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
) -> Trained:
    """Train a run to its end, from its last whole checkpoint or from its config.

    A run that was given a reward in Python needs it again. `loggers` take every report; "tensorboard" and "wandb"
    name those of pcpg.runs.loggers.

    Ctrl-C ends the training after the round, with `finished` false; a second one calls `leave` where it is given.
    """
    if folder.is_finished:
        with opened(loggers, folder):  # those that are made by name take the reports there are
            return Trained(True, False, 0, 0.0, 0.0, 0)
    enable_compile_cache()
    config = RunConfig.from_json(folder.config)
    with folder.lock(), stop_on_interrupt(notice, leave) as stop:
        budget = Budget(config.limits, time.monotonic() - seconds_of(folder))
        agent = build_agent(config, own_source_covers(folder, config), reward)
        if budget.is_set and isinstance(agent, Agent):
            agent = dataclasses.replace(agent, budget=budget)
        for text in agent.env.notices if isinstance(agent.env, HostEnvironment) else ():
            notice(text)
        agent, features = with_saved_features(folder, agent)
        states, step, hashes = _restore(folder, agent, config, features, notice)
        run = _Loop(folder, agent, states, step, hashes, features, observer, budget)
        with opened(loggers, folder) as others:
            run.loggers = (run.metrics, *others)
            run.train(stop)
    return run.trained()


class _Loop:
    """The rounds of one run in this process."""

    def __init__(
        self,
        folder: RunFolder,
        agent: Agent,
        states: list[SeedState],
        step: int,
        hashes: list[str],
        features: str | None,
        observer: Observer | None,
        budget: Budget,
    ) -> None:
        self.budget = budget
        self.is_stopped = False  # by the observer
        self.folder, self.agent, self.states, self.step, self.hashes = folder, agent, states, step, hashes
        self.features = features
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

    def train(self, stop: threading.Event) -> None:
        """Rounds until every seed is done or `stop` is set."""
        if self.step == 0:
            self._save()  # before the first compilation, which may take long
        self._report_progress()
        while not self.is_done and not stop.is_set() and not self.is_stopped:
            self._round()
        if self.saved != self.step:
            self._save()
        if self.is_done:
            self._finish()

    @property
    def is_done(self) -> bool:
        return all(state.phase == DONE for state in self.states)

    def trained(self) -> Trained:
        steps = self._env_steps() - self.steps_before
        compilations = sum(p.compilations - n for p, (n, _) in zip(self._programs, self.compiled_before, strict=True))
        return Trained(self.is_done, self.is_stopped, steps, self._seconds(), self._compile_seconds(), compilations)

    def _round(self) -> None:
        began = self._seconds()
        active = [index for index, state in enumerate(self.states) if state.phase != DONE]
        results = self.agent.step([self.states[index] for index in active])
        self.step += 1
        members = {}
        for index, (state, report) in zip(active, results, strict=True):
            self.states[index] = self.budget.after_round(state)
            record = {"step": self.step} | report.metrics
            self.latest[int(state.seed)] = record
            for logger in self.loggers:
                logger.write(record)
            if report.member is not None:
                members[int(state.seed)] = report.member
        if members:
            self.hashes.append(self.folder.write_member(len(self.hashes), pack_members(members)))
        seconds = self._seconds() - began
        self.timings.write({"step": self.step, "seconds": seconds, "compile_seconds": self._compile_seconds()})
        now = time.perf_counter()
        if (now - self.saved_at) * self.agent.checkpoint_share >= self.save_seconds * (self.agent.checkpoint_share < 1):
            self._save()
        if self._compiled:  # the first round of PC-PG has no updates: nothing to go by
            self.recent.append(self._seconds() - began)
        self._report_progress()

    def _report_progress(self) -> None:
        if self.observer is None:
            return
        left = max(self._rounds_left(state) for state in self.states)
        seconds_left = left * sum(self.recent) / len(self.recent) if self.recent else None
        covers = {int(state.seed): state.cover for state in self.states if state.cover is not None}
        records = [
            ({"policies": int(covers[seed].size)} if seed in covers else {}) | self.latest[seed]
            for seed in sorted(self.latest)
        ]
        env_steps = self._env_steps() - self.steps_before
        spent = max(self.budget.spent(state) for state in self.states) if self.budget.is_set else None
        if spent is not None and self.budget.limits.seconds and seconds_left is not None:
            seconds_left = min(seconds_left, max(0.0, self.budget.limits.seconds * (1 - spent)))
        policies = {int(state.seed): state.policy for state in self.states}
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
        state = {"members": self.hashes, "features": self.features, "device": device_kind()}
        checkpoints.save(self.folder.checkpoints, self.step, pack_states(self.states), state)
        self.saved, self.saved_at = self.step, time.perf_counter()
        self.save_seconds = self.saved_at - began

    def _finish(self) -> None:
        write_arrays(self.folder.policy, final_policies(self.states))
        self.folder.write_summary(
            {
                "rounds": self.step,
                "seeds": [int(state.seed) for state in self.states],
                "env_steps": [int(state.env_steps) for state in self.states],
                "policies": [0 if state.cover is None else int(state.cover.size) for state in self.states],
                "final_return": [_finite(state.last_return) for state in self.states],
                "best_return": [_finite(state.best_return) for state in self.states],
            }
        )

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


def _restore(
    folder: RunFolder, agent: Agent, config: RunConfig, features: str | None, notice: Say
) -> tuple[list[SeedState], int, list[str]]:
    fresh = [agent.init(seed) for seed in config.seed_list]
    checkpoint = checkpoints.load_latest(folder.checkpoints)
    if checkpoint is None:
        given = list(config.source.get("members", []))
        folder.drop_members(len(given))
        return fresh, 0, given
    for skipped in checkpoint.skipped:
        notice(f"{skipped.reason}; going back to the checkpoint of step {checkpoint.step}")
    changed = what_changed(checkpoint.state.get("device"), checkpoint.versions)
    if changed:
        notice(f"saved with {changed}: bit-exact resume is not guaranteed")
    check_features(folder, features, checkpoint.state.get("features"))
    hashes = list(checkpoint.state["members"])
    given = len(config.source.get("members", []))  # the cover that it exploits; what comes after is its own
    own = list(enumerate(hashes))[given:]
    members = needing_all(lambda: [folder.read_member(index, sha256) for index, sha256 in own])
    folder.drop_members(len(hashes))
    return unpack_states(checkpoint.arrays, fresh, members), checkpoint.step, hashes


def _finite(value: np.ndarray) -> float | None:
    return float(value) if np.isfinite(value) else None
