"""Runs that are not at their end: what is known of them so far, and going on with more than was asked for at first."""

import dataclasses
from typing import Any

import numpy as np

from pcpg.config import BaselineConfig, ConfigError, PCPGConfig, ReplayConfig
from pcpg.envs.protocol import Environment
from pcpg.practice.budget import UNLIMITED, Limits, read_steps, read_time
from pcpg.run_config import RunConfig
from pcpg.runs import checkpoints
from pcpg.runs.disk import exists, read_file
from pcpg.runs.documents import write_json
from pcpg.runs.errors import NotARun, understood
from pcpg.runs.folder import CONFIG, SUMMARY, Notice, RunFolder
from pcpg.runs.manifest import Seal
from pcpg.runs.metrics import read_whole_metrics
from pcpg.state import DONE, EXPLOIT, EXPLORE, PHASES
from pcpg.training.sealing import changing
from pcpg.training.trust import environment_of


def summary_so_far(folder: RunFolder, notice: Notice = lambda text: None) -> dict[str, Any]:
    """The summary of a run: that of its end, or as of its last checkpoint, with the phase of each seed."""
    if folder.is_finished:
        return folder.read_summary()
    checkpoint = _checkpoint(folder, notice)
    first, count = folder.config["seed"], folder.config["seeds"]
    seeds = list(range(first, first + count))
    failed = checkpoint.state.get("failed", {})

    def of(name: str, seed: int, default: Any = 0) -> Any:
        return checkpoint.arrays.get(f"{seed}/{name}", np.asarray(default))

    def reached(name: str, seed: int) -> float | None:
        value = of(name, seed, np.nan)
        return float(value) if np.isfinite(value) and str(seed) not in failed else None

    with understood(folder.checkpoints):
        summary = {
            "rounds": checkpoint.step,
            "seeds": seeds,
            "env_steps": [int(of(".env_steps", seed)) for seed in seeds],
            "policies": [int(of(".cover.size", seed)) for seed in seeds],
            "final_return": [reached(".last_return", seed) for seed in seeds],
            "best_return": [reached(".best_return", seed) for seed in seeds],
            "phase": [PHASES[int(of(".phase", seed))] for seed in seeds],
        }
    return summary | ({"failed": dict(failed)} if failed else {})


def arrays_so_far(folder: RunFolder) -> dict[str, np.ndarray]:
    """The newest and the best policy of each seed as of the last checkpoint, under the names of the final ones."""
    arrays, found = _checkpoint(folder).arrays, {}
    for name, leaf in arrays.items():
        seed, _, rest = name.partition("/")
        for kind, field in (("final", ".policy"), ("best", ".best_policy")):
            if rest.startswith((f"{field}.", f"{field}[")):
                found[f"{seed}/{kind}{rest[len(field) :]}"] = leaf
    return found


def seconds_of(folder: RunFolder) -> float:
    """What a run has taken in all its processes, compilation included."""
    # Timings are for information: what comes after a damage is lost, and no reason to stop.
    found = read_whole_metrics(folder.timings)[0] if exists(folder.timings) else []
    rows = [
        row for row in found if all(isinstance(row.get(name), float | int) for name in ("seconds", "compile_seconds"))
    ]
    # `compile_seconds` is what its process had spent so far: it falls where another process begins.
    compiled = [row["compile_seconds"] for row in rows]
    ends = [spent for spent, following in zip(compiled, [*compiled[1:], 0.0], strict=False) if following < spent]
    return sum(row["seconds"] for row in rows) + sum(ends)


def go_on(
    folder: RunFolder,
    *,
    steps: int | str | None = None,
    time: float | str | None = None,
    until: float | None = None,
) -> RunFolder:
    """Give a run other limits, from now on; a finished one is open again. Its folder as it is then.

    `steps` and `time` are those of the whole run, or with a plus sign in front come on top of what it has used.
    """
    if steps is None and time is None and until is None:
        return folder
    config = RunConfig.from_json(folder.config, environment_of(folder))
    if config.source:
        raise ConfigError(f"{folder.path} exploits the cover of another run: begin anew with `pcpg exploit`")
    with folder.lock():
        before = summary_so_far(folder)
        limits = _limits(config.limits, max(before["env_steps"]), seconds_of(folder), steps, time, until)
        _check_more(limits, before, folder, is_given=steps is not None)
        checkpoint = _reopened(folder, config, environment_of(folder))
        config = dataclasses.replace(config, limits=limits, agent=_agent(config.agent, limits, config.limits))
        with changing(folder, checkpoint.step):
            write_json(folder.path / CONFIG, config.to_json(), sealed=folder.manifest is not None)
            state = checkpoint.state | {"config": Seal.of(read_file(folder.path / CONFIG)).sha256}
            checkpoints.save(folder.checkpoints, checkpoint.step, checkpoint.arrays, state)
            for path in (folder.path / SUMMARY, folder.policy):
                path.unlink(missing_ok=True)
    return RunFolder.open(folder.path)


