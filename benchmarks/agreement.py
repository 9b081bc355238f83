"""Regret of UCBVI, PSRL and UCB Q-learning beside rlberry's on one MDP: prints a table, writes results/rlberry.json.

    python benchmarks/agreement.py

The MDP is small and stationary, its rewards are 0 or 1 (PSRL of rlberry draws a Bernoulli number for a reward) and
episodes have few decisions. Both sides play as many episodes with the same constants; UCBVI and UCB Q-learning have
tables for each step, PSRL one model for all. rlberry runs in its own environment by peers/rlberry_regret.py, which
says what was set there. Two algorithms agree where their mean regrets over 20 seeds differ by noise: the interval of
the difference holds zero.

One thing is not the same. UCBVI of its paper, and ours, cuts Q at the decisions that remain, so actions whose bonus is
large are equal there; rlberry cuts V alone, at L, and goes by the bonus beyond the cut. So the bonus is a thousandth of
the paper's here, where cuts hardly act. At a hundredth ours has a fifth more regret (894 against 751), which we put
down to the cut without having tried it apart.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from pcpg_theory.learners import problem, runner
from pcpg_theory.learners.registry import COMPARATORS
from pcpg_theory.mdp import TabularMDP, random_mdp

HERE = Path(__file__).resolve().parent
PEERS_PYTHON = HERE / ".venv-rlberry" / "bin" / "python"
STATES, ACTIONS, DECISIONS, SEEDS, DELTA = 4, 3, 5, 20, 0.1
LEARNERS: dict[str, dict[str, Any]] = {
    "ucbvi": {"scale": 0.001, "episodes": 2000},
    "psrl": {"scale": 1.0, "episodes": 1000},
    "ucb-q": {"scale": 0.05, "episodes": 4000},
}


def mdp() -> TabularMDP:
    """The MDP of the comparison: random moves, rewards of 0 or 1."""
    drawn = random_mdp(5, STATES, ACTIONS, 0.9, sparsity=0.3)
    return replace(drawn, r=(drawn.r > 0.7).astype(np.float64))


def ours(name: str, seeds: Sequence[int]) -> np.ndarray:
    """The regret of our learner with each seed."""
    made = problem.timed("agreement", mdp(), DECISIONS, len(seeds))
    if name != "psrl":  # tables for each step: no two states share a model
        made = replace(made, layout=replace(made.layout, shared=np.arange(made.layout.num_states)))
    options = {"scale": LEARNERS[name]["scale"]} | ({} if name == "psrl" else {"delta": DELTA})
    episodes = LEARNERS[name]["episodes"]
    history = runner.run(made, partial(COMPARATORS[name].make, **options), seeds, DECISIONS * episodes, points=episodes)
    return (history.optimal[:, None] - history.returns[:, :-1]).sum(1)  # the policies before each episode


def theirs(seeds: Sequence[int]) -> dict[str, Any]:
    """The regrets of rlberry's agents, and the versions there."""
    chosen = mdp()
    pairs = (1 + (DECISIONS - 1) * STATES) * ACTIONS  # what S A is for our learners with tables for each step
    task = {
        "P": chosen.P.tolist(),
        "r": chosen.r.tolist(),
        "horizon": DECISIONS,
        "delta": DELTA,
        "pairs": pairs,
        "learners": LEARNERS,
        "seeds": list(seeds),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(task))
        file.flush()
        command = [str(PEERS_PYTHON), str(HERE / "peers" / "rlberry_regret.py"), file.name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(one: Sequence[float], other: Sequence[float], level: float = 0.95) -> dict[str, float]:
    """Means, their difference and its interval by Welch's t."""
    found = stats.ttest_ind(one, other, equal_var=False).confidence_interval(level)
    difference = float(np.mean(one) - np.mean(other))
    return {
        "ours": float(np.mean(one)),
        "rlberry": float(np.mean(other)),
        "difference": difference,
        "low": float(found.low),
        "high": float(found.high),
    }


def measure(seeds: Sequence[int]) -> dict[str, Any]:
    """Everything that is kept: the settings, the regrets of both sides, and their differences."""
    from run import provenance

    other = theirs(seeds)
    regrets = {name: {"ours": ours(name, seeds).tolist(), "rlberry": other["regret"][name]} for name in LEARNERS}
    return {
        "provenance": provenance() | {"rlberry": other["versions"]},
        "mdp": {"states": STATES, "actions": ACTIONS, "decisions": DECISIONS, "optimal": float(best())},
        "delta": DELTA,
        "learners": LEARNERS,
        "seeds": list(seeds),
        "regret": regrets,
        "difference": {name: compare(both["ours"], both["rlberry"]) for name, both in regrets.items()},
    }


def best() -> float:
    """The optimal return of an episode."""
    return float(problem.timed("agreement", mdp(), DECISIONS, 1).optimal()[0])


def main() -> None:
    """Run both sides, print the comparison and write it."""
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "rlberry.json", help="file to write")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds on each side")
    arguments = parser.parse_args()
    if not PEERS_PYTHON.exists():
        parser.error("rlberry's environment is not there: `make agreement` makes it")
    found = measure(range(arguments.seeds))
    table = Table("learner", title=f"Regret, mean of {arguments.seeds} seeds")
    for column in ("episodes", "ours", "rlberry", "difference", "95% interval"):
        table.add_column(column, justify="right")
    for name, row in found["difference"].items():
        numbers = [f"{row[key]:.1f}" for key in ("ours", "rlberry", "difference")]
        table.add_row(name, str(LEARNERS[name]["episodes"]), *numbers, f"{row['low']:.1f} to {row['high']:.1f}")
    Console().print(table)
    arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
