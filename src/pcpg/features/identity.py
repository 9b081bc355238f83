"""The observation itself as features: the paper's kernel for the lock."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Space, flat_size
from pcpg.features.base import FeatureMap, action_vector, observation_vector
from pcpg.shapes import Array, Float, Shaped


class Identity(FeatureMap):
    """phi(s, a) = s, or one copy of s for each action, zero but for the action taken."""

    observation_space: Space = eqx.field(static=True)
    action_space: Discrete | None = eqx.field(static=True)  # None: the action is left out

    @property
    def dim(self) -> int:
        return flat_size(self.observation_space) * (1 if self.action_space is None else self.action_space.n)

    def __call__(
        self, observation: Shaped[Array, "*observation"], action: Shaped[Array, "*action"]
    ) -> Float[jax.Array, " {self.dim}"]:
        vector = observation_vector(observation, self.observation_space)
        if self.action_space is None:
            return vector
        return jnp.outer(action_vector(action, self.action_space), vector).reshape(-1)


def identity(env: Environment, rng: np.random.Generator, *, with_actions: bool = False) -> Identity:
    """The observation as features.

    Args:
        env: Any environment; with discrete actions where they are asked for.
        rng: Not used: nothing is drawn.
        with_actions: One copy of the observation for each action, zero but for the one taken.

    Returns:
        The map.
    """
    del rng
    if not with_actions:
        return Identity(env.observation_space, None)
    if not isinstance(env.action_space, Discrete):
        raise ValueError(f"identity features with actions need discrete actions, got {env.action_space}")
    return Identity(env.observation_space, env.action_space)
