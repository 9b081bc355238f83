"""Time of exact mode and of the dual bonus as they grow: `python benchmarks/theory_speed.py`.

Set OPENBLAS_NUM_THREADS=1 where other work shares the cores: with two threads on two busy cores a 100 x 100 solve took
185 ms instead of 0.1 ms (the threads spin and wait for each other), and exact mode 181 s instead of 14 s.
"""

import time
from collections.abc import Sequence

import numpy as np

from pcpg_theory import tabular
from pcpg_theory.cli import Result, show
from pcpg_theory.kernel import RBF, DualCover
from pcpg_theory.mdp import TabularMDP
from pcpg_theory.problems import random_linear_mdp
from pcpg_theory.settings import Settings, beta_from_mass


def exact_mode_seconds(
    states: int = 1000, actions: int = 10, dim: int = 100, N: int = 20, T: int = 100, factors: bool = True
) -> float:
    """The seconds of one exact run of Algorithm 1 on a random MDP; without `factors` its rank is not used."""
    made = random_linear_mdp(0, states, actions, dim)
    if not factors:
        made = made._replace(mdp=TabularMDP(made.mdp.P, made.mdp.r, made.mdp.gamma))
    settings = Settings(N=N, T=T, eta=3.0, ridge=1e-3, beta=beta_from_mass(0.01, 1e-3))
    began = time.perf_counter()
    tabular.run(made.mdp, made.phi, settings, "exact")
    return time.perf_counter() - began


def dual_seconds(stored: int, queries: int, dim: int = 4, block: int = 500) -> dict[str, float]:
    """The seconds to store points block by block, of the last block alone, and to answer the queries."""
    rng = np.random.default_rng(0)
    points, asked = rng.random((stored, dim)), rng.random((queries, dim))
    cover, last = DualCover(RBF(0.3), 1.0), 0.0
    began = time.perf_counter()
    for start in range(0, stored, block):
        part = points[start : start + block]
        before = time.perf_counter()
        cover.extend(part, np.full(len(part), 1.0 / block))
        last = time.perf_counter() - before
    middle = time.perf_counter()
    cover.form(asked)
    return {"store": middle - began, "last_block": last, "query": time.perf_counter() - middle}


def growth(sizes: Sequence[int] = (500, 1000, 2000, 5000), queries: int = 10_000) -> list[Result]:
    """The dual's times for growing numbers of stored points, with the cost for each point and query."""
    rows = []
    for stored in sizes:
        times = dual_seconds(stored, queries)
        per_point = 1e6 * times["last_block"] / min(500, stored)
        rows.append(
            {"stored": stored, **times, "us_per_new_point": per_point, "us_per_query": 1e6 * times["query"] / queries}
        )
    return rows


def main() -> None:
    """Print the dual's growth and the seconds of exact mode."""
    seconds = {name: exact_mode_seconds(factors=name == "factors") for name in ("factors", "dense")}
    render({"rows": growth(), "exact_mode_seconds": seconds})


def render(result: Result) -> None:
    """Print the times as a table on standard error."""
    columns = ("stored points|,", "store s|.2f", "query s|.2f", "us per new point|.0f", "us per query|.0f")
    keys = ("stored", "store", "query", "us_per_new_point", "us_per_query")
    show("dual bonus, 10,000 queries", columns, [[row[key] for key in keys] for row in result["rows"]])
    for name, seconds in result["exact_mode_seconds"].items():
        print(f"exact mode, 1,000 states x 10 actions, 100 features, N=20, T=100, {name}: {seconds:.1f} s")


if __name__ == "__main__":
    main()
