"""`pcpg certify`: bound the gap between a run's policies and the best ones from its data alone."""

import dataclasses
from typing import Annotated

from rich.console import Console
from rich.table import Table

from pcpg.cli.display import tell
from pcpg.cli.flags import Arg, Folder, JsonFlag, TrustFlag
from pcpg.cli.inspect import run_to_play
from pcpg_theory.optimism import Range


@dataclasses.dataclass(frozen=True)
class Certify:
    """Bound how much better than a run's final policies any policy can be, from the run's data and fresh episodes.

    Needs kept data (pcpg-replay, pcpg-deep) and observations that are states.
    """

    dir: Folder
    r_min: float = 0.0
    """No reward is below this."""
    r_max: float = 1.0
    """No reward is above this. The bound is wrong if one can be, even if none was met."""
    most: Annotated[float | None, Arg("RETURN")] = None
    """No sum of rewards, from any step of an episode to its end, is above this; by default r_max at every step."""
    delta: float = 0.05
    """Probability that a bound fails."""
    episodes: int = 1000
    """Fresh episodes per seed."""
    markov: Annotated[bool, Arg(help="Observations are states, though the environment does not list them.")] = False
    trust: TrustFlag = False
    json: JsonFlag = False

    def __call__(self, console: Console) -> int:
        declared = Range(self.r_min, self.r_max, *(() if self.most is None else (self.most,))).check()
        run = run_to_play(self.dir, console, self.episodes, self.trust)
        from pcpg_theory.certify_run import certify_run

        found = certify_run(run, declared, delta=self.delta, episodes=self.episodes, markov=self.markov)
        title = (
            f"{run.folder.name}: V* - V is at most `bound` with probability {1 - self.delta:g}, if observations are "
            f"states and rewards lie in [{self.r_min:g}, {self.r_max:g}]"
        )
        table = Table(title=title, title_justify="left")
        columns = "seed", "bound", "trivial bound", "V* at most", "V at least", "return", "transitions", "states"
        for i, name in enumerate(columns):
            table.add_column(name, justify="right" if i else "left")
        for one in found:
            numbers = one.bound, one.trivial, one.upper, one.lower, one.mean_return
            table.add_row(str(one.seed), *(f"{x:.4g}" for x in numbers), f"{one.transitions:,}", f"{one.states:,}")
        result = {
            "run": run.folder.name,
            "env": run.config.env,
            "algo": run.config.algo,
            "delta": self.delta,
            "r_min": self.r_min,
            "r_max": self.r_max,
            "most": self.most,
            "seeds": [one._asdict() for one in found],
        }
        return tell(console, self.json, table, result)
