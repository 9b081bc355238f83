"""Small settings for every algorithm of the table, a new one among them: each gets those that it has."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pcpg.algorithms import ALGORITHMS
from pcpg.config import entries_of

PPO = {"num_updates": 1, "num_episodes": 16, "minibatch_size": 16, "num_epochs": 1, "hidden": [8]}
SMALL: dict[str, Any] = {
    "ppo": PPO,
    "visit_episodes": 8,
    "num_rounds": 3,
    "budget": 600,
    "num_episodes": 16,
    "offline_updates": 300,
    "explore": {
        **{"visit_episodes": 8, "num_groups": 8, "max_policies": 3, "patience": 3},
        **{"min_value": 0.4, "num_episodes": 8, "backups": 20, "num_features": 16, "cover": 2},
    },
    "exploit": {"num_rounds": 2, "visit_episodes": 8, "backups": 20},
    "replay": {"capacity": 400, "max_landmarks": 64},
    "learn": {"hidden": [8], "batch": 8, "updates": 1.0},
}
"""Settings of a few rounds of milliseconds."""


def small(kind: object, wanted: Mapping[str, Any] = SMALL) -> dict[str, Any]:
    """The small settings that a dataclass has, by the names of its fields and of those of its parts."""
    found = {name: entry.kind for name, entry in entries_of(kind).items() if name in wanted}
    is_part = {name: dataclasses.is_dataclass(one) for name, one in found.items()}
    return {name: small(found[name], wanted[name]) if is_part[name] else wanted[name] for name in found}


def every(wanted: Mapping[str, Any] = SMALL) -> dict[str, dict[str, Any]]:
    """The small settings of every algorithm, by its id."""
    return {algo: small(row.settings, wanted) for algo, row in ALGORITHMS.items()}
