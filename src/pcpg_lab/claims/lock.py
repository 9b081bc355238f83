"""The combination-lock table of the paper: success over seeds of PPO, PPO+RND and PC-PG by horizon.

The paper's table (its success is over 20 seeds):  PPO 1, 0, 0, 0; PPO+RND .75, .40, .50, .55; PC-PG 1, 1, 1, 1.

The recipe of PC-PG is the preset `pcpg`, the same at all horizons; any dependence on H is by the formulas
of `ExploreConfig.max_policies` (2 (H+1) + 8, a limit that no run has reached) and `ExploitConfig.num_rounds`
(H + 5). Exploration ends by the growth of the log-determinant of the cover's design. `results/lock/tuning.md` says how
it was found, on seeds of 1000 and more; 0 to 19 are reported.

A baseline that runs for the paper's budget gives the row of equal steps too, by its state when it had used as many
steps as PC-PG: nothing in a baseline depends on its budget but when it stops.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from pcpg.api import Run
from pcpg.reports.visits import read_visits
from pcpg.run_config import RunConfig
from pcpg.runs.metrics import read_metrics
from pcpg_lab.claims import harness, lock_figures
from pcpg_lab.claims.harness import Cell, Claim, defaults, settings
from pcpg_lab.claims.lock_figures import fit_power_law
from pcpg_lab.claims.records import (
    Figures,
    Record,
    Scale,
    Summary,
    markdown,
    provenance,
    share_solved,
    share_text,
    short_label,
)

ENV = "CombinationLock-v0"
ALGOS = ("pcpg", "ppo-rnd", "ppo")
SEEDS: dict[Scale, int] = {"smoke": 4, "laptop": 20, "paper": 20}
HORIZONS: dict[Scale, tuple[int, ...]] = {"smoke": (2, 5), "laptop": (2, 5, 10, 15), "paper": (2, 5, 10, 15)}
PAPER = {  # success rate in the paper's table, by horizon
    "ppo": {2: 1.0, 5: 0.0, 10: 0.0, 15: 0.0},
    "ppo-rnd": {2: 0.75, 5: 0.40, 10: 0.50, 15: 0.55},
    "pcpg": {2: 1.0, 5: 1.0, 10: 1.0, 15: 1.0},
}
RELEASED_STEPS = {2: 11.4e6, 5: 45.5e6, 10: 153e6, 15: 324e6}
"""Environment steps per seed of PC-PG in the released code."""
PAPER_EPISODES = 3_000_000
"""Episodes of the baselines in the released code, at every horizon."""
SUCCESS = 3.5
"""Mean return of the final policy over EVALUATION episodes above which a seed counts as solved."""
EVALUATION = 100
BUDGETS = {"own": "its own", "equal": "PC-PG's steps", "paper": "the paper's"}


@dataclasses.dataclass(frozen=True)
class Flags(harness.Flags):
    """The combination-lock table of the paper: PPO, PPO+RND and PC-PG by horizon, and its figures."""

    scale: Scale = "laptop"
    """smoke: H = 2 and 5, 4 seeds, minutes; laptop: the whole table; paper: the released code's budgets, for a GPU."""
    algos: tuple[str, ...] = ALGOS
    """Which rows."""
    out: str = "results/lock"
    horizons: tuple[int, ...] = ()
    """Which columns; by default set by the scale."""
    baselines: Literal["paper", "equal"] = "paper"
    """Budget of PPO and PPO+RND: the paper's 3M episodes, which gives both rows, or only PC-PG's steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(horizon < 1 for horizon in self.horizons):
            raise ValueError(f"horizons must be at least 1, got {self.horizons}")


def cells(flags: Flags, records: list[Record]) -> Iterator[Cell]:
    """The runs of each algorithm, horizon by horizon."""
    for algo in flags.chosen(ALGOS):
        for horizon in flags.horizons or HORIZONS[flags.scale]:
            yield make_cell(flags, algo, horizon, harness.steps_used(records, horizon=horizon))


def make_cell(flags: Flags, algo: str, horizon: int, used: int = 0) -> Cell:
    """The run of one algorithm at a horizon; `used` are PC-PG's steps there, 0 where it was not run."""
    seeds = flags.seeds or SEEDS[flags.scale]
    budget, steps = "own", 0
    if algo != "pcpg":
        is_equal = used and (flags.baselines == "equal" or flags.scale == "smoke")
        budget, steps = ("equal", used) if is_equal else ("paper", paper_budget(horizon))
    agent = settings(ENV, algo, {}, steps)
    if flags.scale == "paper" and algo == "pcpg":
        agent = released_budget(horizon)
    config = RunConfig(ENV, algo, agent, {"horizon": horizon}, seed=flags.seed, seeds=seeds)
    algos, more = (f"pcpg {algo}", " --baselines equal") if budget == "equal" else (algo, "")
    command = f"pcpg reproduce lock --scale {flags.scale} --algos {algos} --horizons {horizon}"
    return Cell(f"{algo}-H{horizon}-{budget}", config, f"{command} --seeds {seeds} --seed {flags.seed}{more}")


