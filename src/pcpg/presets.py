"""Every default that is not a field's own: by kind of environment, by environment, and by the length of an episode.

What `pcpg train ENV --algo ALGO` runs is decided in two places: the fields of pcpg/config.py, and here.

    settings   ENVIRONMENTS[env].settings[algo], else the algorithm's HOST or COMPILED preset (see pcpg/algorithms.py)
    features   ENVIRONMENTS[env].features, else by what the observations look like: `features_for`
    formulas   0 and -1 in a setting follow from the length of an episode: `sized`
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pcpg.config import (
    AgentConfig,
    BaselineConfig,
    ExploitConfig,
    ExploreConfig,
    PCPGConfig,
    PPOConfig,
    ReplayConfig,
)
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Image, flat_size
from pcpg.features.examples import host_play
from pcpg.learning.e3b import E3BConfig
from pcpg.learning.rnd import RNDConfig
from pcpg.policies.kernel import candidate_actions

replace = dataclasses.replace
Choice = tuple[str, dict[str, Any]]
"""Name and options of a feature map."""

# Compiled environments: the lock's settings, the same at every horizon. results/lock/tuning.md has the record.

PAPER_PPO = PPOConfig(num_episodes=512, num_epochs=5, minibatch_size=160, entropy_coef=0.01)
"""The paper's table for the lock: clip 0.2, gradient norm 5, learning rate 1e-3, 5 epochs of minibatches of 160."""

REWARD_BONUS = ExploitConfig(num_rounds=0, warm_start=True)
"""The reward-bonus version has no exploitation: it hands back the best policy of its cover."""

PCPG = PCPGConfig()
PCPG_BONUS = PCPGConfig(explore=ExploreConfig(reward_coef=1.0), exploit=REWARD_BONUS)
PPO = BaselineConfig(ppo=PAPER_PPO)
PPO_RND = BaselineConfig(ppo=PAPER_PPO, rnd=RNDConfig())
PPO_E3B = BaselineConfig(ppo=PAPER_PPO, e3b=E3BConfig())
REPLAY = ReplayConfig()

# Environments that are stepped on the host: fewer and smaller updates, used more often.

# Tuned on seeds from 1000 on: a maze that is new at every reset (PPO, 150k steps: 0.57 of the episodes solved with 6
# epochs of larger minibatches and entropy 0.005, 0.8 to 0.9 with these and entropy 0.02 to 0.05), three stages,
# CartPole.

HOST_PPO = PPOConfig(num_updates=10, num_epochs=10, entropy_coef=0.03, shared_body=False, normalise_rewards=True)
"""Returns of any size: rewards are scaled, and the loss of the values does not pull at the policy's body."""
HOST_EXPLORE = ExploreConfig(visit_episodes=64, num_groups=8, ridge=1e-4, ridge_scale="features")
HOST_EXPLOIT = ExploitConfig(start_share=0.5, advantage_floor=0.1, keep_best=True)

HOST_PCPG = PCPGConfig(HOST_PPO, HOST_EXPLORE, HOST_EXPLOIT)
HOST_PCPG_BONUS = PCPGConfig(HOST_PPO, replace(HOST_EXPLORE, reward_coef=1.0), REWARD_BONUS)
HOST_BASELINE = BaselineConfig(ppo=HOST_PPO, budget=500_000, visit_episodes=64)
HOST_RND = replace(HOST_BASELINE, rnd=RNDConfig(coef=0.5, normalise=True))
HOST_E3B = replace(HOST_BASELINE, e3b=E3BConfig())

# MountainCar with continuous actions: 5 of 5 seeds above 90 over the environment's 999 steps, under 3M steps per seed.

CAR_PPO = PPOConfig(
    num_updates=60,
    num_episodes=32,
    num_epochs=5,
    minibatch_size=160,
    learning_rate=5e-4,
    entropy_coef=0.01,
    shared_body=False,
)
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
    """What an environment has of its own."""

    settings: Mapping[str, AgentConfig]  # by algorithm
    features: Choice | None = None
    exploit: Mapping[str, Any] = {}  # changes to the settings of a cover, for a run that exploits it


# The paper's experiments alone: other people's environments have none, whatever is chosen for them is chosen by a look.

