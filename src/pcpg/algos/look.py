"""A look at an environment before training: measurements from some episodes of random play.

auto.py derives the choice from it.
"""

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from pcpg.engine.episodes import Played, check_played, play
from pcpg.engine.program import Program
from pcpg.engine.rollout import Rollout, rollout
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Box, Image
from pcpg.kernel.policies import can_list
from pcpg.policies.distributions import for_space
from pcpg.policies.networks import ActorCritic, init_actor_critic

MOST_STEPS = 20_000
"""Maximum number of steps of random play."""
MOST_EPISODES = 64
FEWEST_EPISODES = 2
"""To see whether two of them start in the same state."""
JUMP = 0.8
"""An entry is noise where its squared changes are more than this of what two of its values at any times differ by."""
MANY = 20
"""Distinct values of an entry, or of rewards, from which on they count as continuous."""
FAINT = 25
"""Difference of brightness up to which two pixels look alike."""
GRID = 5
"""Candidates of a real action, as kept data have them by default."""
BY_ACTION = 0.9
"""Share of the reward's variance explained by the action, from which on a reward is a cost of acting and no more."""


class Look(NamedTuple):
    """Measurements from random play."""

    episodes: int
    env_steps: int
    steps_per_second: float
    max_steps: int
    lengths: tuple[int, float, int]  # of the episodes: least, mean, most
    ended_early: float  # share of the episodes that ended before their time limit
    rewarded_steps: float  # share of the steps with a reward that is not zero
    rewards: tuple[float, float]  # least and largest
    returns: tuple[float, float, float]  # least, mean, largest
    shape: tuple[int, ...]  # of an observation
    kind: str  # of observations: an image, one-hot, zeros and ones, or a vector
    observed: tuple[float, float]  # least and largest entry
    constant: int  # entries that never changed
    distinct: int  # different observations among all, entries of noise left out
    first: int  # different first observations among the episodes, likewise
    differs_after_reset: bool
    noise: tuple[int, ...]  # numbers of the real entries that jump from step to step as if nothing lasted
    by_action: float  # share of the reward's variance that the action alone explains; 1 where the reward never varies
    good: float  # share of the episodes that met something good: see `_good`
    return_error: float  # standard error of the mean return
    is_continuous: bool = False  # whether actions are real numbers
    can_keep: bool = True  # whether actions are few enough, or their grid, to compare all of them: kept data do
    again: float = 1.0  # share of the steps whose observation, noise left out, was met in another episode too
    layout: float = 0.0  # entries of few values, or of a picture, in which one first observation differs from the next

    @property
    def entries(self) -> int:
        """Of an observation."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def is_paid(self) -> bool:
        """Whether returns of random play differ at all: otherwise nothing can be learned without exploring."""
        return self.returns[2] - self.returns[0] > 1e-9


def look(env: Environment, seed: int = 0, most_steps: int = MOST_STEPS) -> Look:
    """Play at random for up to this many steps, but at least two episodes, and measure."""
    episodes = int(np.clip(min(most_steps, MOST_STEPS) // env.max_steps, FEWEST_EPISODES, MOST_EPISODES))
    spaces = env.observation_space, env.action_space
    policy = init_actor_critic(np.random.default_rng(seed), *spaces, hidden=(8,), shared_body=True)
    policy = jax.tree.map(np.zeros_like, policy)  # every action as likely as any other
    if isinstance(env, HostEnvironment):
        began = time.perf_counter()
        with np.errstate(invalid="ignore"):  # of numbers that are refused below
            data: Any = play(env, policy, np.random.default_rng(seed), episodes)
        seconds = time.perf_counter() - began
    else:

        def rolled(given: tuple[object, ActorCritic]) -> Rollout:
            return _rolled(env, given[0], given[1], episodes)

        program, given = Program(rolled, lanes=1), [(env.instance(seed), policy)]
        program(given)  # compiles
        began = time.perf_counter()
        [data] = program(given)
        seconds = time.perf_counter() - began
    check_played(env, data)
    return measured(env, data, seconds)


def _rolled(env: Environment, params: object, policy: ActorCritic, episodes: int) -> Rollout:
    data = rollout(env, params, policy, for_space(env.action_space), jax.random.key(0), num_episodes=episodes)
    return data._replace(log_probs=None, own=None, cells=None)


def measured(env: Environment, data: Played | Rollout, seconds: float) -> Look:
    """What some episodes show, [T, E] as they were played."""
    alive = np.asarray(data.alive)
    lengths, returns = alive.sum(axis=0), np.asarray(data.rewards, np.float64).sum(axis=0)
    paid, steps = np.asarray(data.rewards)[alive], int(alive.sum())
    seen = np.asarray(data.observations)[:-1][alive].reshape(steps, -1)
    first = np.asarray(data.observations)[0].reshape(alive.shape[1], -1)
    noise = _noise(env, np.asarray(data.observations)[:-1], alive)
    lasting = np.setdiff1d(np.arange(seen.shape[1]), noise)
    starts, _ = _recurring(first[:, lasting], np.arange(len(first)))
    distinct, again = _recurring(seen[:, lasting], np.nonzero(alive)[1])
    explained = by_action(np.asarray(data.actions)[alive], paid.astype(np.float64))
    return Look(
        episodes=alive.shape[1],
        env_steps=steps,
        steps_per_second=steps / max(seconds, 1e-9),
        max_steps=env.max_steps,
        lengths=(int(lengths.min()), float(lengths.mean()), int(lengths.max())),
        ended_early=float(np.mean(lengths < env.max_steps)),
        rewarded_steps=float(np.mean(np.abs(paid) > 1e-12)),
        rewards=(float(paid.min()), float(paid.max())),
        returns=(float(returns.min()), float(returns.mean()), float(returns.max())),
        shape=env.observation_space.shape,
        kind=_kind(env, seen),
        observed=(float(seen.min()), float(seen.max())),
        constant=int(np.sum(np.ptp(seen.astype(np.float64), axis=0) < 1e-12)),
        distinct=distinct,
        first=starts,
        differs_after_reset=starts > 1,
        noise=noise,
        by_action=explained,
        return_error=float(returns.std() / np.sqrt(len(returns))),
        is_continuous=isinstance(env.action_space, Box),
        can_keep=can_list(env.action_space, GRID),
        again=again,
        layout=_layout(env, seen, first),
        good=_good(np.asarray(data.rewards), np.asarray(data.terminated), alive, explained),
    )


def _recurring(rows: np.ndarray, episode: np.ndarray) -> tuple[int, float]:
    """The number of distinct rows, and the share of rows that are in more than one episode."""
    if not rows.shape[1]:
        return 1, 1.0
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([which.reshape(-1), episode]), axis=1)
    episodes = np.bincount(pairs[0], minlength=len(distinct))
    return len(distinct), float(np.mean(episodes[which.reshape(-1)] > 1))


def _layout(env: Environment, seen: np.ndarray, first: np.ndarray) -> float:
    """How many entries differ between a first observation and the next; numbers of many values show no layout."""
    changed = np.abs(first[1:].astype(np.float64) - first[:-1])
    if isinstance(env.observation_space, Image):
        return float((changed > FAINT).sum(axis=1).mean())
    few = [len(np.unique(column)) <= MANY for column in seen.T]
    return float((changed[:, few] > 0).sum(axis=1).mean())


def _noise(env: Environment, observations: np.ndarray, alive: np.ndarray) -> tuple[int, ...]:
    """Entries with many values whose change from one step to the next is as large as between any two steps."""
    if isinstance(env.observation_space, Image):
        return ()
    seen = observations.reshape(*alive.shape, -1).astype(np.float64)
    both = alive[1:] & alive[:-1]
    jumps = np.mean((seen[1:] - seen[:-1])[both] ** 2, axis=0) if both.any() else np.zeros(seen.shape[-1])
    flat = seen[alive]
    many = np.array([len(np.unique(column)) > MANY for column in flat.T])
    return tuple(int(entry) for entry in np.flatnonzero(many & (jumps > JUMP * 2 * flat.var(axis=0))))


def by_action(actions: np.ndarray, rewards: np.ndarray) -> float:
    """Share of the variance of rewards that their mean by action explains, or a parabola of a real action."""
    if np.ptp(rewards) < 1e-9:
        return 1.0
    chosen = actions.reshape(len(rewards), -1)
    if np.issubdtype(chosen.dtype, np.integer):
        _, which = np.unique(chosen, axis=0, return_inverse=True)
        inputs = np.eye(which.max() + 1)[which.reshape(-1)]
    else:
        clipped = np.clip(chosen.astype(np.float64), -1, 1)
        inputs = np.concatenate([np.ones((len(rewards), 1)), clipped, clipped**2], axis=1)
    rest = rewards - inputs @ np.linalg.lstsq(inputs, rewards, rcond=None)[0]
    return float(1 - rest.var() / rewards.var())


def _good(rewards: np.ndarray, terminated: np.ndarray, alive: np.ndarray, by_action: float) -> float:
    """The share of episodes from which a task can be learned without exploring.

    | rewards                    | an episode met something good if                            |
    |----------------------------|-------------------------------------------------------------|
    | always the same, above 0   | it lasted longer than the shortest                          |
    | always the same, below 0   | it came to an end before its limit                          |
    | of many values, by states  | always                                                      |
    | others                     | it earned, at a step, more than 0 and than the usual reward |
    """
    paid = rewards[alive].astype(np.float64)
    lengths = alive.sum(axis=0)
    ended = terminated.any(axis=0) & (lengths < len(alive))
    if np.ptp(paid) < 1e-9:
        return float(np.mean(lengths > lengths.min() if paid[0] > 0 else ended if paid[0] < 0 else False * ended))
    values, counts = np.unique(np.round(paid, 9), return_counts=True)
    if len(values) > MANY and by_action < BY_ACTION:
        return 1.0
    usual = max(0.0, float(values[np.argmax(counts)]))
    return float(np.mean(np.where(alive, rewards, -np.inf).max(axis=0) > usual + 1e-9))


def _kind(env: Environment, seen: np.ndarray) -> str:
    if isinstance(env.observation_space, Image):
        return "image"
    if np.isin(seen, (0, 1)).all():
        return "one-hot" if (seen.sum(axis=1) == 1).all() else "zeros and ones"
    return "vector"


def count_of(entries: int) -> str:
    """A number of entries, in words."""
    return "1 entry" if entries == 1 else f"{entries} entries"


def lines(name: str, found: Look) -> list[str]:
    """The measurements in three lines."""
    least, mean, most = found.lengths
    length = f"{least}" if least == most else f"{least} to {most} (mean {mean:.0f})"
    plural = "" if most == 1 else "s"
    early = "all" if found.ended_early == 1 else "none" if found.ended_early == 0 else f"{found.ended_early:.0%}"
    low, high = found.rewards
    low_return, mean_return, high_return = found.returns
    reward = f"{found.rewarded_steps:.2%} of steps have a reward, from {low:g} to {high:g}"
    if not found.is_paid:
        nothing = "never earned more" if found.rewarded_steps else "never found a reward"
        reward += f"; every episode returned {low_return:g}: random actions {nothing}"
    else:
        reward += f"; returns {low_return:g} to {high_return:g} (mean {mean_return:.3g})"
    changing = f"{found.entries - found.constant} of {found.entries} entries change, between {found.observed[0]:g} and "
    speed = f"; {found.steps_per_second:,.0f} steps per second" if found.steps_per_second else ""
    same = "all episodes start in the same state"
    starts = f"{found.first} distinct first observations" if found.differs_after_reset else same
    noise = f"{count_of(len(found.noise))} of noise; without noise " if found.noise else ""
    return [
        f"{name}: episodes of {length} step{plural}, {early} end before the limit of {found.max_steps}{speed}",
        f"reward: {reward} ({found.episodes} episodes of random play)",
        f"observations: {found.kind} {found.shape}, {changing}{found.observed[1]:g}; "
        f"{noise}{found.distinct:,} distinct observations in {found.env_steps:,} steps; {starts}",
    ]
