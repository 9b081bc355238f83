"""Mazes from pixels without reward: share of the open cells visited by PC-PG, PPO+RND and PPO.

Reward-free, episodes of 200 steps. The score is the share of the maze's open cells that the newest policies have
visited so far, in the counted episodes after each round; what a policy met only while it was trained does not count,
for any algorithm. The baselines get as many environment steps as PC-PG, roll-ins counted.

The scale `paper` has the paper's networks and kernel (32 and 64 convolutions, 512 units and features) and 10M steps,
for a GPU: few updates a policy and many policies, since each adds a stretch of corridor. `laptop` has smaller networks
and 2.8M steps, for two cores. Settings were found on mazes of seeds 1000 and above (results/maze/tuning.md); 0 to 4 are
reported. The second part, goals given after the exploration, is `maze_goals`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from pcpg.api import Run
from pcpg.engine.program import default_lanes
from pcpg.reports.statistics import value_at
from pcpg.run_config import RunConfig
from pcpg_lab.claims import harness
from pcpg_lab.claims.harness import Cell, Claim, each, settings
from pcpg_lab.claims.records import Columns, Figures, Record, Scale, cover_pictures, curves, short_label

ENV = "Maze-v0"
ALGOS = ("pcpg", "ppo-rnd", "ppo")
GOAL_ALGOS = ("pcpg", "ppo")
"""Those of the second part."""
SEEDS: dict[Scale, int] = {"smoke": 2, "laptop": 5, "paper": 5}
SIZES: dict[Scale, int] = {"smoke": 6, "laptop": 20, "paper": 20}
TENTHS = 10
"""Parts of the budget at whose ends the algorithms are compared."""
CHANGES: dict[Scale, dict[str, dict[str, int | tuple[int, ...]]]] = {
    "smoke": {"ppo": {"num_updates": 1, "num_episodes": 8}},
    "laptop": {},
    "paper": {"ppo": {"num_updates": 6, "num_episodes": 128, "hidden": (512,)}},
}
"""To the presets; smoke is enough to go through every line, not to learn."""
PAPER_BASELINES = {"ppo": CHANGES["paper"]["ppo"] | {"minibatch_size": 512}}
"""They learn from twice as many steps, roll-ins being none: with this, by as many gradient steps as PC-PG."""
COVERS: dict[Scale, dict[str, dict[str, int]]] = {
    "smoke": {"explore": {"max_policies": 3, "num_groups": 8, "visit_episodes": 16}},
    "laptop": {},
    "paper": {"explore": {"max_policies": 60, "num_groups": 64, "patience": 60}},
}
"""Changes to PC-PG's preset alone."""
PAPER_FEATURES = {"num_features": 512, "num_kernels": [32, 64]}
BUDGETS: dict[Scale, int] = {"smoke": 10_000, "laptop": 0, "paper": 10_000_000}
"""Of a baseline where PC-PG was not run before it; 0: the preset's."""


