"""The ablation of environments.py: each measured choice replaced by a fixed one everywhere.

Which algorithm is chosen, and whether the reward comes first, is ablated by running one algorithm everywhere. Here the
algorithm is the one that was chosen, and one other thing about it is fixed; what only a cover depends on (its features,
its ridge, the scale of its bonus) is fixed in `pcpg` everywhere, for a cover is explored there on every task.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pcpg.run_config import RunConfig
from pcpg_lab.claims.harness import changed

GAMMA = 0.99
"""The usual discount factor, that of PPO here as well."""


COVER, DATA = ("pcpg", "pcpg-bonus"), ("pcpg-replay",)
NETWORKS = (*COVER, "ppo", "ppo-rnd", "ppo-e3b")


class Fixed(NamedTuple):
    """One thing that is the same everywhere."""

    about: str  # the head of its column
    algos: tuple[str, ...]  # that choose it by what was measured
    changes: Callable[[RunConfig], Mapping[str, object]]  # to the settings that were chosen
    features: str = ""
    of_cover: bool = False  # it is fixed in `pcpg` everywhere, not in what was chosen


def _discount(config: RunConfig) -> Mapping[str, object]:
    relative = 1 / ((1 - GAMMA) * config.make_env().max_steps)  # settings are relative to the length of an episode
    return {"explore": {"discount": relative}, "exploit": {"discount": relative, "smooth_discount": relative}}


def _updates(config: RunConfig) -> Mapping[str, object]:
    if config.algo in DATA:
        return {"explore": {"num_episodes": 16, "backups": 100}, "exploit": {"backups": 200}}
    return {"ppo": {"num_updates": 4, "num_episodes": 16, "minibatch_size": 128}}


LEARNED = {"replay": {"features": "inverse-dynamics", "ignored": ()}}
RAW = {"explore": {"ridge": 1e-6, "ridge_scale": "raw", "bonus_scale": "raw"}}

FIXED_CHOICES: dict[str, Fixed] = {
    "normalised": Fixed("always normalised", NETWORKS, lambda config: {"ppo": {"normalise_observations": True}}),
    "features": Fixed("features: the observation", COVER, lambda config: {}, "identity", of_cover=True),
    "ridge": Fixed("ridge 1e-6, bonus not scaled", COVER, lambda config: RAW, of_cover=True),
    "bandwidth": Fixed(
        "kernel of width 1", DATA, lambda config: {"replay": {"bandwidth": 1.0, "bandwidth_scale": "raw"}}
    ),
    "noise": Fixed("nothing ignored", DATA, lambda config: {"replay": {"ignored": ()}}),
    "learned": Fixed("learned features", DATA, lambda config: LEARNED),
    "discount": Fixed("discount 0.99", DATA, _discount),
    "updates": Fixed("updates of one size", (*NETWORKS, *DATA), _updates),
}
"""By the name of the column."""


def with_fixed(config: RunConfig, name: str) -> RunConfig | None:
    """A configuration with one thing fixed; None if that changes nothing."""
    fixed = FIXED_CHOICES[name]
    if config.algo not in fixed.algos:
        return None
    agent = changed(config.agent, fixed.changes(config))
    features = {"features": fixed.features, "feature_options": {}} if fixed.features else {}
    found = dataclasses.replace(config, agent=agent, **features).resolved()
    return None if found == config.resolved() else found
