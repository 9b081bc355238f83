"""The commands that inspect runs and environments: evaluate, show, verify, report, video, export, envs."""

import dataclasses
import typing
import warnings
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console

from pcpg.cli.display import answer, envs_table, evaluation_table, loading, print_json, tell, verify_table, visits_table
from pcpg.cli.flags import Arg, Folder, JsonFlag, Mistake, Part, TrustFlag, parse_parts
from pcpg.envs.options import load
from pcpg.runs.disk import check_output, is_folder
from pcpg.runs.folder import RunFolder
from pcpg.runs.verify import DAMAGED, WHOLE, verify
from pcpg.training.display import say

if typing.TYPE_CHECKING:
    from pcpg.api import Run

EXPORTER = "pcpg_lab.minari:save"
SHOWN = 12
"""Number of policies that `show` lists by default, by descending weight."""
SeedFlag = Annotated[int | None, Arg(help="Seed; by default the first.")]
GreedyFlag = Annotated[bool, Arg(help="Take the most likely action instead of sampling one.")]
BestFlag = Annotated[bool, Arg(help="Use the policy with the best evaluation in training instead of the final one.")]


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play fresh episodes with the final policy of each seed."""

    dir: Folder
    episodes: int = 100
    """Episodes per seed."""
    greedy: GreedyFlag = False
    best: BestFlag = False
    trust: TrustFlag = False
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        run = run_to_play(self.dir, console, self.episodes, self.trust)
        played = run.evaluate(self.episodes, greedy=self.greedy, best=self.best)
        result = {
            "run": run.folder.name,
            "env": run.config.env,
            "algo": run.config.algo,
            "seeds": list(played.seeds),
            "episodes": self.episodes,
            "greedy": self.greedy,
            "best": self.best,
            "mean_return": played.mean_return,
            "standard_error": played.standard_error,
            "env_steps": played.env_steps,
        }
        return tell(console, self.json, evaluation_table(run, played), result)


@dataclasses.dataclass(frozen=True)
class Show:
    """Show where the policies of a cover go: visits by grid cell, for each policy and for the weighted cover."""

    dir: Folder
    seed: SeedFlag = None
    png: Annotated[str, Arg("FILE")] = ""
    """Also save a picture to this file."""
    all: bool = False
    """Show every policy, in the order they were added."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        folder.check_entries()
        first, count = folder.config["seed"], folder.config["seeds"]
        seed = first if self.seed is None else self.seed
        if seed not in range(first, first + count):
            raise Mistake(f"the run has seeds {first} to {first + count - 1}, got {seed}")
        _check_parent(self.png, "picture")
        if self.png and Path(self.png).suffix != ".png":
            raise Mistake(f"--png must name a .png file, got {self.png}")
        if self.png:
            check_output(Path(self.png), b"\x89PNG")
        with loading(console):
            from pcpg.reports.visits import draw_visits, read_visits
        visits = read_visits(folder, seed, lambda text: say(console, text, "yellow"))
        if self.png:
            draw_visits(visits, Path(self.png))
            say(console, f"picture: {self.png}")
        result = {
            "run": folder.name,
            "seed": seed,
            "covered": visits.covered,
            "weights": visits.weights.tolist(),
            "returns": visits.returns.tolist(),
            "visits": visits.counts.tolist(),
        }
        return tell(
            console,
            self.json,
            visits_table(visits, *(() if self.all else (SHOWN,))),
            result | ({"png": self.png} if self.png else {}),
        )