def paper_budget(horizon: int) -> int:
    """Environment steps of a baseline's seed in the released code."""
    return PAPER_EPISODES * (horizon + 1)


def released_budget(horizon: int) -> Any:
    """PC-PG with the released code's budget: 3 (H+1) policies of 100 updates of 2,500 episodes, then as many rounds."""
    changes = {
        "ppo": {"num_updates": 100, "num_episodes": 2500, "num_epochs": 5, "minibatch_size": 160},
        "explore": {"max_policies": 2 * (horizon + 1), "patience": 10_000, "num_groups": 50, "visit_episodes": 2500},
        "exploit": {"num_rounds": horizon + 1},
    }
    return defaults("pcpg", changes)


# What is measured.


def measure(run: Run) -> Record:
    """What a finished run reached: returns by fresh episodes, steps, and the history of every seed."""
    final, best = run.evaluate(EVALUATION), run.evaluate(EVALUATION, best=True)
    record = harness.facts_of(
        run,
        horizon=run.config.env_options["horizon"],
        final_return=final.mean_return,
        best_return=best.mean_return,
        successes=sum(value > SUCCESS for value in final.mean_return),
        best_successes=sum(value > SUCCESS for value in best.mean_return),
        policies=run.summary["policies"],
        history=histories(run),
    )
    if run.config.algo == "pcpg":
        visits = read_visits(run.folder, run.config.seed)
        record["cover"] = {"counts": visits.counts.tolist(), "weights": visits.weights.tolist()}
    if run.config.algo == "ppo-rnd":
        record["traces"] = traces(run, record["final_return"])
    return record


def histories(run: Run) -> dict[str, list[list[float]]]:
    """By seed, a row for each round: steps so far, mean return, deepest good level so far in either lock."""
    history = harness.histories(run, lambda metrics: _deepest(run, metrics))
    for rows in history.values():
        fronts = np.maximum.accumulate([row[2:] for row in rows]).tolist()
        for row, front in zip(rows, fronts, strict=True):
            row[2:] = front
    return history


def _deepest(run: Run, metrics: Record) -> list[int]:
    """The deepest good level of each lock in the counted episodes of a round; 0 if none are counted."""
    if "cells" in metrics:
        counts = np.asarray(metrics["cells"])
    elif "policies" in metrics:
        counts = run.folder.read_member(metrics["policies"] - 1)[f"{metrics['seed']}/.cells"]
    else:
        return [0, 0]
    good = _by_lock(run, counts)[:, :2].sum(axis=1) > 0
    return np.max(good * np.arange(1, good.shape[1] + 1), axis=1).tolist()


def _by_lock(run: Run, counts: np.ndarray) -> np.ndarray:
    """Visits by lock, state (two good ones, one dead) and level."""
    return np.reshape(counts, (2, 3, run.config.env_options["horizon"]))


def traces(run: Run, returns: list[float], count: int = 8) -> Record:
    """Visits of one seed's policy in some rounds of training; of a seed that failed, if one did."""
    seed = run.config.seed_list[int(np.argmin(returns))]
    rows = [metrics for metrics in read_metrics(run.folder.metrics) if metrics["seed"] == seed]
    rounds = sorted({round(x) for x in np.geomspace(1, len(rows), count)})
    return {
        "seed": seed,
        "epochs": rounds,  # the name that kept records have for it
        "counts": [_by_lock(run, rows[number - 1]["cells"]).tolist() for number in rounds],
    }


# What is shown.


def rows(records: list[Record]) -> list[Record]:
    """A row for each cell and budget."""
    pcpg_steps = {record["horizon"]: max(record["env_steps"]) for record in records if record["algo"] == "pcpg"}
    found = []
    for record in records:
        budget = _budget(record)
        own = {"best_successes": record["best_successes"], **provenance(record)}
        found.append(_row(record, budget, record["final_return"], record["env_steps"]) | own)
        if budget == "paper" and record["horizon"] in pcpg_steps:
            found.append(_row(record, "equal", *at_budget(record, pcpg_steps[record["horizon"]])))
    return found


