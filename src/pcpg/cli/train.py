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

from rich.console import Console

from pcpg.cli.display import FAILED, STOPPED, answer, loading, print_json, result_table
from pcpg.cli.flags import (
    HELP,
    Arg,
    Folder,
    JsonFlag,
    LogFlag,
    Mistake,
    OnFlag,
    Part,
    StepsFlag,
    TimeFlag,
    TrustFlag,
    parse,
    parse_parts,
)
from pcpg.cli.train_flags import TrainFlags, env_options, environment_part, read_general, read_train_flags
from pcpg.runs.errors import DiskFull, FolderInUse, FolderTaken
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import check_loggers
from pcpg.training.display import Display, plan, say, title_of

if typing.TYPE_CHECKING:
    from pcpg.run_config import RunConfig
    from pcpg.training.loop import Trained


def train(arguments: list[str], console: Console) -> int:
    """Train as the arguments say; returns the exit code. Flags depend on the environment and the algorithm."""
    here = Path.cwd()  # before an environment runs, which may change it
    with loading(console):
        from pcpg.envs.adapters.names import workers_on
    with workers_on(read_general(arguments).flags.on):  # features may be scaled by what workers play
        config, flags = read_train_flags(arguments, lambda text: say(console, text, "yellow"))
        check_loggers(flags.log)
        if flags.data:
            from pcpg.training.logged import begun_with

            config = begun_with(config, flags.data, here)
        return _train_here(config, flags, console, here)


def _train_here(config: "RunConfig", flags: TrainFlags, console: Console, here: Path) -> int:
    from pcpg.engine.program import on_devices

    with on_devices(flags.devices):
        folder = start_in(flags.out, config, here=here)
        for line in plan(config, folder.path):
            say(console, line, "dim")
        return train_folder(folder, console, flags.json, flags.log, trust=True)


@dataclasses.dataclass(frozen=True)
class Resume:
    """Resume an interrupted run; the result is the same as without the interruption.

    --steps, --time and --until set new limits, which also extend a finished run.
    """

    dir: Folder
    steps: StepsFlag = ""
    """New total of environment steps per seed, or with a plus sign the steps to add: +500k."""
    time: TimeFlag = ""
    """New time limit for the whole run, or with a plus sign the time to add: +10m."""
    until: float | None = None
    """Stop a seed once its mean evaluation return reaches this value."""
    retry_failed: bool = False
    """Retry failed seeds from their last checkpoint."""
    on: OnFlag = "local"
    """Where environment workers run: local processes or a Ray cluster."""
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
            more = go_on(folder, steps=self.steps or None, time=self.time or None, until=self.until)
            folder = dataclasses.replace(more, name=folder.name)
        asked = {"trust": self.trust, "retry_failed": self.retry_failed}
        with loading(console):
            from pcpg.envs.adapters.names import workers_on
        with workers_on(self.on):
            return train_folder(folder, console, self.json, self.log, **asked)


@dataclasses.dataclass(frozen=True)
class ExploitFlags:
    """Train a policy on the cover of a finished run, for the environment's reward or for a new one.

    Options depend on the run: `pcpg exploit DIR --help` shows those of its environment and algorithm.
    """

    dir: Annotated[str, Arg("DIR", "Run folder with the cover.", positional=True)]
    seeds: int | None = None
    """Number of seeds; by default all seeds with a cover."""
    seed: int | None = None
    """First seed; by default the first seed of the cover."""
    out: Annotated[str, Arg("DIR")] = ""
    """Run folder to create; by default a new one under runs/."""
    lanes: int = 0
    """Number of seeds to train in parallel; 0: chosen for the device."""
    steps: Annotated[str, Arg("N")] = ""
    """New environment steps per task, such as 50k, if the run kept its data; by default none: the task is learned from
    the data alone."""
    trust: TrustFlag = False
    log: LogFlag = ()
    json: JsonFlag = False


def exploit(arguments: list[str], console: Console) -> int:
    """Train on the cover of the named run; returns the exit code."""
    if arguments and arguments[0] in HELP:
        parse(ExploitFlags, arguments, "pcpg exploit")
    if not arguments or arguments[0].startswith("-"):
        raise Mistake("name a run folder first, as in `pcpg exploit runs/explored --env.goal 3,7`")
    folder, here = RunFolder.open(arguments[0]), Path.cwd()
    with loading(console):
        from pcpg.training.exploit import exploit_config, exploit_defaults
    defaults = exploit_defaults(folder, "--trust" in arguments)
    groups = Arg(help="Groups of episodes that share a roll-in policy.", aliases=("--num-groups",))
    parts = [
        Part(ExploitFlags),
        environment_part(defaults),
        Part(type(defaults.agent), defaults.agent, title="algorithm", args={"explore.num_groups": groups}),
    ]
    about = f"Train a policy on the cover of {defaults.source['run']} for the current reward of {defaults.env}."
    flags, env, agent = parse_parts(parts, arguments, "pcpg exploit", about)
    config = exploit_config(
        defaults,
        agent=agent,
        env_options=env_options(env),
        seed=flags.seed,
        seeds=flags.seeds,
        lanes=flags.lanes,
        new_steps=flags.steps,
    )
    check_loggers(flags.log)
    started = start_in(flags.out, config, "exploit", here)
    return train_folder(started, console, flags.json, flags.log, trust=True)


