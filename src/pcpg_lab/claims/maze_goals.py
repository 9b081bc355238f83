"""Explore once, solve any reward: goals given after the mazes were explored (`pcpg reproduce maze --part goals`).

From each maze's cover, made without reward, a policy is trained for each of 20 goal cells: one from each twentieth of
the open cells by their distance from the start. PPO from scratch gets as many environment steps for each goal as
PC-PG used at most for one, but no more than twice its rounds: a policy that reaches a goal next to the start takes so
few steps that it would train forever. The steps of the cover are shared by all goals of its maze, and reported too.

A goal counts as solved if the final policy, stochastic as it was trained, reaches it in at least 95 of 100 episodes.
All pairs of maze and goal are seeds of one run: seed s is goal s % 20 of maze s // 20.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pcpg.api import Run
from pcpg.engine.program import default_lanes
from pcpg.reports.figures import new_figure
from pcpg.reports.statistics import wilson
from pcpg.run_config import RunConfig
from pcpg.runs.errors import NotARun
from pcpg.runs.folder import RunFolder
from pcpg.training.exploit import exploit_config, exploit_defaults
from pcpg_lab.claims import harness
from pcpg_lab.claims.harness import Cell, Claim, changed, each
from pcpg_lab.claims.maze import ENV, GOAL_ALGOS, SIZES, Flags, agent_config
from pcpg_lab.claims.records import Columns, Figures, Record, Scale, look_of, share_text, short_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GOALS: dict[Scale, int] = {"smoke": 2, "laptop": 20, "paper": 20}
EPISODES = 100
REACHED = 95
"""Of EPISODES, with which a goal counts as solved."""
SHARE = 0.9
"""Of the goals of each maze, which PC-PG is to solve."""
WIDTH = 50
"""Lanes on an accelerator: two calls for the 100 pairs of the whole experiment."""
SETTINGS: dict[Scale, dict[str, object]] = {
    "smoke": {
        "ppo": {"num_updates": 1, "num_episodes": 8, "num_epochs": 1},
        "explore": {"num_groups": 8, "visit_episodes": 8},
        "exploit": {"num_rounds": 2},
    },
    "laptop": {},
    "paper": {},
}
"""Changes to the settings of `pcpg exploit` on a maze, for PC-PG and PPO alike: 150 updates of 64 episodes."""
BANDS = 5
"""Parts of equal size, by distance from the start, into which the goals are put for the figure."""
MARKS = {"pcpg": "o", "ppo": "x"}
"""Offset of the algorithms' points, which would coincide if both solve a goal."""


def cells(flags: Flags, records: list[Record]) -> Iterator[Cell]:
    """The run of each algorithm on all pairs of maze and goal."""
    cover = find_cover(Path(flags.out), flags.scale, flags.size or SIZES[flags.scale])
    for algo in flags.chosen(GOAL_ALGOS):
        yield make_cell(flags.scale, algo, cover, flags.goals or GOALS[flags.scale], harness.steps_used(records))


def find_cover(out: Path, scale: Scale, size: int) -> RunFolder:
    """The finished exploration of PC-PG under `out`, or an error that says how to make it."""
    name = f"{GOAL_ALGOS[0]}-size{size}"
    path, is_kept = out / "runs" / name, (out / "cells" / f"{name}.json").exists()
    command = f"pcpg reproduce maze --part explore --scale {scale} --algos {GOAL_ALGOS[0]} --size {size}"
    if not path.is_dir() and is_kept:
        raise NotARun(
            f"{out} holds the measurements of its covers but not the covers; recreate both with `{command} --out NEW`"
        )
    command = f"{command} --out {out}"
    if not path.is_dir():
        raise NotARun(f"{path}: no cover to exploit; create it with `{command}`")
    folder = RunFolder.open(path)
    if not folder.is_finished:
        raise NotARun(f"{path} is not finished; resume it with `{command}`")
    return folder


def make_cell(scale: Scale, algo: str, cover: RunFolder, goals: int, budget: int) -> Cell:
    """The run of one algorithm on all pairs; `budget` is that of PPO, in steps per pair."""
    defaults = exploit_defaults(cover)
    agent = changed(defaults.agent, SETTINGS[scale])
    lanes = 0 if default_lanes() == 1 else WIDTH
    config = exploit_config(defaults, agent=agent, env_options={"goals": goals}, lanes=lanes)
    ours = config.agent
    if algo != GOAL_ALGOS[0]:
        base = agent_config(scale, algo, budget)
        ppo = dataclasses.replace(
            base, ppo=ours.ppo, visit_episodes=ours.explore.visit_episodes, num_rounds=2 * ours.exploit.num_rounds
        )
        config = RunConfig(ENV, algo, ppo, config.env_options, seed=config.seed, seeds=config.seeds, lanes=lanes)
    size = config.env_options["size"]
    command = f"pcpg reproduce maze --part goals --scale {scale} --size {size} --goals {goals}"
    return Cell(f"{algo}-size{size}", config, command)


def measure(run: Run) -> Record:
    """For every pair of maze and goal: where it lies and in how many episodes the final policy reached it."""
    env: Any = run.env
    final, greedy = run.evaluate(EPISODES), run.evaluate(EPISODES, greedy=True)
    pairs = []
    for index, seed in enumerate(run.config.seed_list):
        params = env.instance(seed)
        pairs.append(
            {
                "maze": env.dynamics_seed(seed),
                "goal": [int(x) for x in divmod(int(params.goal), env.size)],
                "distance": int(env.distances(params)[params.goal]),
                "reached": int(np.count_nonzero(final.returns[index] > 0)),
                "reached_greedy": int(np.count_nonzero(greedy.returns[index] > 0)),
                "env_steps": run.summary["env_steps"][index],
            }
        )
    record = harness.facts_of(run, size=env.size, goals=env.goals, pairs=pairs)
    if run.config.algo == GOAL_ALGOS[0]:
        source = run.config.source
        covers = {maze: cover["env_steps"] for maze, cover in source["covers"].items()}
        record["cover"] = {"sha256": source["sha256"], "env_steps": covers}
    return record


