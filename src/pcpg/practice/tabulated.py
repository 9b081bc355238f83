"""Environments with few observations: networks and features are evaluated once for each, then looked up.

A maze of 20 x 20 has 400 images; an update looks at some 50,000 of them. Where an environment lists its observations
(`observation_table`), a rollout carries their numbers instead of images, the policies act by rows of a table, and the
bonus and the covariance are those of the table's pairs. The result is the same but for rounding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.bonus import covariance, weighted_covariance
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Discrete
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic
from pcpg.practice.rollout import Rollout


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
    """A policy as the rows of a table: what its networks say at each observation."""

    rows: jax.Array  # [number, outputs]
    values: jax.Array  # [number]

    def outputs(self, numbers: jax.Array) -> jax.Array:
        return self.rows[numbers]

    def value(self, numbers: jax.Array) -> jax.Array:
        return self.values[numbers]


def table_of(env: Environment, params: Any) -> Table | None:
    """All observations, where the environment lists them and its actions can be listed too."""
    if not isinstance(env.action_space, Discrete):
        return None
    observations = env.observation_table(params)
    return None if observations is None else Table(observations, env.action_space.n)


def seen_through(table: Table | None, policy: ActorCritic) -> Any:
    """The policy itself, or the rows that stand for it."""
    return policy if table is None else LookedUp(*policy.outputs_and_value(table.observations))


def at_observations(function: Callable[[Any], Any], table: Table | None, observations: jax.Array) -> Any:
    """A function of observations [n, ...], evaluated on those or on the whole table, whichever is shorter."""
    if table is None:
        return function(observations)
    if observations.size <= len(table.observations):
        return function(jnp.asarray(table.observations)[observations])
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


def covariance_of(phi: Any, distribution: Distribution, table: Table | None, data: Rollout) -> jax.Array:
    """Mean of phi phi' over the pairs of living episodes, [d, d]."""
    if table is None:
        features = of_pairs(phi.batch, distribution, None, data)
        return covariance(features.reshape(-1, features.shape[-1]), data.alive.reshape(-1))
    features = phi.batch(*table.pairs)
    visits = jnp.zeros(features.shape[0], jnp.float32).at[table.pair_numbers(data)].add(data.alive)
    return weighted_covariance(features, visits)
