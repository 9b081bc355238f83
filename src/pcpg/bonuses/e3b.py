"""The episodic elliptical bonus of E3B (Henaff et al. 2022): novelty within an episode, in learned features.

    b_t = phi(s_t)' C_{t-1}^-1 phi(s_t),    C_t = C_{t-1} + phi(s_t) phi(s_t)',    C = ridge * I before the first state

If every episode has a new layout, only novelty within the episode is meaningful. The features are those of
features/inverse_dynamics.py, trained on the same episodes as the policy.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.bonuses.protocol import At, Learned, Learning, Metrics, RunningScale, Samples
from pcpg.engine.rollout import Rollout
from pcpg.engine.tabulated import at_observations
from pcpg.envs.spaces import Space
from pcpg.features.inverse_dynamics import InverseDynamics, init_inverse_dynamics, inverse_loss
from pcpg.policies.networks import ActorCritic
from pcpg.shapes import Array, Bool, Float, Scalar


@dataclasses.dataclass(frozen=True)
class E3B(Learning):
    """The episodic elliptical bonus."""

    name: str = dataclasses.field(default="e3b", init=False)
    coef: float = 0.5
    """Initial weight of the bonus, whose discounted returns are scaled to standard deviation 1."""
    anneal: bool = True
    """Anneal the weight linearly to zero over the budget, so the last updates use the reward alone."""
    ridge: float = 0.1
    """lambda: features have norm 1, so the bonus lies between 0 and 1 / lambda."""

    def init(
        self, rng: np.random.Generator, observation_space: Space, action_space: Space, hidden: tuple[int, ...]
    ) -> Learned:
        """Fresh features, with the policy's layers."""
        model = init_inverse_dynamics(rng, observation_space, action_space, hidden)
        return Learned(model, RunningScale.fresh())

    def pay(self, state: Learned, data: Rollout, at: At) -> tuple[jax.Array, Learned]:
        """The bonus of what followed each step, in deviations of its discounted returns."""
        return self.scaled(state, self.within(state, data, at), data.alive, data, at)

    def within(self, state: Learned, data: Rollout, at: At) -> jax.Array:
        """The bonus before scaling: the novelty of each next observation within its episode."""
        features = state.model.features
        here, after = (at_observations(features, at.table, seen) for seen in (data.observations[:-1], data.following))
        return episodic_bonus(here, after, self.ridge, data.ends)

    def loss(
        self, policy: ActorCritic, trained: InverseDynamics, state: Learned, samples: Samples, at: At
    ) -> tuple[jax.Array, Metrics]:
        """The loss of predicting actions from the observations around them."""
        here, after = at.observations(samples.observations), at.observations(samples.following)
        loss = inverse_loss(trained.outputs(here, after), samples.actions, samples.mask, at.distribution)
        return loss, {"inverse_loss": loss}

    def weight(self, spent: float) -> float:
        return self.coef * (max(0.0, 1.0 - spent) if self.anneal else 1.0)


def episodic_bonus(
    here: Float[Array, "T envs d"],
    following: Float[Array, "T envs d"],
    ridge: Scalar,
    ends: Bool[Array, "T envs"] | None = None,
) -> Float[jax.Array, "T envs"]:
    """The bonus of the state that followed each step, from the features of those before it in its episode.

    Args:
        here: Features of the states in which actions were taken.
        following: Features of those that followed, an episode's last included.
        ridge: lambda.
        ends: Where an episode ends and the next one begins in its place; None: every place has one episode.
    """
    size = here.shape[-1]
    fresh = jnp.broadcast_to(jnp.eye(size, dtype=jnp.float32) / ridge, (here.shape[1], size, size))

    def step(inverse: jax.Array, given: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        phi, later, is_first = given
        started = _with_state(fresh, phi)[1]
        inverse = jnp.where(is_first[:, None, None], started, inverse)
        bonus, inverse = _with_state(inverse, later)
        return inverse, bonus

    first = jnp.zeros(here.shape[:2], bool).at[0].set(True)
    if ends is not None:
        first = first.at[1:].set(ends[:-1])
    return jax.lax.scan(step, fresh, (jnp.asarray(here), jnp.asarray(following), first))[1]


def _with_state(inverse: jax.Array, phi: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The quadratic form of a state in the inverse covariance, and the inverse with it added (Sherman, Morrison)."""
    solved = jnp.einsum("eij,ej->ei", inverse, phi)
    form = jnp.sum(phi * solved, axis=-1)
    return form, inverse - solved[:, :, None] * solved[:, None, :] / (1 + form)[:, None, None]
