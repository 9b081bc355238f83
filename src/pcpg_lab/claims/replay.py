"""PC-PG with kept data on every world of the library: the steps it needs, and the effect of each part.

One set of settings for all: those of `pcpg train ENV --algo pcpg-replay`. Exploration ends by its own rule; the task is
learned from the kept data without a new step, but for the 32 counted episodes that evaluate it. What was tuned was
tuned on seeds of 1000 and more; the ablation is that of the lock at H = 15.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcpg.api import Run
from pcpg.reports.figures import new_figure
from pcpg.run_config import RunConfig
from pcpg.runs.documents import read_object
from pcpg.runs.errors import NotARun
from pcpg.runs.folder import RunFolder
from pcpg.training.exploit import exploit_config, exploit_defaults
from pcpg_lab.claims import harness
from pcpg_lab.claims.harness import Cell, Claim, each, settings
from pcpg_lab.claims.records import (
    SEED,
    Columns,
    Figures,
    Record,
    Scale,
    joined,
    refuse_unknown,
    share_solved,
    share_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ALGO = "pcpg-replay"
EVALUATION = 100
LOCK_SOLVED, SEA_SOLVED, CAR_SOLVED, GRID_SOLVED = 3.5, 0.9, 90.0, 0.8
GOAL_SOLVED = 0.945  # reached in at least 95 of 100 episodes
NUM_GOALS = 20
KEPT, FORGOTTEN = "#2a9d5c", "#1b6ca8"
LOCK_CELLS = Path("results/lock/cells")
"""Where `pcpg reproduce lock` keeps its records, those of PC-PG without kept data among them."""


class World(NamedTuple):
    """What is run, when it counts as solved, and the steps that were aimed at."""

    label: str
    env: str
    options: Mapping[str, object]
    solved: float | None  # mean return above which a seed is solved; None: when every grid cell was visited
    target: float | None
    seeds: int = 20
    together: int = 0  # seeds of one cell; 0: all


def _lock(horizon: int, target: float, together: int = 0) -> World:
    label, options = f"lock H = {horizon}", {"horizon": horizon}
    return World(label, "CombinationLock-v0", options, LOCK_SOLVED, target, together=together)


WORLDS: dict[str, World] = {
    "lock-5": _lock(5, 0.6e6),
    "lock-10": _lock(10, 0.6e6),
    "lock-15": _lock(15, 0.6e6),
    "lock-25": _lock(25, 2.5e6),
    "lock-50": _lock(50, 8e6),
    "lock-100": _lock(100, 40e6, together=1),  # long runs: several processes can share them
    "sea-20": World("DeepSea 20", "DeepSea-v0", {"size": 20}, SEA_SOLVED, 0.1e6, 5),
    "sea-50": World("DeepSea 50", "DeepSea-v0", {"size": 50}, SEA_SOLVED, 0.6e6, 5, 1),
    "sea-100": World("DeepSea 100", "DeepSea-v0", {"size": 100}, SEA_SOLVED, None, 5, 1),
    "bsuite-20": World("bsuite's DeepSea 20", "bsuite:deep_sea", {"size": 20}, SEA_SOLVED, 0.1e6, 5),
    "bsuite-50": World("bsuite's DeepSea 50", "bsuite:deep_sea", {"size": 50}, SEA_SOLVED, 0.6e6, 5, 1),
    "car": World("Gymnasium's MountainCarContinuous", "gymnasium:MountainCarContinuous-v0", {}, CAR_SOLVED, 0.4e6, 5),
    "doorkey": World("MiniGrid DoorKey 6x6", "gymnasium:MiniGrid-DoorKey-6x6-v0", {}, GRID_SOLVED, 0.4e6, 5),
    "maze-20": World("maze 20 x 20, all cells", "Maze-v0", {"size": 20}, None, 3e6, 5),
}
GOALS = {
    "goals-0": World("maze 20 x 20, 20 goals each, no new step", "Maze-v0", {"size": 20}, GOAL_SOLVED, 0.0),
    "goals-50k": World("maze 20 x 20, 20 goals each, some new steps", "Maze-v0", {"size": 20}, GOAL_SOLVED, 50e3),
}
"""Tasks chosen after the mazes have been explored; a task is a seed, and steps are those of the task alone."""
EXPLORED = "maze-20"
LAPTOP = ("lock-5", "lock-10", "lock-15", "lock-25", "sea-20", "car", "maze-20", *GOALS)
ABLATION: dict[str, Mapping[str, object]] = {
    "no bonus": {"explore": {"bonus_coef": 0.0, "min_value": 0.0}, "replay": {"capacity": 200_000}},
    "no roll-in": {"explore": {"roll_in_share": 0.0}},
    "uniform weights": {"explore": {"weights": "uniform"}},
    "data of one round": {"replay": {"sample_rate": 1e-3, "capacity": 200_000}},
    "kernel half as wide": {"replay": {"bandwidth": 0.175}},
    "kernel twice as wide": {"replay": {"bandwidth": 0.7}},
    "one-hot observations": {"replay": {"bandwidth": 0.02}},  # a kernel so narrow that no two have anything in common
    "4 backups": {"explore": {"backups": 4}},
}
SMOKE_HORIZON = 3


@dataclasses.dataclass(frozen=True)
class Flags(harness.Flags):
    """PC-PG with kept data: steps until each world is solved, and an ablation."""

    scale: Scale = "laptop"
    """smoke: a small lock, seconds; laptop: locks to H = 25, DeepSea 20, the maze, minutes on two cores; paper: all."""
    worlds: tuple[str, ...] = ()
    """Which worlds; by default set by the scale. `ablation`: remove parts one by one, on the lock at H = 15."""
    algos: tuple[str, ...] = (ALGO,)
    """Which algorithms."""
    out: str = "results/replay"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_unknown("world", self.worlds, [*WORLDS, *GOALS, "ablation"])


def cells(flags: Flags, records: list[Record]) -> Iterator[Cell]:
    """The run of each world, then those of the ablation."""
    del records
    if flags.scale == "smoke":
        world = _lock(SMOKE_HORIZON, 0.6e6)
        yield _cell(flags, "lock-3", world, flags.seeds or 2, {"replay": {"capacity": 20_000}})
        return
    asked = flags.worlds or (*(LAPTOP if flags.scale == "laptop" else [*WORLDS, *GOALS]), "ablation")
    for name, world in WORLDS.items():
        if name in asked:
            yield from _cells_of(flags, name, world, flags.seeds or world.seeds)
    for name in GOALS:
        if name in asked and not _is_kept(flags, name):
            yield _goals_cell(flags, name, RunFolder.open(Path(flags.out) / "runs" / EXPLORED))
    if "ablation" in asked:
        for variant, changes in ABLATION.items():
            name = f"ablation-{variant.replace(' ', '-')}"
            yield _cell(flags, name, WORLDS["lock-15"], flags.seeds or 10, changes)


def _cells_of(flags: Flags, name: str, world: World, seeds: int) -> Iterator[Cell]:
    """The seeds of a world in one run, or in several where it says so."""
    if not world.together:
        yield _cell(flags, name, world, seeds, {})
        return
    for seed in range(flags.seed, flags.seed + seeds, world.together):
        block = dataclasses.replace(flags, seed=seed)
        yield _cell(block, f"{name}{SEED}{seed}", world, world.together, {})


def _cell(flags: Flags, name: str, world: World, seeds: int, changes: Mapping[str, object]) -> Cell:
    agent = settings(world.env, ALGO, changes)
    config = RunConfig(world.env, ALGO, agent, dict(world.options), seed=flags.seed, seeds=seeds)
    asked = "ablation" if name.startswith("ablation") else name.split(SEED)[0]
    command = f"pcpg reproduce replay --scale {flags.scale} --worlds {asked} --seeds {seeds} --seed {flags.seed}"
    return Cell(name, config, command if flags.scale != "smoke" else "pcpg reproduce replay --scale smoke")


def _is_kept(flags: Flags, name: str) -> bool:
    """Whether the numbers of some goals are there and the data of their mazes, which are not kept, no more."""
    out = Path(flags.out)
    if (out / "runs" / EXPLORED).exists():
        return False
    if not (out / "cells" / f"{name}.json").exists():
        raise NotARun(f"{name}: the mazes must be explored first: add {EXPLORED} to --worlds, with a new --out")
    return True


def _goals_cell(flags: Flags, name: str, explored: RunFolder) -> Cell:
    defaults = exploit_defaults(explored)
    config = exploit_config(defaults, env_options={"goals": NUM_GOALS}, new_steps=int(GOALS[name].target or 0))
    return Cell(name, config, f"pcpg reproduce replay --scale {flags.scale} --worlds maze-20 {name}")


def measure(run: Run) -> Record:
    """Returns of the final policies, steps, and the history of every seed."""
    reward_free = run.env.is_reward_free
    returns = [0.0] * run.config.seeds if reward_free else run.evaluate(EVALUATION).mean_return
    rows = harness.histories(run, lambda metrics: [metrics.get("coverage"), metrics.get("bonus_ahead")])
    about = {"name": run.path.name, "env": run.config.env, "options": dict(run.config.env_options)}
    return harness.facts_of(run, **about, final_return=returns, history=rows)


def world_of(record: Record) -> World:
    """The world of a record, by its name or its environment."""
    name = record["name"].split(SEED)[0]
    if name in WORLDS | GOALS:
        return (WORLDS | GOALS)[name]
    known = [world for world in WORLDS.values() if (world.env, dict(world.options)) == _key(record, world)]
    return known[0] if known else World("lock H = 3", "", {}, LOCK_SOLVED, 0.6e6)


def _key(record: Record, world: World) -> tuple[str, dict[str, object]]:
    return record["env"], {name: record["options"].get(name) for name in world.options}


def steps_to_success(record: Record) -> list[float | None]:
    """By seed: the steps of the whole run where it is solved, or those until all grid cells were seen; else None."""
    world = world_of(record)
    if world.solved is not None:
        pairs = zip(record["final_return"], record["env_steps"], strict=True)
        return [float(steps) if value > world.solved else None for value, steps in pairs]
    return [
        next((float(row[0]) for row in rows if row[2] is not None and row[2] >= 1.0), None)
        for rows in record["history"].values()
    ]


def merged(records: list[Record]) -> list[Record]:
    """Records with the cells of one world put together, in the order of their seeds."""
    made = joined(records, lambda record: record["name"].split(SEED)[0])
    return [record | {"name": record["name"].split(SEED)[0]} for record in made]


def _row(record: Record) -> Record:
    world, steps = world_of(record), steps_to_success(record)
    solved = [value for value in steps if value is not None]
    return {
        "cell": record["name"],
        "world": world.label,
        **share_solved(len(solved), len(steps)),
        "steps": max(solved) if solved else None,
        "median_steps": float(np.median(solved)) if solved else None,
        "env_steps_per_seed": max(record["env_steps"]),
        "target": world.target,
        "final_return": [round(value, 3) for value in record["final_return"]],
        "seconds_per_seed": record["seconds"] / len(steps),
    }


def _title(row: Record) -> str:
    variant = next((name for name in ABLATION if row["cell"] == f"ablation-{name.replace(' ', '-')}"), None)
    return row["world"] if variant is None else f"{row['world']}, {variant}"


def _thousands(steps: float) -> str:
    return f"{steps / 1e6:.2f}M" if steps >= 1e6 else f"{steps / 1e3:.1f}k"


def figures(records: list[Record]) -> Figures:
    """Of the locks, the growth of the steps with the horizon, and the share of seeds solved against steps."""
    locks = [record for record in merged(records) if record["name"].startswith("lock-")]
    if len(locks) < 3:
        return
    found = [read_object(path) for path in sorted(LOCK_CELLS.glob("pcpg-H*-own.json"))]
    others = {int(record["horizon"]): record for record in (one.get("content", one) for one in found)}
    yield "growth", _growth(locks, others)
    both = [record for record in locks if record["options"]["horizon"] in others]
    if both:
        yield "solved", _solved(both, others)


def _growth(locks: list[Record], others: dict[int, Record]) -> "Figure":
    figure, axes = new_figure(1, 1, width=4.2, height=2.8)
    axis = axes[0][0]
    horizon = np.array([record["options"]["horizon"] for record in locks for _ in record["env_steps"]], float)
    steps = np.array([value for record in locks for value in record["env_steps"]], float)
    slope, at = np.polyfit(np.log(horizon), np.log(steps), 1)
    low, high = slope_interval(horizon, steps)
    axis.scatter(horizon, steps, s=6, color=KEPT, alpha=0.5, label="PC-PG that keeps its data, one seed")
    line = np.array(sorted(set(horizon)))
    label = f"$H^{{{slope:.2f}}}$ [{low:.2f}, {high:.2f}]"
    axis.plot(line, np.exp(at) * line**slope, color=KEPT, lw=1, label=label)
    known = {
        level: max(record["env_steps"])
        for level, record in sorted(others.items())
        if max(record["final_return"]) > LOCK_SOLVED
    }
    if known:
        axis.scatter(*zip(*known.items(), strict=True), s=14, marker="s", color=FORGOTTEN, label="PC-PG, most steps")
    axis.set(xscale="log", yscale="log")
    ticks = sorted({*known, *line.astype(int).tolist()})
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set(xlabel="horizon H of the lock", ylabel="environment steps per seed")
    axis.legend(fontsize=6.5, frameon=False)
    return figure


def _solved(locks: list[Record], others: dict[int, Record]) -> "Figure":
    """Of PC-PG that keeps its data a seed counts at its end, of the other from its first evaluation above 3.5."""
    figure, axes = new_figure(1, len(locks), width=1.75 * len(locks), height=2.2)
    for axis, record in zip(axes[0], locks, strict=True):
        horizon = int(record["options"]["horizon"])
        ours = [
            steps if value > LOCK_SOLVED else np.inf
            for value, steps in zip(record["final_return"], record["env_steps"], strict=True)
        ]
        theirs = [first_success(rows) for rows in others[horizon]["history"].values()]
        for steps, color, label in (
            (ours, KEPT, "PC-PG that keeps its data"),
            (theirs, FORGOTTEN, "PC-PG as in the paper"),
        ):
            steps = np.sort(steps)
            axis.step([1e3, *steps], [0.0, *np.arange(1, len(steps) + 1) / len(steps)], where="post", color=color)
            axis.plot([], [], color=color, label=label)
        axis.set(xscale="log", xlim=(1e3, 1e8), ylim=(0.0, 1.05))
        axis.set_title(f"H = {horizon}", fontsize=8)
        axis.set_xlabel("steps per seed")
    axes[0][0].set_ylabel("share of seeds solved")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=7
    )
    return figure


def first_success(rows: list[list[float]]) -> float:
    """Steps at the first evaluation above LOCK_SOLVED; infinite where there is none."""
    return next((float(row[0]) for row in rows if row[1] is not None and row[1] > LOCK_SOLVED), np.inf)


def slope_interval(horizon: np.ndarray, steps: np.ndarray, draws: int = 2000) -> tuple[float, float]:
    """95% interval of the exponent: seeds drawn again at each horizon, 2,000 times."""
    rng, levels = np.random.default_rng(0), [np.flatnonzero(horizon == value) for value in np.unique(horizon)]
    slopes = []
    for _ in range(draws):
        some = np.concatenate([rng.choice(level, len(level)) for level in levels])
        slopes.append(np.polyfit(np.log(horizon[some]), np.log(steps[some]), 1)[0])
    low, high = np.quantile(slopes, [0.025, 0.975])
    return float(low), float(high)


def _place(name: str) -> tuple[int, int, str]:
    name, _, seed = name.partition(SEED)
    names = [*WORLDS, *GOALS, *(f"ablation-{variant.replace(' ', '-')}" for variant in ABLATION)]
    return (names.index(name) if name in names else -1), int(seed or 0), name


COLUMNS: Columns = {
    "world": _title,
    "solved": lambda row: share_text(row["successes"], row["seeds"], row["interval"]),
    "steps per seed, at most": lambda row: _thousands(row["steps"] or row["env_steps_per_seed"]),
    "median": lambda row: _thousands(row["median_steps"]) if row["median_steps"] else "-",
    "target": lambda row: "-" if row["target"] is None else _thousands(row["target"]),
    "seconds per seed": lambda row: f"{row['seconds_per_seed']:.1f}",
}
CLAIM = Claim(
    flags=Flags,
    cells=cells,
    measure=measure,
    order=lambda record: _place(record["name"]),
    about={"success": "the final policy over 100 fresh episodes; all steps counted"},
    rows=lambda records: each(_row)(merged(records)),
    columns=COLUMNS,
    figures=figures,
)
