"""The commands that train: train, resume, exploit."""

import dataclasses
import functools
import os
import shlex
import signal
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from pcpg.cli.display import FAILED, STOPPED, answer, loading, print_json, result_table
from pcpg.cli.flags import (
    Flag,
    Folder,
    JsonFlag,
    LogFlag,
    Mistake,
    OnFlag,
    StepsFlag,
    TimeFlag,
    TrainFlags,
    TrustFlag,
    parse,
    read_train_flags,
    value_of,
)
from pcpg.runs.errors import DiskFull, FolderInUse, FolderTaken
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import check_loggers
from pcpg.training.display import Display, say, title_of

if typing.TYPE_CHECKING:
    from pcpg.run_config import RunConfig


def train(arguments: list[str], console: Console) -> int:
    """Train as the arguments say, whose flags depend on the environment and the algorithm; the exit code."""
    with loading(console):
        from pcpg.envs.adapters.places import LOCAL, workers_on
    with workers_on(value_of(arguments, "--on") or LOCAL):  # features may be scaled by what workers play
        config, flags = read_train_flags(arguments, lambda text: say(console, text, "yellow"))
        check_loggers(flags.log)
        return _train_here(config, flags, console)


def _train_here(config: "RunConfig", flags: TrainFlags, console: Console) -> int:
    from pcpg.cli.plan import plan
    from pcpg.practice.program import on_devices

    with on_devices(flags.devices):
        folder = start_in(flags.out, config)
        for line in plan(config, folder.path):
            say(console, line, "dim")
        return train_folder(folder, console, flags.json, flags.log, trust=True)


@dataclasses.dataclass(frozen=True)
class Resume:
    """Resume an interrupted run, with the same result as if it had never been interrupted.

    With --steps, --time or --until any run goes on under these limits, a finished one too.
    """

    dir: Folder
    steps: StepsFlag = ""
    """Environment steps of each seed in all, or more than so far: +500k."""
    time: TimeFlag = ""
    """Time for the whole run, or more than so far: +10m."""
    until: float | None = None
    """End a seed when a policy's mean return over its counted episodes is at least this."""
    retry_failed: Flag = False
    """Let seeds that failed go on from where they did."""
    on: OnFlag = "local"
    """Where the workers of its environment are, if it has any."""
    trust: TrustFlag = False
    log: LogFlag = ()
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        check_loggers(self.log)
        if self.steps or self.time or self.until is not None:
            with loading(console):
                from pcpg.training.going_on import go_on
                from pcpg.training.trust import check_trust
            check_trust(folder, self.trust)
            folder = go_on(folder, steps=self.steps or None, time=self.time or None, until=self.until)
        asked = {"trust": self.trust, "retry_failed": self.retry_failed}
        with loading(console):
            from pcpg.envs.adapters.places import workers_on
        with workers_on(self.on):
            return train_folder(folder, console, self.json, self.log, **asked)


@dataclasses.dataclass(frozen=True)
class ExploitFlags:
    """Train a policy on the cover of a finished run, for the environment's reward or for one given now.

    Name the run folder before --help for all flags: its environment's, --ppo.* and --exploit.*
    """

    dir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR", help="Run folder with the cover.")]
    seeds: int | None = None
    """Number of seeds; by default all that have a cover."""
    seed: int | None = None
    """The first seed; by default that of the cover."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    """Run folder to create; by default a new one under runs/."""
    lanes: int = 0
    """How many seeds run side by side; 0 chooses by the device."""
    steps: Annotated[str, tyro.conf.arg(metavar="N")] = ""
    """New environment steps that each task may take, as in 50k, where a run kept its data; by default none: the task is
    learned from the data alone."""
    num_groups: int | None = None
    """Groups of episodes that share a roll-in policy; by default as in exploration."""
    trust: TrustFlag = False
    log: LogFlag = ()
    json: JsonFlag = False


def exploit(arguments: list[str], console: Console) -> int:
    """Train on the cover of the run that is named first; the exit code."""
    if arguments and arguments[0] in ("-h", "--help"):
        parse(ExploitFlags, arguments, "pcpg exploit")
    if not arguments or arguments[0].startswith("-"):
        raise Mistake("name a run folder first, as in `pcpg exploit runs/explored --env.goal 3,7`")
    folder = RunFolder.open(arguments[0])
    with loading(console):
        from pcpg.training.exploit import exploit_config, exploit_defaults
        from pcpg.training.trust import check_trust
    check_trust(folder, "--trust" in arguments)
    defaults = exploit_defaults(folder)
    flags = parse(_flags_type(defaults), arguments, "pcpg exploit")
    replace = dataclasses.replace
    parts = {name: getattr(flags, name) for name in ("ppo", "exploit") if hasattr(flags, name)}
    agent: Any = replace(defaults.agent, **parts)
    if flags.num_groups is not None:
        agent = replace(agent, explore=replace(agent.explore, num_groups=flags.num_groups))
    config = exploit_config(
        defaults,
        agent=agent,
        env_options={field.name: getattr(flags.env, field.name) for field in dataclasses.fields(flags.env)},
        seed=flags.seed,
        seeds=flags.seeds,
        lanes=flags.lanes,
        new_steps=flags.steps,
    )
    check_loggers(flags.log)
    return train_folder(start_in(flags.out, config, "exploit"), console, flags.json, flags.log, trust=True)


def _flags_type(defaults: "RunConfig") -> Any:
    """The dataclass of the flags, with those of the environment and the settings of the cover's run."""
    env, agent = defaults.make_env(), typing.cast(Any, defaults.agent)
    fields = [
        (name, type(value), dataclasses.field(default=value))
        for name, value in (("env", env), ("ppo", getattr(agent, "ppo", None)), ("exploit", agent.exploit))
        if value is not None
    ]
    made = dataclasses.make_dataclass("Exploit", fields, bases=(ExploitFlags,), frozen=True)
    made.__doc__ = f"Train a policy on the cover of {defaults.source['run']}, for the reward of {defaults.env} as set."
    return made


