"""The algorithm and settings that a look chooses if only the environment is given.

| seen                                                                | chosen                                     |
|---------------------------------------------------------------------|--------------------------------------------|
| one-hot observations, or ones that repeat from episode to episode   | `pcpg-replay`                              |
| layouts that differ at every reset, and random actions find         | `pcpg` that stays with the reward          |
| something good in one episode of twenty, or more                    |                                            |
| layouts that differ at every reset                                  | `ppo-ranked`                               |
| random actions find something good in one episode of twenty, and    | `pcpg` that begins with the reward         |
| are chosen from a list                                              |                                            |
| observations that repeat, or have at most four entries, apart from  | `pcpg-replay`, which ignores the noise     |
| entries of noise                                                    |                                            |
| pictures of more than 16,384 entries                                | `pcpg` that begins with the reward         |
| all others: observations that never repeat                          | `pcpg-deep`                                |

The first matching row decides; `pcpg-replay` needs discrete actions, or a grid of actions, with up to 1,024 choices. In
addition, observations with entries far from 1 in size are normalised. Every choice is a setting of the run and can be
given as a flag; any given algorithm or setting skips the look.

The time limit of an environment that declares none, from some episodes of random play.

| episodes of random play                          | the limit                                             |
|--------------------------------------------------|-------------------------------------------------------|
| one is truncated by the environment itself       | its length, which is the environment's own limit      |
| all end at one length, of more than `SHORT`      | that length                                           |
| some end by themselves                           | ten times the longest, up to 1,000; at least twice    |
| none ends within `WATCHED` steps                 | 1,000                                                 |

It depends on environment and options alone, so it is the same for every command.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pcpg.algos.look import Look, count_of, look
from pcpg.config import Json
from pcpg.envs.host import HostEnvironment, check_step, guarded
from pcpg.envs.options import NoTimeLimit
from pcpg.envs.protocol import Environment
from pcpg.envs.registry import make
from pcpg.policies import host

STEPS = 300_000
"""Default environment steps per seed."""
LOOK_SHARE = 0.02
"""Share of the budget for the look."""
LOOK_STEPS = int(LOOK_SHARE * STEPS)
"""Steps of a look without a budget, as in a run without flags."""
REPEATS = 0.1
"""Maximum number of distinct observations per step that counts as repeating."""
FEW = 4
"""Maximum number of entries in which a kernel measures distances well."""
LARGEST = 2**14
"""Entries of an observation, a picture of 64 x 64 among them, that are compared with every landmark in good time."""
AGAIN = 0.5
"""Share of steps with an observation of another episode, from which on starts that differ lead to the same places."""
LAYOUT, LAYOUT_SHARE = 8, 0.15
"""Entries, or share of a picture, beyond which a first observation that differs from the next shows another layout."""
PAYS = 0.05
"""Minimum share of random episodes with something good for which a task begins with its reward."""
SLOW = 500
"""Steps per second below which processes that play side by side are recommended."""
BUSY = 1_000
"""Steps per second of worker processes below which the deep learner learns while they play."""
SLOW_LINE = "steps take long: --workers 8 (workers=8) plays episodes in eight processes"
SIZES = (0.1, 10.0)
"""Range of the largest observation entry within which observations are not normalised."""
REWARD_FIRST, REWARD_TRIED = 0.3, 0.15
"""Share of the budget after which PPO must have improved on random play, or exploration begins: if random play finds
reward, and if it does not."""


class Choice(NamedTuple):
    """An algorithm, changes to its settings, and why."""

    algo: str
    agent: Mapping[str, Mapping[str, object]]  # by the group of settings
    because: str


def choose(found: Look) -> Choice:
    """The choice that follows from the measurements."""
    changes, is_small = _changes(found), found.entries <= LARGEST
    recurs = not found.differs_after_reset or (found.again >= AGAIN and not changes)
    repeats = found.kind == "one-hot" or (is_small and recurs and found.distinct <= REPEATS * found.env_steps)
    if repeats and not found.noise and found.can_keep:
        return Choice("pcpg-replay", {}, "observations repeat, so past data can be reused")
    if found.good >= PAYS and changes:
        because = "random actions earn reward, and every reset changes the layout, so no cover could be reused"
        return Choice("pcpg", _first(found, 1.0), because)
    if changes:
        because = "every reset changes the layout, so whole episodes are ranked and imitated"
        return Choice("ppo-ranked", _sizes(found), because)
    if found.good >= PAYS and not (found.is_continuous and is_small):
        return Choice("pcpg", _first(found, REWARD_FIRST), "random actions earn reward, so the reward comes first")
    lasting = found.entries - len(found.noise)
    if found.noise and lasting and (lasting <= FEW or repeats) and found.can_keep:
        what = "observations are short" if lasting <= FEW else "observations repeat"
        because = f"random actions find nothing good, and {what} apart from {count_of(len(found.noise))} of noise"
        return Choice("pcpg-replay", {"replay": {"ignored": found.noise}}, because)
    if not is_small:
        because = f"observations have {found.entries:,} entries, so the reward is tried before a cover is built"
        return Choice("pcpg", _first(found, REWARD_TRIED), because)
    why = "actions are real numbers" if found.good >= PAYS else "random actions find nothing good"
    return Choice("pcpg-deep", {}, f"{why}, and observations never repeat")


def _changes(found: Look) -> bool:
    """Whether every reset changes the layout."""
    least = LAYOUT_SHARE * found.entries if found.kind == "image" else LAYOUT
    return found.differs_after_reset and found.layout > least


def _first(found: Look, share: float) -> Mapping[str, Mapping[str, object]]:
    """Settings of PC-PG that begins with the reward."""
    to_beat = found.returns[1] + 3 * found.return_error
    return {"explore": {"reward_first": share, "random_return": to_beat}} | _sizes(found)


def _sizes(found: Look) -> dict[str, Mapping[str, object]]:
    if found.kind == "image":
        return {}  # networks scale them as they are
    largest = max(abs(value) for value in found.observed)
    low, high = SIZES
    return {} if low <= largest <= high else {"ppo": {"normalise_observations": True}}


class Looked(NamedTuple):
    """The result of a look: its measurements, choice and steps."""

    found: Look
    choice: Choice | None  # None: an environment that is compiled, and has settings of its own
    options: dict[str, object]  # of the environment, with a time limit where it has none of its own
    env_steps: int
    said: list[str]  # lines in addition to the measurements


def look_and_choose(name: str, options: Mapping[str, object], most_steps: int = LOOK_STEPS, seed: int = 0) -> Looked:
    """Look at an environment for at most so many steps if they hold two episodes, and choose."""
    env, options, played, said = limited(name, options)
    with contextlib.closing(env):
        found = look(env, seed, most_steps - played)
    is_on_host, notices = isinstance(env, HostEnvironment), [*env.notices]
    if is_on_host and found.steps_per_second < SLOW and not options.get("workers"):
        notices.append(SLOW_LINE)
    choice = choose(found) if is_on_host else None
    if choice is not None and choice.algo == "pcpg-deep" and options.get("workers") and found.steps_per_second < BUSY:
        choice = choice._replace(agent={"learn": {"while_playing": True}})
    return Looked(found, choice, options, played + found.env_steps, [*said, *notices])


def chosen_line(choice: Choice) -> str:
    """The choice in words, with the equivalent flags."""
    return f"chosen: {' '.join(flags_of(choice))} ({choice.because})"


def flags_of(choice: Choice) -> list[str]:
    """The flags equivalent to a choice."""
    words = [f"--algo {choice.algo}"]
    for part, settings in choice.agent.items():
        for name, value in settings.items():
            flag = f"{part}.{name}".replace("_", "-")
            listed = value if isinstance(value, tuple) else (value,)
            words.append(f"--{flag}" if value is True else " ".join([f"--{flag}", *(f"{one:.6g}" for one in listed)]))
    return words


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
