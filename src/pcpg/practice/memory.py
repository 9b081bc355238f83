"""Whether a run can fit into memory at all, said before anything is allocated."""

import math
from typing import Any

import numpy as np

from pcpg.config import AgentConfig, ConfigError, PCPGConfig, ReplayConfig
from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Image, flat_size
from pcpg.machine import free_memory
from pcpg.presets import sized

MOST_ENTRIES = 10_000_000
"""Of one observation or action: beyond it not even a network's first layer is thought of."""


def check_fits(env: Environment, agent: AgentConfig) -> None:
    """Refuse entries that observations do not have, and arrays of one seed that are larger than the free memory."""
    ignored = agent.replay.ignored if isinstance(agent, ReplayConfig) else ()
    if ignored and max(ignored) >= flat_size(env.observation_space):
        last = flat_size(env.observation_space) - 1
        raise ConfigError(f"replay.ignored names entry {max(ignored)}, and the last of an observation is {last}")
    for what, space in (("observation", env.observation_space), ("action", env.action_space)):
        size = flat_size(space)
        if size > MOST_ENTRIES:
            raise ConfigError(
                f"one {what} of {space} has {size:,} entries as networks see it, at most {MOST_ENTRIES:,}"
            )
    settings: Any = sized(agent, env)
    networks, episodes = 0 if isinstance(settings, ReplayConfig) else _networks(env, settings), _episodes(env, settings)
    free = free_memory()
    if free is not None and networks + episodes > free:
        raise ConfigError(
            f"one seed needs about {(networks + episodes) / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free: "
            f"{episodes / 1e9:,.1f} GB for the episodes of an update and {networks / 1e9:,.1f} GB for networks of "
            f"{flat_size(env.observation_space):,} inputs and {flat_size(env.action_space):,} actions. Use fewer "
            "episodes (--ppo.num-episodes), fewer policies (--explore.max-policies), or an environment with smaller "
            "spaces"
        )


def _networks(env: Environment, settings: Any) -> int:
    """Bytes of the policies that a seed holds at a time: its own, the best, the optimiser's moments, the cover."""
    hidden = list(settings.ppo.hidden) or [flat_size(env.observation_space)]
    seen = 0 if isinstance(env.observation_space, Image) else flat_size(env.observation_space)
    weights = seen * hidden[0] + hidden[-1] * flat_size(env.action_space)
    cover = settings.explore.max_policies if isinstance(settings, PCPGConfig) else 0
    return 4 * weights * (6 + cover)


def _episodes(env: Environment, settings: Any) -> int:
    """Bytes of the observations of one update's episodes; compiled environments often need not hold them."""
    if not isinstance(env, HostEnvironment):
        return 0
    number = settings.explore.num_episodes if isinstance(settings, ReplayConfig) else settings.ppo.num_episodes
    space = env.observation_space
    return (env.max_steps + 1) * number * math.prod(space.shape) * np.dtype(space.dtype).itemsize
