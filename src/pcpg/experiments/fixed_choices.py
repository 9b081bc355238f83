"""The ablation of environments.py: each thing that is chosen by what was measured, replaced by the same everywhere.

Which algorithm is chosen, and whether the reward comes first, is ablated by running one algorithm everywhere. Here the
algorithm is the one that was chosen, and one other thing about it is fixed; what only a cover depends on (its features,
its ridge, the scale of its bonus) is fixed in `pcpg` everywhere, for a cover is explored there on every task.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from pcpg.config import BaselineConfig, PCPGConfig, ReplayConfig
from pcpg.experiments.harness import changed
from pcpg.run_config import RunConfig

GAMMA = 0.99
"""The usual discount factor, that of PPO here as well."""


class Fixed(NamedTuple):
    """One thing that is the same everywhere."""

    about: str  # the head of its column
    kinds: tuple[type, ...]  # settings of the algorithms that choose it by what was measured
    changes: Callable[[RunConfig], dict[str, Any]]  # to the settings that were chosen
    features: str = ""
    of_cover: bool = False  # it is fixed in `pcpg` everywhere, not in what was chosen


def _discount(config: RunConfig) -> dict[str, Any]:
    relative = 1 / ((1 - GAMMA) * config.make_env().max_steps)  # settings are relative to the length of an episode
    return {"explore": {"discount": relative}, "exploit": {"discount": relative, "smooth_discount": relative}}


def _updates(config: RunConfig) -> dict[str, Any]:
    if isinstance(config.agent, ReplayConfig):
        return {"explore": {"num_episodes": 16, "backups": 100}, "exploit": {"backups": 200}}
    return {"ppo": {"num_updates": 4, "num_episodes": 16, "minibatch_size": 128}}


LEARNED = {"replay": {"features": "inverse-dynamics", "ignored": ()}}
RAW = {"explore": {"ridge": 1e-6, "ridge_scale": "raw", "bonus_scale": "raw"}}

FIXED_CHOICES: dict[str, Fixed] = {
    "normalised": Fixed(
        "always normalised", (PCPGConfig, BaselineConfig), lambda config: {"ppo": {"normalise_observations": True}}
    ),
    "features": Fixed("features: the observation", (PCPGConfig,), lambda config: {}, "identity", of_cover=True),
    "ridge": Fixed("ridge 1e-6, bonus not scaled", (PCPGConfig,), lambda config: RAW, of_cover=True),
    "bandwidth": Fixed(
        "kernel of width 1", (ReplayConfig,), lambda config: {"replay": {"bandwidth": 1.0, "bandwidth_scale": "raw"}}
    ),
    "noise": Fixed("nothing ignored", (ReplayConfig,), lambda config: {"replay": {"ignored": ()}}),
    "learned": Fixed("learned features", (ReplayConfig,), lambda config: LEARNED),
    "discount": Fixed("discount 0.99", (ReplayConfig,), _discount),
    "updates": Fixed("updates of one size", (PCPGConfig, BaselineConfig, ReplayConfig), _updates),
}
"""By the name of the column."""


def with_fixed(config: RunConfig, name: str) -> RunConfig | None:
    """A configuration with one thing fixed; None where that changes nothing."""
    fixed = FIXED_CHOICES[name]
    if not isinstance(config.agent, fixed.kinds):
        return None
    agent = changed(config.agent, fixed.changes(config))
    features = {"features": fixed.features, "feature_options": {}} if fixed.features else {}
    found = dataclasses.replace(config, agent=agent, **features).resolved()
    return None if found == config.resolved() else found
