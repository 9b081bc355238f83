"""Worlds in which no observation comes again: `pcpg-deep`, the same learner without an explorer, and one thing changed.

All settings are the defaults, whatever the world: a run has its name, its budget, and the return at which it may stop.
A seed has solved a world if 20 fresh greedy episodes of its final policy average at least that. Its steps are those of
the whole run until it stopped by itself, the episodes that judged its policy among them; only the 20 come on top.
Settings were tuned on seeds from 1000 on.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from pcpg.api import Run
from pcpg.budget import Limits
from pcpg.config import from_plain
from pcpg.presets import preset
from pcpg.run_config import RunConfig
from pcpg_lab.claims import arms
from pcpg_lab.claims.records import Columns, Record, Scale, share_solved, share_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVALUATION = 20
DMC, CLASSIC = "gymnasium:pcpg_lab.envs.control:", "gymnasium:"


class World(NamedTuple):
    """An environment, the return at which it is solved, the budget, and medians of others from published curves."""

    env: str
    solved: float
    steps: int
    seeds: int = 5
    options: Mapping[str, object] = {}
    published: Mapping[str, int] = {}


WORLDS: dict[str, World] = {
    "cartpole-sparse": World(
        f"{DMC}cartpole-swingup_sparse-v0",
        *(700, 80_000, 5),
        published={"SAC": 200_000, "MR.Q": 145_000, "SimbaV2": 100_000, "BRO": 50_000},
    ),
    "cartpole-cost": World(f"{DMC}cartpole-swingup_sparse-cost-v0", 700, 150_000),
    "pendulum": World(
        f"{DMC}pendulum-swingup-v0",
        *(750, 25_000, 10),
        published={"SAC": 100_000, "MR.Q": 95_000, "SimbaV2": 100_000, "BRO": 25_000},
    ),
    "mountaincar-continuous": World(
        "MountainCarContinuous-v0", 90, 10_000, 10, {"steps": 999}, published={"SAC, tuned": 50_000}
    ),
    "maze-u": World(f"{DMC}PointMaze_UMaze-far-v0", 0.9, 15_000, 10),
    "maze-medium": World(f"{DMC}PointMaze_Medium-far-v0", 0.9, 50_000),
    "maze-large": World(f"{DMC}PointMaze_Large-far-v0", 0.9, 150_000),
    "point-mass": World("PointMass-v0", 0.9, 30_000, 10),
    "arm": World("Arm-v0", 0.9, 30_000, 10),
    "mountaincar": World(f"{CLASSIC}MountainCar-v0", -110, 100_000),
    "acrobot": World(f"{CLASSIC}Acrobot-v1", -100, 100_000),
    "pictures": World("PointMass-v0", 0.9, 150_000, 5, {"picture": True}),
    "acrobot-sparse": World(f"{DMC}acrobot-swingup_sparse-v0", math.inf, 300_000),
}
"""Nobody has a threshold for the last one: its returns are reported."""
SMOKE, LAPTOP = ("point-mass",), ("point-mass", "arm", "mountaincar-continuous", "mountaincar", "acrobot")
OURS, ALONE = "pcpg-deep", "sac"


class Arm(NamedTuple):
    """An algorithm with some settings changed."""

    name: str
    algo: str
    changes: Mapping[str, Mapping[str, object]]


def _learn(name: str, **changes: object) -> Arm:
    return Arm(name, OURS, {"learn": changes})


def _explore(name: str, **changes: object) -> Arm:
    return Arm(name, OURS, {"explore": changes})


ARMS: dict[str, Arm] = {
    OURS: Arm("PC-PG (deep)", OURS, {}),
    ALONE: Arm("SAC: no bonus", ALONE, {}),
    "one-step": _learn("one-step targets", steps_ahead=1),
    "no-best": _learn("no best episodes", best_share=0.0),
    "no-cloning": _learn("no cloning", cloning=0.0),
    "updates-1": _learn("1 update a step", updates=1.0),
    "updates-4": _learn("4 updates a step", updates=4.0),
    "updates-16": _learn("16 updates a step", updates=16.0),
    "two-critics": _learn("two critics", critics=2),
    "quadratic": _explore("quadratic bonus", bonus_form="quadratic"),
    "cover": _explore("roll-in through a cover of 16", cover=16),
    "explorer-2": _explore("2 explorer updates a step", updates=2.0),
    "explorer-one-step": _explore("one-step targets of the explorer", steps_ahead=1),
}
COLOURS = (
    "#c17d11",
    "#5f6b6d",
    "#2a9d5c",
    "#1b6ca8",
    "#d1495b",
    "#7a4fa3",
    "#8e6c3a",
    "#b5179e",
    "#3a86a8",
    "#666600",
    "#006666",
    "#660066",
    "#996633",
)


SCALES = {"smoke": SMOKE, "laptop": LAPTOP, "paper": tuple(WORLDS)}
COMPARED = arms.Arms("control", "world", WORLDS, ARMS, SCALES, smoke_steps=2_000)


@dataclasses.dataclass(frozen=True)
class Flags(arms.Flags):
    """Continuous and slow worlds: steps until solved, by the deep learner with an explorer and without."""

    scale: Scale = "laptop"
    """smoke: one seed, seconds, learns nothing; laptop: five worlds, minutes a seed; paper: all worlds."""
    worlds: tuple[str, ...] = ()
    """Which worlds; by default set by the scale."""
    algos: tuple[str, ...] = (OURS, ALONE)
    """Which arms: pcpg-deep, sac, and for the ablation one-step, no-best, no-cloning, updates-1, updates-4, updates-16,
    two-critics, quadratic, cover, explorer-2, explorer-one-step."""
    out: str = "results/control"
    of: ClassVar[arms.Arms] = COMPARED


def config_of(name: str, arm: str, steps: int, seed: int) -> RunConfig:
    """The run of an arm on a world."""
    world = WORLDS[name]
    limits = Limits(steps=steps, until=world.solved if math.isfinite(world.solved) else None)
    about = world.env, ARMS[arm].algo, settings(world, arm), dict(world.options)
    return RunConfig(*about, seed=seed, seeds=1, limits=limits)


def settings(world: World, arm: str) -> object:
    """The settings of an arm: the defaults of its algorithm with its changes."""
    agent = preset(world.env, ARMS[arm].algo)
    return from_plain(type(agent), ARMS[arm].changes, "config", agent)


def measure(run: Run) -> Record:
    """The steps of the run, what its policy earned on the way, and fresh greedy episodes of the final policy."""
    return COMPARED.facts_of(run, EVALUATION, "met_at")


def _row(record: Record) -> Record:
    solved = WORLDS[record["world"]].solved
    is_solved = [value >= solved for value in record["greedy_return"]]
    met = [rows[-1][2] if rows else -1 for rows in record["history"].values()]
    return {
        "world": record["world"],
        "arm": record["arm"],
        "steps": record["steps"],
        **share_solved(sum(is_solved), len(is_solved)),
        "solved_at": [steps if is_it else None for steps, is_it in zip(record["env_steps"], is_solved, strict=True)],
        "met_at": [int(value) if value >= 0 else None for value in met],
        "greedy_return": [round(value, 3) for value in record["greedy_return"]],
        "seconds_per_seed": record["seconds"] / len(is_solved),
    }


def _range(values: list[int | None]) -> str:
    """The least, the middle one where half of all are known, and the most."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "-"
    middle = float(np.median([np.inf if value is None else value for value in values]))
    median = f"{middle / 1e3:.0f}k" if np.isfinite(middle) else "-"
    return f"{known[0] / 1e3:.0f}k, {median}, {known[-1] / 1e3:.0f}k"


