"""`pcpg video`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from pcpg.cli.flags import Flag, JsonFlag, Mistake
from pcpg.cli.output import Folder, answer, loading, print_json
from pcpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Video:
    """Show episodes of a policy in a video: the final policy of a seed, its best, or one of its cover."""

    dir: Folder
    out: Annotated[str, tyro.conf.arg(metavar="FILE")] = "video.gif"
    """A .gif, or an .mp4 with the extra `video`."""
    seed: int | None = None
    """Which seed; by default the first."""
    best: Flag = False
    """The best policy by its evaluations in training, instead of the final one."""
    member: int | None = None
    """A policy of the cover by its number, instead of the final one."""
    episodes: int = 1
    """How many episodes."""
    greedy: Flag = False
    """Take the likeliest action instead of a sample."""
    fps: float = 15.0
    """Pictures a second."""
    max_frames: int = 600
    """At most so many pictures."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if self.episodes < 1 or self.max_frames < 1 or not 0 < self.fps <= 100:
            raise Mistake("episodes and max-frames must be at least 1, and fps above 0 and at most 100")
        if self.best and self.member is not None:
            raise Mistake("name --best or --member, not both")
        folder = RunFolder.open(self.dir)
        with loading(console):
            from pcpg.api import Run
            from pcpg.play.episodes import chosen_policies
            from pcpg.play.video import check_video, record, write_video
        path = Path(self.out)
        check_video(path)
        run = Run(folder)
        which = "best" if self.best else "final" if self.member is None else "cover"
        policies, _ = chosen_policies(run, which, self.seed)
        number = self.member or 0
        if not 0 <= number < len(policies):
            raise Mistake(f"the cover has policies 0 to {len(policies) - 1}, got {number}")
        seed = run.config.seed if self.seed is None else self.seed
        frames, returns = record(
            run, policies[number], seed, episodes=self.episodes, greedy=self.greedy, max_frames=self.max_frames
        )
        if len(frames) == self.max_frames:
            text = f"cut after {self.max_frames} pictures; --max-frames allows more"
            console.print(text, style="yellow", highlight=False, soft_wrap=True)
        write_video(frames, path, self.fps)
        answer(console, self.json).print(f"video: {path}, {len(frames)} pictures", highlight=False, soft_wrap=True)
        print_json({"video": str(path), "frames": len(frames), "seed": seed, "returns": returns}, self.json)
        return 0