ENVIRONMENTS: dict[str, EnvironmentPreset] = {
    "MountainCarContinuous-v0": EnvironmentPreset(
        {
            "pcpg-bonus": CAR_BONUS,
            "ppo": BaselineConfig(ppo=CAR_PPO),
            "ppo-rnd": BaselineConfig(ppo=replace(CAR_PPO, learning_rate=1e-4), rnd=RNDConfig()),
        },
        features=("fourier", {}),
    ),
    "Maze-v0": EnvironmentPreset(
        {
            "pcpg": MAZE_COVER,
            "ppo": MAZE_BASELINE,
            # The paper's coefficient of 1000 would make values of that order; without another reward it has no other
            # effect.
            "ppo-rnd": replace(MAZE_BASELINE, rnd=RNDConfig(coef=1.0, normalise=True)),
        },
        # A smaller kernel than the paper's 32, 64 and 512: on two cores those alone cost more than all the rest.
        features=("random-conv", {"num_features": 128, "num_kernels": [16, 32]}),
        exploit=MAZE_GOAL,
    ),
}


def environment_preset(env_id: str) -> EnvironmentPreset:
    """What an environment has of its own."""
    return ENVIRONMENTS.get(env_id, EnvironmentPreset({}))


MOST_SAMPLES = 2**20
"""Most samples that an update can put in random order (learning/update.py)."""


def sized(config: AgentConfig, env: Environment) -> AgentConfig:
    """The settings with every formula of the episode's length worked out; `max_steps` is H + 1 on the lock.

    On the host, where a step costs a hundred times as much, an update has fewer episodes, at most 64, and exploration
    of long episodes fewer policies; so has a compiled environment whose episodes are too long for the formula.
    """
    max_steps, on_host = env.max_steps, isinstance(env, HostEnvironment)
    if isinstance(config, ReplayConfig):
        return _sized_replay(config, env)
    blocks = -(-max_steps // 16)
    is_long = not on_host and config.ppo.num_episodes == 0 and 512 * blocks * max_steps > MOST_SAMPLES
    episodes = min(64, max(16, 9600 // max_steps // 16 * 16)) if on_host else 64 if is_long else 512 * blocks
    ppo = replace(
        config.ppo,
        num_episodes=config.ppo.num_episodes or episodes,
        minibatch_size=config.ppo.minibatch_size or (min(128, 32 * blocks) if on_host else 64 * blocks),
    )
    if isinstance(config, BaselineConfig):
        return replace(config, ppo=ppo)
    policies, rounds = 2 * max_steps + 8, max_steps + 4
    if on_host:
        steps = ppo.num_updates * ppo.num_episodes * max_steps  # of a round, if no episode ends early
        policies, rounds = min(policies, 40, max(10, 600_000 // steps)), min(rounds, 16)
    if is_long:
        policies, rounds = min(policies, 12), min(rounds, 8)
    explore = replace(config.explore, max_policies=config.explore.max_policies or policies)
    given = config.exploit.num_rounds
    exploit = replace(config.exploit, num_rounds=rounds if given < 0 else given)
    return replace(config, ppo=ppo, explore=explore, exploit=exploit)


MOST_BYTES = 4_000_000_000
"""Memory that the data of a seed may take by default, if no observation came twice."""


def bytes_of_transition(env: Environment) -> int:
    """The most memory that a kept transition takes."""
    space = env.observation_space
    return int(np.prod(space.shape, dtype=int)) * np.dtype(space.dtype).itemsize + 24


def _sized_replay(config: ReplayConfig, env: Environment) -> ReplayConfig:
    steps = env.max_steps
    actions = len(candidate_actions(env.action_space, config.replay.num_actions))
    room = MOST_BYTES // bytes_of_transition(env)
    capacity = min(max(40 * steps**2 * (actions + 10), 200_000), 40_000_000, room)
    given = config.exploit.backups
    return replace(
        config,
        replay=replace(config.replay, capacity=config.replay.capacity or capacity),
        explore=replace(
            config.explore,
            backups=config.explore.backups or steps,
            num_episodes=config.explore.num_episodes or (16 if steps > 128 else 32),
        ),
        exploit=replace(config.exploit, backups=2 * steps if given < 0 else given),
    )


MOST_PAIRS = 512
"""Most features of a tabular map over pairs; beyond, the map is over states."""
SMALL = 16
"""Entries of an observation up to which few random features tell its values apart."""


def features_for(env_id: str, env: Environment, seed: int) -> Choice:
    """The feature map of an environment where none is named: its own, or what suits its observations."""
    own = ENVIRONMENTS.get(env_id)
    return own.features if own is not None and own.features is not None else suggested(env, seed)


@functools.lru_cache(maxsize=16)
def suggested(env: Environment[Any, Any], seed: int) -> Choice:
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
    """Whether every row has a single one and zeros beside it."""
    ones = observations == 1
    return bool(np.all(ones.sum(axis=1) == 1) and np.all(ones | (observations == 0)))
