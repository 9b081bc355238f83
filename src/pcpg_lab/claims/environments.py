"""Thirteen environments without tuning: `pcpg train ENV` and no flag, compared with PPO variants at equal steps.

PC-PG has the settings that a look chooses (pcpg/algos/auto.py) and the default budget of STEPS. The others have as many
environment steps as the seed of PC-PG that used most, roll-ins, looks and evaluations counted. A task counts as solved
by the mean over EVALUATION fresh episodes. An ablation replaces each thing that is chosen: the same algorithm
everywhere, with the default settings of the host, and the chosen one with one thing fixed (fixed_choices.py). SB3's PPO
is that of benchmarks/peers/sb3_environments.py.

PC-PG is called worse than PPO on a task if its mean over the seeds is below PPO's by more than ALLOWANCE of the range
from PPO's worst seed to the solved return, and a one-sided Welch test at 5% agrees.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from scipy import stats

from pcpg.algorithms import label
from pcpg.algos.auto import STEPS
from pcpg.api import Run
from pcpg.budget import NO_LIMITS, Limits
from pcpg.run_config import RunConfig, chosen_by_a_look
from pcpg_lab.claims import harness
from pcpg_lab.claims.fixed_choices import FIXED_CHOICES, with_fixed
from pcpg_lab.claims.harness import Cell, Claim, budget_of, settings
from pcpg_lab.claims.records import (
    Columns,
    Record,
    Scale,
    Summary,
    markdown,
    names_of,
    provenance,
    refuse_unknown,
    share_solved,
    share_text,
    table_of,
)

SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 5, "paper": 5}
FIXED_SEEDS = 3
"""Of an algorithm that is the same everywhere."""
SMOKE_STEPS = 20_000
"""Enough to go through every line, not to learn."""
EVALUATION = 200
ALLOWANCE = 0.02
LEVEL = 0.05
AUTO, BASELINE, PEER = "auto", "ppo", "sb3-ppo"
FIXED = ("pcpg", "pcpg-replay")
TOO_LONG = ("newmaze", "multiroom", "doorkey", "fourrooms")
"""Layouts that change: observations rarely repeat, and a seed of `pcpg-replay` takes more than ten minutes."""
ALGOS = (AUTO, BASELINE, "ppo-rnd", "ppo-e3b", *FIXED, *FIXED_CHOICES)
OF_CHOSEN = tuple(name for name, fixed in FIXED_CHOICES.items() if not fixed.of_cover)
"""What is fixed in the algorithm that was chosen; the others in `pcpg`, with as many steps as PC-PG used."""
OWN = "gymnasium:pcpg_lab.envs.own_tasks:"


class Task(NamedTuple):
    """An environment and when it counts as solved."""

    env: str
    options: dict[str, object]
    measure: Literal["return", "solved"]  # mean return, or share of the episodes that earned anything
    success: float  # the least measure with which a seed counts
    about: str


TASKS: dict[str, Task] = {
    "cartpole": Task("gymnasium:CartPole-v1", {}, "return", 475.0, "CartPole"),
    # Without a time limit of its own: the one that a look chooses.
    "cliff": Task("gymnasium:CliffWalking-v1", {"max_steps": 200}, "return", -15.0, "CliffWalking, 200 steps"),
    # The best policy reaches the goal in 91% of the episodes of 200 steps (by dynamic programming).
    "frozenlake": Task("gymnasium:FrozenLake8x8-v1", {}, "return", 0.7, "FrozenLake 8x8, slippery"),
    "deepsea-10": Task("bsuite:deep_sea", {"size": 10}, "return", 0.9, "DeepSea, size 10 (bsuite)"),
    "deepsea-20": Task("bsuite:deep_sea", {"size": 20}, "return", 0.9, "DeepSea, size 20 (bsuite)"),
    "mountaincar": Task("gymnasium:MountainCarContinuous-v0", {}, "return", 90.0, "MountainCarContinuous"),
    "mountaincar-v0": Task("gymnasium:MountainCar-v0", {}, "return", -110.0, "MountainCar"),
    "stages": Task(f"{OWN}Stages-v0", {}, "return", 0.9, "three stages, Dict with noise (own)"),
    "newmaze": Task(f"{OWN}NewMaze-v0", {}, "return", 0.9, "a new maze at each reset (own)"),
    "taxi": Task("gymnasium:Taxi-v4", {}, "return", 7.0, "Taxi"),
    "multiroom": Task("gymnasium:MiniGrid-MultiRoom-N2-S4-v0", {}, "solved", 0.9, "MiniGrid MultiRoom N2 S4"),
    "doorkey": Task("gymnasium:MiniGrid-DoorKey-6x6-v0", {}, "solved", 0.9, "MiniGrid DoorKey 6x6"),
    "fourrooms": Task("gymnasium:MiniGrid-FourRooms-v0", {}, "solved", 0.9, "MiniGrid FourRooms"),
}
UNSEEN: dict[str, Task] = {
    "acrobot": Task("gymnasium:Acrobot-v1", {}, "return", -100.0, "Acrobot"),
    "pendulum": Task("gymnasium:Pendulum-v1", {}, "return", -200.0, "Pendulum"),
    "lake": Task("gymnasium:FrozenLake-v1", {}, "return", 0.7, "FrozenLake 4x4, slippery"),
    # The last of five rewards is the larger one, 1.1 instead of 1.
    "chain": Task("bsuite:discounting_chain", {"mapping_seed": 4}, "return", 1.09, "discounting chain (bsuite)"),
    "catch": Task("bsuite:catch", {}, "return", 0.9, "catch (bsuite)"),
    "keycorridor": Task("gymnasium:MiniGrid-KeyCorridorS3R1-v0", {}, "solved", 0.9, "MiniGrid KeyCorridor S3 R1"),
    "multiroom-n4": Task("gymnasium:MiniGrid-MultiRoom-N4-S5-v0", {}, "solved", 0.9, "MiniGrid MultiRoom N4 S5"),
}
"""On these nothing was tuned, with one exception: runs on the discounting chain (seeds 1000 and 1001) showed that kept
data preferred an early reward to a later, larger one, and the discount and doubt of a task were changed for it. The
rules of the look and the general settings were made on the others."""
EVERY = TASKS | UNSEEN


@dataclasses.dataclass(frozen=True)
class Flags(harness.Flags):
    """Thirteen environments, given only their names: PC-PG, and PPO, PPO+RND, PPO+E3B at equal steps."""

    scale: Scale = "laptop"
    """smoke: 1 seed, seconds, learns nothing; laptop and paper: 5 seeds, minutes for each environment."""
    algos: tuple[str, ...] = ALGOS
    """Which algorithms; auto is PC-PG as a look chooses it, pcpg and pcpg-replay are themselves everywhere, features
    and ridge are pcpg with one thing fixed, the others are auto with one thing fixed."""
    out: str = "results/environments"
    tasks: tuple[str, ...] = tuple(TASKS)
    """Which environments."""
    experiment: ClassVar[str] = "environments"
    seeds_of: ClassVar[dict[Scale, int]] = SEEDS

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_unknown("task", self.tasks, type(self).tasks)


def cells(flags: Flags, records: list[Record]) -> Iterator[Cell]:
    """Algorithm by algorithm, PC-PG first, on one task after the other; its steps may have been kept before.

    What is the same everywhere is left out where it is what was chosen, and `pcpg-replay` where it takes hours.
    """
    kept = harness.read_records(CLAIM, Path(flags.out))
    for algo in flags.chosen(ALGOS):
        for name in (known for known in EVERY if known in flags.tasks):
            chosen = {r["algo"] for r in (*kept, *records) if (r["task"], r["column"]) == (name, AUTO)}
            if algo == "pcpg-replay" and (chosen == {algo} or name in TOO_LONG):
                continue
            used = 0 if algo in (AUTO, *OF_CHOSEN) else steps_used(records, name) or steps_used(kept, name)
            cell = make_cell(flags, name, algo, used)
            if cell is not None:
                yield cell


def steps_used(records: list[Record], task: str) -> int:
    """The maximum number of steps of a PC-PG seed on a task, whatever the look chose; 0 if it was not run."""
    return max((max(r["env_steps"]) for r in records if (r["task"], r["column"]) == (task, AUTO)), default=0)


def make_cell(flags: Flags, name: str, algo: str, budget: int = 0) -> Cell | None:
    """The run of one algorithm on one task; `budget` is that of a baseline, 0 for the default. None: as was chosen."""
    task = EVERY[name]
    seeds = flags.seeds or flags.seeds_of[flags.scale]
    if algo in (*FIXED, *FIXED_CHOICES) and not flags.seeds:
        seeds = min(seeds, FIXED_SEEDS)
    limits = Limits(steps=budget or (SMOKE_STEPS if flags.scale == "smoke" else STEPS))
    run = {"env": task.env, "env_options": task.options, "seed": flags.seed, "seeds": seeds}
    if algo in (AUTO, *OF_CHOSEN):
        config = RunConfig.from_json(run | _chosen(name, limits, flags.seed))
    else:
        own = "pcpg" if algo in FIXED_CHOICES else algo
        config = RunConfig(algo=own, agent=settings(task.env, own, {}), limits=limits, **run)
        if budget_of(config.agent) is not None:  # if PC-PG needed very little, a baseline gets more
            config = dataclasses.replace(config, limits=Limits(steps=max(limits.steps, fewest_steps(config))))
    config = with_fixed(config, algo) if algo in FIXED_CHOICES else config
    if config is None:
        return None
    command = f"pcpg reproduce {flags.experiment} --scale {flags.scale} --tasks {name} --algos {algo}"
    return Cell(f"{name}-{algo}", config.resolved(), f"{command} --seeds {seeds} --seed {flags.seed}")


def fewest_steps(config: RunConfig) -> int:
    """The smallest budget in which a baseline gets anywhere."""
    env = config.checked().make_env()
    return config.agent.sized(env, NO_LIMITS).round.fewest_steps(env)


@functools.cache
def _chosen(name: str, limits: Limits, seed: int) -> dict[str, object]:
    """What a look chooses for a task; every column of the ablation begins with it."""
    return chosen_by_a_look(EVERY[name].env, EVERY[name].options, limits, seed)


def measure(run: Run) -> Record:
    """Returns of the final policies over fresh episodes of the environment's own length, and each seed's history."""
    name, column = names_of(run.path.name, EVERY)
    task, played = EVERY[name], run.evaluate(EVALUATION)
    solved = [float(share) for share in np.mean(played.returns > 0, axis=1)]
    reached = played.mean_return if task.measure == "return" else solved
    return harness.facts_of(
        run,
        task=name,
        column=column,
        env=run.config.env,
        env_options=dict(run.config.env_options),
        looked=dict(run.config.looked),
        measure=task.measure,
        success=task.success,
        final_return=[float(value) for value in played.mean_return],
        solved_episodes=solved,
        successes=sum(value >= task.success for value in reached),
        history=harness.histories(run, lambda metrics: []),
    )


def rows(records: list[Record]) -> list[Record]:
    """A row for each task and algorithm; of PC-PG's whether it is worse than PPO."""
    plain = {record["task"]: record for record in records if record["column"] == BASELINE}
    return [_row(record) | {"worse_than_ppo": _is_worse(record, plain.get(record["task"]))} for record in records]


