"""Tabular features: one for each pair of state and action, or for each label that pairs share."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete, Image
from pcpg.features.base import Action, FeatureMap, Observation
from pcpg.shapes import Array, Float, Int, Shaped

NOWHERE = -1  # index of an observation that is no known state; its features are zero


class StateIndex(eqx.Module):
    """The state an observation shows: the number itself, its row in `codes`, or the place of its one."""

    codes: Shaped[Array, "num_states size"] | None  # the observation of each state
    num_states: int = eqx.field(static=True)

    def __call__(self, observation: Shaped[Array, "..."]) -> Int[Array, ""]:
        if observation.ndim == 0:
            return observation
        vector = observation.reshape(-1)
        if self.codes is None:
            shown = vector == 1
            valid = (jnp.sum(shown) == 1) & (jnp.sum(vector != 0) == 1)
        else:
            shown = jnp.all(jnp.asarray(self.codes) == vector, axis=1)
            valid = jnp.any(shown)
        return jnp.where(valid, jnp.argmax(shown), NOWHERE)


class OneHot(FeatureMap):
    """phi(s, a) = the unit vector of the pair, number s * num_actions + a."""

    index: StateIndex
    num_actions: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return self.index.num_states * self.num_actions

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " {self.dim}"]:
        state = self.index(observation)
        pair = jnp.where(state == NOWHERE, NOWHERE, state * self.num_actions + action)
        return jax.nn.one_hot(pair, self.dim, dtype=jnp.float32)


class Aggregation(FeatureMap):
    """phi(s, a) = the unit vector of the pair's label."""

    index: StateIndex
    labels: Int[Array, "num_states num_actions"]
    num_labels: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return self.num_labels

    def __call__(self, observation: Observation, action: Action) -> Float[jax.Array, " {self.dim}"]:
        state = self.index(observation)
        label = jnp.where(state == NOWHERE, NOWHERE, jnp.asarray(self.labels)[state, action])
        return jax.nn.one_hot(label, self.dim, dtype=jnp.float32)


def one_hot(env: Environment, rng: np.random.Generator, *, codes: ArrayLike | None = None) -> OneHot:
    """One feature for each pair of state and action.

    Args:
        env: With discrete actions.
        rng: Not used: nothing is drawn.
        codes: The observation of each state, [states, ...], where observations are not one-hot themselves.

    Returns:
        The map; an observation that is no known state has zero features.
    """
    del rng
    return OneHot(state_index(env, codes), num_actions(env))


def aggregation(
    env: Environment,
    rng: np.random.Generator,
    *,
    labels: ArrayLike,
    codes: ArrayLike | None = None,
) -> Aggregation:
    """One feature for each label, shared by all pairs of state and action that have it.

    Args:
        env: With discrete actions.
        rng: Not used: nothing is drawn.
        labels: Integers from 0, [states, actions], or [states] where all actions share.
        codes: The observation of each state, [states, ...], where observations are not one-hot themselves.

    Returns:
        The map, with as many features as there are labels.
    """
    del rng
    index = state_index(env, codes)
    table = np.asarray(labels)
    if table.ndim == 1:
        table = np.repeat(table[:, None], num_actions(env), axis=1)
    expected = (index.num_states, num_actions(env))
    if table.shape != expected or table.dtype.kind not in "iu" or table.min() < 0:
        raise ValueError(
            f"labels must be integers >= 0 of shape {expected} or ({expected[0]},), "
            f"got {table.dtype} of shape {np.shape(labels)}"
        )
    return Aggregation(index, table.astype(np.int32), int(table.max()) + 1)


def state_index(env: Environment, codes: ArrayLike | None) -> StateIndex:
    """The index of an environment's states, from the table of their observations where one is given."""
    space = env.observation_space
    if isinstance(space, Discrete):
        if codes is not None:
            raise ValueError("codes are for observations that are vectors or images; these are discrete")
        return StateIndex(None, space.n)
    if codes is None:
        if isinstance(space, Image) or len(space.shape) != 1:
            raise ValueError(f"observations {space} cannot be one-hot: give codes, the observation of each state")
        return StateIndex(None, space.shape[0])
    table = np.asarray(codes, space.dtype)
    if table.shape[1:] not in (space.shape, (math.prod(space.shape),)):
        raise ValueError(f"codes have shape {table.shape}; expected (states, {', '.join(map(str, space.shape))})")
    table = table.reshape(len(table), -1)
    if len(np.unique(table, axis=0)) != len(table):
        raise ValueError("two states have the same code: the index cannot tell them apart")
    return StateIndex(table, len(table))


def num_actions(env: Environment) -> int:
    """Number of actions, which must be discrete."""
    if not isinstance(env.action_space, Discrete):
        raise ValueError(f"tabular features need discrete actions, got {env.action_space}")
    return env.action_space.n
