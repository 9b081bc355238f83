"""Environments with few observations: evaluate networks and features once for each, then look them up.

A maze of 20 x 20 has 400 images, but an update evaluates about 50,000. If an environment lists its observations
(`observation_table`), a rollout carries their numbers instead of images, policies act by rows of a table, and bonus and
covariance are computed from the table's pairs. The result is the same up to rounding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.bonus import covariance, weighted_covariance
from pcpg.engine.rollout import Rollout
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete
from pcpg.features.base import FeatureMap
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic


class Table(NamedTuple):
    """All observations of an environment."""

    observations: jax.Array | np.ndarray  # [number, ...]
    num_actions: int

    @property
    def pairs(self) -> tuple[jax.Array, jax.Array]:
        """Every observation with every action; the number of a pair is observation * num_actions + action."""
        numbers = jnp.arange(len(self.observations) * self.num_actions)
        return jnp.asarray(self.observations)[numbers // self.num_actions], numbers % self.num_actions

    def pair_numbers(self, data: Rollout) -> jax.Array:
        """The pairs of a rollout, [T, E]."""
        return data.observations[:-1] * self.num_actions + data.actions


class LookedUp(eqx.Module):
    """A policy as a table: the outputs of its networks at each observation."""

    rows: jax.Array  # [number, outputs]
    values: jax.Array  # [number]

    def outputs(self, numbers: jax.Array) -> jax.Array:
        return self.rows[numbers]

    def value(self, numbers: jax.Array) -> jax.Array:
        return self.values[numbers]


def table_of(env: Environment, params: object) -> Table | None:
    """All observations, where the environment lists them and its actions can be listed too."""
    if not isinstance(env.action_space, Discrete):
        return None
    observations = env.observation_table(params)
    return None if observations is None else Table(observations, env.action_space.n)


def seen_through(table: Table | None, policy: ActorCritic) -> Any:
    """The policy itself, or its table."""
    return policy if table is None else LookedUp(*policy.outputs_and_value(table.observations))


def listed(table: Table | None, observations: jax.Array) -> jax.Array:
    """Observations themselves, looked up where they come as their numbers."""
    return observations if table is None else jnp.asarray(table.observations)[observations]


def at_observations(function: Callable[[Any], Any], table: Table | None, observations: jax.Array) -> Any:
    """A function of observations [n, ...], evaluated on those or on the whole table, whichever is shorter."""
    if table is None:
        return function(observations)
    if observations.size <= len(table.observations):
        return function(listed(table, observations))
    return jax.tree.map(lambda rows: rows[observations], function(table.observations))


def of_pairs(
    function: Callable[[jax.Array, jax.Array], jax.Array],  # observations and actions [n, ...] to values [n, ...]
    distribution: Distribution,
    table: Table | None,
    data: Rollout,
) -> jax.Array:
    """A function of every pair of a rollout, [T, E, ...]."""
    if table is None:
        observations = data.observations[:-1].reshape(-1, *data.observations.shape[2:])
        actions = distribution.to_env(data.actions).reshape(-1, *data.actions.shape[2:])
        values = function(observations, actions)
        return values.reshape(*data.rewards.shape, *values.shape[1:])
    return function(*table.pairs)[table.pair_numbers(data)]


def covariance_of(phi: FeatureMap, distribution: Distribution, table: Table | None, data: Rollout) -> jax.Array:
    """Mean of phi phi' over the pairs of living episodes, [d, d]."""
    if table is None:
        features = of_pairs(phi.batch, distribution, None, data)
        return covariance(features.reshape(-1, features.shape[-1]), data.alive.reshape(-1))
    features = phi.batch(*table.pairs)
    visits = jnp.zeros(features.shape[0], jnp.float32).at[table.pair_numbers(data)].add(data.alive)
    return weighted_covariance(features, visits)
