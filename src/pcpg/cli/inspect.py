"""The commands that look at runs and environments: evaluate, show, report, video, export, envs."""

import dataclasses
import typing
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from pcpg.cli.display import (
    answer,
    envs_table,
    evaluation_table,
    loading,
    print_json,
    verify_table,
    visits_table,
)
from pcpg.cli.flags import Flag, Folder, JsonFlag, Mistake, TrustFlag
from pcpg.runs.folder import RunFolder
from pcpg.runs.verify import DAMAGED, verify
from pcpg.training.display import say

if typing.TYPE_CHECKING:
    from pcpg.api import Run

SeedFlag = Annotated[int | None, tyro.conf.arg(help="Which seed; by default the first.")]
GreedyFlag = Annotated[Flag, tyro.conf.arg(help="Take the most likely action instead of sampling one.")]
BestFlag = Annotated[Flag, tyro.conf.arg(help="The best policy by its evaluations in training, not the final one.")]


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
        run = _run_to_play(self.dir, console, self.episodes, self.trust)
        played = run.evaluate(self.episodes, greedy=self.greedy, best=self.best)
        answer(console, self.json).print(evaluation_table(run, played))
        result = {
            "run": str(run.path),
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
        print_json(result, self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Show:
    """Show where the policies of a cover went: visits by grid cell, for each policy and for the weighted cover."""

    dir: Folder
    seed: SeedFlag = None
    png: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Also save a picture to this file."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        folder.check_entries()
        first, count = folder.config["seed"], folder.config["seeds"]
        seed = first if self.seed is None else self.seed
        if seed not in range(first, first + count):
            raise Mistake(f"the run has seeds {first} to {first + count - 1}, got {seed}")
        _check_parent(self.png, "picture")
        with loading(console):
            from pcpg.reports.visits import draw_visits, read_visits
        visits = read_visits(folder, seed, lambda text: say(console, text, "yellow"))
        answer(console, self.json).print(visits_table(visits))
        if self.png:
            draw_visits(visits, Path(self.png))
            say(console, f"picture: {self.png}")
        result = {
            "run": str(folder.path),
            "seed": seed,
            "covered": visits.covered,
            "weights": visits.weights.tolist(),
            "returns": visits.returns.tolist(),
            "visits": visits.counts.tolist(),
        }
        print_json(result | ({"png": self.png} if self.png else {}), self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Verify:
    """Say what of a run folder is whole, what is not, and what that costs; exit code 1 where something is damaged."""

    dir: Folder
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        found = verify(folder)
        bad = [one for one in found if one.state == DAMAGED]
        out = answer(console, self.json)
        out.print(verify_table(found))
        if not folder.is_sealed and folder.damage is None:
            say(out, f"{folder.path} is unsealed: a version without manifests wrote it; `pcpg resume` seals a run")
        say(out, f"{folder.path}: {f'{len(bad)} of {len(found)} files are damaged' if bad else 'whole'}")
        files = [one._asdict() for one in found]
        print_json({"run": str(folder.path), "whole": not bad, "sealed": folder.is_sealed, "files": files}, self.json)
        return 1 if bad else 0


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a report of one or more runs as one HTML page: curves, the cover and its certificate, visits, settings."""

    dirs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DIR [DIR ...]", help="Run folders.")]
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """File to write; by default report.html in the run folder, or in the current folder for several runs."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if not self.dirs:
            raise Mistake("name a run folder, as in `pcpg report runs/first`")
        for folder in self.dirs:
            RunFolder.open(folder)
        _check_parent(self.out, "page")
        if self.out and Path(self.out).is_dir():
            raise Mistake(f"{self.out} is a folder: name the file of the page, as in {self.out}/report.html")
        with loading(console):
            from pcpg.reports.page import write_report
        path, runs = write_report(self.dirs, self.out or None)
        for run in runs:
            for note in run.notes:
                say(console, f"{run.path}: {note}", "yellow")
        say(answer(console, self.json), f"report: {path}")
        notes = {str(run.path): list(run.notes) for run in runs}
        print_json({"report": str(path), "runs": [str(run.path) for run in runs], "notes": notes}, self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Video:
    """Record episodes of a policy as a video: the final policy of a seed, its best, or one of its cover."""

    dir: Folder
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = "video.gif"
    """A .gif, or an .mp4 with the extra `video`."""
    seed: SeedFlag = None
    best: BestFlag = False
    member: int | None = None
    """A member of the cover by its number, instead of the final policy."""
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
        run = _run_to_play(self.dir, console, self.episodes, self.trust)
        with loading(console):
            from pcpg.play.episodes import chosen_policies
            from pcpg.play.video import check_video, record, write_video
        path = Path(self.out)
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
        say(answer(console, self.json), f"video: {path}, {len(frames)} frames")
        print_json({"video": str(path), "frames": len(frames), "seed": seed, "returns": returns}, self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Export:
    """Save episodes as a Minari dataset: played by the policies of a cover, drawn by their weights, or those kept."""

    dir: Folder
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = "datasets"
    """Folder of datasets; Minari finds them with MINARI_DATASETS_PATH set to it."""
    id: str = ""
    """Dataset id; by default pcpg/ENV/POLICY-v0."""
    policy: Literal["cover", "final", "best", "kept"] | None = None
    """Who plays: the cover, the final policy, or the best one by its evaluations in training; kept: nobody, these are
    the episodes of exploration that `pcpg-replay` kept. By default the cover, or kept where there are such episodes."""
    seed: SeedFlag = None
    episodes: int | None = None
    """Number of episodes; by default 100, or all that were kept."""
    greedy: GreedyFlag = False
    trust: TrustFlag = False
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        run = _run_to_play(self.dir, console, 100 if self.episodes is None else self.episodes, self.trust)
        with loading(console):
            from pcpg.play.dataset import check_export, default_id, export, export_data
        run.check_seed(self.seed)
        which = self.policy or ("kept" if run.keeps_data else "cover")
        out, name = Path(self.out), self.id or default_id(run, which)
        check_export(out, name)
        if which == "kept":
            dataset = export_data(run, out, seed=self.seed, episodes=self.episodes, dataset_id=name)
        else:
            own = {"seed": self.seed, "episodes": self.episodes or 100, "greedy": self.greedy, "dataset_id": name}
            dataset = export(run, out, which=which, **own)
        episodes, steps = int(dataset.total_episodes), int(dataset.total_steps)
        say(answer(console, self.json), f"dataset: {name} in {out}, {episodes} episodes, {steps:,} steps")
        print_json({"dataset": name, "folder": str(out), "episodes": episodes, "steps": steps}, self.json)
        return 0


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments that can be trained on, with their options."""

    all: Flag = False
    """Include the probe environments that the tests use."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        with loading(console):
            from pcpg.envs.registry import spec
        entries = [entry for entry in spec() if self.all or not entry.hidden]
        answer(console, self.json).print(envs_table(entries))
        listing: list[dict[str, Any]] = [
            {
                "id": entry.id,
                "summary": entry.summary,
                "options": {option.name: None if option.required else option.default for option in entry.options},
                "observation_space": entry.observation_space,
                "action_space": entry.action_space,
                "max_steps": entry.max_steps,
            }
            for entry in entries
        ]
        print_json({"envs": listing}, self.json)
        return 0


def _run_to_play(path: str, console: Console, episodes: int, trust: bool) -> "Run":
    """The run in a folder, of which so many episodes are to be played; one that is not finished is said to be so."""
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
        say(console, f"{path} is not finished: this is as of its last checkpoint ({where})", "yellow")
    return run


def _check_parent(path: str, what: str) -> None:
    """Refuse a file in a folder that does not exist, before any work."""
    if path and not Path(path).resolve().parent.is_dir():
        raise Mistake(f"{path}: there is no folder {Path(path).parent} to put the {what} into")