def start_in(out: str, config: "RunConfig", kind: str = "", here: Path | None = None) -> RunFolder:
    """Create a run in the folder `out`, or in the first free one of runs/ENV-ALGO-1, -2, ... (or ENV-KIND-1, ...).

    Relative paths start at `here`.
    """
    from pcpg.training.loop import start_run

    here = here or Path.cwd()
    if out:
        return dataclasses.replace(start_run(config, here / out), name=out)
    name, number = config.env.rpartition(".py:")[2].replace(":", "-").replace("/", "-"), 1
    while True:
        try:
            path = Path("runs") / f"{name}-{kind or config.algo}-{number}"
            return dataclasses.replace(start_run(config, here / path), name=str(path))
        except (FolderTaken, FolderInUse):  # in use: another process is starting a run there
            number += 1


def train_folder(folder: RunFolder, console: Console, as_json: bool, loggers: Sequence[str] = (), **asked: Any) -> int:
    """Train a run to its end, showing progress, then the result; returns the exit code.

    `asked` is passed to `train_run`: whether to trust the folder and retry failed seeds.
    """
    folder.check_entries()
    with loading(console):
        from pcpg.envs.host import EnvironmentFailed
        from pcpg.training.loop import train_run
        from pcpg.training.trust import asks_for
    resume = f"pcpg resume {shlex.quote(folder.name)}{' --trust' if asks_for(folder) else ''}"
    how_to_resume = f"resume with: {resume}"
    try:
        with Display(console, title_of(folder.config)) as display:

            def leave() -> None:
                display.stop()
                say(console, f"stopped immediately; the last checkpoint is intact; {how_to_resume}")
                os._exit(STOPPED)  # a compilation cannot be cancelled; everything is on disk

            notice = functools.partial(say, console, style="yellow")
            trained = train_run(folder, observer=display, loggers=loggers, notice=notice, leave=leave, **asked)
    except KeyboardInterrupt:
        say(console, f"stopped; {how_to_resume}")
        return STOPPED
    except DiskFull:
        say(console, f"free some disk space, then {how_to_resume}")
        raise
    except EnvironmentFailed:
        say(console, f"the last good checkpoint is kept; fix the environment, then {how_to_resume}")
        raise
    if not trained.finished:
        say(console, f"stopped; progress is saved; {how_to_resume}")
        return 128 + (trained.signal or signal.SIGINT)
    sealed = dataclasses.replace(RunFolder.open(folder.path), name=folder.name)
    return _tell_result(sealed, trained, console, as_json, resume)


def _tell_result(folder: RunFolder, trained: "Trained", console: Console, as_json: bool, resume: str) -> int:
    """Show the result of a finished run, which `resume` continues; returns the exit code."""
    summary = folder.read_summary()
    out = answer(console, as_json)
    out.print(result_table(folder))
    with loading(console):
        from pcpg.reports.read import read_run
        from pcpg.reports.verdict import verdict
    say(out, str(verdict(read_run(folder.path))))
    say(out, f"run folder: {folder.name}")
    result = {
        "run": folder.name,
        "env": folder.config["env"],
        "algo": folder.config["algo"],
        "seeds": summary["seeds"],
        "env_steps_per_seed": max(summary["env_steps"]),
        "env_steps": summary["env_steps"],
        "policies": summary["policies"],
        "final_return": summary["final_return"],
        # Of this process alone: an earlier part of a resumed run is not counted.
        "seconds": trained.seconds + trained.compile_seconds,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": trained.env_steps / trained.seconds if trained.seconds else 0.0,
    }
    if trained.failed:
        for seed, cause in trained.failed.items():
            say(console, f"seed {seed} failed: {cause.removeprefix(f'seed {seed}: ')}", "red")
        say(console, f"retry with: {resume} --retry-failed")
        result["failed"] = {str(seed): cause for seed, cause in trained.failed.items()}
    print_json(result, as_json)
    return FAILED if trained.failed else 0
