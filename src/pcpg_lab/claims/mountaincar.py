"""MountainCar with continuous actions: return against environment steps of three algorithms.

Training episodes have 200 steps, the evaluation the environment's own 999. PC-PG is the reward-bonus version with
the preset of `pcpg train MountainCarContinuous-v0 --algo pcpg-bonus`; the baselines get as many environment steps as
the seed of PC-PG that used most, roll-ins counted.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from pcpg.api import Run
from pcpg.run_config import RunConfig
from pcpg_lab.claims import harness
from pcpg_lab.claims.harness import Cell, Claim, each, settings
from pcpg_lab.claims.records import (
    Columns,
    Figures,
    Record,
    Scale,
    cover_pictures,
    curves,
    share_solved,
    share_text,
    short_label,
)

ENV = "MountainCarContinuous-v0"
ALGOS = ("pcpg-bonus", "ppo-rnd", "ppo")
SEEDS: dict[Scale, int] = {"smoke": 2, "laptop": 5, "paper": 5}
SUCCESS = 90.0
"""Mean return of the final policy over EVALUATION episodes above which a seed counts as solved."""
EVALUATION = 100
DEFAULT_BUDGET = 3_000_000
"""Steps of a baseline's seed where PC-PG was not run beside it."""
SMOKE: dict[str, object] = {"ppo": {"num_updates": 2, "num_episodes": 16}}
"""Enough to go through every line, not to learn."""
COVERS: dict[Scale, dict[str, object]] = {
    "smoke": {"explore": {"max_policies": 2}},
    "laptop": {},
    "paper": {"explore": {"max_policies": 40}},
}
"""Changes to PC-PG's preset alone."""


@dataclasses.dataclass(frozen=True)
class Flags(harness.Flags):
    """MountainCar with continuous actions: PC-PG with the reward bonus, PPO+RND and PPO at equal environment steps."""

    scale: Scale = "laptop"
    """smoke: 2 seeds, seconds, learns nothing; laptop: 5 seeds, minutes; paper: a cover of 40 policies, for a GPU."""
    algos: tuple[str, ...] = ALGOS
    """Which curves."""
    out: str = "results/mountaincar"


def cells(flags: Flags, records: list[Record]) -> Iterator[Cell]:
    """The run of each algorithm."""
    seeds, first = flags.seeds or SEEDS[flags.scale], flags.seed
    for algo in flags.chosen(ALGOS):
        used = harness.steps_used(records)
        is_ours = algo == ALGOS[0]
        changes = (SMOKE if flags.scale == "smoke" else {}) | (COVERS[flags.scale] if is_ours else {})
        agent = settings(ENV, algo, changes, used or DEFAULT_BUDGET)
        algos = algo if is_ours or not used else f"{ALGOS[0]} {algo}"
        command = f"pcpg reproduce mountaincar --scale {flags.scale} --algos {algos} --seeds {seeds} --seed {first}"
        yield Cell(algo, RunConfig(ENV, algo, agent, seed=first, seeds=seeds), command)


def measure(run: Run) -> Record:
    """Returns over the environment's 999 steps, the history of every seed, and where the first seed's cover went."""
    final, best = run.evaluate(EVALUATION), run.evaluate(EVALUATION, best=True)
    record = harness.facts_of(
        run,
        final_return=final.mean_return,
        best_return=best.mean_return,
        successes=sum(value > SUCCESS for value in final.mean_return),
        policies=run.summary["policies"],
        history=harness.histories(run, lambda metrics: [metrics["coverage"]]),
    )
    if run.config.algo == ALGOS[0]:
        record["cover"] = harness.cover_on_a_map(run, "lower")  # the largest velocity at the top
    return record


def _row(record: Record) -> Record:
    returns = record["final_return"]
    return {
        "algo": record["algo"],
        **share_solved(record["successes"], len(returns)),
        "mean_return": float(np.mean(returns)),
        "final_return": [round(value, 2) for value in returns],
        "best_return": [round(value, 2) for value in record["best_return"]],
        "env_steps_per_seed": max(record["env_steps"]),
    }


COLUMNS: Columns = {
    "algorithm": lambda row: short_label(row["algo"]),
    "solved": lambda row: share_text(row["successes"], row["seeds"], row["interval"]),
    "final return, each seed": lambda row: ", ".join(f"{value:.1f}" for value in row["final_return"]),
    "steps per seed": lambda row: f"{row['env_steps_per_seed'] / 1e6:.2f}M",
    "training, all seeds": lambda row: f"{row['seconds']:.0f} s",
}


def figures(records: list[Record]) -> Figures:
    """Return against steps, and where the policies of a cover went."""
    yield "return", curves(records, 1, "mean return of the newest policy,\n200-step episodes")
    for record in records:
        if "cover" in record:
            title = f"PC-PG's cover, seed {record['seeds'][0]}: position to the right, velocity upwards"
            yield "cover", cover_pictures(record, title)


CLAIM = Claim(
    flags=Flags,
    cells=cells,
    measure=measure,
    order=lambda record: ALGOS.index(record["algo"]),
    about={"success": f"mean return of the final policy over 999-step episodes above {SUCCESS:g}"},
    rows=each(_row),
    columns=COLUMNS,
    figures=figures,
)
