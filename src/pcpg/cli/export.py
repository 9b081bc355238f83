"""`pcpg export`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from pcpg.cli.flags import Flag, JsonFlag, Mistake
from pcpg.cli.output import Folder, answer, loading, print_json
from pcpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Export:
    """Play episodes with the policies of a cover, drawn by their weights, and store them as a Minari dataset."""

    dir: Folder
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = "datasets"
    """Folder of datasets; Minari finds them with MINARI_DATASETS_PATH set to it."""
    id: str = ""
    """Of the dataset; by default pcpg/ENV/POLICY-v0."""
    policy: Literal["cover", "final", "best"] = "cover"
    """Who plays: the cover, the final policy, or the best one by its evaluations in training."""
    seed: int | None = None
    """Which seed; by default the first."""
    episodes: int = 100
    """How many episodes."""
    greedy: Flag = False
    """Take the likeliest action instead of a sample."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if self.episodes < 1:
            raise Mistake(f"episodes must be at least 1, got {self.episodes}")
        folder = RunFolder.open(self.dir)
        with loading(console):
            from pcpg.api import Run
            from pcpg.play.dataset import check_export, default_id, export
        run = Run(folder)
        run.check_seed(self.seed)
        out, name = Path(self.out), self.id or default_id(run, self.policy)
        check_export(out, name)
        dataset = export(
            run,
            out,
            which=self.policy,
            seed=self.seed,
            episodes=self.episodes,
            greedy=self.greedy,
            dataset_id=name,
        )
        text = f"dataset: {name} in {out}, {dataset.total_episodes} episodes, {dataset.total_steps:,} steps"
        answer(console, self.json).print(text, highlight=False, soft_wrap=True)
        result = {"dataset": name, "folder": str(out), "episodes": int(dataset.total_episodes)}
        print_json(result | {"steps": int(dataset.total_steps)}, self.json)
        return 0
