"""`pcpg theory certify`: a bound on V* - V^pi that holds for each run, its terms beside the theorem's."""

import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np

from pcpg.cli.theory import MDPName, Mode, Result, SeededOutput, check_horizon, check_seeds, finish, show, table
from pcpg.theory import certificate


@dataclass(frozen=True, kw_only=True)
class CertifyCommand(SeededOutput):
    """Bound V* - V^pi of runs by what was measured in them: errors of critics, bias, regret of NPG, escapes."""

    mdp: MDPName = "lock"
    """Which MDP: the combination lock, random linear or aggregated MDPs, or another of `pcpg theory run`."""
    horizon: int | None = None
    """Depth of a lock, length of the chain, side of the sea or of the maze."""
    mode: Mode = "sampled"
    """How the runs are made; what is measured of them is exact in both modes."""
    seeds: int = 1
    """How many runs, with consecutive seeds."""
    delta: float = 0.05
    """The bound may fail with this probability."""
    M: int | None = None
    """Pairs for each critic, instead of the preset's: the error of the critics shrinks with their root."""
    estimate: Literal["geometric", "discounted"] | None = None
    """How a critic estimates Q, instead of the preset's."""
    jobs: int = 1
    """How many processes."""

    def __call__(self) -> Result:
        """The certificate of every run, and the share of them that hold."""
        check_seeds(self.seeds, self.seed)
        check_horizon(self.horizon)
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be a probability, above 0 and below 1, got {self.delta}")
        seeds = range(self.seed, self.seed + self.seeds)
        pool: Any = ProcessPoolExecutor(self.jobs, get_context("spawn")) if self.jobs > 1 else nullcontext()
        with pool as workers:
            rows = list((workers.map if workers else map)(partial(_one, self), seeds))
        held = [row["holds"] for row in rows]
        print(f"{sum(held)} of {len(held)} bounds hold", file=sys.stderr)
        result: Result = {
            "mdp": rows[0]["mdp"],
            "mode": self.mode,
            "delta": self.delta,
            "runs": len(rows),
            "hold": sum(held),
            "below_trivial": sum(row["bound"] < row["trivial"] for row in rows),
            "median": {key: float(np.median([row[key] for row in rows])) for key in NUMBERS},
            "measured": {key: float(np.median([row["measured"][key] for row in rows])) for key in TERMS},
            "theorem": {key: float(np.median([row["theorem"][key] for row in rows])) for key in TERMS},
            "rows": rows,
        }
        return finish(result, self.out)

    @staticmethod
    def render(result: Result) -> None:
        """Print the bound and its terms, medians over runs, on standard error."""
        median = result["median"]
        title = (
            f"{result['mdp']}, {result['mode']}: V* - V at most {median['bound']:.4g} with probability "
            f"{1 - result['delta']:g}; in truth {median['gap']:.2g}; trivial {median['trivial']:.4g}; "
            f"{result['hold']} of {result['runs']} hold"
        )
        made = table(title, "term", "measured", "theorem, with what was measured")
        for key in TERMS:
            made.add_row(key, f"{result['measured'][key]:.4g}", f"{result['theorem'][key]:.4g}")
        show(made)


NUMBERS = ("bound", "gap", "trivial", "optimal", "eps_stat", "eps_bias", "information_gain", "steps")
TERMS = certificate.Terms._fields


def _one(command: CertifyCommand, seed: int) -> Result:
    asked = {name: value for name in ("M", "estimate") if (value := getattr(command, name)) is not None}
    made, name, steps = certificate.certified_run(
        command.mdp, command.horizon, command.mode, seed, command.delta, **asked
    )
    parts = {"measured": made.measured._asdict(), "theorem": made.theorem._asdict(), "holds": made.holds}
    return {"seed": seed, "mdp": name, "steps": steps, **made._asdict(), **parts}
