"""`pcpg theory compare`: any of the table's algorithms on one problem, with counted samples and exact returns."""

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from pcpg.cli.theory import Result, SeededOutput, check_horizon, check_seeds, finish, show, table
from pcpg.theory import own
from pcpg.theory.learners import problem as episodic_problems
from pcpg.theory.learners import runner
from pcpg.theory.learners.homer import block_lock
from pcpg.theory.learners.registry import BESIDE, COMPARATORS, current_name

SIZES = {
    "lock": 4,
    "deep-sea": 8,
    "riverswim": 6,
    "random": 20,
    "tree": 3,
    "noisy-sea": 5,
    "noisy-lock": 6,
    "block-lock": 4,
}


@dataclass(frozen=True, kw_only=True)
class CompareCommand(SeededOutput):
    """Run algorithms of the paper's table on one problem, with the same budget of samples for each seed."""

    algos: tuple[str, ...] = ("pcpg", "ucbvi", "psrl", "npg")
    """Names, as in the table: e3, r-max, ucrl2, ucbvi, psrl, rlsvi, ucb-q, npg, oppo, pcpg ..."""
    scales: tuple[float, ...] = ()
    """The scale factor of each, in the same order; by default its own, which for most is its paper's constants."""
    learner: tuple[str, ...] = ()
    """Learners of your own beside them, each as FILE:NAME."""
    mdp: Literal["lock", "deep-sea", "riverswim", "random", "tree", "noisy-sea", "noisy-lock", "block-lock"] = "lock"
    """The problem."""
    problem: str | None = None
    """A problem of your own instead, as FILE:NAME of a function from seeds to an MDP or an episodic problem."""
    horizon: int | None = None
    """Depth of the lock or the tree, side of the sea, states of RiverSwim or the random MDP; decisions of your own."""
    observations: int = 8
    """How many observations each state of the block lock has."""
    budget: int = 100_000
    """Samples (environment steps) that each seed may take."""
    seeds: int = 5
    """How many instances, with consecutive seeds."""
    points: int = 100
    """Points of the grid of samples at which the policy in force is evaluated exactly."""
    epsilon: float = 0.05
    """Accuracy, as a share of the gap between the optimal return and that of uniform play."""

    def __call__(self) -> Result:
        """For every algorithm the samples to epsilon and the final return of each seed."""
        own_names = [own.load_learner(reference) for reference in self.learner]
        self._check(len(own_names))
        seeds = list(range(self.seed, self.seed + self.seeds))
        made = self._problem(seeds)
        eps = self.epsilon * (made.optimal() - made.uniform())
        rows: Result = {}
        for i, name in enumerate([*map(current_name, self.algos), *own_names]):
            began, options = time.perf_counter(), {"scale": self.scales[i]} if self.scales else {}
            history = runner.run(
                made, partial((COMPARATORS | BESIDE)[name].make, **options), seeds, self.budget, self.points
            )
            needed = runner.samples_to(history, eps)
            rows[name] = {
                "samples_to_epsilon": needed,
                "solved": int(np.isfinite(needed).sum()),
                "final_return": history.returns[:, -1],
                "steps": history.steps,
                **options,
            }
            print(
                f"{name}: {rows[name]['solved']} of {self.seeds}, {time.perf_counter() - began:.1f} s", file=sys.stderr
            )
        result: Result = {
            "mdp": made.name,
            "budget": self.budget,
            "seeds": seeds,
            "epsilon": eps,
            "optimal_return": made.optimal(),
            "uniform_return": made.uniform(),
            "algos": rows,
        }
        return finish(result, self.out)

    def _check(self, own_learners: int) -> None:
        unknown = [name for name in self.algos if current_name(name) not in COMPARATORS | BESIDE]
        if unknown or not self.algos:
            valid = ", ".join(COMPARATORS | BESIDE)
            raise ValueError(f"algos must be some of {valid}, got {' '.join(self.algos) or 'none'}")
        count = len(self.algos) + own_learners
        if self.scales and len(self.scales) != count:
            raise ValueError(f"scales must be {count}, one per algorithm, or none, got {len(self.scales)}")
        check_seeds(self.seeds, self.seed)
        check_horizon(self.horizon)
        if not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon must be a share of the gap, above 0 and below 1, got {self.epsilon}")

    def _problem(self, seeds: list[int]) -> episodic_problems.Episodic:
        if self.problem is not None:
            name = own.load_problem(self.problem)
            return own.episodic(name, own.PROBLEMS[name](seeds), len(seeds), self.horizon)
        if self.mdp not in SIZES:
            raise ValueError(f"mdp must be one of {', '.join(SIZES)}, got {self.mdp!r}")
        size = self.horizon or SIZES[self.mdp]
        if self.mdp == "lock":
            return episodic_problems.lock(size, seeds)
        if self.mdp == "deep-sea":
            return episodic_problems.deep_sea(size, seeds)
        if self.mdp == "block-lock":
            return block_lock(size, seeds, self.observations)
        if self.mdp == "noisy-lock":
            return episodic_problems.noisy_lock(size, seeds)
        if self.mdp in ("tree", "noisy-sea"):
            return (
                episodic_problems.tree(size, seeds) if self.mdp == "tree" else episodic_problems.noisy_sea(size, seeds)
            )
        if self.mdp == "riverswim":
            return episodic_problems.riverswim(len(seeds), size)
        return episodic_problems.random_problem(len(seeds), num_states=size)

    @staticmethod
    def render(result: Result) -> None:
        """Print the algorithms as a table on standard error."""
        title = (
            f"{result['mdp']}, {result['budget']:,} samples per seed, optimal return {result['optimal_return'][0]:.3g}"
        )
        made = table(title, "algorithm", "solved", "median samples to eps", "final return, least", "median")
        for name, row in result["algos"].items():
            needed = sorted(np.inf if x is None else x for x in row["samples_to_epsilon"])
            middle = needed[len(needed) // 2]
            shown = f"{middle:,.0f}" if np.isfinite(middle) else "> budget"
            last = row["final_return"]
            made.add_row(name, f"{row['solved']} of {len(needed)}", shown, f"{min(last):.3f}", f"{np.median(last):.3f}")
        show(made)
