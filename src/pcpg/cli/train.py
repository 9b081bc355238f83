"""`pcpg train` and `pcpg resume`."""

import dataclasses
import functools
import os
import typing
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pcpg.cli.flags import JsonFlag, LogFlag, read_train_flags
from pcpg.cli.output import STOPPED, Folder, answer, loading, print_json
from pcpg.runs.errors import DiskFull, FolderTaken
from pcpg.runs.folder import RunFolder
from pcpg.runs.loggers import check_loggers

if typing.TYPE_CHECKING:
    from pcpg.run_config import RunConfig


def train(arguments: list[str], console: Console) -> int:
    """Train as the arguments say, whose flags depend on the environment and the algorithm; the exit code."""
    with loading(console):
        from pcpg.envs.adapters.names import is_adapted
        from pcpg.training.loop import start_run

    notice = functools.partial(console.print, style="yellow", highlight=False, soft_wrap=True)
    config, flags = read_train_flags(arguments, notice)
    check_loggers(flags.log)
    if is_adapted(config.env):  # nobody has chosen its settings: those that the defaults came to are shown
        for line in settings(config):
            console.print(line, style="dim", highlight=False, soft_wrap=True)
    folder = start_run(config, flags.out) if flags.out else start_in_free_folder(config)
    return train_folder(folder, console, flags.json, flags.log)


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run, to the same result as if it had never been interrupted."""

    dir: Folder
    log: LogFlag = ()
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        check_loggers(self.log)
        return train_folder(folder, console, self.json, self.log)


def settings(config: "RunConfig") -> list[str]:
    """Every setting of a run, a line for each part; flags of the same names change them."""
    env, agent = config.make_env(), dataclasses.asdict(config.agent)
    parts: dict[str, dict[str, typing.Any]] = {"env": dict(config.env_options)}
    if config.feature_options or config.algo.startswith("pcpg"):
        parts["phi"] = {"features": config.features} | dict(config.feature_options)
    parts |= {name: part for name, part in agent.items() if isinstance(part, dict)}
    parts["agent"] = {name: value for name, value in agent.items() if value is not None and not isinstance(value, dict)}
    seen = f"{config.env}: observations {env.observation_space}, actions {env.action_space}, {env.max_steps} steps"
    return [seen, *(_line(name, part) for name, part in parts.items() if part)]


def _line(name: str, part: dict[str, typing.Any]) -> str:
    return f"{name}: " + ", ".join(f"{key} {value}" for key, value in part.items())


def start_in_free_folder(config: "RunConfig", kind: str = "") -> RunFolder:
    """A run in the first free one of runs/ENV-ALGO-1, -2, ..., or ENV-KIND-1, ..."""
    from pcpg.training.loop import start_run

    name, number = config.env.replace(":", "-").replace("/", "-"), 1
    while True:
        try:
            return start_run(config, Path("runs") / f"{name}-{kind or config.algo}-{number}")
        except FolderTaken:
            number += 1


def train_folder(folder: RunFolder, console: Console, as_json: bool, loggers: Sequence[str] = ()) -> int:
    """Train a run to its end with its progress on the screen, then tell what came out; the exit code."""
    say = functools.partial(console.print, highlight=False, soft_wrap=True)
    go_on = f"go on with: pcpg resume {folder.path}"
    try:
        with loading(console):
            from pcpg.cli.display import Display, result_table, title_of
            from pcpg.training.loop import train_run

        with Display(console, title_of(folder.config)) as display:

            def leave() -> None:
                display.stop()
                say(f"stopped at once; the last checkpoint is whole: {go_on}")
                os._exit(STOPPED)  # a compilation cannot be cancelled, and everything is on disk

            notice = functools.partial(say, style="yellow")
            trained = train_run(folder, observer=display, loggers=loggers, notice=notice, leave=leave)
    except KeyboardInterrupt:
        say(f"stopped; {go_on}")
        return STOPPED
    except DiskFull:
        say(f"make room, then {go_on}")
        raise
    if not trained.finished:
        say(f"stopped; everything so far is saved: {go_on}")
        return STOPPED
    summary = folder.read_summary()
    out = answer(console, as_json)
    out.print(result_table(folder))
    out.print(f"run folder: {folder.path}", highlight=False, soft_wrap=True)
    result = {
        "run": str(folder.path),
        "env": folder.config["env"],
        "algo": folder.config["algo"],
        "seeds": summary["seeds"],
        "env_steps_per_seed": max(summary["env_steps"]),
        "env_steps": summary["env_steps"],
        "policies": summary["policies"],
        "final_return": summary["final_return"],
        # Of this process: a resumed run has spent more before.
        "seconds": trained.seconds + trained.compile_seconds,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": trained.env_steps / trained.seconds if trained.seconds else 0.0,
    }
    print_json(result, as_json)
    return 0
