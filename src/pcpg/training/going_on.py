"""Summaries of unfinished runs, and new limits that extend a run."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from pcpg.budget import Limits, read_steps, read_time
from pcpg.config import ConfigError, Json
from pcpg.envs.protocol import Environment
from pcpg.run_config import RunConfig, check_fits
from pcpg.runs import checkpoints
from pcpg.runs.disk import exists, read_file
from pcpg.runs.documents import write_json
from pcpg.runs.errors import NotARun, understood
from pcpg.runs.folder import CONFIG, SUMMARY, Notice, RunFolder
from pcpg.runs.manifest import Seal
from pcpg.runs.metrics import read_whole_metrics, spent
from pcpg.state import DONE, PHASES, Ledger, of_seed
from pcpg.training.sealing import changing
from pcpg.training.trust import environment_of
from pcpg.trees import flatten


def summary_so_far(folder: RunFolder, config: RunConfig, notice: Notice = lambda text: None) -> Json:
    """The summary of a finished run, or that of the last checkpoint with the phase of each seed."""
    if folder.is_finished:
        return folder.read_summary()
    checkpoint = _checkpoint(folder, notice)
    failed = {int(seed): cause for seed, cause in checkpoint.state.get("failed", {}).items()}
    with understood(folder.checkpoints):
        own = {seed: of_seed(seed, checkpoint.arrays) for seed in config.seed_list}
        ledgers = {seed: Ledger.of(arrays) for seed, arrays in own.items()}
        policies = [len(config.agent.weights(arrays)) for arrays in own.values()]
        phases = {"phase": [PHASES[int(ledger.phase)] for ledger in ledgers.values()]}
        return summary_of(checkpoint.step, ledgers, policies, phases, failed)


def summary_of(
    rounds: int,
    ledgers: Mapping[int, Ledger],
    policies: list[int],
    where: Mapping[str, list[str]],
    failed: Mapping[int, str],
) -> Json:
    """The summary of some seeds with the status of each; a failed seed has no return."""

    def reached(value: np.ndarray, seed: int) -> float | None:
        return float(value) if np.isfinite(value) and seed not in failed else None

    return {
        "rounds": rounds,
        "seeds": list(ledgers),
        "env_steps": [int(ledger.env_steps) for ledger in ledgers.values()],
        "policies": policies,
        "final_return": [reached(ledger.last_return, seed) for seed, ledger in ledgers.items()],
        "best_return": [reached(ledger.best_return, seed) for seed, ledger in ledgers.items()],
        **where,
        **({"failed": {str(seed): cause for seed, cause in failed.items()}} if failed else {}),
    }


def arrays_so_far(folder: RunFolder) -> dict[str, np.ndarray]:
    """The newest and best policy of each seed as of the last checkpoint, under the names of the final ones."""
    arrays, found = _checkpoint(folder).arrays, {}
    for name, leaf in arrays.items():
        seed, _, rest = name.partition("/")
        for kind, field in (("final", ".policy"), ("best", ".best_policy")):
            if rest.startswith((f"{field}.", f"{field}[")):
                found[f"{seed}/{kind}{rest[len(field) :]}"] = leaf
    return found


def seconds_of(folder: RunFolder) -> float:
    """Seconds used by all processes of a run, including compilation."""
    # Timings are informational: losing those after a damaged line is no reason to stop.
    found = read_whole_metrics(folder.timings)[0] if exists(folder.timings) else []
    rows = [
        row for row in found if all(isinstance(row.get(name), float | int) for name in ("seconds", "compile_seconds"))
    ]
    return sum(spent(rows))


def go_on(
    folder: RunFolder,
    *,
    steps: float | str | None = None,
    time: float | str | None = None,
    until: float | None = None,
) -> RunFolder:
    """Give a run new limits, which reopens a finished one; returns its folder.

    `steps` and `time` are totals for the whole run, or with a plus sign additions to the amount used.
    """
    if steps is None and time is None and until is None:
        return folder
    config = RunConfig.from_json(folder.config, environment_of(folder))
    if config.source:
        raise ConfigError(
            f"{folder.path} exploits another run's cover and cannot be extended: start again with `pcpg exploit`"
        )
    with folder.lock():
        before = summary_so_far(folder, config)
        limits = _limits(config.limits, max(before["env_steps"]), seconds_of(folder), steps, time, until)
        _check_more(limits, before, folder, is_given=steps is not None)
        env = environment_of(folder)
        checkpoint = _reopened(folder, config, env)
        config = dataclasses.replace(config, limits=limits, agent=config.agent.extended(limits, config.limits))
        check_fits(env, config.agent)  # while the run is as it was
        with changing(folder, checkpoint.step):
            write_json(folder.path / CONFIG, config.to_json(), sealed=folder.manifest is not None)
            state = checkpoint.state | {"config": Seal.of(read_file(folder.path / CONFIG)).sha256}
            checkpoints.save(folder.checkpoints, checkpoint.step, checkpoint.arrays, state)
            for path in (folder.path / SUMMARY, folder.policy):
                path.unlink(missing_ok=True)
    return RunFolder.open(folder.path)


def _limits(
    old: Limits, used: int, seconds: float, steps: float | str | None, time: float | str | None, until: float | None
) -> Limits:
    if steps is not None:
        number, plus = read_steps(steps)
        old = dataclasses.replace(old, steps=number + (used if plus else 0))
    elif old.steps and time is not None:  # the time alone decides from now on
        old = dataclasses.replace(old, steps=0)
    if time is not None:
        given, plus = read_time(time)
        old = dataclasses.replace(old, seconds=given + (seconds if plus else 0.0))
    elif old.seconds:
        old = dataclasses.replace(old, seconds=0.0)
    return dataclasses.replace(old, until=until if until is not None else old.until)


def _check_more(limits: Limits, before: Json, folder: RunFolder, *, is_given: bool) -> None:
    used = min(before["env_steps"])
    if limits.steps and limits.steps <= used and not is_given:
        raise ConfigError(f"{folder.path} has used its {limits.steps:,} steps: add more, as in --steps +500k")
    if limits.steps and limits.steps <= used:
        raise ConfigError(
            f"{folder.path} has already used {used:,} steps, so a total of {limits.steps:,} adds none: "
            f"write +{limits.steps:,} to add that many"
        )
    if not limits.steps and not limits.seconds and folder.is_finished:
        raise ConfigError(f"{folder.path} is finished: extend it with --steps +500k or --time +10m")


def _reopened(folder: RunFolder, config: RunConfig, env: Environment) -> checkpoints.Checkpoint:
    """The last checkpoint, with finished seeds moved to the phase in which they continue."""
    checkpoint = _checkpoint(folder)
    arrays = dict(checkpoint.arrays)
    for seed in config.seed_list:
        own = of_seed(seed, arrays)
        ledger = Ledger.of(own)
        if ledger.phase == DONE:
            try:
                ledger = ledger.noted(phase=config.agent.reopened(own, env, config.limits))
            except ConfigError as error:
                raise ConfigError(f"seed {seed}: {error}") from error
            arrays |= {f"{seed}/{name}": array for name, array in flatten(ledger).items()}
    return dataclasses.replace(checkpoint, arrays=arrays)


def _checkpoint(folder: RunFolder, notice: Notice = lambda text: None) -> checkpoints.Checkpoint:
    checkpoint = folder.newest_checkpoint(notice)
    if checkpoint is None:
        raise NotARun(f"{folder.path} has no checkpoint yet: use `pcpg resume {folder.path}`")
    return checkpoint
