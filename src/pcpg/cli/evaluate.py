"""`pcpg evaluate`."""

import dataclasses

from rich.console import Console

from pcpg.cli.flags import Flag, JsonFlag, Mistake
from pcpg.cli.output import Folder, answer, loading, print_json
from pcpg.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play fresh episodes with the final policy of each seed."""

    dir: Folder
    episodes: int = 100
    """Episodes for each seed."""
    greedy: Flag = False
    """Take the likeliest action instead of a sample."""
    best: Flag = False
    """The best policy by its evaluations in training, instead of the final one."""
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        if self.episodes < 1:
            raise Mistake(f"episodes must be at least 1, got {self.episodes}")
        folder = RunFolder.open(self.dir)
        with loading(console):
            from pcpg.api import Run
            from pcpg.cli.display import evaluation_table
        run = Run(folder)
        played = run.evaluate(self.episodes, greedy=self.greedy, best=self.best)
        answer(console, self.json).print(evaluation_table(run, played))
        result = {
            "run": str(run.path),
            "env": run.config.env,
            "algo": run.config.algo,
            "seeds": run.config.seed_list,
            "episodes": self.episodes,
            "greedy": self.greedy,
            "best": self.best,
            "mean_return": played.mean_return,
            "standard_error": played.standard_error,
            "env_steps": played.env_steps,
        }
        print_json(result, self.json)
        return 0
