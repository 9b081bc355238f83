"""Train a run to its end, one round at a time: between two rounds the host saves, reports and may stop."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from pcpg.agents.build import Agent, build_agent
from pcpg.agents.compile_cache import enable_compile_cache
from pcpg.agents.run_config import RunConfig
from pcpg.agents.snapshot import pack_members, pack_states, unpack_states
from pcpg.agents.state import DONE, SeedState
from pcpg.runs import checkpoints
from pcpg.runs.arrays import flatten, write_arrays
from pcpg.runs.errors import DamagedFile
from pcpg.runs.folder import RunFolder
from pcpg.runs.metrics import JsonLines, Logger


class Progress(NamedTuple):
    """What a display of a run is told after each round."""

    step: int  # rounds done
    max_steps: int
    records: list[dict[str, Any]]  # the newest report of each seed
    env_steps: int  # of all seeds together, in this process
    seconds: float  # in this process, compilation aside


class Trained(NamedTuple):
    """How training went in this process."""

    finished: bool
    env_steps: int  # of all seeds together, in this process
    seconds: float
    compile_seconds: float
    compilations: int


Observer = Callable[[Progress], None]


def start_run(config: RunConfig, path: Any) -> RunFolder:
    """The folder of a new run; refuses a folder that is taken."""
    return RunFolder.create(path, config.to_json())


def train_run(
    folder: RunFolder,
    *,
    observer: Observer | None = None,
    loggers: tuple[Logger, ...] = (),
    notice: Callable[[str], None] = lambda text: None,
) -> Trained:
    """Train a run to its end, from its last whole checkpoint or from its config."""
    if folder.is_finished:
        return Trained(True, 0, 0.0, 0.0, 0)
    enable_compile_cache()
    config = RunConfig.from_json(folder.config)
    agent = build_agent(config)
    with folder.lock(), _stop_on_interrupt() as stop:
        states, step, hashes = _restore(folder, agent, config, notice)
        run = _Loop(folder, agent, states, step, hashes, loggers, observer)
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
        loggers: tuple[Logger, ...],
        observer: Observer | None,
    ) -> None:
        self.folder, self.agent, self.states, self.step, self.hashes = folder, agent, states, step, hashes
        self.metrics, self.timings = JsonLines(folder.metrics), JsonLines(folder.timings)
        # What was reported after the checkpoint is reported again.
        self.metrics.truncate_to(step)
        self.timings.truncate_to(step)
        self.loggers, self.observer = (self.metrics, *loggers), observer
        self.latest: dict[int, dict[str, Any]] = {}
        self.seconds = 0.0
        self.steps_before = self._env_steps()

    def train(self, stop: threading.Event) -> None:
        """Rounds until every seed is done or `stop` is set."""
        if self.step == 0:
            self._save()  # before the first compilation, which may take long
        while not self.is_done and not stop.is_set():
            self._round()
        if self.is_done:
            self._finish()

    @property
    def is_done(self) -> bool:
        return all(state.phase == DONE for state in self.states)

    def trained(self) -> Trained:
        steps = self._env_steps() - self.steps_before
        compilations = self.agent.improve.compilations + self.agent.visit.compilations
        return Trained(self.is_done, steps, self.seconds, self._compile_seconds(), compilations)

    def _round(self) -> None:
        started, compiled = time.perf_counter(), self._compile_seconds()
        active = [index for index, state in enumerate(self.states) if state.phase != DONE]
        results = self.agent.step([self.states[index] for index in active])
        seconds = time.perf_counter() - started - (self._compile_seconds() - compiled)
        self.seconds += seconds
        self.step += 1
        members = {}
        for index, (state, report) in zip(active, results, strict=True):
            self.states[index] = state
            record = {"step": self.step} | report.metrics
            self.latest[int(state.seed)] = record
            for logger in self.loggers:
                logger.write(record)
            if report.member is not None:
                members[int(state.seed)] = report.member
        if members:
            self.hashes.append(self.folder.write_member(len(self.hashes), pack_members(members)))
        self.timings.write({"step": self.step, "seconds": seconds, "compile_seconds": self._compile_seconds()})
        self._save()
        if self.observer is not None:
            env_steps = self._env_steps() - self.steps_before
            records = list(self.latest.values())
            self.observer(Progress(self.step, self.agent.max_rounds, records, env_steps, self.seconds))

    def _save(self) -> None:
        self.metrics.sync()
        state = {"members": self.hashes, "device": device_kind()}
        checkpoints.save(self.folder.checkpoints, self.step, pack_states(self.states), state)

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

    def _compile_seconds(self) -> float:
        return self.agent.improve.compile_seconds + self.agent.visit.compile_seconds

    def _env_steps(self) -> int:
        return sum(int(state.env_steps) for state in self.states)


def final_policies(states: list[SeedState]) -> dict[str, np.ndarray]:
    """The last policy of each seed, and the best by its counted evaluations beside it."""
    arrays: dict[str, np.ndarray] = {}
    for state in states:
        for kind, policy in (("final", state.policy), ("best", state.best_policy)):
            arrays |= {f"{int(state.seed)}/{kind}{name}": leaf for name, leaf in flatten(policy).items()}
    return arrays


def device_kind() -> str:
    """The kind of device that computes, such as `cpu`."""
    return jax.devices()[0].device_kind


def _restore(
    folder: RunFolder, agent: Agent, config: RunConfig, notice: Callable[[str], None]
) -> tuple[list[SeedState], int, list[str]]:
    fresh = [agent.init(seed) for seed in config.seed_list]
    checkpoint = checkpoints.load_latest(folder.checkpoints)
    if checkpoint is None:
        folder.drop_members(0)
        return fresh, 0, []
    for skipped in checkpoint.skipped:
        notice(f"{skipped.reason}; going back to the checkpoint of step {checkpoint.step}")
    device = checkpoint.state.get("device")
    if device != device_kind():
        notice(f"saved on {device}, going on on {device_kind()}: bit-equal results are not promised")
    hashes = list(checkpoint.state["members"])
    try:
        members = [folder.read_member(index, sha256) for index, sha256 in enumerate(hashes)]
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.cause}; the cover cannot be restored without it") from error
    folder.drop_members(len(hashes))
    return unpack_states(checkpoint.arrays, fresh, members), checkpoint.step, hashes


@contextmanager
def _stop_on_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second ends the process as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(signum: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _finite(value: np.ndarray) -> float | None:
    return float(value) if np.isfinite(value) else None
