"""Can you trust this result? A verdict in a few lines from the files of a run, and what to try next.

Unknown facts are omitted.
"""

import shlex
from collections import Counter
from typing import NamedTuple

import numpy as np

from pcpg.algorithms import DEFAULT, ENDS, settings_of
from pcpg.envs.adapters.names import is_on_host, is_own_function
from pcpg.reports.read import RunData
from pcpg.reports.statistics import solved_share
from pcpg.reports.text import env_flags, number, place, seeds_text, span_text, steps_text
from pcpg.runs.metrics import above, first_reward

CUT_SHORT = ("full", "budget")
"""Reasons that ended exploration early."""
LEAST = 100_000
"""Steps suggested for another explorer."""


class Verdict(NamedTuple):
    """Known facts, one sentence each, and a command or call to try next."""

    said: list[str]
    advice: str
    command: str

    def __repr__(self) -> str:
        return str(self)  # as a notebook shows it

    def __str__(self) -> str:
        ahead = [f"Next: {self.advice}: {self.command}"] if self.command else []
        return "\n".join([*self.said, *ahead])


def verdict(run: RunData) -> Verdict:
    """The verdict from the files of a run."""
    if not run.records:
        return Verdict([], "", "")
    parts = (_result(run), _reward(run), _reach(run), _end(run), _certainty(run))
    return Verdict([said for said in parts if said], *_next(run))


# The result.


def _result(run: RunData) -> str:
    returns = list(run.final_returns.values())
    if run.is_reward_free:
        return f"This environment pays no reward; {'the cover' if run.covers else 'what it visited'} is the result."
    if not returns:
        is_unplayed = run.source and run.summary is not None and not run.failed
        return "The task was learned from data alone and not played yet: pcpg evaluate plays it." if is_unplayed else ""
    if run.solved_return is None:
        return f"Final return: {span_text(returns)}."
    solved = f"Solved in {run.solved} of {seeds_text(len(run.seeds))}"
    return f"{solved}: final return {span_text(returns)}, solved above {number(run.solved_return)}."


# Whether the reward was reached.


def _reward(run: RunData) -> str:
    if run.is_reward_free or run.source:
        return ""
    found = met(run)
    if found.always is not None:  # of a single mean it is not known
        is_mean = not found.episodes and all(len(rows) < 2 for rows in run.records.values())
        return "" if is_mean else f"Every episode returned {number(found.always)}."
    if not found.is_met:
        of = f" (0 of {found.episodes:,} episodes)" if found.episodes else ""
        is_explored = found.episodes or run.has_explored
        return f"Exploration never reached the reward{of}." if is_explored else "Training never reached a reward."
    if found.usual is None:
        return f"Returns during exploration: {span_text(cover_returns(run))} ({found.episodes:,} episodes)."
    steps = [at for at in found.at.values() if at is not None]
    never = len(found.at) - len(steps)
    others = f"; {seeds_text(never)} never met it" if never else ""
    if found.paid:
        many = f"{found.paid:,} of {found.episodes:,} episodes of exploration"
        return f"Reward first met after {span_text(steps, steps_text)} steps, in {many}{others}."
    if found.at_once:
        return ""  # from the first round on: there was nothing to find
    explored = [row["env_steps"] for rows in run.records.values() for row in rows if row.get("phase") == "explore"]
    is_late = found.episodes and explored and min(steps) > max(explored)
    when = ", while learning the task" if is_late else ""
    return f"Reward first met after {span_text(steps, steps_text)} steps{when}{others}."


# The reach of the cover.


def _reach(run: RunData) -> str:
    if run.source:
        return ""  # its cover is another run's
    sizes = [len(cover.weights) for cover in run.covers.values()]
    many = f"{span_text(sizes, str)} {'policy' if sizes == [1] else 'policies'}"
    cells = [own for seed in run.seeds if (own := cells_of(run, seed))]
    if not cells:
        return f"The cover has {many}." if sizes else ""
    seen, possible = (span_text(part, str) for part in zip(*cells, strict=True))
    who = f"The cover ({many})" if sizes else "Training"
    return f"{who} visited {seen} of {possible} reachable grid cells."


class Cells(NamedTuple):
    """Counts of grid cells."""

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
    if run.summary is None:
        return ""  # it goes on
    if many == 1 and run.source:
        return "Only one seed: results may vary."
    if many == 1:
        how = "seeds=5" if is_own_function(str(run.config["env"])) else "--seeds 5"
        return f"Only one seed: results may vary. Rerun with {how} (about {steps_text(run.steps_per_seed)} steps each)."
    share = solved_share(run)
    if share is None:
        return ""
    bounds = f"between {share.low:.0%} and {share.high:.0%}"
    return f"With {many} seeds, the share of seeds that solve it lies {bounds} (95% interval)."


# The next step.


