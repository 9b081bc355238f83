"""`pcpg theory run | parameters`: Algorithms 1 and 2 on an MDP, and the numbers of the main theorem."""

import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Literal

import numpy as np

from pcpg.cli.flags import Arg
from pcpg.machine import safe_path
from pcpg_theory import analysis, certificate, exact, parameters, pictures, problems, tabular
from pcpg_theory.cli import Command, DrawnCommand, MDPName, Mode, Result, SeededCommand, at_least, check_seeds, show
from pcpg_theory.settings import Settings

EPSILON_SHARE = 0.05  # eps-optimal: within this share of the gap between the optimal and the uniform policy


@dataclass(frozen=True, kw_only=True)
class MDPCommand(SeededCommand):
    """A command that runs Algorithms 1 and 2 on an MDP by its name."""

    mdp: MDPName = "lock"
    """Which MDP: the combination lock, random linear or aggregated MDPs, the linear lock, or a small environment."""
    horizon: int | None = None
    """Depth of a lock, length of the chain, or side of the sea or the maze. Default: 4, 6 (linear lock) or 8."""
    mode: Mode = "sampled"
    """exact: population covariances and values. sampled: resets to s0 only, every step counted."""
    seeds: int = 1
    """Number of runs, with consecutive seeds."""


@dataclass(frozen=True, kw_only=True)
class RunCommand(DrawnCommand, MDPCommand):
    """Run Algorithms 1 and 2 on a tabular or linear MDP and evaluate the returned policy exactly."""

    N: int | None = None
    """Rounds of Algorithm 1 after the first one: policies added to the cover."""
    T: int | None = None
    """Iterations of NPG in each round."""
    eta: float | None = None
    """Learning rate of NPG."""
    beta: float | None = None
    """Threshold of the quadratic form: at or above it a pair is unknown."""
    ridge: Annotated[float | None, Arg(aliases=("--lam",))] = None
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
    """Weights of the cover's policies in the roll-in; d_optimal is the old spelling of d-optimal."""

    def work(self) -> Result:
        """Values, gaps and counted steps of every seed."""
        seeds = check_seeds(self.seeds, self.seed)
        at_least(1, horizon=self.horizon)
        rows, began = [], time.perf_counter()
        for seed in seeds:
            rows.append(self._one(seed))
            gap, eps, steps = (rows[-1][key] for key in ("value_gap", "epsilon", "steps"))
            print(f"seed {seed}: gap {gap:.4g} (eps {eps:.4g}), {steps:,} steps", file=sys.stderr)
        print(f"{time.perf_counter() - began:.1f} s", file=sys.stderr)  # not in the JSON object, which is reproducible
        first, column = rows[0], {key: [row[key] for row in rows] for key in rows[0]}
        if self.png is not None:
            pictures.draw_run(first["rounds"], first["optimal"], self.png)
        return {
            "mdp": first["name"],
            "mode": self.mode,
            "seeds": column["seed"],
            "raw_return": None if first["raw_return"] is None else column["raw_return"],
            "env_steps_per_seed": max(column["steps"]),
            "epsilon": min(column["epsilon"]),
            "epsilon_per_seed": column["epsilon"],
            "value_gap": column["value_gap"],
            "solved": sum(row["value_gap"] <= row["epsilon"] for row in rows),
            "env_steps": column["steps"],
            "steps_by_kind": first["samples"],
            "optimal_value": column["optimal"],
            "uniform_value": column["uniform"],
            "settings": first["settings"],
            "rounds": first["rounds"],
        }

    def settings(self, practical: Settings) -> Settings:
        """The practical settings, overridden by the flags that are given."""
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
        """Print a row for each seed to standard error."""
        raw = result["raw_return"] or [None] * len(result["seeds"])
        columns = ("seed", "raw return|.4f", "gap|.5f", "eps|.5f", "environment steps|,")
        keys = ("value_gap", "epsilon_per_seed", "env_steps")
        rows = zip(result["seeds"], raw, *(result[key] for key in keys), strict=True)
        show(f"{result['mdp']}, {result['mode']}", columns, rows)


