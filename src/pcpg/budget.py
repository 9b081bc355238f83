"""Budgets of steps and time, a target return, and the resulting rounds.

Steps are environment steps per seed, all of them counted; time is for the whole run. The round that reaches the number
of steps is completed; no round starts that would likely end after the time. PC-PG explores for up to `EXPLORE_SHARE` of
its budget and spends the rest on the task, including steps that exploration did not use. With a budget of steps a run
remains a function of its configuration; with a time limit it depends on the machine.
"""

import dataclasses
import math
import re
import time
from typing import Literal, NamedTuple

from pcpg.config import ConfigError, check_type
from pcpg.state import Ledger

EXPLORE_SHARE = 0.5
"""Maximum share of the budget; a cover that stops growing earlier leaves more for the task."""
UNLIMITED = 2**62
MOST_SECONDS = 1e9


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a run besides its own schedule."""

    steps: int = 0
    """Environment steps per seed; 0: no limit."""
    seconds: float = 0.0
    """Of training, including compilation; 0: no limit."""
    until: float | None = None
    """A seed stops once its mean evaluation return reaches this value."""

    def __post_init__(self) -> None:
        for name, kind in (("steps", int), ("seconds", float)):
            if check_type(kind, getattr(self, name), f"limits.{name}") < 0:
                raise ConfigError(f"limits.{name} must be at least 0, got {getattr(self, name)}")
        if self.until is not None:
            object.__setattr__(self, "until", check_type(float, self.until, "limits.until"))


NO_LIMITS = Limits()


class Budget(NamedTuple):
    """The limits of a running run."""

    limits: Limits = NO_LIMITS
    began: float = 0.0  # by `time.monotonic`, less what the run took before

    @property
    def is_set(self) -> bool:
        """Whether steps or time are limited."""
        return bool(self.limits.steps or self.limits.seconds)

    def spent(self, ledger: Ledger) -> float:
        """The share of the budget that a seed has used."""
        steps, seconds = self.limits.steps, self.limits.seconds
        used = int(ledger.env_steps) / steps if steps else 0.0
        return max(used, (time.monotonic() - self.began) / seconds) if seconds else used

    def is_over(self, ledger: Ledger) -> bool:
        """Whether a seed has used up its budget, or would with another round."""
        if not self.is_set:
            return False
        steps, seconds = self.limits.steps, self.limits.seconds
        if steps and ledger.env_steps >= steps:
            return True
        elapsed = time.monotonic() - self.began
        return bool(seconds) and elapsed * (1 + 1 / max(int(ledger.round), 1)) > seconds

    def ends_exploration(self, ledger: Ledger, *, has_task: bool, begun: float = 0.0) -> bool:
        """Whether the rest of the budget is for the task; without a task all is for exploration.

        `begun` is the share of the budget that was used before anything was explored.
        """
        if not self.is_set:
            return False
        share = begun + (1 - begun) * EXPLORE_SHARE if has_task else 1.0
        return self.spent(ledger) >= share or self.is_over(ledger)

    def rounds_left(self, ledger: Ledger) -> int:
        """The estimated number of remaining rounds, from the cost of earlier ones; 0 if there are none."""
        spent = self.spent(ledger)
        return max(1, math.ceil((1 - spent) / spent * int(ledger.round))) if spent > 0 and ledger.round > 0 else 0

    def why_over(self, ledger: Ledger) -> Literal["target", "time"] | None:
        """Why a seed stops after a round: it reached its target or its time limit. Algorithms handle steps."""
        if self.limits.until is not None and ledger.last_return >= self.limits.until:
            return "target"
        return "time" if self.limits.seconds and self.is_over(ledger) else None


NO_BUDGET = Budget()


# Parsing.


def read_steps(given: float | str) -> tuple[int, bool]:
    """A number of steps, as in 500k, 1M, 1e6 or 200_000, and whether it is to be added (+500k) to what there is."""
    if isinstance(given, float) and given.is_integer():
        given = int(given)  # 1e6
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    found = re.fullmatch(r"(\+?)([\d_,]*\.?\d+(?:[eE]\+?\d)?)([kKmMgGbB]?)", str(given).strip(), re.ASCII)
    number = float(re.sub("[_,]", "", found[2])) if found else 0.0
    scale = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}[found[3].lower() if found else ""]
    if found is None or round(number * scale) < 1 or (scale == 1 and number % 1):
        raise ConfigError(f"steps must be a number such as 500k, 1M or 200000, got {given!r}")
    return round(number * scale), bool(found[1])


def read_time(given: float | str) -> tuple[float, bool]:
    """Seconds from a time as in 90s, 10m, 1.5h or 1h30m, or a number; and whether it is to be added."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = f"{given}s"
    text = str(given).strip()
    plus, rest = text.startswith("+"), text.removeprefix("+")
    parts = re.findall(r"(\d*\.?\d+)([smhd])", rest, re.ASCII)
    scale = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    seconds = sum(float(number) * scale[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != rest or not 0 < seconds < MOST_SECONDS:
        raise ConfigError(f"a time must look like 90s, 10m or 1.5h, and be below 30 years, got {given!r:.80}")
    return seconds, plus


def too_little(steps: int, needed: int) -> ConfigError:
    """The error for a budget that is too small for an algorithm."""
    return ConfigError(f"a budget of {steps:,} steps is too small for this environment: use at least {needed:,}")


def limits_of(steps: float | str | None, time: float | str | None, until: float | None) -> Limits:
    """The limits of a new run, from user input."""
    number, more = (0, False) if steps is None else read_steps(steps)
    seconds, longer = (0.0, False) if time is None else read_time(time)
    if more or longer:
        raise ConfigError(f"a plus sign extends an existing run, and this one is new: got {steps or time!r}")
    return Limits(number, seconds, until)