def _row(record: Record) -> Record:
    return {
        "task": record["task"],
        "column": record["column"],
        "algo": record["algo"],
        **share_solved(record["successes"], len(record["seeds"])),
        "rule": _rule(EVERY[record["task"]]),
        "final_return": [round(value, 3) for value in record["final_return"]],
        "solved_episodes": [round(value, 3) for value in record["solved_episodes"]],
        "env_steps_per_seed": max(record["env_steps"]),
        "seconds_per_seed": record["seconds"] / len(record["seeds"]),
        **provenance(record),
    }


def _reached(record: Record) -> np.ndarray:
    measure = EVERY[record["task"]].measure
    return np.array(record["final_return" if measure == "return" else "solved_episodes"])


def _is_worse(record: Record, plain: Record | None) -> bool | None:
    """Whether PC-PG is worse than PPO, by the test above; None if there is nothing to compare."""
    if plain is None or record["column"] != AUTO:
        return None
    return is_worse(_reached(record), _reached(plain), EVERY[record["task"]].success)


def is_worse(ours: np.ndarray, theirs: np.ndarray, success: float) -> bool:
    """Whether one algorithm's results by seed are below another's, beyond an allowance and beyond the noise."""
    allowed = ALLOWANCE * abs(success - theirs.min())
    if ours.mean() >= theirs.mean() - allowed:
        return False
    if ours.std() + theirs.std() < 1e-12 or min(len(ours), len(theirs)) < 2:
        return True
    _, chance = np.asarray(stats.ttest_ind(ours, theirs, equal_var=False, alternative="less"), float)
    return bool(chance < LEVEL)


