"""What `pcpg theory` offers: one frozen dataclass for each command; calling it does the work and returns its result.

A command returns its result and prints nothing but progress on standard error; the command line prints the result, as
one JSON object with `json`, or by `render` as a table.
"""

import json
import math
import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from pcpg.theory import analysis, exact, parameters, problems, tabular
from pcpg.theory.settings import Settings

Result = dict[str, Any]
Mode = Literal["exact", "sampled"]
MDPName = Literal["lock", "linear", "linear-lock", "chain", "deep-sea", "maze", "aggregated"]

EPSILON_SHARE = 0.05  # eps-optimal: within this share of the gap between the optimal and the uniform policy


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the result goes."""

    json: bool = False
    """Print one JSON object on standard output."""
    out: Path | None = None
    """Write the JSON object to this file too."""


@dataclass(frozen=True, kw_only=True)
class SeededOutput(Output):
    """The same for what is drawn at random."""

    seed: int = 0
    """The first seed, of instances and of sampling."""


@dataclass(frozen=True, kw_only=True)
class DrawnOutput(SeededOutput):
    """The same for what can be drawn as a picture."""

    png: Path | None = None
    """Draw the result as a picture, in this file."""


def check_seeds(seeds: int, seed: int) -> None:
    """Raise a ValueError unless there is a seed, and none is negative."""
    if seeds < 1 or seed < 0:
        raise ValueError(f"seeds must be 1 or more and seed 0 or more, got {seeds} and {seed}")


def check_horizon(horizon: int | None) -> None:
    """Raise a ValueError unless the size is left open or at least one."""
    if horizon is not None and horizon < 1:
        raise ValueError(f"horizon must be 1 or more, got {horizon}")


def finish(result: Result, out: Path | None) -> Result:
    """The result as JSON holds it, after writing it to `out`; printing is the command line's."""
    result = clean(result)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, allow_nan=False) + "\n")
    return result


