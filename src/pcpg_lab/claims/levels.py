"""Levels that are new at every reset: PPO with ranked episodes, without them, and with a bonus, at equal steps.

All arms have the settings of `ppo-ranked`, whatever the level, and differ in the bonus alone. A seed has solved a level
once the mean return of its last 100 training episodes is above SOLVED: every one of them was played in a level of its
own. Beside it stand 100 fresh episodes of the final policy, greedy and with its actions drawn, as it was trained: a
greedy policy without memory can turn in circles. Settings were tuned on seeds from 1000 on.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from pcpg.algorithms import ALGORITHMS, Settings
from pcpg.api import Run
from pcpg.budget import Limits
from pcpg.config import from_plain
from pcpg.run_config import RunConfig
from pcpg_lab.claims import arms
from pcpg_lab.claims.records import Columns, Record, Scale, share_solved, share_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS = "ppo-ranked"
SOLVED, WINDOW, EVALUATION = 0.6, 100, 100
OWN, GRID = "gymnasium:pcpg_lab.envs.levels:", "gymnasium:MiniGrid-"


class Level(NamedTuple):
    """A kind of level, the steps after which it should be solved, those that are run, and the best published."""

    env: str
    aim: int
    steps: int
    published: str = "-"
    seeds: int = 5


LEVELS: dict[str, Level] = {
    "multiroom-n7-s4": Level(f"{OWN}MultiRoom-N7-S4-v0", 120_000, 200_000, "RAPID 0.6M, RIDE 5.5M", 10),
    "multiroom-n7-s8": Level(f"{OWN}MultiRoom-N7-S8-v0", 350_000, 400_000, "RAPID 1.5M, RIDE 16M", 10),
    "keycorridor-s3r2": Level(f"{GRID}KeyCorridorS3R2-v0", 300_000, 400_000, "RAPID 1.3M", 10),
    "doorkey-8x8": Level(f"{GRID}DoorKey-8x8-v0", 300_000, 300_000),
    "unlockpickup": Level(f"{GRID}UnlockPickup-v0", 500_000, 500_000),
    "fourrooms": Level(f"{GRID}FourRooms-v0", 500_000, 500_000),
    "multiroom-n12-s10": Level(f"{OWN}MultiRoom-N12-S10-v0", 1_500_000, 1_500_000, "RAPID 4M, RIDE 20M"),
    "keycorridor-s3r3": Level(f"{GRID}KeyCorridorS3R3-v0", 1_500_000, 1_500_000, "RAPID 3.5M, RIDE 11M"),
    "obstructedmaze-1dlhb": Level(f"{GRID}ObstructedMaze-1Dlhb-v0", 2_000_000, 2_000_000, "-", 3),
}
LAPTOP = ("multiroom-n7-s4", "multiroom-n7-s8", "keycorridor-s3r2")
ARMS: dict[str, Mapping[str, object] | None] = {
    OURS: {},
    "ppo": None,
    "ppo-e3b": {"name": "e3b"},
    "ppo-rnd": {"name": "rnd", "coef": 0.5, "normalise": True},
    "return-alone": {"novelty_coef": 0.0},
    "counts": {"novelty": "counts"},
    "without-reward": {"return_coef": 0.0},
}
"""By arm, what differs in the bonus; None: there is none."""
NAMES = {
    OURS: "PPO + ranked episodes",
    "ppo": "PPO",
    "ppo-e3b": "PPO+E3B",
    "ppo-rnd": "PPO+RND",
    "return-alone": "ranked by return alone",
    "counts": "ranked by return and counts",
    "without-reward": "ranked by volume alone",
}
COLOURS = dict(zip(ARMS, ("#b5179e", "#5f6b6d", "#8e6c3a", "#d1495b", "#2a9d5c", "#1b6ca8", "#7a4fa3"), strict=True))


SCALES = {"smoke": LAPTOP[:1], "laptop": LAPTOP, "paper": tuple(LEVELS)}
COMPARED = arms.Arms("levels", "level", LEVELS, ARMS, SCALES, smoke_steps=20_000)


@dataclasses.dataclass(frozen=True)
class Flags(arms.Flags):
    """Levels that are new at every reset: steps until solved, with ranked episodes, without, and with a bonus."""

    scale: Scale = "laptop"
    """smoke: one seed, seconds, learns nothing; laptop: three levels, minutes a seed; paper: all levels."""
    levels: tuple[str, ...] = ()
    """Which levels; by default set by the scale."""
    algos: tuple[str, ...] = (OURS, "ppo", "ppo-e3b", "ppo-rnd")
    """Which arms: ppo-ranked, ppo, ppo-e3b, ppo-rnd, and for the ablation return-alone, counts, without-reward."""
    out: str = "results/levels"
    of: ClassVar[arms.Arms] = COMPARED


def config_of(name: str, arm: str, steps: int, seed: int) -> RunConfig:
    """The run of an arm on a level."""
    algo, agent = settings(arm)
    return RunConfig(LEVELS[name].env, algo, agent, {}, seed=seed, seeds=1, limits=Limits(steps=steps))


def settings(arm: str) -> tuple[str, Settings]:
    """The algorithm of an arm, and its settings: those of `ppo-ranked` with another bonus."""
    agent, changes = ALGORITHMS[OURS].presets.host, ARMS[arm]
    is_ours = changes is not None and "name" not in changes
    return OURS if is_ours else "ppo", from_plain(type(agent), {"bonus": changes}, "config", agent)


def measure(run: Run) -> Record:
    """Each round's training return, and fresh episodes of the final policy, greedy and drawn."""
    ppo = run.config.agent.ppo
    size = ppo.num_updates * ppo.num_episodes
    drawn = [float(value) for value in run.evaluate(EVALUATION).mean_return]
    return COMPARED.facts_of(run, EVALUATION, "train/return", episodes_per_round=size, drawn_return=drawn)


