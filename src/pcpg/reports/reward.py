"""When a run first met its reward, and in how many episodes of exploration."""

from typing import NamedTuple

import numpy as np

from pcpg.reports.read import Record, RunData

SAME = 1e-9
"""Returns that differ by less are equal."""
OFTEN = 0.1
"""Share of the episodes above which a return may be what an episode earns that meets nothing."""


class Met(NamedTuple):
    """What is known of the reward of a run."""

    at: dict[int, int | None]  # by seed, the steps after the first round that met it; None: none did
    at_once: bool  # whether the first rounds met it already
    paid: int  # episodes of exploration that met it
    episodes: int  # that are known one by one
    is_plain: bool  # whether returns tell episodes with reward from those without
    always: float | None  # the one return that was ever seen, where it is a reward or solves the task

    @property
    def is_met(self) -> bool:
        return self.always is not None or any(at is not None for at in self.at.values())


def met(run: RunData) -> Met:
    """What the reports and covers of a run say of its reward."""
    episodes = cover_returns(run)
    nothing = _nothing(run, episodes)
    at = {seed: _first(run, seed, nothing) for seed in run.records}
    always = nothing if not any(step is not None for step in at.values()) else None
    always = always if always is not None and (always > 0 or run.solved) else None
    begun = [rows[0]["env_steps"] for rows in run.records.values() if rows]
    is_known = any("met_at" in row for rows in run.records.values() for row in rows)
    at_once = bool(begun) and not is_known and all(step is not None and step <= max(begun) for step in at.values())
    paid = 0 if nothing is None else int((episodes > nothing + SAME).sum())
    return Met(at, at_once, paid, len(episodes), nothing is not None, always)


def first_met(run: RunData) -> float | None:
    """The steps after which the median seed that met the reward met it; None: none did, or all at once."""
    found = met(run)
    steps = [step for step in found.at.values() if step is not None]
    return None if run.is_reward_free or found.at_once or not found.is_plain or not steps else float(np.median(steps))


def cover_returns(run: RunData) -> np.ndarray:
    """The return of every episode that measured a policy of a cover."""
    return np.concatenate([np.zeros(0), *(own for cover in run.covers.values() for own in cover.returns)])


def _nothing(run: RunData, episodes: np.ndarray) -> float | None:
    """The return of an episode that meets no reward: the least that is common; None: no return is."""
    if episodes.size:
        values, counts = np.unique(episodes.round(9), return_counts=True)
        common = values[counts >= OFTEN * len(episodes)]
        return float(common.min()) if len(common) else None
    first = [value for rows in run.records.values() for value in next(filter(None, map(_means, rows)), [])]
    if not first and any("met_at" in row for rows in run.records.values() for row in rows):
        return 0.0  # a learner that says by itself whether it met the reward
    return min(first) if first else None


def _means(row: Record) -> list[float]:
    return [row[name] for name in ("return", "train/return") if row.get(name) is not None]


def _first(run: RunData, seed: int, nothing: float | None) -> int | None:
    """The steps after the first round of a seed with a return above that of an episode that meets nothing."""
    rows = run.records[seed]
    if nothing is None:
        return rows[0]["env_steps"] if rows else None
    known = iter(run.covers[seed].returns if seed in run.covers else ())
    if rows and rows[-1].get("met_at", -1) >= 0:  # as the learner knows it
        return rows[-1]["met_at"]
    explored = [row["env_steps"] for row in rows if row.get("phase") == "explore"]
    if run.ends.get(seed) == "found" and explored:  # in episodes that measured no policy
        rows = [*rows[: len(explored) - 1], {"env_steps": explored[-1], "return": np.inf}]
    for row in rows:
        own = next(known, np.zeros(0)) if row.get("phase") == "explore" else np.zeros(0)
        if max([*_means(row), *own], default=-np.inf) > nothing + SAME:
            return row["env_steps"]
    is_met = rows and run.final_returns.get(seed, -np.inf) > nothing + SAME
    return rows[-1]["env_steps"] if is_met else None
