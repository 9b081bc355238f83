"""`pcpg show`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from pcpg.cli.flags import JsonFlag, Mistake
from pcpg.cli.output import Folder, answer, loading, print_json
from pcpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Show:
    """Where the policies of a cover went: visits by cell, for each policy and for the weighted cover."""

    dir: Folder
    seed: int | None = None
    """Which seed; by default the first."""
    png: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """Also draw a picture into this file."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        folder = RunFolder.open(self.dir)
        first, count = folder.config["seed"], folder.config["seeds"]
        seed = first if self.seed is None else self.seed
        if seed not in range(first, first + count):
            raise Mistake(f"the run has seeds {first} to {first + count - 1}, got {seed}")
        if self.png and not Path(self.png).resolve().parent.is_dir():
            raise Mistake(f"{self.png}: there is no folder {Path(self.png).parent} to put the picture into")
        with loading(console):
            from pcpg.cli.display import visits_table
            from pcpg.reports.visits import draw_visits, read_visits
        visits = read_visits(folder, seed)
        answer(console, self.json).print(visits_table(visits))
        if self.png:
            draw_visits(visits, Path(self.png))
            console.print(f"picture: {self.png}", highlight=False, soft_wrap=True)
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
