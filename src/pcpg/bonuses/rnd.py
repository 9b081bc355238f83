"""Random network distillation (Burda et al. 2018): the bonus is the error of a predictor of a fixed network."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.bonuses.protocol import At, Metrics, Pointwise, RunningScale, Samples
from pcpg.engine.rollout import Rollout
from pcpg.engine.tabulated import at_observations
from pcpg.envs.spaces import Space
from pcpg.policies.networks import ActorCritic, Body, init_body
from pcpg.shapes import Array, Float, Shaped


class RNDState(NamedTuple):
    """The fixed target, the predictor in training, and the scale of the intrinsic returns."""

    target: Body
    predictor: Body
    scale: RunningScale


@dataclasses.dataclass(frozen=True)
class RND(Pointwise[RNDState]):
    """Random network distillation; the defaults are the paper's for locks and MountainCar."""

    name: str = dataclasses.field(default="rnd", init=False)
    coef: float = 1000.0
    """Weight of the intrinsic reward relative to the extrinsic."""
    normalise: bool = False
    """Divide the intrinsic reward by the running standard deviation of its discounted returns."""

    def init(
        self, rng: np.random.Generator, observation_space: Space, action_space: Space, hidden: tuple[int, ...]
    ) -> RNDState:
        """A fresh pair of networks: the policy's without its last layer."""
        target, predictor = (init_body(rng, observation_space, hidden) for _ in range(2))
        return RNDState(target, predictor, RunningScale.fresh())

    def trained(self, state: RNDState) -> Body:
        return state.predictor

    def with_trained(self, state: RNDState, trained: Body) -> RNDState:
        return state._replace(predictor=trained)

    def of(self, state: RNDState, here: jax.Array, actions: jax.Array, after: jax.Array, at: At) -> jax.Array:
        """The prediction error at the observations that followed."""
        return prediction_error(state.predictor, state.target, after)

    def pay(self, state: RNDState, data: Rollout, at: At) -> tuple[jax.Array, RNDState]:
        """The prediction error at the observations that followed each own step."""
        error = at_observations(partial(prediction_error, state.predictor, state.target), at.table, data.following)
        bonus = error * data.own
        if not self.normalise:
            return bonus, state
        bonus, scale = state.scale.scaled(bonus, data.own, at.gamma, data.ends)
        return bonus, state._replace(scale=scale)

    def loss(
        self, policy: ActorCritic, trained: Body, state: RNDState, samples: Samples, at: At
    ) -> tuple[jax.Array, Metrics]:
        """The mean prediction error."""
        error = at_observations(partial(prediction_error, trained, state.target), at.table, samples.following)
        loss = samples.mean(error)
        return loss, {"rnd_loss": loss}

    def weight(self, spent: float) -> float:
        return self.coef


def prediction_error(predictor: Body, target: Body, observations: Shaped[Array, "..."]) -> Float[jax.Array, "..."]:
    """Half the mean squared error of the predictor over its outputs, for each observation.

    Outputs are taken before their ReLU: behind it a unit that is off at a state has no gradient there, and the
    bonus of a state seen ever so often would stay (measured on the lock: at a tenth, at some states a fifth).
    """
    goal = jax.lax.stop_gradient(target.linear(observations))
    return 0.5 * jnp.mean((predictor.linear(observations) - goal) ** 2, axis=-1)