def _rule(task: Task) -> str:
    """When a task counts as solved, in words."""
    what = "mean return" if task.measure == "return" else "share of episodes that reach the goal"
    return f"{what} at least {task.success:g}"


def _name(row: Record) -> str:
    """What a row is called: of PC-PG with what was chosen."""
    if row["column"] in FIXED:
        return f"always `{row['column']}`"
    if row["column"] in FIXED_CHOICES:
        return f"`{row['algo']}`, {FIXED_CHOICES[row['column']].about}"
    names = {AUTO: f"PC-PG (`{row['algo']}`)", PEER: "PPO of SB3"}
    return names.get(row["column"], label(row["column"]))


WORSE = {None: "", False: "no", True: "yes"}
COLUMNS: Columns = {
    "environment": lambda row: EVERY[row["task"]].about,
    "solved if": lambda row: row["rule"],
    "algorithm": _name,
    "solved": lambda row: share_text(row["successes"], row["seeds"], row["interval"]),
    "final return, each seed": lambda row: ", ".join(f"{value:.2f}" for value in row["final_return"]),
    "steps per seed": lambda row: f"{row['env_steps_per_seed'] / 1e3:,.0f}k",
    "seconds per seed": lambda row: f"{row['seconds_per_seed']:.0f}",
    "worse than PPO": lambda row: WORSE[row["worse_than_ppo"]],
}
COMPARED = {AUTO: "PC-PG", BASELINE: "PPO", "ppo-rnd": "PPO+RND", "ppo-e3b": "PPO+E3B", PEER: "PPO of SB3"}
ABLATED = {AUTO: "as chosen"} | {name: f"always `{name}`" for name in FIXED}
ABLATED |= {
    name: f"always `pcpg`, {fixed.about}" if fixed.of_cover else fixed.about for name, fixed in FIXED_CHOICES.items()
}


