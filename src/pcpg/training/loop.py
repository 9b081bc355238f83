"""Train a run to its end. Between rounds the host saves, reports, and may stop."""

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pcpg.algorithms import Agent, Assets
from pcpg.budget import Budget
from pcpg.config import ConfigError, Json
from pcpg.engine.together import together
from pcpg.envs.given_reward import Reward
from pcpg.machine import free_memory, one_blas_thread
from pcpg.run_config import RunConfig
from pcpg.runs import checkpoints
from pcpg.runs.arrays import write_arrays
from pcpg.runs.errors import MemoryFull
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import opened
from pcpg.runs.metrics import FirstReward, JsonLines, Logger, numbers_of, read_metrics, repaired
from pcpg.state import NonFinite, SeedState
from pcpg.training.compile_cache import enable_compile_cache
from pcpg.training.exploit import make_run_env
from pcpg.training.going_on import seconds_of, summary_of
from pcpg.training.interrupt import Stop, stop_on_interrupt
from pcpg.training.logged import given_data
from pcpg.training.restore import Restored, device_kind, opened_again, restore
from pcpg.training.sealing import Sealer
from pcpg.training.storage import (
    bound_agent,
    final_policies,
    own_source_assets,
    pack_parts,
    pack_states,
    run_features,
    sha256_of,
    source_assets,
)
from pcpg.training.trust import check_trust, record_environment, vouched


class Progress(NamedTuple):
    """The progress of a run, passed to observers before the first round and after each."""

    step: int  # rounds done
    max_steps: int  # rounds of the slowest seed, as far as can be told now
    records: list[Json]  # the newest report of each seed that has one, with the size of its cover
    env_steps: int  # of all seeds together, in this process
    seconds: float  # in this process, compilation aside
    seconds_left: float | None  # None as long as there is no round to go by
    compiled: bool  # else the next round compiles before it computes
    spent: float | None = None  # the share of the budget that is used, where there is one
    policies: Mapping[int, Any] = {}  # the network of each seed's newest policy
    env: Any = None  # the environment of the run
    met: Mapping[int, int | None] = {}  # by seed, the steps at which it first met its reward; None: not yet


class Trained(NamedTuple):
    """The outcome of training in this process."""

    finished: bool
    stopped: bool  # by the observer
    env_steps: int  # of all seeds together, in this process
    seconds: float  # compilation aside
    compile_seconds: float
    compilations: int
    failed: Mapping[int, str] = MappingProxyType({})  # by seed, why it stopped before its end
    signal: int = 0  # the one that asked to stop


Observer = Callable[[Progress], bool | None]
"""Called with the progress of a run; if it returns False, training stops after the round."""
LEAST_MEMORY = 256_000_000
"""No round starts with fewer bytes free."""
Say = Callable[[str], None]


def build_agent(config: RunConfig, reward: Reward | None = None, assets: Mapping[int, Assets] | None = None) -> Agent:
    """The agent of a run without a folder."""
    env = make_run_env(config, reward)
    return bound_agent(config, env, lambda: config.make_features(env), assets)


def start_run(config: RunConfig, path: Path | str, reward: Reward | None = None) -> RunFolder:
    """Create the folder of a new run; first refuses a taken folder, and settings that cannot be built."""
    config = config.resolved()
    check_instances(config)
    assets = source_assets(RunFolder.open(config.source["run"]), config) if config.source else None
    build_agent(config, reward, assets).init(config.seed)
    return vouched(RunFolder.create(path, config.to_json()))