@dataclasses.dataclass(frozen=True)
class Flags(harness.Flags):
    """Mazes from pixels: exploration without reward at equal environment steps, then goals given afterwards."""

    scale: Scale = "laptop"
    """smoke: size 6, 2 seeds, learns nothing; laptop: 2.8M steps for two cores; paper: 10M, for a GPU."""
    algos: tuple[str, ...] = ALGOS
    """Which curves; PPO+RND has none for goals."""
    seeds: int | None = None
    """Number of seeds; by default set by the scale or, for goals, by the covers."""
    seed: int = 0
    """The first seed; for goals, the first seed of the covers."""
    out: str = "results/maze"
    """Folder of the results, with a subfolder for goals; finished cells found there are reused."""
    part: Literal["explore", "goals"] = "explore"
    """explore: how much of the mazes is visited; goals: policies trained on the covers of `explore`."""
    size: int = 0
    """Rows and columns of the mazes; 0: set by the scale."""
    goals: int = 0
    """Goals per maze; 0: set by the scale."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part == "goals" and not self.chosen(GOAL_ALGOS):
            raise ValueError(f"goals are solved by {' and '.join(GOAL_ALGOS)}, got {', '.join(self.algos)}")
        if self.goals < 0:
            raise ValueError(f"goals must be 0 (set by the scale) or more, got {self.goals}")


def cells(flags: Flags, records: list[Record]) -> Iterator[Cell]:
    """The run of each algorithm."""
    for algo in flags.chosen(ALGOS):
        yield make_cell(flags, algo, harness.steps_used(records))


def make_cell(flags: Flags, algo: str, budget: int = 0) -> Cell:
    """The run of one algorithm; `budget` is that of the baselines, 0 where PC-PG was not run."""
    size, seeds, first = flags.size or SIZES[flags.scale], flags.seeds or SEEDS[flags.scale], flags.seed
    config = RunConfig(
        ENV,
        algo,
        agent_config(flags.scale, algo, budget),
        {"size": size},
        feature_options=PAPER_FEATURES if flags.scale == "paper" and algo == ALGOS[0] else {},
        seed=first,
        seeds=seeds,
        lanes=0 if default_lanes() == 1 else seeds,  # images fill an accelerator: no lane is to run empty
    )
    algos = algo if algo == ALGOS[0] or not budget else f"{ALGOS[0]} {algo}"
    command = f"pcpg reproduce maze --scale {flags.scale} --size {size} --algos {algos} --seeds {seeds} --seed {first}"
    return Cell(f"{algo}-size{size}", config, command)


def agent_config(scale: Scale, algo: str, budget: int) -> Any:
    """The settings of one algorithm: its preset, cut down for smoke and enlarged for paper."""
    if algo == ALGOS[0]:
        return settings(ENV, algo, CHANGES[scale] | COVERS[scale])
    changes = PAPER_BASELINES if scale == "paper" else CHANGES[scale]
    return settings(ENV, algo, changes, budget or BUDGETS[scale])


def measure(run: Run) -> Record:
    """Coverage and its history for every seed, and where the policies of the first seed's cover went."""
    history = harness.histories(run, lambda metrics: [metrics["coverage"]])
    open_cells = [run.env.reachable_cells(run.env.instance(seed)) for seed in run.config.seed_list]
    record = harness.facts_of(
        run,
        size=run.config.env_options["size"],
        features=[run.folder.config["features"], run.folder.config["feature_options"]],
        open_cells=[int(is_open.sum()) for is_open in open_cells],
        coverage=[history[str(seed)][-1][2] for seed in run.config.seed_list],
        policies=run.summary["policies"],
        history=history,
    )
    if run.config.algo == ALGOS[0]:
        record["cover"] = harness.cover_on_a_map(run, "upper")
    return record


def _row(record: Record) -> Record:
    coverage = record["coverage"]
    return {
        "algo": record["algo"],
        "size": record["size"],
        "seeds": len(coverage),
        "coverage": [round(value, 4) for value in coverage],
        "mean_coverage": float(np.mean(coverage)),
        "std_coverage": float(np.std(coverage)),
        "seeds_fully_covered": sum(value == 1.0 for value in coverage),
        "mean_by_tenth": by_tenth(record),
        "open_cells": record["open_cells"],
        "env_steps_per_seed": max(record["env_steps"]),
    }


def by_tenth(record: Record) -> list[float | None]:
    """Mean coverage after each tenth of the most steps a seed used; None before some seed's first round ends."""
    grid = np.linspace(0, max(record["env_steps"]), TENTHS + 1)[1:]
    means = np.mean([value_at(rows, grid, 2) for rows in record["history"].values()], axis=0)
    return [None if np.isnan(mean) else round(float(mean), 4) for mean in means]


COLUMNS: Columns = {
    "algorithm": lambda row: short_label(row["algo"]),
    "size": lambda row: str(row["size"]),
    "coverage, mean and deviation": lambda row: f"**{row['mean_coverage']:.1%}** ± {row['std_coverage']:.1%}",
    "fully covered": lambda row: f"{row['seeds_fully_covered']}/{row['seeds']}",
    "steps per seed": lambda row: f"{row['env_steps_per_seed'] / 1e6:.2f}M",
    "training, all seeds": lambda row: f"{row['seconds']:.0f} s",
}


def figures(records: list[Record]) -> Figures:
    """For each size, coverage against steps, and the grid cells that policies of a cover visit."""
    for size in sorted({record["size"] for record in records}):
        same = [record for record in records if record["size"] == size]
        yield f"coverage-size{size}", curves(same, 2, "share of the open cells visited")
        for record in same:
            if "cover" in record:
                title = f"PC-PG's cover of a maze of size {size}, seed {record['seeds'][0]}"
                yield f"cover-size{size}", cover_pictures(record, title)


CLAIM = Claim(
    flags=Flags,
    cells=cells,
    measure=measure,
    order=lambda record: ALGOS.index(record["algo"]),
    about={
        "coverage": "share of the open cells that the newest policies visited in the counted episodes after each round"
    },
    rows=each(_row),
    columns=COLUMNS,
    figures=figures,
    parts={"goals": "pcpg_lab.claims.maze_goals"},
)