@dataclasses.dataclass(frozen=True)
class Verify:
    """Check a run folder for missing or corrupted files; exit code 1 if there are any."""

    dir: Folder
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        found = verify(folder)
        bad = [one for one in found if one.state == DAMAGED]
        odd = [one for one in found if one.state != WHOLE]
        out = answer(console, self.json)
        if bad or odd:
            out.print(verify_table(bad or odd))
        if not folder.is_sealed and folder.damage is None:
            say(out, f"{folder.name} is unsealed (written by a version without manifests); `pcpg resume` seals it")
        state = f"{len(bad)} of {len(found)} files are damaged" if bad else f"intact ({len(found)} files)"
        files = [one._asdict() for one in found]
        result = {"run": folder.name, "whole": not bad, "sealed": folder.is_sealed, "files": files}
        return tell(console, self.json, f"{folder.name}: {state}", result, code=1 if bad else 0)


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a report of one or more runs as one HTML page: curves, the cover and its certificate, visits, settings."""

    dirs: Annotated[tuple[str, ...], Arg("DIR [DIR ...]", "Run folders.", positional=True)] = ()
    out: Annotated[str, Arg("FILE")] = ""
    """File to write; by default report.html in the run folder, or in the current folder for several runs."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if not self.dirs:
            raise Mistake("name a run folder, as in `pcpg report runs/first`")
        for folder in self.dirs:
            RunFolder.open(folder)
        _check_parent(self.out, "page")
        if self.out and is_folder(self.out):
            raise Mistake(f"{self.out} is a folder: give a file, as in {self.out}/report.html")
        with loading(console):
            from pcpg.play import portraits
            from pcpg.reports.page import write_report

            playing = portraits(self.dirs)
        path, runs = write_report(self.dirs, self.out or None, playing)
        for run in runs:
            for note in run.notes:
                say(console, f"{run.path}: {note}", "yellow")
        notes = {str(run.path): list(run.notes) for run in runs}
        result = {"report": str(path), "runs": [str(run.path) for run in runs], "notes": notes}
        return tell(console, self.json, f"report: {path}", result)


@dataclasses.dataclass(frozen=True)
class Video:
    """Record episodes of a policy as a video: the final policy of a seed, its best, or a member of its cover."""

    dir: Folder
    out: Annotated[str, Arg("FILE")] = "video.gif"
    """A .gif, or an .mp4 with the extra `video`."""
    seed: SeedFlag = None
    best: BestFlag = False
    member: int | None = None
    """Number of a member of the cover, in place of the final policy."""
    episodes: int = 1
    """Number of episodes."""
    greedy: GreedyFlag = False
    fps: float = 15.0
    """Frames per second."""
    max_frames: int = 600
    """Maximum number of frames."""
    trust: TrustFlag = False
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if self.max_frames < 1 or not 0 < self.fps <= 100:
            raise Mistake(
                f"max-frames must be at least 1, and fps above 0 and at most 100, got {self.max_frames} and {self.fps}"
            )
        if self.best and self.member is not None:
            raise Mistake("give either --best or --member, not both")
        path = Path(self.out).absolute()  # before an environment runs, which may change the current folder
        run = run_to_play(self.dir, console, self.episodes, self.trust)
        with loading(console):
            from pcpg.play import check_video, chosen_policies, record, write_video
        check_video(path)
        which = "best" if self.best else "final" if self.member is None else "cover"
        policies, _ = chosen_policies(run, which, self.seed)
        number = self.member or 0
        if not 0 <= number < len(policies):
            raise Mistake(f"the cover has members 0 to {len(policies) - 1}, got {number}")
        seed = run.config.seed if self.seed is None else self.seed
        frames, returns = record(
            run, policies[number], seed, episodes=self.episodes, greedy=self.greedy, max_frames=self.max_frames
        )
        if len(frames) == self.max_frames:
            say(console, f"cut after {self.max_frames} frames; raise --max-frames for more", "yellow")
        write_video(frames, path, self.fps)
        result = {"video": self.out, "frames": len(frames), "seed": seed, "returns": returns}
        return tell(console, self.json, f"video: {self.out}, {len(frames)} frames", result)


