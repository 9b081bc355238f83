"""A look at an environment before any training: some episodes of random play, and what they show."""

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Image
from pcpg.policies.distributions import for_space
from pcpg.policies.networks import init_actor_critic
from pcpg.practice.episodes import play
from pcpg.practice.program import Program
from pcpg.practice.rollout import rollout

MOST_STEPS = 20_000
"""Steps of random play, at most, but for eight episodes at least."""


class Look(NamedTuple):
    """What random play met."""

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
    distinct: int  # different observations among all
    first: int  # different first observations among the episodes
    differs_after_reset: bool

    @property
    def is_paid(self) -> bool:
        """Whether returns of random play differ at all: else there is nothing to learn from without exploring."""
        return self.returns[2] - self.returns[0] > 1e-9


def look(env: Environment, seed: int = 0) -> Look:
    """Play at random and measure."""
    episodes = int(np.clip(MOST_STEPS // env.max_steps, 8, 64))
    spaces = env.observation_space, env.action_space
    policy = init_actor_critic(np.random.default_rng(seed), *spaces, hidden=(8,), shared_body=True)
    policy = jax.tree.map(np.zeros_like, policy)  # every action as likely as any other
    if isinstance(env, HostEnvironment):
        began = time.perf_counter()
        data: Any = play(env, policy, np.random.default_rng(seed), episodes)
        seconds = time.perf_counter() - began
    else:

        def rolled(given: Any) -> Any:
            return _rolled(env, given[0], given[1], episodes)

        program, given = Program(rolled, lanes=1), [(env.instance(seed), policy)]
        program(given)  # compiles
        began = time.perf_counter()
        [data] = program(given)
        seconds = time.perf_counter() - began
    return measured(env, data, seconds)


def _rolled(env: Environment, params: Any, policy: Any, episodes: int) -> Any:
    data = rollout(env, params, policy, for_space(env.action_space), jax.random.key(0), num_episodes=episodes)
    return data._replace(log_probs=None, own=None, cells=None)


def measured(env: Environment, data: Any, seconds: float) -> Look:
    """What some episodes show, [T, E] as they were played."""
    alive = np.asarray(data.alive)
    lengths, returns = alive.sum(axis=0), np.asarray(data.rewards, np.float64).sum(axis=0)
    paid, steps = np.asarray(data.rewards)[alive], int(alive.sum())
    seen = np.asarray(data.observations)[:-1][alive].reshape(steps, -1)
    first = np.asarray(data.observations)[0].reshape(alive.shape[1], -1)
    starts = len(np.unique(first, axis=0))
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
        distinct=len(np.unique(seen, axis=0)),
        first=starts,
        differs_after_reset=starts > 1,
    )


def _kind(env: Environment, seen: np.ndarray) -> str:
    if isinstance(env.observation_space, Image):
        return "image"
    if np.isin(seen, (0, 1)).all():
        return "one-hot" if (seen.sum(axis=1) == 1).all() else "zeros and ones"
    return "vector"


def lines(name: str, found: Look) -> list[str]:
    """What was seen, in three lines."""
    least, mean, most = found.lengths
    length = f"{least}" if least == most else f"{least} to {most} (mean {mean:.0f})"
    early = "all" if found.ended_early == 1 else "none" if found.ended_early == 0 else f"{found.ended_early:.0%}"
    low, high = found.rewards
    low_return, mean_return, high_return = found.returns
    reward = f"{found.rewarded_steps:.2%} of steps have a reward, from {low:g} to {high:g}"
    if not found.is_paid:
        reward += f"; every episode returned {low_return:g}, so random play meets nothing to learn from"
    else:
        reward += f"; returns {low_return:g} to {high_return:g} (mean {mean_return:.3g})"
    entries = int(np.prod(found.shape))
    changing = f"{entries - found.constant} of {entries} entries change, between {found.observed[0]:g} and "
    resets = f"{found.first} different starts" if found.differs_after_reset else "every episode starts alike"
    return [
        f"{name}: episodes of {length} steps, {early} end before the limit of {found.max_steps}; "
        f"{found.steps_per_second:,.0f} steps per second",
        f"reward: {reward} ({found.episodes} episodes of random play)",
        f"observations: {found.kind} {found.shape}, {changing}{found.observed[1]:g}; "
        f"{found.distinct:,} different ones in {found.env_steps:,} steps; {resets}",
    ]
