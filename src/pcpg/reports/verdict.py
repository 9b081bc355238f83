"""Can you trust this result? A verdict in a few lines from the files of a run, and what to try next.

Unknown facts are omitted.
"""

import shlex
from collections import Counter
from typing import NamedTuple

import numpy as np

from pcpg.algorithms import DEFAULT, ENDS
from pcpg.envs.adapters.names import is_own_function
from pcpg.reports.read import RunData
from pcpg.reports.statistics import solved_share
from pcpg.reports.text import env_flags, number, seeds_text, span_text, steps_text

SAME = 1e-9
"""Returns that differ by less are equal."""
CUT_SHORT = ("full", "budget")
"""Ends of an exploration that had more to find."""


class Verdict(NamedTuple):
    """Known facts, one sentence each, and a command or call to try next."""

    said: list[str]
    advice: str
    command: str

    def __str__(self) -> str:
        ahead = [f"Next: {self.advice}: {self.command}"] if self.command else []
        return "\n".join([*self.said, *ahead])


def verdict(run: RunData) -> Verdict:
    """What the files of a run say about it."""
    if not run.records:
        return Verdict([], "", "")
    parts = (_result(run), _reward(run), _reach(run), _end(run), _certainty(run))
    return Verdict([said for said in parts if said], *_next(run))


# The result.


def _result(run: RunData) -> str:
    returns = list(run.final_returns.values())
    if run.is_reward_free:
        return "This environment pays no reward; the cover is the result."
    if not returns:
        return ""
    if run.solved_return is None:
        return f"Final return: {span_text(returns)}."
    solved = f"Solved in {run.solved} of {seeds_text(len(run.seeds))}"
    return f"{solved}: final return {span_text(returns)}, solved above {number(run.solved_return)}."


# Whether the reward was reached.


def cover_returns(run: RunData) -> np.ndarray:
    """The return of every episode that measured a policy of a cover."""
    return np.concatenate([np.zeros(0), *(own for cover in run.covers.values() for own in cover.returns)])


def saw_reward(run: RunData) -> bool:
    """Whether the returns of a run, including its updates', ever differed."""
    rows = [record for records in run.records.values() for record in records]
    means = [row[name] for name in ("return", "train/return") for row in rows if row.get(name) is not None]
    returns = np.concatenate([cover_returns(run), np.array(means, float)])
    return bool(returns.size and np.ptp(returns) > SAME)


def _reward(run: RunData) -> str:
    if run.is_reward_free or run.solved:
        return ""
    returns = cover_returns(run)
    if not returns.size:
        return "" if saw_reward(run) else "Training never reached a reward: every round returned the same."
    paid = int((np.abs(returns) > SAME).sum())
    if not paid:
        return f"Exploration never reached the reward (0 of {len(returns):,} episodes)."
    if paid < 0.9 * len(returns):
        return f"Exploration reached the reward in {paid:,} of {len(returns):,} episodes."
    # A return of 0 means nothing in this environment.
    return f"Returns during exploration: {span_text(returns)} ({len(returns):,} episodes)."


# The reach of the cover.


def _reach(run: RunData) -> str:
    sizes = [len(cover.weights) for cover in run.covers.values()]
    many = f"{span_text(sizes, str)} {'policy' if sizes == [1] else 'policies'}"
    cells = [own for seed in run.seeds if (own := cells_of(run, seed))]
    if not cells:
        return f"The cover has {many}." if sizes else ""
    seen, possible = (span_text(part, str) for part in zip(*cells, strict=True))
    who = f"The cover ({many})" if sizes else "Training"
    return f"{who} visited {seen} of {possible} reachable grid cells."


class Cells(NamedTuple):
    """Grid cells of an environment."""

    seen: int
    possible: int  # those that some policy can visit


def cells_of(run: RunData, seed: int) -> Cells | None:
    """The grid cells visited by a seed; None if none are counted."""
    coverage = run.last(seed, "coverage")
    if run.env is None or run.env.cells is None or coverage is None:
        return None
    params = run.env.instance(seed)
    counted = int(run.env.reachable_cells(params).sum())
    return Cells(round(coverage * counted), int(run.env.possible_cells(params).sum()))


def _end(run: RunData) -> str:
    """Why exploration ended, as the run itself says."""
    known = Counter(word for word in run.ends.values() if word in ENDS and word)
    many = len(run.ends)
    said = [f"{ENDS[word]}{f' ({count} of {many} seeds)' if count < many else ''}" for word, count in known.items()]
    return f"Exploration ended: {'; '.join(said)}." if said else ""


# The uncertainty.


def _certainty(run: RunData) -> str:
    many = len(run.seeds)
    if many == 1:
        return "Only one seed: results may vary. Rerun with --seeds 5."
    share = solved_share(run)
    if share is None:
        return ""
    bounds = f"between {share.low:.0%} and {share.high:.0%}"
    return f"With {many} seeds, the share of seeds that solve it lies {bounds} (95% interval)."


# The next step.


def _next(run: RunData) -> tuple[str, str]:
    """What to try next, and how; empty if nothing follows."""
    if run.source:
        return "", ""
    if run.summary is None:
        return "finish the run", _resume(run)
    if run.solved == len(run.seeds):
        return "", ""
    steps = run.steps_per_seed
    if any(word in CUT_SHORT for word in run.ends.values()):
        return "explore longer", _again(run, "longer", 2 * steps)
    can_learn = not run.is_reward_free and (run.solved_return is not None or not saw_reward(run))
    if not can_learn:
        return "", ""
    if not run.has_explored and not any(run.ends.values()):
        return "explore first", _again(run, "explore", steps, algo=DEFAULT)
    if not saw_reward(run):
        features = "fourier" if run.config["features"] == "random-mlp" else "random-mlp"
        return "try other features", _again(run, "features", steps, features=features)
    return "train longer", _resume(run, more=steps)


def _again(run: RunData, name: str, steps: int, *, algo: str = "", features: str = "") -> str:
    """The same environment and seeds in a new run, with other settings."""
    env, budget, out = str(run.config["env"]), steps_text(steps), f"{run.path}-{name}"
    algo, seeds = algo or run.config["algo"], len(run.seeds)
    if is_own_function(env):
        function = env.partition(":")[2].rpartition(".")[2].partition("#")[0]
        options = run.env_options | ({"features": features} if features else {})
        more = "".join(f", {name}={value!r}" for name, value in options.items())
        return f'pcpg.train({function}, "{algo}", total_steps="{budget}", seeds={seeds}, out="{out}"{more})'
    words = [env, *env_flags(run), "--algo", algo, *(["--features", features] if features else [])]
    return shlex.join(["pcpg", "train", *words, "--seeds", str(seeds), "--steps", budget, "--out", out])


def _resume(run: RunData, more: int = 0) -> str:
    added = f"+{steps_text(more)}" if more else ""
    if is_own_function(str(run.config["env"])):
        steps = f', total_steps="{added}"' if added else ""
        return f'pcpg.resume("{run.path}", env_fn=...{steps})'
    return shlex.join(["pcpg", "resume", str(run.path), *(["--steps", added] if added else [])])