@dataclass(frozen=True, kw_only=True)
class ParametersCommand(Command):
    """Print the main theorem's parameters, as printed in the paper and corrected, in pairs and environment steps."""

    mdp: MDPName | None = None
    """Take gamma, dim, actions and W from this MDP instead of the flags below."""
    horizon: int | None = None
    """Depth, length or side of that MDP."""
    gain_at: int | None = None
    """Also compute the MDP's maximum information gain for this N, by a concave program with its duality gap."""
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
    """Bound on the critic's norm, instead of the setting's."""
    omega: float | None = None
    """Norm of theta in a linear MDP; sqrt(dim) by default, 1 for the RBF kernel."""
    xi: float | None = None
    """Norm bound of mu in a linear MDP; sqrt(dim) by default, 1 for the RBF kernel."""
    gain: Literal["finite", "rbf"] = "finite"
    """Information gain: d log(1+N), or constant log(1+N)^(d+1)."""
    constant: float = 1.0
    """Constant of the RBF rate, which the literature does not give."""
    intrinsic_dim: float | None = None
    """Largest intrinsic dimension of a covariance; dim by default (an upper bound in finite dimension)."""
    delta: float = 0.1
    """Probability of failure."""

    def work(self) -> Result:
        """The theorem's numbers, as printed and corrected."""
        if self.gain_at is not None and self.mdp is None:
            raise ValueError(f"gain_at must come with an mdp whose gain is computed, got gain_at {self.gain_at} alone")
        asked, extra = (self, {}) if self.mdp is None else self._of_mdp(self.mdp)
        gain = parameters.gain_bound(asked.gain, asked.dim, asked.constant)
        parameters.check_gamma(asked.gamma)
        norm = math.sqrt(asked.dim) if asked.gain == "finite" else 1.0
        W = asked.W
        if W is None and asked.setting == "aggregation":
            W = parameters.aggregation_W(asked.dim, asked.gamma)
        elif W is None:
            W = parameters.linear_W(asked.omega or norm, asked.xi or norm, asked.gamma)
        found = parameters.theorem(
            asked.epsilon,
            asked.gamma,
            num_actions=asked.actions,
            W=W,
            gain=gain,
            intrinsic_dim=float(asked.dim) if asked.intrinsic_dim is None else asked.intrinsic_dim,
            delta=asked.delta,
        )
        result = found._asdict() | {"paper": found.paper._asdict(), "corrected": found.corrected._asdict()}
        result |= {"accuracy": 4.0 * asked.epsilon, "dim": asked.dim, **extra}
        if asked.gain == "finite":
            factor = 4.0 * W**2 / (asked.epsilon * (1.0 - asked.gamma)) ** 3
            result["paper_remark_N"] = parameters.paper_N_finite(factor, asked.dim)
        return result

    def _of_mdp(self, name: MDPName) -> "tuple[ParametersCommand, Result]":
        """The command with the MDP's gamma, dim, actions and W, and the MDP's name with its information gain."""
        problem, _ = problems.make(name, self.horizon, 0, "exact")
        mdp, W = problem.mdp, self.W or problems.bound_W(problem)
        asked = replace(self, dim=problem.phi.shape[-1], gamma=mdp.gamma, actions=mdp.num_actions, W=W)
        extra: Result = {"mdp": problem.name}
        if self.gain_at is not None:
            best = analysis.max_information_gain(mdp, problem.phi, self.gain_at, tol=0.05, max_iterations=500)
            extra["max_information_gain"] = {"N": self.gain_at, "value": best.value, "gap": best.gap}
        return asked, extra

    @staticmethod
    def render(result: Result) -> None:
        """Print the paper's and the corrected numbers side by side to standard error."""
        title = f"accuracy {result['accuracy']:g}, W = {result['W']:.4g}"
        rows = [(name, value, result["corrected"][name]) for name, value in result["paper"].items()]
        show(title, ("number", "paper|.4g", "corrected|.4g"), rows)


NUMBERS = ("bound", "gap", "trivial", "optimal", "eps_stat", "eps_bias", "information_gain", "steps")
TERMS = certificate.Terms._fields