def verdict_of(folder: RunFolder) -> list[str]:
    """What the numbers of a finished run say about it, and what to try next."""
    from pcpg.reports.read import read_run
    from pcpg.reports.verdict import lines

    return lines(read_run(folder.path))


def start_in(out: str, config: "RunConfig", kind: str = "") -> RunFolder:
    """Start a run in the folder `out`, or in the first free one of runs/ENV-ALGO-1, -2, ... (or ENV-KIND-1, ...)."""
    from pcpg.training.loop import start_run

    if out:
        return start_run(config, out)
    name, number = config.env.replace(":", "-").replace("/", "-"), 1
    while True:
        try:
            return start_run(config, Path("runs") / f"{name}-{kind or config.algo}-{number}")
        except (FolderTaken, FolderInUse):  # in use: another process begins a run there at this moment
            number += 1


def train_folder(folder: RunFolder, console: Console, as_json: bool, loggers: Sequence[str] = (), **asked: Any) -> int:
    """Train a run to its end with its progress on the screen, then show what came out; the exit code.

    What is asked besides goes to `train_run`: whether to trust the folder, whether to retry what failed.
    """
    folder.check_entries()
    how_to_resume = f"resume with: pcpg resume {shlex.quote(str(folder.path))}"
    with loading(console):
        from pcpg.envs.host import EnvironmentFailed
        from pcpg.training.loop import train_run
    try:
        with Display(console, title_of(folder.config)) as display:

            def leave() -> None:
                display.stop()
                say(console, f"stopped at once; the last checkpoint is intact; {how_to_resume}")
                os._exit(STOPPED)  # a compilation cannot be cancelled, and everything is on disk

            notice = functools.partial(say, console, style="yellow")
            trained = train_run(folder, observer=display, loggers=loggers, notice=notice, leave=leave, **asked)
    except KeyboardInterrupt:
        say(console, f"stopped; {how_to_resume}")
        return STOPPED
    except DiskFull:
        say(console, f"free some disk space, then {how_to_resume}")
        raise
    except EnvironmentFailed:
        say(console, f"the last good checkpoint stays; when the environment is repaired, {how_to_resume}")
        raise
    if not trained.finished:
        say(console, f"stopped; everything so far is saved; {how_to_resume}")
        return 128 + (trained.signal or signal.SIGINT)
    folder = RunFolder.open(folder.path)  # as it is now: sealed
    summary = folder.read_summary()
    out = answer(console, as_json)
    out.print(result_table(folder))
    for line in verdict_of(folder):
        say(out, line)
    say(out, f"run folder: {folder.path}")
    result = {
        "run": str(folder.path),
        "env": folder.config["env"],
        "algo": folder.config["algo"],
        "seeds": summary["seeds"],
        "env_steps_per_seed": max(summary["env_steps"]),
        "env_steps": summary["env_steps"],
        "policies": summary["policies"],
        "final_return": summary["final_return"],
        # Of this process alone: a resumed run has spent more before.
        "seconds": trained.seconds + trained.compile_seconds,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": trained.env_steps / trained.seconds if trained.seconds else 0.0,
    }
    if trained.failed:
        for seed, cause in trained.failed.items():
            say(console, f"seed {seed} failed: {cause.removeprefix(f'seed {seed}: ')}", "red")
        say(console, f"try those again with: pcpg resume {shlex.quote(str(folder.path))} --retry-failed")
        result["failed"] = {str(seed): cause for seed, cause in trained.failed.items()}
    print_json(result, as_json)
    return FAILED if trained.failed else 0
