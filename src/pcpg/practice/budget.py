"""Budgets as people think of them: so many steps, so much time, a return to reach; and the rounds that follow.

Steps are environment steps of each seed, all of them counted; time is that of the whole run. The round that reaches a
number of steps is finished; no round is begun that would likely end after the time. PC-PG explores for at most
`EXPLORE_SHARE` of its budget and spends the rest on the task; what exploration leaves over goes to the task as well.
Steps alone leave a run what it is, a function of its configuration; with a time limit it depends on the machine.
"""

import dataclasses
import math
import re
import time
from typing import Any, NamedTuple

from pcpg.config import AgentConfig, BaselineConfig, ConfigError, PCPGConfig, ReplayConfig, check_type
from pcpg.envs.protocol import Environment
from pcpg.presets import sized
from pcpg.state import DONE, EXPLOIT, EXPLORE, int32

EXPLORE_SHARE = 0.5
"""Of the budget, at most: a cover that stops growing earlier leaves more to the task."""
FEWEST_ROUNDS = 12
"""A budget holds about so many rounds at least: where it is small, rounds are made smaller."""
FEWEST_UPDATES = 4
"""Updates of a round below which an update gets fewer episodes instead."""
FEWEST_EPISODES = 16
"""Of an update that is made smaller."""
MOST_POLICIES = 40
"""For which a cover has room where a budget is given, unless more fit in even if no episode ends early."""
UNLIMITED = 2**62
VISIT_SHARE = 0.25
"""Of a round that is made smaller, for the episodes that measure its policy."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What ends a run besides its own schedule."""

    steps: int = 0
    """Environment steps per seed; 0: none are given."""
    seconds: float = 0.0
    """Of training, compilation included; 0: none are given."""
    until: float | None = None
    """A seed ends when a policy's mean return over its counted episodes is at least this."""

    def __post_init__(self) -> None:
        for name, kind in (("steps", int), ("seconds", float)):
            if check_type(kind, getattr(self, name), f"limits.{name}") < 0:
                raise ConfigError(f"limits.{name} must be at least 0, got {getattr(self, name)}")
        if self.until is not None:
            object.__setattr__(self, "until", check_type(float, self.until, "limits.until"))


NO_LIMITS = Limits()


class Budget(NamedTuple):
    """The limits of a run that is going on."""

    limits: Limits = NO_LIMITS
    began: float = 0.0  # by `time.monotonic`, less what the run took before

    @property
    def is_set(self) -> bool:
        """Whether steps or time are limited."""
        return bool(self.limits.steps or self.limits.seconds)

    def spent(self, state: Any) -> float:
        """The share of the budget that a seed has used."""
        steps, seconds = self.limits.steps, self.limits.seconds
        used = int(state.env_steps) / steps if steps else 0.0
        return max(used, (time.monotonic() - self.began) / seconds) if seconds else used

    def is_over(self, state: Any) -> bool:
        """Whether a seed has used its budget up, or would with another round."""
        if not self.is_set:
            return False
        steps, seconds = self.limits.steps, self.limits.seconds
        if steps and state.env_steps >= steps:
            return True
        elapsed = time.monotonic() - self.began
        return bool(seconds) and elapsed * (1 + 1 / max(int(state.round), 1)) > seconds

    def ends_exploration(self, state: Any, *, has_task: bool, begun: float = 0.0) -> bool:
        """Whether what is left is for the task; all is for exploration where there is none.

        `begun` is the share of the budget that was used before anything was explored.
        """
        if not self.is_set:
            return False
        share = begun + (1 - begun) * EXPLORE_SHARE if has_task else 1.0
        return self.spent(state) >= share or self.is_over(state)

    def rounds_left(self, state: Any) -> int:
        """About how many rounds a seed has before it, by what they took so far; 0 where there is nothing to go by."""
        spent = self.spent(state)
        return max(1, math.ceil((1 - spent) / spent * int(state.round))) if spent > 0 and state.round > 0 else 0

    def after_round(self, state: Any) -> Any:
        """The state of a seed after a round: at its end where its target is reached or its time is over.

        A seed that keeps its data has no policy for the task while it explores: it goes on to learn one.
        """
        reached = self.limits.until is not None and state.last_return >= self.limits.until
        if state.phase == DONE or not (reached or (self.limits.seconds and self.is_over(state))):
            return state
        if hasattr(state, "kept") and state.phase == EXPLORE:
            return state._replace(phase=int32(EXPLOIT), phase_round=int32(0))
        if state.phase == EXPLORE and not reached:
            return state  # the rounds of PC-PG see to it themselves
        return state._replace(phase=int32(DONE))


NO_BUDGET = Budget()


# From what people write.