def _next(run: RunData) -> tuple[str, str]:
    """What to try next, and how; empty if there is nothing."""
    if run.summary is None:
        return "finish the run", _resume(run)
    if run.failed:
        return "retry the failed seeds", _resume(run, retry=True)
    if run.source:
        return "", ""  # its steps follow from the run that it learns from
    env, steps = str(run.config["env"]), run.steps_per_seed
    is_cut = any(word in CUT_SHORT for word in run.ends.values())
    if run.is_reward_free:
        cells = [own for seed in run.seeds if (own := cells_of(run, seed))]
        is_whole = bool(cells) and all(own.seen >= own.possible for own in cells)
        return ("explore longer", _resume(run, more=steps)) if is_cut and not is_whole else ("", "")
    if run.solved == len(run.seeds) or set(run.ends.values()) == {"target"}:
        return "", ""
    found = met(run)
    if found.is_met:
        least = found.usual
        is_lost = least is not None and any(value <= above(least) for value in run.final_returns.values())
        is_unsolved = run.solved_return is not None or (is_lost and (least or 0.0) <= 0.0)
        return ("train longer", _resume(run, more=steps)) if is_unsolved else ("", "")
    if is_cut:
        return "explore longer", _resume(run, more=steps)
    if not run.has_explored and run.config.get("looked", {}).get("chose"):
        return "train longer", _resume(run, more=steps)  # a look found no algorithm that would explore better
    if not run.has_explored:
        return "explore first", _again(run, "explore", max(steps, LEAST), algo="auto" if is_on_host(env) else DEFAULT)
    settings = settings_of(run.config)
    if settings is None or settings.takes_features:
        features = "fourier" if run.config["features"] == "random-mlp" else "random-mlp"
        return "try other features", _again(run, "features", steps, features=features)
    return "try another explorer", _again(run, "other", max(steps, LEAST), algo=DEFAULT)


def _again(run: RunData, name: str, steps: int, *, algo: str = "", features: str = "") -> str:
    """The same environment and seeds in a new run, with other settings."""
    env, budget, out = str(run.config["env"]), steps_text(steps), f"{place(run)}-{name}"
    algo, seeds, first = algo or run.config["algo"], len(run.seeds), run.seeds[0]
    if is_own_function(env):
        options = ({"seed": first} if first else {}) | run.env_options | ({"features": features} if features else {})
        more = "".join(f", {name}={value!r}" for name, value in options.items())
        return f'pcpg.train({_name(env)}, "{algo}", total_steps="{budget}", seeds={seeds}, out="{out}"{more})'
    words = [env, *env_flags(run), "--algo", algo, *(["--features", features] if features else [])]
    words += ["--seed", str(first)] if first else []
    return shlex.join(["pcpg", "train", *words, "--seeds", str(seeds), "--steps", budget, "--out", out])


def _name(env: str) -> str:
    """The name of the user's function or class."""
    return env.partition(":")[2].rpartition(".")[2].partition("#")[0]


def _resume(run: RunData, more: int = 0, *, retry: bool = False) -> str:
    """The command or call that continues this run."""
    added, env = f"+{steps_text(more)}" if more else "", str(run.config["env"])
    if is_own_function(env):
        steps = (f', total_steps="{added}"' if added else "") + (", retry_failed=True" if retry else "")
        return f'pcpg.resume("{place(run)}", env_fn={_name(env)}{steps})'
    words = [place(run), *(["--steps", added] if added else []), *(["--retry-failed"] if retry else [])]
    return shlex.join(["pcpg", "resume", *words, *(["--trust"] if run.needs_trust else [])])


class Met(NamedTuple):
    """When and how often a run met its reward."""

    at: dict[int, int | None]  # by seed, the steps after the first round that met it; None: none did
    at_once: bool  # whether the first rounds met it already
    paid: int  # number of exploration episodes that met it
    episodes: int  # number of exploration episodes known individually
    usual: float | None  # the return of an episode without reward, if returns tell them apart
    always: float | None  # the only return ever seen, if it is a reward or solves the task

    @property
    def is_met(self) -> bool:
        return self.always is not None or any(at is not None for at in self.at.values())


def met(run: RunData) -> Met:
    """When and how often a run met its reward, from its reports and covers."""
    found = {seed: first_reward(rows) for seed, rows in run.records.items()}
    at = {seed: one.at for seed, one in found.items()}
    known = {seed: one.usual for seed, one in found.items() if one.usual is not None}
    usual = min(known.values(), default=None)
    is_always = usual is not None and not any(step is not None for step in at.values()) and (usual > 0 or run.solved)
    begun = [rows[0]["env_steps"] for rows in run.records.values() if rows]
    is_known = any("met_at" in row for rows in run.records.values() for row in rows)
    at_once = bool(begun) and not is_known and all(step is not None and step <= max(begun) for step in at.values())
    paid = sum(int((_cover_returns(run, seed) > above(least)).sum()) for seed, least in known.items())
    return Met(at, at_once, paid, len(cover_returns(run)), usual, usual if is_always else None)


def first_met(run: RunData) -> float | None:
    """Median, over seeds that met the reward, of the steps until then; None if none or all did so at once."""
    found = met(run)
    steps = [step for step in found.at.values() if step is not None]
    return None if run.is_reward_free or found.at_once or found.usual is None or not steps else float(np.median(steps))


def cover_returns(run: RunData) -> np.ndarray:
    """The return of every episode that measured a policy of a cover."""
    return np.concatenate([np.zeros(0), *(_cover_returns(run, seed) for seed in run.covers)])


def _cover_returns(run: RunData, seed: int) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(run.covers[seed].returns if seed in run.covers else ())])
