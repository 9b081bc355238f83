"""What a look at an environment chooses: an algorithm and its settings, where nothing but the environment is named.

| seen                                                                 | chosen                                    |
|----------------------------------------------------------------------|-------------------------------------------|
| observations are one-hot, or come again in episodes that begin alike | `pcpg-replay`: its data are kept          |
| random play meets something good in one episode of twenty, or more   | `pcpg` that begins with the reward; where |
|                                                                      | layouts change, it stays with the reward  |
| at most four entries that are not noise, or observations that come   | `pcpg-replay`, which ignores the noise    |
| again but for noise, in episodes that begin alike                    |                                           |
| long observations, other ones after every reset: layouts that change | `ppo-e3b`                                 |
| all others                                                           | `pcpg` that begins with the reward        |

The first row that fits decides; `pcpg-replay` is for actions that can be listed or chosen from a grid, 1,024 of them
at most. Beside it, observations whose entries are far from 1 in size are normalised. Every choice is a setting of the
run and can be given as a flag instead: who names an algorithm or a setting chooses himself.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pcpg.envs.host import HostEnvironment
from pcpg.envs.options import NoTimeLimit
from pcpg.envs.protocol import Environment
from pcpg.envs.registry import make
from pcpg.practice.look import LONGEST, Look, count_of, found_limit, look

STEPS = 300_000
"""Environment steps of each seed where none are given."""
LOOK_SHARE = 0.02
"""Of the budget, for the look."""
LOOK_STEPS = int(LOOK_SHARE * STEPS)
"""Of a look where no budget is given: one by itself shows and chooses what a run without flags does."""
REPEATS = 0.1
"""Different observations per step, up to which they come again."""
FEW = 4
"""Entries in which a kernel tells near from far."""
LARGEST = 2**14
"""Entries of an observation, a picture of 64 x 64 among them, that are compared with every landmark in good time."""
LONG = 16
"""Entries beyond which an observation may show a layout."""
LIMIT = "max_steps"
"""The option of environments on the host after which episodes are cut."""
PAYS = 0.05
"""Share of the episodes of random play that meet something good, from which on a task is begun with its reward."""
SIZES = (0.1, 10.0)
"""Largest entries of observations between which they are taken as they are."""
REWARD_FIRST, REWARD_TRIED = 0.3, 0.15
"""Share of the budget after which PPO must have improved on random play, or exploration begins: where random play is
paid, and where it is not."""


class Choice(NamedTuple):
    """An algorithm, changes to its settings, and why."""

    algo: str
    agent: dict[str, Any]
    because: str


def choose(found: Look) -> Choice:
    """From what was measured to what is run."""
    alike = not found.differs_after_reset and found.entries <= LARGEST
    comes_again = found.kind == "one-hot" or (alike and found.distinct <= REPEATS * found.env_steps)
    if comes_again and not found.noise and found.can_keep:
        return Choice("pcpg-replay", {}, "observations come again, so data are worth keeping")
    changes = found.differs_after_reset and found.entries > LONG
    if found.good >= PAYS and changes:
        because = "random play is paid, and layouts change, which no cover could keep"
        return Choice("pcpg", _first(found, 1.0), because)
    if found.good >= PAYS:
        return Choice("pcpg", _first(found, REWARD_FIRST), "random play is paid, so the reward comes first")
    lasting = found.entries - len(found.noise)
    if lasting and (lasting <= FEW or comes_again) and found.can_keep:
        what = "observations are short" if lasting <= FEW else "observations come again"
        ignores = {"replay": {"ignored": found.noise}} if found.noise else {}
        but = f" but for {count_of(len(found.noise))} of noise" if found.noise else ""
        return Choice("pcpg-replay", ignores, f"random play meets nothing good, and {what}{but}")
    if changes:
        return Choice("ppo-e3b", _sizes(found), "every reset has another layout, so novelty is that of an episode")
    what = f"{count_of(len(found.noise))} of noise" if found.noise else f"observations have {found.entries} entries"
    return Choice("pcpg", _first(found, REWARD_TRIED), f"{what}, so the reward is tried before the cover")


def _first(found: Look, share: float) -> dict[str, Any]:
    """Settings of PC-PG that begins with the reward."""
    to_beat = found.returns[1] + 3 * found.return_error
    return {"explore": {"reward_first": share, "random_return": to_beat}} | _sizes(found)


def _sizes(found: Look) -> dict[str, Any]:
    if found.kind == "image":
        return {}  # networks scale them as they are
    largest = max(abs(value) for value in found.observed)
    low, high = SIZES
    return {} if low <= largest <= high else {"ppo": {"normalise_observations": True}}


class Looked(NamedTuple):
    """A look at an environment: what it showed and chose, and for how many steps."""

    found: Look
    choice: Choice | None  # None: an environment that is compiled, and has settings of its own
    options: dict[str, Any]  # of the environment, with a time limit where it has none of its own
    env_steps: int
    said: list[str]  # beside what was measured


def look_and_choose(name: str, options: Mapping[str, Any], most_steps: int = LOOK_STEPS, seed: int = 0) -> Looked:
    """Look at an environment for at most so many steps if they hold two episodes, and choose."""
    (env, is_endless), options, played, said = limited(name, options), dict(options), 0, []
    if is_endless:
        first = _looked_at(env, seed, most_steps // 2)
        options[LIMIT], played = found_limit(first), first.env_steps
        said = [f"it has no time limit of its own: episodes are cut after {options[LIMIT]} steps (--env.{LIMIT})"]
        env = make(name, **options)
    found = _looked_at(env, seed, most_steps - played)
    choice = choose(found) if isinstance(env, HostEnvironment) else None
    return Looked(found, choice, options, played + found.env_steps, said)


def limited(name: str, options: Mapping[str, Any]) -> tuple[Environment, bool]:
    """An environment, and whether it had to be given a time limit, since it has none of its own."""
    try:
        return make(name, **options), False
    except NoTimeLimit:
        return make(name, **{**options, LIMIT: LONGEST}), True


def _looked_at(env: Environment, seed: int, most_steps: int) -> Look:
    try:
        return look(env, seed, most_steps)
    finally:
        if isinstance(env, HostEnvironment):
            env.close()


def chosen_line(choice: Choice) -> str:
    """The choice in words, with the flags that would have said the same."""
    return f"chosen: {' '.join(flags_of(choice))} ({choice.because})"


def flags_of(choice: Choice) -> list[str]:
    """The flags that name a choice."""
    words = [f"--algo {choice.algo}"]
    for part, settings in choice.agent.items():
        assert isinstance(settings, Mapping)
        for name, value in settings.items():
            flag = f"{part}.{name}".replace("_", "-")
            listed = value if isinstance(value, tuple) else (value,)
            words.append(f"--{flag}" if value is True else " ".join([f"--{flag}", *(f"{one:.6g}" for one in listed)]))
    return words