@dataclasses.dataclass(frozen=True)
class Export:
    """Save episodes as a Minari dataset, played by policies of a cover or kept from exploration."""

    dir: Folder
    out: Annotated[str, Arg("DIR")] = "datasets"
    """Folder of datasets; set MINARI_DATASETS_PATH to it so that Minari finds them."""
    id: str = ""
    """Dataset id; by default pcpg/ENV/POLICY-v0."""
    policy: Literal["cover", "final", "best", "kept"] | None = None
    """Source of the episodes: policies of the cover, drawn by their weights; the final policy; the policy with the best
    evaluation in training; or the kept episodes of exploration. By default kept if the run has any, else cover."""
    seed: SeedFlag = None
    episodes: int | None = None
    """Number of episodes; by default 100, or all that were kept."""
    greedy: GreedyFlag = False
    trust: TrustFlag = False
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        out = Path(self.out).absolute()
        run = run_to_play(self.dir, console, 100 if self.episodes is None else self.episodes, self.trust)
        with loading(console):
            save = load(EXPORTER)
        played = {"seed": self.seed, "episodes": self.episodes, "greedy": self.greedy}
        name, dataset = save(run, out, which=self.policy, dataset_id=self.id or None, **played)
        episodes, steps = int(dataset.total_episodes), int(dataset.total_steps)
        result = {"dataset": name, "folder": self.out, "episodes": episodes, "steps": steps}
        return tell(console, self.json, f"dataset: {name} in {self.out}, {episodes} episodes, {steps:,} steps", result)


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments and their options."""

    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        with loading(console):
            from pcpg.envs.registry import spec
        entries = spec()
        listing = []
        for entry in entries:
            options = {option.name: None if option.required else option.default for option in entry.options}
            listing.append(entry._asdict() | {"options": options})
        return tell(console, self.json, envs_table(entries), {"envs": listing})


def run_to_play(path: str, console: Console, episodes: int, trust: bool) -> "Run":
    """Open the run to play `episodes`; prints a notice if it is unfinished."""
    if episodes < 1:
        raise Mistake(f"episodes must be at least 1, got {episodes}")
    folder = RunFolder.open(path)
    with loading(console):
        from pcpg.api import Run, RunWarning
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RunWarning)
        run = Run(folder, trust=trust)
    for warning in caught:
        say(console, str(warning.message), "yellow")
    if not run.is_finished:
        where = f"round {run.summary['rounds']}, {max(run.summary['env_steps']):,} steps per seed"
        say(console, f"{path} is not finished; showing its last checkpoint ({where})", "yellow")
    return run


def _check_parent(path: str, what: str) -> None:
    """Refuse, before any work, to write a file into a folder that does not exist."""
    if path and not is_folder(Path(path).resolve().parent):
        raise Mistake(f"cannot write the {what} {path}: the folder {Path(path).parent} does not exist")


@dataclasses.dataclass(frozen=True)
class LookFlags:
    """Play random episodes, describe the environment, and show what `pcpg train ENV` would choose.

    Options of the environment are --env.KEY VALUE, as in `pcpg look CombinationLock-v0 --env.horizon 5`.
    """

    environment: Annotated[str, Arg("ENV", "Environment id.", positional=True)]
    seed: int = 0
    """Seed of the episodes, and of the instance if the environment has several."""
    json: JsonFlag = False


def look(arguments: list[str], console: Console) -> int:
    """Look at the named environment; returns the exit code."""
    flags, options = parse_parts([Part(LookFlags), Part(dict, prefix="env")], arguments, "pcpg look")
    if flags.seed < 0:
        raise Mistake(f"seed must be at least 0, got {flags.seed}")
    with loading(console):
        from pcpg.algos.auto import chosen_line, look_and_choose
        from pcpg.algos.look import lines
        from pcpg.envs.registry import complete_options
        from pcpg.training.compile_cache import enable_compile_cache
    enable_compile_cache()
    options = complete_options(flags.environment, options)
    with loading(console, "playing at random ..."):
        found, choice, _, _, said = look_and_choose(flags.environment, options, seed=flags.seed)
    for line in [*lines(flags.environment, found), *said, *([chosen_line(choice)] if choice else [])]:
        say(answer(console, flags.json), line)
    chosen = {"chosen": choice._asdict()} if choice else {}
    print_json({"env": flags.environment} | found._asdict() | {"is_paid": found.is_paid} | chosen, flags.json)
    return 0
