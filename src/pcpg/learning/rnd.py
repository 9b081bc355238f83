"""Random network distillation (Burda et al. 2018): the bonus is the error of a predictor of a fixed network."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Space
from pcpg.learning.ppo import discounted_sums
from pcpg.policies.networks import Body, init_body
from pcpg.policies.normaliser import Moments, init_moments
from pcpg.shapes import Array, Bool, Float, Scalar, Shaped


class RunningScale(NamedTuple):
    """Moments of all intrinsic returns so far; checkpoints hold them under these names."""

    total: Float[Array, ""]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    def update(self, values: Float[Array, "*batch"], mask: Bool[Array, "*batch"]) -> "RunningScale":
        """The moments with the masked values added."""
        new = jnp.sum(mask).astype(jnp.float32)
        mean = jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(new, 1.0)
        variance = jnp.sum(jnp.where(mask, (values - mean) ** 2, 0.0)) / jnp.maximum(new, 1.0)
        return RunningScale(*Moments(*self).merged(new, mean, variance))


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
    target, predictor = (init_body(rng, observation_space, hidden) for _ in range(2))
    return RND(target, predictor, RunningScale(*init_moments(())))


def prediction_error(predictor: Body, target: Body, observations: Shaped[Array, "..."]) -> Float[jax.Array, "..."]:
    """Half the mean squared error of the predictor over its outputs, for each observation.

    Outputs are taken before their ReLU: behind it a unit that is off at a state has no gradient there, and the
    bonus of a state seen ever so often would stay (measured on the lock: at a tenth, at some states a fifth).
    """
    goal = jax.lax.stop_gradient(target.linear(observations))
    return 0.5 * jnp.mean((predictor.linear(observations) - goal) ** 2, axis=-1)


def intrinsic_rewards(
    rnd: RND,
    error: Float[jax.Array, "T envs"],
    mask: Bool[Array, "T envs"],
    *,
    gamma: Scalar,
    config: RNDConfig,
    ends: Bool[Array, "T envs"] | None = None,
) -> tuple[Float[jax.Array, "T envs"], RND]:
    """The bonus from the prediction error at the observations that followed each action, and the new scale.

    `ends` marks where one episode ends and the next begins.
    """
    bonus = error * mask
    if not config.normalise:
        return bonus, rnd
    scale = rnd.scale.update(discounted_sums(bonus, gamma, ends), mask)
    return bonus / jnp.sqrt(scale.variance + 1e-8), rnd._replace(scale=scale)
