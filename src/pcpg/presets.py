"""Settings for the environments of the paper's experiments, and the default features of an environment.

What `pcpg train ENV --algo ALGO` runs is decided in two places: the presets of the algorithm, in its file of `algos/`,
and here: ENVIRONMENTS[env].settings[algo] comes first.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pcpg.algorithms import ALGORITHMS
from pcpg.algos.pcpg_settings import ExploitConfig, ExploreConfig, PCPGConfig
from pcpg.algos.ppo import PAPER_PPO, BaselineConfig
from pcpg.bonuses.rnd import RND
from pcpg.envs.adapters.names import is_on_host
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Image, flat_size
from pcpg.features.examples import host_play
from pcpg.learners.settings import PPOConfig

replace = dataclasses.replace
Choice = tuple[str, dict[str, object]]
"""Name and options of a feature map."""

# MountainCar with continuous actions: 5 of 5 seeds above 90 over the environment's 999 steps, under 3M steps per seed.

CAR_PPO = replace(PAPER_PPO, num_updates=60, num_episodes=32, learning_rate=5e-4, shared_body=False)
"""The paper's table for MountainCar: 5 epochs of minibatches of 160, learning rate 5e-4, entropy 0.01, clip 0.2."""

CAR_BONUS = PCPGConfig(
    ppo=CAR_PPO,
    explore=ExploreConfig(
        max_policies=6,
        bonus_coef=0.05,
        reward_coef=0.1,
        ridge=1e-4,
        visit_episodes=64,
        num_groups=16,
        start_share=0.5,
    ),
    exploit=ExploitConfig(num_rounds=1, start_share=0.5, warm_start=True),
)

# Mazes from pixels, size 10: every open cell in 5 of 5 seeds within 0.25M steps per seed.

MAZE_PPO = PPOConfig(
    num_updates=8,
    num_episodes=64,
    num_epochs=3,
    minibatch_size=256,
    learning_rate=5e-4,
    clip_eps=0.1,
    entropy_coef=0.1,  # with 0.03 to 0.05, or a rate of 1e-3, policies lost their entropy before the last cells
    max_grad_norm=0.5,
    hidden=(128,),
)
"""The paper's table for the maze (clip 0.1, gradient norm 0.5, rate 5e-4), smaller, for two cores."""

MAZE_COVER = PCPGConfig(
    ppo=MAZE_PPO,
    explore=ExploreConfig(
        max_policies=24,
        visit_episodes=64,
        num_groups=32,
        # A bonus of mean 1 in episodes of 200 steps makes values of 100: their loss swamps the policy's in the shared
        # body, and at size 20 no policy found a new cell. 1 - gamma brings values back to the order of one.
        bonus_coef=0.01,
        # Images of one maze differ in one pixel, so their features do in little: with the prototype's ridge of 0.01 the
        # bonus of a cell never seen is 1.1 times that of the others (size 10 and 20), with this one 4 to 13 times.
        ridge=1e-5,
    ),
    exploit=ExploitConfig(num_rounds=0),  # reward-free: a maze has no goal of its own
)

MAZE_BASELINE = BaselineConfig(ppo=MAZE_PPO, budget=2_700_000, visit_episodes=64)

MAZE_GOAL = {
    "ppo": {
        "num_updates": 30,
        "num_episodes": 64,
        "num_epochs": 6,
        # Above the number of cells: a gradient step costs as much as all cells, however many samples it has.
        "minibatch_size": 1024,
        "learning_rate": 1e-3,
        "clip_eps": 0.2,
        "gae_lambda": 0.98,
        "entropy_coef": 0.05,
    },
    "explore": {"num_groups": 16, "visit_episodes": 32},
    # Advantages of a sparse reward of 1 are a few hundredths, far below the usual floor.
    "exploit": {"num_rounds": 5, "advantage_floor": 0.01},
}
"""Found on a maze of size 14, seed 1001, with goals 31 to 47 moves away. All were reached after 30 updates, 0.37M
steps; with 3 epochs after 50, with entropy 0.1 and lambda 0.95 too after 60, with a clip of 0.1 too after more than 60.
"""


class EnvironmentPreset(NamedTuple):
    """The presets of an environment."""

    settings: Mapping[str, object]  # by algorithm
    features: Choice | None = None
    exploit: Mapping[str, object] = {}  # changes to the settings of a cover, for a run that exploits it


# The paper's experiments only: environments from other libraries have none; a look chooses their settings.

ENVIRONMENTS: dict[str, EnvironmentPreset] = {
    "MountainCarContinuous-v0": EnvironmentPreset(
        {
            "pcpg-bonus": CAR_BONUS,
            "ppo": BaselineConfig(ppo=CAR_PPO),
            "ppo-rnd": BaselineConfig(ppo=replace(CAR_PPO, learning_rate=1e-4), bonus=RND()),
        },
        features=("fourier", {}),
    ),
    "Maze-v0": EnvironmentPreset(
        {
            "pcpg": MAZE_COVER,
            "ppo": MAZE_BASELINE,
            # The paper's coefficient of 1000 would make values of that order; without another reward it has no other
            # effect.
            "ppo-rnd": replace(MAZE_BASELINE, bonus=RND(coef=1.0, normalise=True)),
        },
        # A smaller kernel than the paper's 32, 64 and 512: on two cores those alone cost more than all the rest.
        features=("random-conv", {"num_features": 128, "num_kernels": [16, 32]}),
        exploit=MAZE_GOAL,
    ),
}


def environment_preset(env_id: str) -> EnvironmentPreset:
    """The presets of an environment."""
    return ENVIRONMENTS.get(env_id, EnvironmentPreset({}))


def preset(env_id: str, algo: str) -> Any:
    """The default settings of an algorithm on an environment."""
    own, row = environment_preset(env_id).settings.get(algo), ALGORITHMS[algo]
    return own or (row.presets.host if is_on_host(env_id) else row.presets.compiled)


MOST_PAIRS = 512
"""Most features of a tabular map over pairs; beyond, the map is over states."""
SMALL = 16
"""Entries of an observation up to which few random features tell its values apart."""


def features_for(env_id: str, env: Environment, seed: int) -> Choice:
    """The default feature map of an environment: its own, or one that suits its observations."""
    own = ENVIRONMENTS.get(env_id)
    return own.features if own is not None and own.features is not None else suggested(env, seed)


@functools.lru_cache(maxsize=16)
def suggested(env: Environment, seed: int) -> Choice:
    """Identity for the compiled environments; for others by space and by what random play meets.

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
    """Whether every row has a single one and zeros otherwise."""
    ones = observations == 1
    return bool(np.all(ones.sum(axis=1) == 1) and np.all(ones | (observations == 0)))
