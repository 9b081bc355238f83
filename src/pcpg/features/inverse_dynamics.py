"""Features learned from the effects of actions: an encoder that predicts the action between two observations.

An encoder phi and a head are trained together so the head predicts the action between two observations from phi of both
(Pathak et al. 2017). Anything that no action affects, such as noise, does not help and vanishes from phi. The features
of an observation have norm 1, whatever the observations' scale.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Box, Space
from pcpg.policies.distributions import Distribution, num_outputs
from pcpg.policies.networks import Body, Linear, init_body, orthogonal
from pcpg.shapes import Array, Bool, Float, Shaped


class InverseDynamics(eqx.Module):
    """The encoder and the head."""

    encoder: Body
    hidden: Linear
    head: Linear
    log_std: Float[Array, " outputs"] | None  # for real actions alone

    def features(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "*batch d"]:
        """phi: the encoder's last units, centred and of norm 1."""
        units = self.encoder.linear(observations)
        centred = units - jnp.mean(units, axis=-1, keepdims=True)
        return centred / jnp.sqrt(jnp.sum(centred**2, axis=-1, keepdims=True) + 1e-6)

    def outputs(
        self, observations: Shaped[Array, "..."], later: Shaped[Array, "..."]
    ) -> Float[jax.Array, "*batch outputs"]:
        """Parameters of the distribution of the action that was taken at the first of two observations."""
        both = jnp.concatenate([self.features(observations), self.features(later)], axis=-1)
        outputs = self.head(jax.nn.relu(self.hidden(both * math.sqrt(both.shape[-1] / 2))))
        if self.log_std is None:
            return outputs
        return jnp.concatenate([outputs, jnp.broadcast_to(self.log_std, outputs.shape)], axis=-1)


def init_inverse_dynamics(
    rng: np.random.Generator, observation_space: Space, action_space: Space, widths: tuple[int, ...] = (64, 64)
) -> InverseDynamics:
    """A fresh encoder; the last width is the number of features."""
    size, outputs = widths[-1], num_outputs(action_space)
    return InverseDynamics(
        init_body(rng, observation_space, widths),
        Linear(orthogonal(rng, (2 * size, size), math.sqrt(2.0)), np.zeros(size, np.float32)),
        Linear(orthogonal(rng, (size, outputs), 0.01), np.zeros(outputs, np.float32)),
        np.zeros(outputs, np.float32) if isinstance(action_space, Box) else None,
    )


def inverse_loss(
    outputs: Float[jax.Array, "*batch outputs"],
    actions: Shaped[Array, "..."],
    mask: Bool[Array, "*batch"],
    distribution: Distribution,
) -> Float[jax.Array, ""]:
    """Minus the mean log-density of the actions that were taken, over the masked pairs."""
    log_prob = distribution.log_prob(outputs, jnp.asarray(actions))
    return -jnp.sum(jnp.where(mask, log_prob, 0.0)) / jnp.maximum(jnp.sum(mask), 1)
