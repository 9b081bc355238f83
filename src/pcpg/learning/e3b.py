"""The episodic elliptical bonus of E3B (Henaff et al. 2022): what is new within an episode, in learned features.

    b_t = phi(s_t)' C_{t-1}^-1 phi(s_t),    C_t = C_{t-1} + phi(s_t) phi(s_t)',    C = ridge * I before the first state

Where every episode has another layout, what was seen in earlier ones says little; within one it says all. The features
are those of features/inverse_dynamics.py, trained on the same episodes as the policy.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Space
from pcpg.features.inverse_dynamics import InverseDynamics, init_inverse_dynamics
from pcpg.learning.ppo import discounted_sums
from pcpg.learning.rnd import RunningScale
from pcpg.policies.normaliser import init_moments
from pcpg.shapes import Array, Bool, Float, Scalar


class E3B(NamedTuple):
    """The features in training, and the scale of the bonus's returns."""

    model: InverseDynamics
    scale: RunningScale


@dataclasses.dataclass(frozen=True)
class E3BConfig:
    """The episodic elliptical bonus."""

    coef: float = 0.5
    """Weight of the bonus beside the reward at the beginning; its discounted returns have deviation 1."""
    anneal: bool = True
    """Whether the weight falls linearly to zero over the budget, so that the last updates serve the reward alone."""
    ridge: float = 0.1
    """lambda: features have norm 1, so the bonus lies between 0 and 1 / lambda."""


def init_e3b(rng: np.random.Generator, observation_space: Space, action_space: Space, hidden: tuple[int, ...]) -> E3B:
    """Fresh features, with the policy's layers."""
    model = init_inverse_dynamics(rng, observation_space, action_space, hidden)
    return E3B(model, RunningScale(*init_moments(())))


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


def scaled_bonus(
    e3b: E3B,
    bonus: Float[jax.Array, "T envs"],
    mask: Bool[Array, "T envs"],
    *,
    gamma: Scalar,
    ends: Bool[Array, "T envs"] | None = None,
) -> tuple[Float[jax.Array, "T envs"], E3B]:
    """The bonus divided by the deviation of its discounted returns so far, and the new scale."""
    bonus = bonus * mask
    scale = e3b.scale.update(discounted_sums(bonus, gamma, ends), mask)
    return bonus / jnp.sqrt(scale.variance + 1e-8), e3b._replace(scale=scale)