def read_steps(given: int | str) -> tuple[int, bool]:
    """A number of steps, as in 500k, 1M, 2.5M or 200_000, and whether it is to be added (+500k) to what there is."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    found = re.fullmatch(r"(\+?)([\d_,]*\.?\d+)([kKmMgGbB]?)", str(given).strip())
    number = float(re.sub("[_,]", "", found[2])) if found else 0.0
    if found is None or number <= 0:
        raise ConfigError(f"steps must be a number such as 500k, 1M or 200000, got {given!r}")
    scale = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}[found[3].lower()]
    return round(number * scale), bool(found[1])


def read_time(given: float | str) -> tuple[float, bool]:
    """Seconds from a time as in 90s, 10m, 1.5h or 1h30m, or a number; and whether it is to be added."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = f"{given}s"
    text = str(given).strip()
    plus, rest = text.startswith("+"), text.removeprefix("+")
    parts = re.findall(r"(\d*\.?\d+)([smhd])", rest)
    scale = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    seconds = sum(float(number) * scale[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != rest or seconds <= 0:
        raise ConfigError(f"a time must be such as 90s, 10m or 1.5h, got {given!r}")
    return seconds, plus


# The schedule.


def steps_of_round(config: Any, env: Environment) -> int:
    """Environment steps of a round of updates and the visit after it, if no episode ends early."""
    return (config.ppo.num_updates * config.ppo.num_episodes + _visits(config)) * env.max_steps


def most_steps(config: AgentConfig, env: Environment) -> int:
    """Environment steps of a whole run of one seed by its own schedule, if no episode ends early."""
    if isinstance(config, ReplayConfig):
        return config.replay.capacity
    if isinstance(config, BaselineConfig):
        rounds = config.num_rounds * steps_of_round(config, env)
        return min(config.budget, rounds) if rounds else config.budget
    rounds = config.explore.max_policies - 1 + config.exploit.num_rounds
    return rounds * steps_of_round(config, env) + _visits(config) * env.max_steps


def budgeted(config: AgentConfig, env: Environment, limits: Limits, used: int = 0) -> AgentConfig:
    """The settings with their formulas worked out, for a budget: rounds that are small enough for it, and room for all
    the policies that it may find, unless a number was given. Of such settings it gives the same. `used` are steps that
    were taken before the first round.
    """
    is_free = isinstance(config, PCPGConfig) and config.explore.max_policies == 0
    config = sized(config, env)
    if not limits.steps:
        if limits.seconds and isinstance(config, BaselineConfig):
            return dataclasses.replace(config, budget=UNLIMITED)
        return _with_room(config, MOST_POLICIES) if limits.seconds and is_free else config
    if isinstance(config, ReplayConfig):
        left = limits.steps - used - config.exploit.visit_episodes * env.max_steps
        needed = config.explore.num_episodes * env.max_steps
        if left < needed:
            raise _too_little(limits.steps, limits.steps - left + needed)
        return dataclasses.replace(config, replay=dataclasses.replace(config.replay, capacity=left))
    config = _with_smaller_rounds(config, env, limits.steps)
    if 3 * steps_of_round(config, env) > limits.steps:
        raise _too_little(limits.steps, 3 * steps_of_round(config, env))
    if isinstance(config, BaselineConfig):
        return dataclasses.replace(config, budget=limits.steps)
    # Where episodes end early a round takes far fewer steps than it may, so that more policies fit in.
    usual = min(2 * env.max_steps + 8, MOST_POLICIES)
    room = max(usual, math.ceil(limits.steps / steps_of_round(config, env)) + 1)
    return _with_room(config, room) if is_free else config


def fewest_steps(config: AgentConfig, env: Environment) -> int:
    """The smallest budget that holds three rounds of PPO, made as small as rounds may be."""
    return 3 * steps_of_round(_with_smaller_rounds(sized(config, env), env, 1), env)


def _with_room(config: Any, policies: int) -> Any:
    explore = dataclasses.replace(config.explore, max_policies=max(config.explore.max_policies, policies))
    return dataclasses.replace(config, explore=explore)


def _too_little(steps: int, needed: int) -> ConfigError:
    return ConfigError(f"a budget of {steps:,} steps is too small for this environment: give at least {needed:,}")


def _visits(config: Any) -> int:
    return config.explore.visit_episodes if isinstance(config, PCPGConfig) else config.visit_episodes


def _with_smaller_rounds(config: Any, env: Environment, steps: int) -> Any:
    if steps_of_round(config, env) * FEWEST_ROUNDS <= steps:
        return config
    group = config.explore.num_groups if isinstance(config, PCPGConfig) else 8
    episodes = steps // (FEWEST_ROUNDS * env.max_steps)  # of a round
    visits = min(_visits(config), max(8, int(VISIT_SHARE * episodes)))
    ppo, left = config.ppo, max(episodes - visits, 1)
    updates = min(ppo.num_updates, max(FEWEST_UPDATES, left // ppo.num_episodes))
    least = -(-FEWEST_EPISODES // group) * group
    each = min(ppo.num_episodes, max(least, left // updates // group * group))
    ppo = dataclasses.replace(ppo, num_updates=updates, num_episodes=each)
    if isinstance(config, BaselineConfig):
        return dataclasses.replace(config, ppo=ppo, visit_episodes=visits)
    explore = dataclasses.replace(config.explore, visit_episodes=visits)
    return dataclasses.replace(config, ppo=ppo, explore=explore)
