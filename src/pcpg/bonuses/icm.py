"""Intrinsic curiosity (Pathak et al. 2017): the error of a forward model, in features that tell the action taken."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.bonuses.protocol import At, Learned, Learning, Metrics, Pointwise, RunningScale, Samples
from pcpg.engine.rollout import Rollout
from pcpg.envs.spaces import Space, flat_size
from pcpg.features.base import action_vector
from pcpg.features.inverse_dynamics import InverseDynamics, init_inverse_dynamics, inverse_loss
from pcpg.policies.networks import ActorCritic, Body, Linear, orthogonal


class Models(NamedTuple):
    """The inverse model with its features, and the forward model of those."""

    inverse: InverseDynamics
    forward: Body


@dataclasses.dataclass(frozen=True)
class ICM(Learning, Pointwise[Learned]):
    """The intrinsic curiosity module."""

    name: str = dataclasses.field(default="icm", init=False)
    share: float = 0.2
    """Weight of the forward model's loss; the inverse model's loss gets the rest."""

    def init(
        self, rng: np.random.Generator, observation_space: Space, action_space: Space, hidden: tuple[int, ...]
    ) -> Learned:
        """Fresh models: features by the policy's layers, one hidden layer in the forward model."""
        inverse = init_inverse_dynamics(rng, observation_space, action_space, hidden)
        width = hidden[-1]
        sizes = [(width + flat_size(action_space), width, math.sqrt(2.0)), (width, width, 1.0)]
        layers = (Linear(orthogonal(rng, (n, m), gain), np.zeros(m, np.float32)) for n, m, gain in sizes)
        return Learned(Models(inverse, Body(tuple(layers))), RunningScale.fresh())

    def of(self, state: Learned, here: jax.Array, actions: jax.Array, after: jax.Array, at: At) -> jax.Array:
        """The forward model's error."""
        return _error(state.model, here, actions, after, at)

    def pay(self, state: Learned, data: Rollout, at: At) -> tuple[jax.Array, Learned]:
        """The forward model's error at each own step, in deviations of its discounted returns."""
        bonus, _ = super().pay(state, data, at)
        return self.scaled(state, bonus, data.own, data, at)

    def loss(
        self, policy: ActorCritic, trained: Models, state: Learned, samples: Samples, at: At
    ) -> tuple[jax.Array, Metrics]:
        """Both models' losses; only the inverse model's trains the features."""
        here, after = at.observations(samples.observations), at.observations(samples.following)
        forward = samples.mean(_error(trained, here, samples.actions, after, at))
        outputs = trained.inverse.outputs(here, after)
        inverse = inverse_loss(outputs, samples.actions, samples.mask, at.distribution)
        loss = self.share * forward + (1 - self.share) * inverse
        return loss, {"forward_loss": forward, "inverse_loss": inverse}


def _error(models: Models, here: jax.Array, actions: jax.Array, after: jax.Array, at: At) -> jax.Array:
    """Half the squared distance between the features that followed and the predicted ones; no gradient to features."""
    features, goal = (jax.lax.stop_gradient(models.inverse.features(seen)) for seen in (here, after))
    single = actions.reshape(-1, *at.action_space.shape)
    taken = jax.vmap(lambda action: action_vector(action, at.action_space))(single)
    taken = taken.reshape(*features.shape[:-1], -1)
    predicted = models.forward.linear(jnp.concatenate([features, taken], axis=-1))
    return 0.5 * jnp.sum((predicted - goal) ** 2, axis=-1)