def _published(name: str) -> str:
    return ", ".join(f"{who} {steps / 1e3:.0f}k" for who, steps in WORLDS[name].published.items()) or "-"


COLUMNS: Columns = {
    "world": lambda row: f"`{WORLDS[row['world']].env}`" + "".join(f" {n}" for n in WORLDS[row["world"]].options),
    "solved from": lambda row: f"{WORLDS[row['world']].solved:g}".replace("inf", "-"),
    "arm": lambda row: ARMS[row["arm"]].name,
    "budget": lambda row: f"{row['steps'] / 1e3:.0f}k",
    "solved": lambda row: share_text(row["successes"], row["seeds"], row["interval"]),
    "steps when it stopped: least, median, most": lambda row: _range(row["solved_at"]),
    "reward first met": lambda row: _range(row["met_at"]),
    "20 greedy episodes, each seed": lambda row: ", ".join(f"{value:.4g}" for value in row["greedy_return"]),
    "published medians": lambda row: _published(row["world"]),
    "seconds a seed": lambda row: f"{row['seconds_per_seed']:.0f}",
}


def _curves(axis: "Axes", name: str, records: list[Record]) -> None:
    """The returns of the policies that were judged on the way, every seed against steps."""
    for record in records:
        colour = COLOURS[list(ARMS).index(record["arm"])]
        for number, history in enumerate(record["history"].values()):
            steps, returns = zip(*[row[:2] for row in history if row[1] is not None] or [(0, np.nan)], strict=True)
            label = ARMS[record["arm"]].name if number == 0 else None
            axis.plot(np.array(steps) / 1e3, returns, color=colour, lw=0.7, marker=".", ms=2, label=label)
    solved = WORLDS[name].solved
    if math.isfinite(solved):
        axis.axhline(solved, color="#999999", lw=0.5, ls=":")
    for who, steps in WORLDS[name].published.items():
        axis.plot([steps / 1e3], [solved], "k|", ms=7)
        axis.annotate(who, (steps / 1e3, solved), fontsize=5, rotation=60, xytext=(0, 4), textcoords="offset points")


ABOUT = {"success": f"mean return of {EVALUATION} fresh greedy episodes at the threshold or above"}
CLAIM = COMPARED.made(Flags, config_of, _curves, (4, 2.4), _row, measure=measure, about=ABOUT, columns=COLUMNS)
