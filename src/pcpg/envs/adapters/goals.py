"""The goals that observations of a Gymnasium environment name, as is usual with robots."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pcpg.envs.adapters.spaces import size_of
from pcpg.envs.protocol import Goals


def goals_of(env: Any, space: gymnasium.Space) -> Goals | None:
    """The goals of an environment with achieved_goal, desired_goal and compute_reward."""
    inner: Any = getattr(env, "unwrapped", None)
    parts = slices_of(space)
    if not hasattr(inner, "compute_reward") or not {"achieved_goal", "desired_goal"} <= parts.keys():
        return None

    def reward(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.asarray(inner.compute_reward(achieved, desired, {}), np.float32).reshape(len(achieved))

    achieved, desired = parts["achieved_goal"], parts["desired_goal"]
    places = np.zeros((2, desired.stop - desired.start), np.float32)
    try:
        reward(places, places)
        ends = inner.compute_terminated(places[0], places[0], {}) if hasattr(inner, "compute_terminated") else None
    except Exception:  # it wants more than the goals, or takes them one by one
        return None
    same = achieved.stop - achieved.start == places.shape[1]
    return Goals(achieved, desired, reward, None if ends is None else bool(ends)) if same else None


def slices_of(space: gymnasium.Space) -> dict[str, slice]:
    """Where the real vectors in a Dict lie in what networks see."""
    if not isinstance(space, spaces.Dict):
        return {}
    sizes = [size_of(part) for key, part in space.spaces.items()]
    ends = np.cumsum(sizes).tolist()
    each = zip(space.spaces.items(), sizes, ends, strict=True)
    return {key: slice(end - n, end) for (key, part), n, end in each if isinstance(part, spaces.Box)}
