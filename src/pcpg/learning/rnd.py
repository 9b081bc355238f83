"""Random network distillation (Burda et al. 2018): the bonus is the error of a predictor of a fixed network."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Space
from pcpg.policies.networks import Array, Body, init_body


class RunningScale(NamedTuple):
    """Mean and variance of all intrinsic returns so far (Chan's parallel update)."""

    total: Array
    mean: Array
    variance: Array

    def update(self, values: jax.Array, mask: jax.Array) -> "RunningScale":
        """The statistics with the masked values added."""
        new = jnp.sum(mask).astype(jnp.float32)
        total = self.total + new
        mean = jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(new, 1.0)
        variance = jnp.sum(jnp.where(mask, (values - mean) ** 2, 0.0)) / jnp.maximum(new, 1.0)
        delta = mean - self.mean
        share = new / jnp.maximum(total, 1.0)
        combined = self.variance * (1 - share) + variance * share + delta**2 * share * (1 - share)
        return RunningScale(total, self.mean + delta * share, combined)


class RND(NamedTuple):
    """The fixed target, the predictor in training, and the scale of the intrinsic returns."""

    target: Body
    predictor: Body
    scale: RunningScale


@dataclasses.dataclass(frozen=True)
class RNDConfig:
    """Random network distillation; the defaults are the paper's for locks and MountainCar."""

    coef: float = 1000.0
    """Weight of the intrinsic reward beside the extrinsic."""
    normalise: bool = False
    """Divide the intrinsic reward by the running standard deviation of its discounted returns."""


def init_rnd(rng: np.random.Generator, observation_space: Space, hidden: tuple[int, ...]) -> RND:
    """A fresh pair of networks: the policy's without its last layer."""
    zero = np.zeros((), np.float32)
    target, predictor = (init_body(rng, observation_space, hidden) for _ in range(2))
    return RND(target, predictor, RunningScale(zero, zero, np.ones((), np.float32)))


def prediction_error(predictor: Body, target: Body, observations: jax.Array) -> jax.Array:
    """Half the mean squared error of the predictor over its outputs, [...].

    Outputs are taken before their ReLU: behind it a unit that is off at a state has no gradient there, and the
    bonus of a state seen ever so often would stay (measured on the lock: at a tenth, at some states a fifth).
    """
    goal = jax.lax.stop_gradient(target.linear(observations))
    return 0.5 * jnp.mean((predictor.linear(observations) - goal) ** 2, axis=-1)


def discounted_sums(rewards: jax.Array, gamma: float | jax.Array, ends: jax.Array | None = None) -> jax.Array:
    """Running discounted sums forward in time (axis 0) for each environment: what the normaliser looks at.

    After a step marked in `ends` the sum begins anew.
    """

    def forward(total: jax.Array, inputs: tuple[jax.Array, jax.Array | None]) -> tuple[jax.Array, jax.Array]:
        reward, end = inputs
        total = gamma * total + reward
        return total if end is None else jnp.where(end, 0.0, total), total

    return jax.lax.scan(forward, jnp.zeros_like(rewards[0]), (rewards, ends))[1]


def intrinsic_rewards(
    rnd: RND, error: jax.Array, mask: jax.Array, *, gamma: float, config: RNDConfig, ends: jax.Array | None = None
) -> tuple[jax.Array, RND]:
    """Bonus [T, E] from the prediction error at the observations that followed each action, and the new scale.

    `ends` [T, E] marks where one episode ends and the next begins.
    """
    bonus = error * mask
    if not config.normalise:
        return bonus, rnd
    scale = rnd.scale.update(discounted_sums(bonus, gamma, ends), mask)
    return bonus / jnp.sqrt(scale.variance + 1e-8), rnd._replace(scale=scale)
