"""MiniGrid's observations are codes, not brightness: three integers a cell, for object, colour and state."""

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv


def declared_space(env: Any) -> gymnasium.Space[Any]:
    """The observation space of an environment; the bytes of MiniGrid's grid declared as the codes that they are."""
    space = env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space
    inner: Any = getattr(env, "envs", [env])[0].unwrapped
    module = sys.modules.get("minigrid.minigrid_env")  # loaded, if the environment is one of its
    if module is None or not isinstance(inner, module.MiniGridEnv):
        return space
    views = ((inner.agent_view_size, inner.agent_view_size), (inner.width, inner.height))
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _codes(part, views) for key, part in space.spaces.items()})
    return _codes(space, views)


def _codes(space: gymnasium.Space[Any], views: tuple[tuple[int, int], ...]) -> gymnasium.Space[Any]:
    """A grid of codes [width, height, 3] as MultiDiscrete; other spaces, pictures among them, as they are."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or space.shape[:2] not in views:
        return space
    from minigrid.core import constants  # pyright: ignore[reportMissingImports]

    states = max(len(constants.STATE_TO_IDX), 4)  # the agent's direction is coded here too
    sizes = (len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), states)
    return spaces.MultiDiscrete(np.broadcast_to(sizes, space.shape).copy())