def training_means(record: Record, rows: list[list[float]]) -> list[float]:
    """After each round, the mean return of the last 100 training episodes; NaN before there are so many."""
    rounds = max(1, -(-WINDOW // record["episodes_per_round"]))
    means = [row[2] for row in rows]
    return [
        float(np.mean(means[max(0, i - rounds + 1) : i + 1])) if i + 1 >= rounds else np.nan for i in range(len(rows))
    ]


def solved_at(record: Record) -> list[float | None]:
    """By seed, the steps after which the last 100 training episodes were above SOLVED; None: never."""
    found: list[float | None] = []
    for rows in record["history"].values():
        means = training_means(record, rows)
        found.append(next((row[0] for row, mean in zip(rows, means, strict=True) if mean > SOLVED), None))
    return found


def _row(record: Record) -> Record:
    steps = solved_at(record)
    solved = [value for value in steps if value is not None]
    aim = LEVELS[record["level"]].aim
    last = [training_means(record, rows)[-1] for rows in record["history"].values()]
    return {
        "level": record["level"],
        "arm": record["arm"],
        "steps": record["steps"],
        **share_solved(len(solved), len(steps)),
        "aim": aim,
        "solved_by_aim": sum(value <= aim for value in solved),
        "solved_at": steps,
        "training_return": [round(value, 3) for value in last],
        "greedy_return": [round(value, 3) for value in record["greedy_return"]],
        "drawn_return": [round(value, 3) for value in record.get("drawn_return", [])],  # older records have none
        "published": LEVELS[record["level"]].published,
        "seconds_per_seed": record["seconds"] / len(steps),
        "steps_per_second": sum(record["env_steps"]) / max(record["seconds"], 1e-9),
    }


def _range(values: list[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    return f"{known[0] / 1e3:.0f}k to {known[-1] / 1e3:.0f}k, median {np.median(known) / 1e3:.0f}k" if known else "-"


def _each(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values) or "-"


COLUMNS: Columns = {
    "level": lambda row: f"`{LEVELS[row['level']].env}`",
    "arm": lambda row: NAMES[row["arm"]],
    "steps": lambda row: f"{row['steps'] / 1e3:.0f}k",
    "solved by": lambda row: f"{row['aim'] / 1e3:.0f}k: {row['solved_by_aim']}/{row['seeds']}",
    "solved": lambda row: share_text(row["successes"], row["seeds"], row["interval"]),
    "solved at": lambda row: _range(row["solved_at"]),
    "last 100 training episodes, mean": lambda row: f"{np.nanmean(row['training_return']):.2f}",
    "100 unseen levels, greedy, each seed": lambda row: _each(row["greedy_return"]),
    "100 unseen levels, drawn": lambda row: _each(row["drawn_return"]),
    "published": lambda row: row["published"],
    "steps a second": lambda row: f"{row['steps_per_second']:,.0f}",
}


def _curves(axis: "Axes", name: str, records: list[Record]) -> None:
    """The training return of every seed against steps."""
    for record in records:
        for number, history in enumerate(record["history"].values()):
            label = NAMES[record["arm"]] if number == 0 else None
            steps = [row[0] / 1e3 for row in history]
            axis.plot(steps, training_means(record, history), color=COLOURS[record["arm"]], lw=0.8, label=label)
    axis.axhline(SOLVED, color="#999999", lw=0.5, ls=":")
    axis.set(ylim=(-0.02, 1), ylabel="training return")


ABOUT = {"success": f"mean return of the last {WINDOW} training episodes above {SOLVED}; all steps counted"}
CLAIM = COMPARED.made(Flags, config_of, _curves, (3, 2.6), _row, measure=measure, about=ABOUT, columns=COLUMNS)