def _limits(
    old: Limits, used: int, seconds: float, steps: int | str | None, time: float | str | None, until: float | None
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


def _check_more(limits: Limits, before: dict[str, Any], folder: RunFolder, *, is_given: bool) -> None:
    used = min(before["env_steps"])
    if limits.steps and limits.steps <= used and not is_given:
        raise ConfigError(f"{folder.path} has used its {limits.steps:,} steps: say how many more, as in --steps +500k")
    if limits.steps and limits.steps <= used:
        raise ConfigError(
            f"{folder.path} has used {used:,} steps already, so {limits.steps:,} in all are none more: "
            f"write +{limits.steps:,} to add them"
        )
    if not limits.steps and not limits.seconds and folder.is_finished:
        raise ConfigError(f"{folder.path} is finished: say for how long it is to go on (--steps +500k or --time +10m)")


def _agent(agent: Any, limits: Limits, before: Limits) -> Any:
    """The settings with what decided the end of a run moved out of the way of its new limits."""
    if isinstance(agent, BaselineConfig):
        return dataclasses.replace(agent, budget=limits.steps or UNLIMITED, num_rounds=0)
    if isinstance(agent, ReplayConfig):
        capacity = max(agent.replay.capacity, limits.steps)
        if before.steps and not limits.steps:  # it was that of the steps: by the formula again
            capacity = 0
        replay = dataclasses.replace(agent.replay, capacity=capacity)
        exploit = (
            dataclasses.replace(agent.exploit, steps=limits.steps or UNLIMITED) if limits != before else agent.exploit
        )
        return dataclasses.replace(agent, replay=replay, exploit=exploit)
    return agent


def _reopened(folder: RunFolder, config: RunConfig, env: Environment) -> checkpoints.Checkpoint:
    """The last checkpoint with the seeds that were done where they can go on: their task, or exploration."""
    checkpoint = _checkpoint(folder)
    agent, arrays = config.agent, dict(checkpoint.arrays)
    for seed in config.seed_list:
        if arrays[f"{seed}/.phase"] != DONE:
            continue
        explores = isinstance(agent, PCPGConfig) and agent.exploit.num_rounds == 0
        if isinstance(agent, ReplayConfig):
            explores = not _goes_on_with_task(agent, config.limits, env, arrays, seed)
        if explores and isinstance(agent, PCPGConfig) and arrays[f"{seed}/.cover.size"] >= agent.explore.max_policies:
            raise ConfigError(
                f"the cover of seed {seed} is full ({agent.explore.max_policies} policies): train anew with a larger "
                "--explore.max-policies"
            )
        arrays[f"{seed}/.phase"] = np.asarray(EXPLORE if explores else EXPLOIT, np.int32)
    return dataclasses.replace(checkpoint, arrays=arrays)


def _goes_on_with_task(
    agent: ReplayConfig, limits: Limits, env: Environment, arrays: dict[str, np.ndarray], seed: int
) -> bool:
    """Whether a seed that keeps its data had explored all it would: its task goes on, and its best policy is kept."""
    if agent.exploit.backups == 0 or agent.exploit.visit_episodes == 0 or env.is_reward_free:
        return False
    if arrays[f"{seed}/.quiet"] >= agent.explore.patience:
        return True
    has_room = agent.replay.capacity - arrays[f"{seed}/.explored"] >= agent.explore.num_episodes * env.max_steps
    return bool(arrays[f"{seed}/.closer"] > 0 and has_room and not limits.seconds)  # a closer look found the reward


def _checkpoint(folder: RunFolder, notice: Notice = lambda text: None) -> checkpoints.Checkpoint:
    checkpoint = folder.newest_checkpoint(notice)
    if checkpoint is None:
        raise NotARun(f"{folder.path} has no checkpoint yet: use `pcpg resume {folder.path}`")
    return checkpoint