def growth(records: list[Record]) -> Summary:
    """How steps to solve grow with H, where more than one was solved."""
    solved = steps_to_solve(records)
    if len({h for h, _ in solved}) < 2:
        return {}
    horizons, steps = np.array(solved, float).T
    return {"growth": fit_power_law(horizons, steps)._asdict()}


def _budget(record: Record) -> str:
    if record["algo"] == "pcpg":
        return "own"
    return "paper" if record["config"]["budget"] >= paper_budget(record["horizon"]) else "equal"


def _row(record: Record, budget: str, returns: list[float], steps: list[int]) -> Record:
    return {
        "algo": record["algo"],
        "horizon": record["horizon"],
        "budget": budget,
        **share_solved(sum(value > SUCCESS for value in returns), len(returns)),
        "paper": PAPER.get(record["algo"], {}).get(record["horizon"]),
        "env_steps_per_seed": max(steps),
        "mean_env_steps": float(np.mean(steps)),
        "mean_return": [round(value, 3) for value in returns],
    }


def at_budget(record: Record, budget: int) -> tuple[list[float], list[int]]:
    """Mean return and steps of each seed in the first round that reached the budget.

    A run with that budget would have ended there, bit for bit: nothing but the stop depends on it.
    """
    returns, steps = [], []
    for rows in record["history"].values():
        index = next((i for i, row in enumerate(rows) if row[0] >= budget), len(rows) - 1)
        returns.append(rows[index][1])
        steps.append(int(rows[index][0]))
    return returns, steps


def steps_to_solve(records: list[Record]) -> list[tuple[int, int]]:
    """For every solved seed of PC-PG: its horizon, and its steps after which it stayed solved."""
    points = []
    for record in records:
        if record["algo"] != "pcpg":
            continue
        for rows, final in zip(record["history"].values(), record["final_return"], strict=True):
            failed = [i for i, row in enumerate(rows) if row[1] <= SUCCESS]
            first = failed[-1] + 1 if failed else 0
            if final > SUCCESS and first < len(rows):
                points.append((record["horizon"], int(rows[first][0])))
    return points


def table(summary: Summary) -> str:
    """The table as Markdown: successes with their intervals and steps, the paper's share."""
    entries = {(row["algo"], row["horizon"], row["budget"]): _entry(row) for row in summary["cells"]}
    horizons = sorted({horizon for _, horizon, _ in entries})
    lines = []
    for algo in ALGOS:
        for budget, name in BUDGETS.items():
            found = [entries.get((algo, horizon, budget), "-") for horizon in horizons]
            if set(found) != {"-"}:
                lines.append([short_label(algo), name, *found])
    for algo in ALGOS:
        shares = [f"{PAPER[algo][h]:.2f}" if h in PAPER[algo] else "-" for h in horizons]
        lines.append([f"{short_label(algo)}, as in the paper", "", *shares])
    released = [f"{RELEASED_STEPS[h] / 1e6:.0f}M" if h in RELEASED_STEPS else "-" for h in horizons]
    lines.append(["PC-PG's steps in the released code", "", *released])
    return markdown(["algorithm", "budget", *(f"H = {h}" for h in horizons)], lines)


def _entry(row: Record) -> str:
    steps = row["env_steps_per_seed"] / 1e6
    return f"{share_text(row['successes'], row['seeds'], row['interval'])}, {steps:.1f}M"


def figures(records: list[Record]) -> Figures:
    """Every figure for which there are records."""
    yield "success", lock_figures.success_against_steps(records, SUCCESS)
    points = steps_to_solve(records)
    if len({horizon for horizon, _ in points}) > 1:
        yield "growth", lock_figures.growth_with_horizon(points)
    if covers := [record for record in records if "cover" in record]:
        yield "cover", lock_figures.cover_traces(max(covers, key=lambda r: (r["horizon"] == 15, r["horizon"])))
    if trained := [record for record in records if "traces" in record]:
        yield "rnd", lock_figures.rnd_traces(max(trained, key=lambda record: record["horizon"]))
    if deep := [record for record in records if record["algo"] == "pcpg" and record["horizon"] >= 10]:
        yield "frontier", lock_figures.frontier(deep)


CLAIM = Claim(
    flags=Flags,
    cells=cells,
    measure=measure,
    order=lambda record: (ALGOS.index(record["algo"]), record["horizon"]),
    about={"success": f"mean return of the final policy above {SUCCESS}"},
    rows=rows,
    more=growth,
    layout=table,
    figures=figures,
    headline=lambda record: f"{record['successes']} of {len(record['final_return'])} seeds solved, ",
)