def check_instances(config: RunConfig) -> None:
    """Refuse an option that is impossible for some seed, such as a goal inside a wall of its maze."""
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
    """Train a run to its end, from its last intact checkpoint or from its config.

    If the run was given a reward in Python, pass it again. `loggers` receive every report; "tensorboard" and "wandb"
    name those of pcpg.runs.loggers. If the folder names an environment module, it is imported only with `trust`. A seed
    with a non-finite number is marked as failed; `retry_failed` retries such seeds.

    Ctrl-C stops after the round, with `finished` false; a second one calls `leave` if given.
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
        env = make_run_env(config, reward)
        try:
            for text in env.notices:
                notice(text)
            folder = record_environment(folder, config, env)
            assets, given = own_source_assets(folder, config), given_data(folder, config)
            features = functools.partial(run_features, folder, config, env)
            agent = bound_agent(config, env, features, assets, budget, given)
            frozen = sha256_of(agent.frozen)
            restored = restore(folder, agent, config, frozen, notice)
            run = _Loop(folder, agent, restored, frozen, observer, notice, budget)
            with opened(loggers, folder) as others:
                run.loggers = (run.metrics, *others)
                run.train(stop, retry_failed=retry_failed)
        finally:
            env.close()
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
            notice(f"{lost}; dropping later timings (for information only)")
        self.metrics, self.timings = JsonLines(folder.metrics), JsonLines(folder.timings)
        # What was reported after the checkpoint is reported again.
        self.metrics.truncate_to(step)
        self.timings.truncate_to(step)
        self.loggers: tuple[Logger, ...] = (self.metrics,)
        self.observer = observer
        self.told = {state.seed: FirstReward() for state in self.states}
        for record in map(numbers_of, read_metrics(folder.metrics)):
            if told := self.told.get(record.get("seed", -1)):
                told.note(record)
        self.began = time.perf_counter()
        self.compiled_before = 0, 0.0
        self.compiled_before = self._compiled()
        self.recent: deque[float] = deque(maxlen=5)  # seconds of the last rounds with updates
        self.steps_before = self._env_steps()
        self.saved, self.saved_at, self.save_seconds = step, self.began, 0.0
        self.sealer = Sealer(folder)
        for path in self.sealer.altered:
            notice(f"{path}: altered since it was sealed; it stays as it is, and `pcpg verify` reports it")
        for index, sha256 in enumerate(self.hashes):
            self.sealer.add(folder.member(index), sha256)

    def train(self, stop: Stop, *, retry_failed: bool = False) -> None:
        """Run rounds until every seed is done or has failed, or `stop` is set."""
        if self.failed and retry_failed:
            self.notice(f"retrying: {', '.join(f'seed {seed}' for seed in sorted(self.failed))}")
            self.failed = {}
        if self.step == 0:
            self._save()  # before the first compilation, which may take long
        else:
            self._seal(finished=False)
        self._report_progress()
        while not self.is_done and not stop.is_set() and not self.is_stopped:
            self._check_memory()
            self._round()
        if self.saved != self.step:
            self._save()
        if self.is_done:
            self._finish()

    def _check_memory(self) -> None:
        """Stop with everything saved while memory suffices: kept data may outgrow it."""
        if (free := free_memory() or LEAST_MEMORY) < LEAST_MEMORY:
            self._save()
            raise MemoryFull(free)

    @property
    def is_done(self) -> bool:
        return not self._active

    @property
    def _active(self) -> list[int]:
        """The indices of the remaining seeds."""
        return [i for i, state in enumerate(self.states) if not state.is_done and state.seed not in self.failed]

    def trained(self) -> Trained:
        steps = self._env_steps() - self.steps_before
        compilations, compile_seconds = self._compiled()
        spent = self._seconds(), compile_seconds, compilations
        return Trained(self.is_done, self.is_stopped, steps, *spent, dict(self.failed))

    def _round(self) -> None:
        began = self._seconds()
        active = self._active
        rounds = [self.agent.step(self.states[index]) for index in active]
        results = together(rounds, self.agent.programs)
        self._leave_behind(results)
        self.step += 1
        parts = {}
        for index, result in zip(active, results, strict=True):
            if isinstance(result, NonFinite):
                self.failed[self.states[index].seed] = str(result)
                continue
            state, report = result
            why = None if state.is_done else self.budget.why_over(state.ledger)
            self.states[index] = state if why is None else self.agent.stopped(state, why)
            record = {"step": self.step} | report.metrics
            self.told[state.seed].note(record)
            for logger in self.loggers:
                logger.write(record)
            if report.part is not None:
                parts[state.seed] = report.part
        if parts:
            self.hashes.append(self.folder.write_member(len(self.hashes), pack_parts(parts)))
            self.sealer.add(self.folder.member(len(self.hashes) - 1), self.hashes[-1])
        seconds = self._seconds() - began
        self.timings.write({"step": self.step, "seconds": seconds, "compile_seconds": self._compiled()[1]})
        now = time.perf_counter()
        if (now - self.saved_at) * self.agent.checkpoint_share >= self.save_seconds * (self.agent.checkpoint_share < 1):
            self._save()
        if self._has_updated:  # the first round of PC-PG has no updates: nothing to go by
            self.recent.append(self._seconds() - began)
        self._report_progress()

    def _leave_behind(self, results: Sequence[object]) -> None:
        """Report the seeds that failed in a round; raise if none is left."""
        errors = [result for result in results if isinstance(result, NonFinite)]
        if errors and len(errors) + len(self.failed) == len(self.states):
            raise errors[0]
        for error in errors:
            self.notice(f"failed; the other seeds continue: {error}")

    def _report_progress(self) -> None:
        if self.observer is None:
            return
        going = [state for state in self.states if state.seed not in self.failed]
        left = max((self._rounds_left(state) for state in going), default=0)
        seconds_left = left * sum(self.recent) / len(self.recent) if self.recent else None
        sizes = {state.seed: self.agent.policies(state) for state in self.states}
        records = [
            ({} if sizes[seed] is None else {"policies": sizes[seed]}) | told.last
            for seed, told in sorted(self.told.items())
            if told.last
        ]
        env_steps = self._env_steps() - self.steps_before
        spent = max((self.budget.spent(state.ledger) for state in going), default=1.0) if self.budget.is_set else None
        if spent is not None and self.budget.limits.seconds and seconds_left is not None:
            seconds_left = min(seconds_left, max(0.0, self.budget.limits.seconds * (1 - spent)))
        policies = {state.seed: state.policy for state in going}
        told = {} if self.agent.env.is_reward_free else self.told
        met = {seed: one.at for seed, one in told.items() if one.usual is not None}
        progress = Progress(
            *(self.step, self.step + left, records, env_steps, self._seconds(), seconds_left, self._has_updated),
            *(spent, policies, self.agent.env, met),
        )
        self.is_stopped |= self.observer(progress) is False

    def _rounds_left(self, state: SeedState[object]) -> int:
        by_budget = self.budget.rounds_left(state.ledger) if self.budget.is_set and not state.is_done else 0
        return by_budget or self.agent.left(state)

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
        checkpoints.save(self.folder.checkpoints, self.step, pack_states(self.agent, self.states), state)
        self._seal(finished=False)
        self.saved, self.saved_at = self.step, time.perf_counter()
        self.save_seconds = self.saved_at - began

    def _seal(self, *, finished: bool) -> None:
        """Seal the files last, when everything in the manifest is on disk."""
        lines = {log.path.name: log for log in (self.metrics, self.timings)}
        self.sealer.seal(self.step, lines, finished=finished)

    def _finish(self) -> None:
        write_arrays(self.folder.policy, final_policies(self.states))
        ledgers = {state.seed: state.ledger for state in self.states}
        policies = [self.agent.policies(state) or 0 for state in self.states]
        ended = {"ended": [self.agent.ended(state) for state in self.states]}
        self.folder.write_summary(summary_of(self.step, ledgers, policies, ended, self.failed))
        self._seal(finished=True)

    @property
    def _has_updated(self) -> bool:
        return self.step > 1 and any(program.compilations for one in self.agent.programs for program in one.programs)

    def _compiled(self) -> tuple[int, float]:
        """Compilations in this process, and their seconds."""
        programs = [program for one in self.agent.programs for program in one.programs]
        number, seconds = self.compiled_before
        spent = sum(program.compile_seconds for program in programs)
        return sum(program.compilations for program in programs) - number, spent - seconds

    def _seconds(self) -> float:
        return time.perf_counter() - self.began - self._compiled()[1]

    def _env_steps(self) -> int:
        return sum(int(state.ledger.env_steps) for state in self.states)