def is_solved(record: Record, kind: str = "reached") -> np.ndarray:
    """Which pairs are solved, bool [pairs]; `reached_greedy` is of the likeliest actions."""
    return np.array([pair[kind] >= REACHED for pair in record["pairs"]])


def _row(record: Record) -> Record:
    solved, mazes = is_solved(record), np.array([pair["maze"] for pair in record["pairs"]])
    share = wilson(int(solved.sum()), len(solved))
    budget = record["config"].get("budget", 0)
    by_maze = {str(maze): int(solved[mazes == maze].sum()) for maze in np.unique(mazes)}
    row = {
        "algo": record["algo"],
        "size": record["size"],
        "goals": record["goals"],
        "solved_by_maze": by_maze,
        "mazes_on_target": sum(count >= SHARE * record["goals"] for count in by_maze.values()),
        "solved": int(solved.sum()),
        "pairs": len(solved),
        "interval": [share.low, share.high],
        # Where the rounds ended before the budget of steps was used: only goals near the start, once they are solved.
        "unsolved_below_budget": int(np.sum(~solved & (np.array(record["env_steps"]) < budget))),
        "solved_greedy": int(is_solved(record, "reached_greedy").sum()),
        "by_distance": by_distance(record),
        "env_steps_per_goal": max(record["env_steps"]),
        "mean_env_steps": float(np.mean(record["env_steps"])),
    }
    if "cover" in record:
        row |= {"cover_env_steps": record["cover"]["env_steps"], "cover_sha256": record["cover"]["sha256"]}
    return row


def by_distance(record: Record) -> list[Record]:
    """Share of the goals solved in each of BANDS equal parts of them, nearest first."""
    distances = np.array([pair["distance"] for pair in record["pairs"]])
    solved = is_solved(record)
    parts = np.array_split(np.argsort(distances, kind="stable"), min(BANDS, len(distances)))
    return [
        {
            "from": int(distances[part].min()),
            "to": int(distances[part].max()),
            "goals": len(part),
            "solved": int(solved[part].sum()),
        }
        for part in parts
    ]


def _bands(row: Record) -> str:
    return ", ".join(f"{b['from']}-{b['to']}: {b['solved']}/{b['goals']}" for b in row["by_distance"])


def _covers_steps(row: Record) -> str:
    covers = row.get("cover_env_steps")
    return f"{max(covers.values()) / 1e6:.2f}M per maze" if covers else "-"


COLUMNS: Columns = {
    "algorithm": lambda row: short_label(row["algo"]),
    "size": lambda row: str(row["size"]),
    "goals solved": lambda row: share_text(row["solved"], row["pairs"], row["interval"]),
    "each maze": lambda row: f"{', '.join(map(str, row['solved_by_maze'].values()))} of {row['goals']}",
    "greedy": lambda row: f"{row['solved_greedy']}/{row['pairs']}",
    "by distance": _bands,
    "steps per goal": lambda row: f"{row['env_steps_per_goal'] / 1e6:.2f}M",
    "the cover's own": _covers_steps,
}


def figures(records: list[Record]) -> Figures:
    """A figure for each size."""
    for size in sorted({record["size"] for record in records}):
        yield f"goals-size{size}", draw([record for record in records if record["size"] == size])


def draw(records: list[Record]) -> "Figure":
    """Episodes that reach the goal against its distance, a point a goal, and the share solved by bands of distance."""
    figure, axes = new_figure(1, 2, width=7.0, height=2.8)
    left, right = axes[0]
    for record in records:
        name, look = short_label(record["algo"]), look_of(record["algo"])
        colour, line = look.colour, look.line
        distances = [pair["distance"] for pair in record["pairs"]]
        reached, mark = [pair["reached"] for pair in record["pairs"]], MARKS[record["algo"]]
        left.scatter(distances, reached, s=14, color=colour, marker=mark, lw=0.8, alpha=0.7, label=name, clip_on=False)
        bands = by_distance(record)
        middles = [(band["from"] + band["to"]) / 2 for band in bands]
        shares = [wilson(band["solved"], band["goals"]) for band in bands]
        solved = np.array([band["solved"] / band["goals"] for band in bands])
        errors = [solved - [share.low for share in shares], [share.high for share in shares] - solved]
        right.errorbar(middles, solved, np.maximum(errors, 0), color=colour, ls=line, marker="o", ms=3, label=name)
    left.axhline(REACHED, color="#999999", lw=0.6)
    left.set(ylim=(-3, 103), ylabel=f"of {EPISODES} episodes, reached the goal")
    right.set(ylabel="share of the goals solved", ylim=(-0.03, 1.03))
    for axis in (left, right):
        axis.set_xlabel("moves from the start to the goal")
        axis.legend(frameon=False, fontsize=7)
    return figure


CLAIM = Claim(
    flags=Flags,
    cells=cells,
    measure=measure,
    order=lambda record: GOAL_ALGOS.index(record["algo"]),
    about={
        "solved": f"the final policy, stochastic, reaches the goal in at least {REACHED} of {EPISODES} episodes",
        "target": f"{SHARE:.0%} of the goals of each maze",
    },
    rows=each(_row),
    columns=COLUMNS,
    figures=figures,
)
