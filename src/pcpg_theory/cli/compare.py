"""`pcpg theory compare`: any of the table's algorithms on one problem, with counted samples and exact returns."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from pcpg_theory import own
from pcpg_theory.cli import Result, SeededCommand, at_least, check_seeds, show
from pcpg_theory.learners import mazes, runner
from pcpg_theory.learners import problem as episodic
from pcpg_theory.learners.homer import block_lock
from pcpg_theory.learners.registry import BESIDE, COMPARATORS, current_name
from pcpg_theory.mdp import Array

PROBLEMS: dict[str, tuple[int, Callable[[int, list[int]], episodic.Episodic]]] = {  # default size, size and seeds
    "lock": (4, episodic.lock),
    "deep-sea": (8, episodic.deep_sea),
    "riverswim": (6, lambda size, seeds: episodic.riverswim(len(seeds), size)),
    "random": (20, lambda size, seeds: episodic.random_problem(len(seeds), num_states=size)),
    "tree": (3, episodic.tree),
    "noisy-sea": (5, episodic.noisy_sea),
    "noisy-lock": (6, episodic.noisy_lock),
    "block-lock": (4, block_lock),
    "maze": (8, mazes.maze),
}


@dataclass(frozen=True, kw_only=True)
class CompareCommand(SeededCommand):
    """Run algorithms of the paper's table on one problem, each with the same budget of samples per seed."""

    algos: tuple[str, ...] = ("pcpg", "ucbvi", "psrl", "npg")
    """Names as in the table: e3, r-max, ucrl2, ucbvi, psrl, rlsvi, ucb-q, npg, oppo, pcpg ..."""
    scales: tuple[float, ...] = ()
    """A scale factor for each, in the same order. Defaults are mostly the papers' constants."""
    learner: tuple[str, ...] = ()
    """Your own learners to add, each as FILE:NAME."""
    mdp: Literal["lock", "deep-sea", "riverswim", "random", "tree", "noisy-sea", "noisy-lock", "block-lock", "maze"] = (
        "lock"
    )
    """The problem."""
    problem: str | None = None
    """Your own problem instead, as FILE:NAME of a function from seeds to an MDP or an episodic problem."""
    horizon: int | None = None
    """Depth of the lock or the tree, side of the sea or maze, states of RiverSwim or the random MDP, decisions of your
    own."""
    observations: int = 8
    """Number of observations of each state of the block lock."""
    lengthscale: float | None = None
    """rf-lsvi on the maze: lengthscale in cells of a Gaussian kernel; by default a pair resembles only itself."""
    budget: int = 100_000
    """Samples (environment steps) for each seed."""
    seeds: int = 5
    """Number of instances, with consecutive seeds."""
    points: int = 100
    """Number of points on the grid of samples at which the current policy is evaluated exactly."""
    epsilon: float = 0.05
    """Accuracy, as a share of the gap between the optimal return and that of the uniform policy."""

    def work(self) -> Result:
        """For every algorithm the samples to epsilon and the final return of each seed."""
        names = [*map(current_name, self.algos), *map(own.load_learner, self.learner)]
        self._check(len(names))
        seeds = list(check_seeds(self.seeds, self.seed))
        made = self._problem(seeds)
        eps, rows = self.epsilon * (made.optimal() - made.uniform()), {}
        for i, name in enumerate(names):
            began, options = time.perf_counter(), {"scale": self.scales[i]} if self.scales else {}
            make = partial((COMPARATORS | BESIDE)[name].make, **options, **self._kernel(name))
            history = runner.run(made, make, seeds, self.budget, self.points)
            needed = runner.samples_to(history, eps)
            solved = int(np.isfinite(needed).sum())
            rows[name] = {
                "samples_to_epsilon": needed,
                "solved": solved,
                "final_return": history.returns[:, -1],
                "steps": history.steps,
                **options,
            }
            print(f"{name}: {solved} of {self.seeds}, {time.perf_counter() - began:.1f} s", file=sys.stderr)
        return {
            "mdp": made.name,
            "budget": self.budget,
            "seeds": seeds,
            "epsilon": eps,
            "optimal_return": made.optimal(),
            "uniform_return": made.uniform(),
            "algos": rows,
        }

    def _check(self, count: int) -> None:
        if not self.algos or any(current_name(name) not in COMPARATORS | BESIDE for name in self.algos):
            valid = ", ".join(COMPARATORS | BESIDE)
            raise ValueError(f"algos must be some of {valid}, got {' '.join(self.algos) or 'none'}")
        if self.scales and len(self.scales) != count:
            raise ValueError(f"scales must be {count}, one per algorithm, or none, got {len(self.scales)}")
        at_least(1, horizon=self.horizon)
        if self.lengthscale is not None and (self.mdp != "maze" or "rf-lsvi" not in self.algos):
            raise ValueError("lengthscale needs --mdp maze and rf-lsvi among --algos")
        if not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon must be a share of the gap above 0 and below 1, got {self.epsilon}")

    def _problem(self, seeds: list[int]) -> episodic.Episodic:
        if self.problem is not None:
            name = own.load_problem(self.problem)
            return own.episodic(name, own.PROBLEMS[name](seeds), len(seeds), self.horizon)
        if self.mdp not in PROBLEMS:
            raise ValueError(f"mdp must be one of {', '.join(PROBLEMS)}, got {self.mdp!r}")
        size, make = PROBLEMS[self.mdp]
        if self.mdp == "block-lock":
            make = partial(block_lock, observations=self.observations)
        return make(self.horizon or size, seeds)

    def _kernel(self, algo: str) -> dict[str, Array]:
        if self.lengthscale is None or algo != "rf-lsvi":
            return {}
        return {"kernel": mazes.kernel(self.horizon or PROBLEMS["maze"][0], self.seed, self.lengthscale)}

    @staticmethod
    def render(result: Result) -> None:
        """Print a row for each algorithm to standard error."""
        best, rows = result["optimal_return"][0], []
        for name, row in result["algos"].items():
            needed = sorted(np.inf if x is None else x for x in row["samples_to_epsilon"])
            middle, last = needed[len(needed) // 2], row["final_return"]
            shown = f"{middle:,.0f}" if np.isfinite(middle) else "> budget"
            rows.append((name, f"{row['solved']} of {len(needed)}", shown, min(last), np.median(last)))
        title = f"{result['mdp']}, {result['budget']:,} samples per seed, optimal return {best:.3g}"
        columns = ("algorithm", "solved", "median samples to eps", "lowest final return|.3f", "median|.3f")
        show(title, columns, rows)