def table(summary: Summary) -> str:
    """The seeds that solved each environment, compared with others and in any ablation; then every row."""
    tables = [_solved_table(summary, COMPARED)]
    if any(row["column"] in ABLATED and row["column"] != AUTO for row in summary["cells"]):
        tables.append(_solved_table(summary, ABLATED))
    return "\n".join([*tables, table_of(COLUMNS, summary)])


def _solved_table(summary: Summary, columns: dict[str, str]) -> str:
    """A row for each environment, a column for each algorithm that was run."""
    columns = {name: text for name, text in columns.items() if any(row["column"] == name for row in summary["cells"])}
    compares = BASELINE in columns
    costs = ("steps per seed", *(["seconds per seed"] if compares else []))
    names = ("environment", "chosen", *costs, *columns.values(), *(["worse than PPO"] if compares else []))
    lines = []
    for task in EVERY:
        rows = {row["column"]: row for row in summary["cells"] if row["task"] == task}
        if AUTO not in rows:
            continue
        ours = rows[AUTO]
        solved = [_entry(rows, name, task, ours["algo"]) for name in columns]
        cost = (f"{ours['env_steps_per_seed'] / 1e3:,.0f}k", *([f"{ours['seconds_per_seed']:.0f}"] if compares else []))
        last = [WORSE[ours["worse_than_ppo"]]] if compares else []
        lines.append((EVERY[task].about, f"`{ours['algo']}`", *cost, f"**{solved[0]}**", *solved[1:], *last))
    return markdown(names, lines)


def _entry(rows: dict[str, Record], column: str, task: str, chosen: str) -> str:
    """How many seeds solved a task, or why that is not known."""
    if column in rows:
        return f"{rows[column]['successes']}/{rows[column]['seeds']}"
    if column == chosen:
        return "as chosen"
    if column in OF_CHOSEN and chosen not in FIXED_CHOICES[column].algos:
        return "–"
    return "too long" if column == "pcpg-replay" and task in TOO_LONG else ""


CLAIM = Claim(
    flags=Flags,
    cells=cells,
    measure=measure,
    order=lambda record: (list(EVERY).index(record["task"]), [*ALGOS, PEER].index(record["column"])),
    about={"success": f"by {EVALUATION} fresh episodes of the final policy"},
    rows=rows,
    layout=table,
)


# Environments on which nothing was tuned.


@dataclasses.dataclass(frozen=True)
class UnseenFlags(Flags):
    """Environments never used for tuning, given only their names: PC-PG, and PPO at equal steps."""

    scale: Scale = "laptop"
    """smoke: 1 seed, seconds, learns nothing; laptop: 3 seeds, minutes for each environment; paper: 5 seeds."""
    algos: tuple[str, ...] = (AUTO, BASELINE)
    """Which algorithms; auto is PC-PG as a look chooses it."""
    out: str = "results/unseen"
    tasks: tuple[str, ...] = tuple(UNSEEN)
    """Which environments."""
    experiment: ClassVar[str] = "unseen"
    seeds_of: ClassVar[dict[Scale, int]] = {"smoke": 1, "laptop": 3, "paper": 5}


UNSEEN_CLAIM = dataclasses.replace(CLAIM, flags=UnseenFlags)
