"""The feature map that suits an environment, where none is named."""

import functools
from typing import Any

import numpy as np

from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Image, flat_size
from pcpg.features.examples import host_play

Choice = tuple[str, dict[str, Any]]

MOST_PAIRS = 512
"""Most features of a tabular map over pairs; beyond, the map is over states."""
SMALL = 16
"""Entries of an observation up to which few random features tell its values apart."""


@functools.lru_cache(maxsize=16)
def suggested(env: Environment[Any, Any], seed: int) -> Choice:
    """Name and options: identity for the functional environments, for others by space and by what random play meets.

    | observations                  | features                                                   |
    |-------------------------------|------------------------------------------------------------|
    | images                        | a random convolutional network                             |
    | one-hot (Discrete among them) | tabular, over pairs where they are few, else over states   |
    | short vectors                 | random Fourier features of state and action                |
    | long vectors                  | more random Fourier features, of the state alone           |
    """
    space = env.observation_space
    if not isinstance(env, HostEnvironment):
        return ("random-conv" if isinstance(space, Image) else "identity"), {}
    if isinstance(space, Image):
        return "random-conv", {"num_features": 128, "num_kernels": [16, 32]}
    observations = np.asarray(host_play(env, np.random.default_rng(seed), 500)[0])
    if is_one_hot(observations):
        pairs = flat_size(space) * flat_size(env.action_space)
        few = isinstance(env.action_space, Discrete) and pairs <= MOST_PAIRS
        return ("one-hot", {}) if few else ("identity", {})
    if flat_size(space) <= SMALL:
        return "fourier", {"num_features": 64}
    return "fourier", {"num_features": 128, "with_actions": False}


def is_one_hot(observations: np.ndarray) -> bool:
    """Whether every row has a single one and zeros beside it."""
    ones = observations == 1
    return bool(np.all(ones.sum(axis=1) == 1) and np.all(ones | (observations == 0)))
