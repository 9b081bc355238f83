"""Hindsight: where goals are part of the observation, what was reached later in an episode could have been its goal.

    g' = achieved(s_f),  f uniform on the rest of the episode
    r  = the environment's own reward of what was achieved at each step under g'

Most of a minibatch is learned from in this way, so that episodes without success teach how to reach what they reached.
"""

from typing import NamedTuple

import numpy as np

from pcpg.envs.protocol import Goals
from pcpg.learners.off_policy import Minibatch
from pcpg.learners.transitions import LARGE, Transitions

SHARE = 0.8
"""Of a minibatch that gets another goal."""
CHECKED, AGREEMENT = 1_000, 0.99
"""Newest transitions whose rewards are compared with those that their goals promise, and the share that must agree."""


def goals_in(kept: Transitions, goals: Goals | None) -> Goals | None:
    """The goals if rewards are theirs: a wrapper may pay something else than the environment inside it."""
    if goals is None or not kept.size:
        return goals
    places = np.arange(max(0, kept.size - CHECKED), kept.size)
    seen, paid = kept.observations[kept.landing_rows(places)], kept.column("reward")[places]
    found = np.isclose(goals.reward(seen[:, goals.achieved], seen[:, goals.desired]), paid, rtol=1e-3, atol=1e-3)
    return goals if float(np.mean(found)) >= AGREEMENT else None


def without_goal(seen: np.ndarray, goals: Goals | None) -> np.ndarray:
    """Observations with the same goal: another one is no discovery."""
    if goals is None:
        return seen
    alike = seen.copy()
    alike[:, goals.desired] = 0.0
    return alike


class Rule(NamedTuple):
    """What a task pays for goals."""

    goals: Goals
    ends: bool  # an episode ends when its goal is met
    by_end: bool  # nothing is paid but 1 at such an end
    scale: float  # rewards are divided by it

    def paid(self, achieved: np.ndarray, desired: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The reward as it is learned from, and whether the episode ends there."""
        raw = self.goals.reward(achieved, desired)
        is_met = raw >= self.best - 1e-6
        reward = is_met if self.by_end else raw / np.float32(self.scale)
        return reward.astype(np.float32), is_met & self.ends

    @property
    def best(self) -> float:
        """The environment's reward at the goal itself."""
        place = np.zeros((2, self.goals.desired.stop - self.goals.desired.start), np.float32)
        return float(self.goals.reward(place, place)[0])


def relabelled(
    kept: Transitions,
    batch: Minibatch,
    places: np.ndarray,
    n: int,
    gamma: float,
    rule: Rule,
    rng: np.random.Generator,
    first: int = 0,
) -> Minibatch:
    """The minibatch at these places, most of it, from `first` on, with goals that were reached later in the episode."""
    chosen = (rng.random(places.shape) < SHARE) & (np.arange(places.shape[-1]) >= first)
    at, achieved, desired = places[chosen], rule.goals.achieved, rule.goals.desired
    later = at + (rng.random(at.shape) * (kept.column("end")[at] - at)).astype(np.int64)
    goal = kept.observations[kept.landing_rows(later), achieved]
    ahead = kept.ahead(at, n)
    total, going, steps = np.zeros(at.shape, np.float32), np.ones(at.shape, bool), np.zeros(at.shape, np.int64)
    is_met = np.zeros(at.shape, bool)
    for k in range(n):
        going &= (k < ahead) & ~is_met
        reached = kept.observations[kept.landing_rows(at + np.minimum(k, ahead - 1)), achieved]
        reward, ends = rule.paid(reached, goal)
        total += np.where(going, np.float32(gamma**k) * reward, np.float32(0.0))
        is_met |= going & ends
        steps += going
    last = at + steps - 1
    observations, following = batch.observations.copy(), batch.later.copy()
    rows = kept.observations[kept.landing_rows(last)].copy()
    rows[:, desired] = goal
    following[chosen] = rows
    here = observations[chosen]
    here[:, desired] = goal
    observations[chosen] = here
    returns, discounts, floors = batch.returns.copy(), batch.discounts.copy(), batch.floors.copy()
    known = gamma ** (later - at) * rule.best / rule.scale if rule.ends and rule.best > 0 else -LARGE
    returns[chosen], floors[chosen] = total, np.where(floors[chosen] > -LARGE, known, -LARGE)
    discounts[chosen] = (gamma**steps * ~is_met).astype(np.float32)
    return batch._replace(
        observations=observations, later=following, returns=returns, discounts=discounts, floors=floors
    )