def clean(value: Any) -> Any:
    """The value with NumPy types as Python ones, and what JSON cannot hold (inf, nan) as None."""
    if isinstance(value, dict):
        return {str(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [clean(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return clean(value.tolist())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def table(title: str, *columns: str) -> Any:
    """An empty rich table."""
    from rich.table import Table

    made = Table(title=title)
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right")
    return made


def show(made: Any) -> None:
    """Print a table on standard error."""
    from rich.console import Console

    Console(stderr=True).print(made)


@dataclass(frozen=True, kw_only=True)
class RunCommand(DrawnOutput):
    """Run Algorithms 1 and 2 on a tabular or linear MDP and evaluate the returned policy exactly."""

    mdp: MDPName = "lock"
    """Which MDP: the combination lock, random linear MDPs, the linear lock, or a small environment."""
    horizon: int | None = None
    """Depth of a lock, length of the chain, side of the sea or of the maze; by default 4, 6 (linear lock) or 8."""
    mode: Mode = "sampled"
    """exact: population covariances and values. sampled: only resets to s0, every step counted."""
    seeds: int = 1
    """How many instances, with consecutive seeds."""
    N: int | None = None
    """Rounds of Algorithm 1 after the first one: policies added to the cover."""
    T: int | None = None
    """Iterations of NPG in each round."""
    eta: float | None = None
    """Learning rate of NPG."""
    beta: float | None = None
    """Threshold of the quadratic form from which a pair is unknown."""
    ridge: Annotated[float | None, tyro.conf.arg(aliases=["--lam"])] = None
    """Ridge of the covariance."""
    M: int | None = None
    """Pairs for each critic."""
    K: int | None = None
    """Pairs for each covariance."""
    critic: Literal["least_squares", "sgd"] | None = None
    """Solver of the critic."""
    W: float | None = None
    """Bound on the norm of the critic."""
    weights: Literal["uniform", "d-optimal", "d_optimal"] | None = None
    """Weights of the policies of the cover in the roll-in; d_optimal is the old spelling of d-optimal."""

    def __call__(self) -> Result:
        """Values, gaps and counted steps of every seed."""
        check_seeds(self.seeds, self.seed)
        check_horizon(self.horizon)
        rows, began = [], time.perf_counter()
        for seed in range(self.seed, self.seed + self.seeds):
            rows.append(self._one(seed))
            gap, eps, steps = (rows[-1][key] for key in ("value_gap", "epsilon", "steps"))
            print(f"seed {seed}: gap {gap:.4g} (eps {eps:.4g}), {steps:,} steps", file=sys.stderr)
        if self.png is not None:
            from pcpg.theory.pictures import draw_run

            draw_run(rows[0]["rounds"], rows[0]["optimal"], self.png)
        raw = [row["raw_return"] for row in rows]
        result: Result = {
            "mdp": rows[0]["name"],
            "mode": self.mode,
            "seeds": [row["seed"] for row in rows],
            "raw_return": None if raw[0] is None else raw,
            "env_steps_per_seed": max(row["steps"] for row in rows),
            "epsilon": min(row["epsilon"] for row in rows),
            "epsilon_per_seed": [row["epsilon"] for row in rows],
            "value_gap": [row["value_gap"] for row in rows],
            "solved": sum(row["value_gap"] <= row["epsilon"] for row in rows),
            "env_steps": [row["steps"] for row in rows],
            "steps_by_kind": rows[0]["samples"],
            "optimal_value": [row["optimal"] for row in rows],
            "uniform_value": [row["uniform"] for row in rows],
            "settings": rows[0]["settings"],
            "rounds": rows[0]["rounds"],
        }
        # Times are for people and differ between runs; the JSON object is reproducible.
        print(f"{time.perf_counter() - began:.1f} s", file=sys.stderr)
        return finish(result, self.out)

    def settings(self, practical: Settings) -> Settings:
        """The practical settings with what was asked for in their place."""
        names = {field.name for field in fields(Settings)}
        asked = {name: value for name, value in vars(self).items() if name in names and value is not None}
        return replace(practical, **asked)

    def _one(self, seed: int) -> Result:
        problem, practical = problems.make(self.mdp, self.horizon, seed, self.mode)
        settings = self.settings(practical)
        found = tabular.run(problem.mdp, problem.phi, settings, self.mode, seed)
        best, uniform = problem.gap()
        return {
            "seed": seed,
            "name": problem.name,
            "raw_return": None if problem.raw_return is None else problem.raw_return(found.pi),
            "value_gap": best - exact.value(problem.mdp, found.pi),
            "epsilon": EPSILON_SHARE * (best - uniform),
            "optimal": best,
            "uniform": uniform,
            "steps": found.steps,
            "samples": found.samples,
            "settings": settings.as_dict(),
            "rounds": [one._asdict() for one in found.rounds],
        }

    @staticmethod
    def render(result: Result) -> None:
        """Print the seeds of a run as a table on standard error."""
        made = table(f"{result['mdp']}, {result['mode']}", "seed", "raw return", "gap", "eps", "environment steps")
        columns = [result[key] for key in ("seeds", "value_gap", "epsilon_per_seed", "env_steps")]
        raw = result["raw_return"] or [None] * len(result["seeds"])
        for back, seed, gap, eps, steps in zip(raw, *columns, strict=True):
            shown = "-" if back is None else f"{back:.4f}"
            made.add_row(str(seed), shown, f"{gap:.5f}", f"{eps:.5f}", f"{steps:,}")
        show(made)


@dataclass(frozen=True, kw_only=True)
class ParametersCommand(Output):
    """Print what the main theorem asks for, as printed in the paper and corrected, in pairs and environment steps."""

    mdp: MDPName | None = None
    """Take gamma, dim, actions and W from this MDP instead of the flags below."""
    horizon: int | None = None
    """Depth, length or side of that MDP."""
    gain_at: int | None = None
    """Compute the maximum information gain of that MDP for this N too, by a concave program with its gap."""
    epsilon: float = 0.1
    """A quarter of the accuracy: the theorem guarantees 4 epsilon."""
    gamma: float = 0.9
    """Discount."""
    dim: int = 10
    """Dimension of the features; of the concatenated state and action for the RBF kernel."""
    actions: int = 10
    """Number of actions."""
    setting: Literal["linear", "aggregation"] = "linear"
    """W = omega + xi/(1-gamma)^2 (linear MDP), or sqrt(dim)/(1-gamma)^2 (aggregation with dim abstract states)."""
    W: float | None = None
    """The bound on the critic's norm, instead of the setting's."""
    omega: float | None = None
    """Norm of theta in a linear MDP; sqrt(dim) by default, 1 for the RBF kernel."""
    xi: float | None = None
    """Norm bound of mu in a linear MDP; sqrt(dim) by default, 1 for the RBF kernel."""
    gain: Literal["finite", "rbf"] = "finite"
    """Information gain: d log(1+N), or constant log(1+N)^(d+1)."""
    constant: float = 1.0
    """The constant of the RBF rate, which the literature does not give."""
    intrinsic_dim: float | None = None
    """Largest intrinsic dimension of a covariance; dim by default (an upper bound in finite dimension)."""
    delta: float = 0.1
    """Probability of failure."""

    def __call__(self) -> Result:
        """The theorem's numbers, as printed and corrected."""
        if self.gain_at is not None and self.mdp is None:
            raise ValueError(f"gain_at must come with an mdp whose gain is computed, got gain_at {self.gain_at} alone")
        extra: Result = {}
        asked = self
        if self.mdp is not None:
            asked, extra = self._of_mdp()
        gain = parameters.gain_bound(asked.gain, asked.dim, asked.constant)
        parameters.check_gamma(asked.gamma)
        W = asked.W
        if W is None and asked.setting == "aggregation":
            W = parameters.aggregation_W(asked.dim, asked.gamma)
        if W is None:
            norm = math.sqrt(asked.dim) if asked.gain == "finite" else 1.0
            W = parameters.linear_W(asked.omega or norm, asked.xi or norm, asked.gamma)
        intrinsic = float(asked.dim) if asked.intrinsic_dim is None else asked.intrinsic_dim
        found = parameters.theorem(
            asked.epsilon,
            asked.gamma,
            num_actions=asked.actions,
            W=W,
            gain=gain,
            intrinsic_dim=intrinsic,
            delta=asked.delta,
        )
        result = found._asdict() | {"paper": found.paper._asdict(), "corrected": found.corrected._asdict()}
        result |= {"accuracy": 4.0 * asked.epsilon, "dim": asked.dim, **extra}
        if asked.gain == "finite":
            factor = 4.0 * W**2 / (asked.epsilon * (1.0 - asked.gamma)) ** 3
            result["paper_remark_N"] = parameters.paper_N_finite(factor, asked.dim)
        return finish(result, self.out)

    def _of_mdp(self) -> "tuple[ParametersCommand, Result]":
        """The flags that the MDP stands for, and its name with what was computed of it."""
        assert self.mdp is not None
        problem, _ = problems.make(self.mdp, self.horizon, 0, "exact")
        dim, gamma = problem.phi.shape[-1], problem.mdp.gamma
        W = problems.bound_W(problem)
        asked = replace(self, dim=dim, gamma=gamma, actions=problem.mdp.num_actions, W=self.W or W)
        extra: Result = {"mdp": problem.name}
        if self.gain_at is not None:
            best = analysis.max_information_gain(problem.mdp, problem.phi, self.gain_at, tol=0.05, max_iterations=500)
            extra["max_information_gain"] = {"N": self.gain_at, "value": best.value, "gap": best.gap}
        return asked, extra

    @staticmethod
    def render(result: Result) -> None:
        """Print the numbers side by side on standard error."""
        made = table(f"accuracy {result['accuracy']:g}, W = {result['W']:.4g}", "number", "paper", "corrected")
        for name, value in result["paper"].items():
            made.add_row(name, f"{value:.4g}", f"{result['corrected'][name]:.4g}")
        show(made)