@dataclass(frozen=True, kw_only=True)
class CertifyCommand(MDPCommand):
    """Bound V* - V^pi for each run by measured terms: critic errors, bias, NPG regret and escapes.

    Terms are measured exactly, whichever way the runs are made.
    """

    delta: float = 0.05
    """Probability that the bound fails."""
    M: int | None = None
    """Pairs for each critic, instead of the preset's. The critics' error shrinks with the square root of M."""
    estimate: Literal["geometric", "discounted"] | None = None
    """How a critic estimates Q, instead of the preset's way."""
    jobs: int = 1
    """Number of processes."""

    def work(self) -> Result:
        """The certificate of every run, and how many of them hold."""
        seeds, one = check_seeds(self.seeds, self.seed), partial(_one, self)
        at_least(1, horizon=self.horizon, jobs=self.jobs)
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be a probability above 0 and below 1, got {self.delta}")
        if self.jobs == 1:
            rows = list(map(one, seeds))
        else:
            with safe_path(), ProcessPoolExecutor(self.jobs, get_context("spawn")) as workers:
                rows = list(workers.map(one, seeds))
        held = sum(row["holds"] for row in rows)
        print(f"{held} of {len(rows)} bounds hold", file=sys.stderr)
        return {
            "mdp": rows[0]["mdp"],
            "mode": self.mode,
            "delta": self.delta,
            "runs": len(rows),
            "hold": held,
            "below_trivial": sum(row["bound"] < row["trivial"] for row in rows),
            "median": _medians(rows, NUMBERS),
            "measured": _medians([row["measured"] for row in rows], TERMS),
            "theorem": _medians([row["theorem"] for row in rows], TERMS),
            "from_data": self._from_data(rows),
            "rows": rows,
        }

    @staticmethod
    def _from_data(rows: list[Result]) -> Result | None:
        """The certificates from data alone: medians, and how many hold; None for exact runs, which have no data."""
        alone = [row["from_data"] for row in rows]
        if alone[0] is None:
            return None
        below = sum(one["bound"] < row["trivial"] for one, row in zip(alone, rows, strict=True))
        held = sum(one["holds"] for one in alone)
        return _medians(alone, ("bound", "upper", "lower")) | {"hold": held, "below_trivial": below}

    @staticmethod
    def render(result: Result) -> None:
        """Print the bound and its terms, as medians over runs, to standard error."""
        median, terms = result["median"], [result[side] for side in ("measured", "theorem")]
        title = (
            f"{result['mdp']}, {result['mode']}: V* - V at most {median['bound']:.4g} with probability "
            f"{1 - result['delta']:g}; true gap {median['gap']:.2g}; trivial bound {median['trivial']:.4g}; "
            f"{result['hold']} of {result['runs']} hold"
        )
        columns = ("term", "measured|.4g", "theorem, with measured inputs|.4g")
        show(title, columns, [(key, *(side[key] for side in terms)) for key in TERMS])
        if (alone := result["from_data"]) is not None:
            rows = [("by P, r and the best policy", median["bound"], result["hold"], result["below_trivial"])]
            rows += [("from data alone", alone["bound"], alone["hold"], alone["below_trivial"])]
            columns = ("certificate", "bound|.4g", f"holds, of {result['runs']}", f"below {median['trivial']:.4g}")
            show(f"V* {median['optimal']:.4g}, from data at most {alone['upper']:.4g}", columns, rows)


def _medians(rows: list[Result], keys: tuple[str, ...]) -> dict[str, float]:
    return {key: float(np.median([row[key] for row in rows])) for key in keys}


def _one(command: CertifyCommand, seed: int) -> Result:
    asked = {name: value for name in ("M", "estimate") if (value := getattr(command, name)) is not None}
    run = certificate.certified_run(command.mdp, command.horizon, command.mode, seed, command.delta, **asked)
    made, played = run.by_terms, run.from_data
    parts = {"measured": made.measured._asdict(), "theorem": made.theorem._asdict(), "holds": made.holds}
    alone = None if played is None else played._asdict() | {"holds": made.gap <= played.bound + 1e-9}
    return {"seed": seed, "mdp": run.mdp, "steps": run.steps, **made._asdict(), **parts, "from_data": alone}
