"""Intrinsic curiosity (Pathak et al. 2017): the error of a forward model, in features that tell the action taken."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.bonuses.protocol import At, Metrics, Pointwise, RunningScale, Samples
from pcpg.engine.rollout import Rollout
from pcpg.envs.spaces import Space, flat_size
from pcpg.features.base import action_vector
from pcpg.features.inverse_dynamics import InverseDynamics, init_inverse_dynamics, inverse_loss
from pcpg.policies.networks import ActorCritic, Body, Linear, orthogonal


class Models(NamedTuple):
    """The inverse model with its features, and the forward model of those."""

    inverse: InverseDynamics
    forward: Body


class ICMState(NamedTuple):
    """The models in training, and the scale of the bonus's returns."""

    models: Models
    scale: RunningScale


@dataclasses.dataclass(frozen=True)
class ICM(Pointwise[ICMState]):
    """The intrinsic curiosity module."""

    name: str = dataclasses.field(default="icm", init=False)
    coef: float = 0.5
    """Weight of the bonus, whose discounted returns are scaled to standard deviation 1."""
    share: float = 0.2
    """Weight of the forward model's loss; the inverse model's loss gets the rest."""

    def init(
        self, rng: np.random.Generator, observation_space: Space, action_space: Space, hidden: tuple[int, ...]
    ) -> ICMState:
        """Fresh models: features by the policy's layers, one hidden layer in the forward model."""
        inverse = init_inverse_dynamics(rng, observation_space, action_space, hidden)
        width = hidden[-1]
        sizes = [(width + flat_size(action_space), width, math.sqrt(2.0)), (width, width, 1.0)]
        layers = (Linear(orthogonal(rng, (n, m), gain), np.zeros(m, np.float32)) for n, m, gain in sizes)
        return ICMState(Models(inverse, Body(tuple(layers))), RunningScale.fresh())

    def trained(self, state: ICMState) -> Models:
        return state.models

    def with_trained(self, state: ICMState, trained: Models) -> ICMState:
        return state._replace(models=trained)

    def of(self, state: ICMState, here: jax.Array, actions: jax.Array, after: jax.Array, at: At) -> jax.Array:
        """The forward model's error."""
        return _error(state.models, here, actions, after, at)

    def pay(self, state: ICMState, data: Rollout, at: At) -> tuple[jax.Array, ICMState]:
        """The forward model's error at each own step, in deviations of its discounted returns."""
        bonus, _ = super().pay(state, data, at)
        bonus, scale = state.scale.scaled(bonus, data.own, at.gamma, data.ends)
        return bonus, state._replace(scale=scale)

    def loss(
        self, policy: ActorCritic, trained: Models, state: ICMState, samples: Samples, at: At
    ) -> tuple[jax.Array, Metrics]:
        """Both models' losses; only the inverse model's trains the features."""
        here, after = at.observations(samples.observations), at.observations(samples.following)
        forward = samples.mean(_error(trained, here, samples.actions, after, at))
        outputs = trained.inverse.outputs(here, after)
        inverse = inverse_loss(outputs, samples.actions, samples.mask, at.distribution)
        loss = self.share * forward + (1 - self.share) * inverse
        return loss, {"forward_loss": forward, "inverse_loss": inverse}

    def weight(self, spent: float) -> float:
        return self.coef


def _error(models: Models, here: jax.Array, actions: jax.Array, after: jax.Array, at: At) -> jax.Array:
    """Half the squared distance between the features that followed and the predicted ones; no gradient to features."""
    features, goal = (jax.lax.stop_gradient(models.inverse.features(seen)) for seen in (here, after))
    single = actions.reshape(-1, *at.action_space.shape)
    taken = jax.vmap(lambda action: action_vector(action, at.action_space))(single)
    taken = taken.reshape(*features.shape[:-1], -1)
    predicted = models.forward.linear(jnp.concatenate([features, taken], axis=-1))
    return 0.5 * jnp.sum((predicted - goal) ** 2, axis=-1)
