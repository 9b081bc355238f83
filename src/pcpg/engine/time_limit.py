"""The time limit of an environment that declares none, from some episodes of random play.

| episodes of random play                          | the limit                                             |
|--------------------------------------------------|-------------------------------------------------------|
| one is truncated by the environment itself       | its length, which is the environment's own limit      |
| all end at one length, of more than `SHORT`      | that length                                           |
| some end by themselves                           | ten times the longest, up to 1,000; at least twice    |
| none ends within `WATCHED` steps                 | 1,000                                                 |

It depends on environment and options alone, so it is the same for every command.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pcpg.config import Json
from pcpg.envs.host import HostEnvironment, check_step, guarded
from pcpg.envs.options import NoTimeLimit
from pcpg.envs.protocol import Environment
from pcpg.envs.registry import make
from pcpg.policies import host

LIMIT = "max_steps"
"""The option for the time limit of environments on the host."""
WATCHED = 2_000
"""Steps of random play, in all and of one episode, to find a time limit."""
EPISODES = 8
SHORT = 100
"""Length up to which episodes that end at one length may do so by chance."""
USUAL = 1_000
LONGER, ROOM = 10, 2
"""Factors on the longest random episode: better policies may last longer."""


class Ended(NamedTuple):
    """An episode of random play."""

    length: int
    terminated: bool
    truncated: bool  # by the environment; where neither, it was not played to its end


class Limited(NamedTuple):
    """An environment with a time limit."""

    env: Environment
    options: Json
    env_steps: int = 0  # that it took to find the limit
    said: tuple[str, ...] = ()


def limited(name: str, options: Mapping[str, object]) -> Limited:
    """The environment with these options, and with a time limit where it declares none."""
    try:
        return Limited(make(name, **options), dict(options))
    except NoTimeLimit:
        watched = make(name, **{**options, LIMIT: WATCHED, "num_envs": 1, "workers": 0})
    assert isinstance(watched, HostEnvironment), "a compiled environment has a limit"
    try:
        ends = random_episodes(watched)
    finally:
        watched.close()
    limit, why = limit_from(ends)
    said = f"no time limit declared; {why}: using {limit:,} steps (override with --env.{LIMIT})"
    found = {**options, LIMIT: limit}
    return Limited(make(name, **found), found, sum(end.length for end in ends), (said,))


def random_episodes(env: HostEnvironment) -> list[Ended]:
    """How some episodes end: one suffices if the environment truncates it."""
    rng, players, ends, left = np.random.default_rng(0), env.players, [], WATCHED
    space, alive = env.action_space, np.ones(1, bool)
    while left > 0 and len(ends) < EPISODES and not any(end.truncated for end in ends):
        episode, length, terminated, truncated = len(ends) + 1, 0, False, False
        with guarded(players):
            players.reset([episode])
            while length < left and not (terminated or truncated):
                moved = players.step(host.draw(rng, space, 1, 1).random, alive)
                length += 1
                check_step(env, moved.observations[0], moved.rewards[0], episode=episode, step=length)
                terminated = bool(moved.terminated[0])
                truncated = bool(moved.truncated[0]) and not terminated
        left -= length
        ends.append(Ended(length, terminated, truncated))
    return ends


def limit_from(ends: Sequence[Ended]) -> tuple[int, str]:
    """The time limit that follows from some episodes, and why."""
    own = [end.length for end in ends if end.truncated]
    if own:
        return own[0], "the environment truncates episodes itself"
    whole = [end.length for end in ends if end.terminated]
    if not whole:
        return USUAL, f"random play does not end within {sum(end.length for end in ends):,} steps"
    longest = max(whole)
    if len(whole) > 1 and min(whole) == longest > SHORT:
        return longest, "all episodes of random play end at one length"
    return max(min(LONGER * longest, USUAL), ROOM * longest), f"random play lasts up to {longest:,} steps"
