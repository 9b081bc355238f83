"""Environments on which nothing was tuned, by their names alone: PC-PG as a look chooses it, and PPO at equal steps.

The other thirteen (environments.py) are those on which the rules of the look and the general settings were made. On
these nothing was tuned, with one exception: runs on the discounting chain (seeds 1000 and 1001) showed that kept data
preferred an early reward to a later, larger one, and the discount and doubt of a task were changed for it.
"""

import dataclasses
from typing import ClassVar

from pcpg_lab.claims import environments
from pcpg_lab.claims.environments import AUTO, BASELINE, UNSEEN
from pcpg_lab.claims.records import Scale

SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 3, "paper": 5}


@dataclasses.dataclass(frozen=True)
class Flags(environments.Flags):
    """Environments never used for tuning, given only their names: PC-PG, and PPO at equal steps."""

    scale: Scale = "laptop"
    """smoke: 1 seed, seconds, learns nothing; laptop: 3 seeds, minutes for each environment; paper: 5 seeds."""
    algos: tuple[str, ...] = (AUTO, BASELINE)
    """Which algorithms; auto is PC-PG as a look chooses it."""
    out: str = "results/unseen"
    tasks: tuple[str, ...] = tuple(UNSEEN)
    """Which environments."""
    experiment: ClassVar[str] = "unseen"
    seeds_of: ClassVar[dict[Scale, int]] = SEEDS


CLAIM = dataclasses.replace(environments.CLAIM, flags=Flags)
