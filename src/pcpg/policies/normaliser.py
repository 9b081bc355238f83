"""Running scales of observations and rewards, stored with the policy: a member of a cover keeps those it acted with.

They are leaves of the policy's module, so they are saved, restored and stacked with it. No gradient reaches them.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.shapes import Array, Bool, Float

LARGEST = 10.0
"""Where scaled observations are cut."""


class Moments(NamedTuple):
    """Number, mean and variance of all values so far, entry by entry (Chan's parallel update)."""

    number: Float[Array, ""]
    mean: Float[Array, "*entry"]
    variance: Float[Array, "*entry"]

    def update(self, values: Float[Array, "n *entry"], mask: Bool[Array, " n"]) -> "Moments":
        """The moments with the masked values added."""
        weight = mask.reshape(mask.shape + (1,) * (values.ndim - 1)).astype(jnp.float32)
        new = jnp.sum(mask).astype(jnp.float32)
        mean = jnp.sum(weight * values, axis=0) / jnp.maximum(new, 1.0)
        variance = jnp.sum(weight * (values - mean) ** 2, axis=0) / jnp.maximum(new, 1.0)
        return self.merged(new, mean, variance)

    def merged(self, new: jax.Array, mean: jax.Array, variance: jax.Array) -> "Moments":
        """The moments with those of `new` more values taken in."""
        total = self.number + new
        share, delta = new / jnp.maximum(total, 1.0), mean - self.mean
        combined = self.variance * (1 - share) + variance * share + delta**2 * share * (1 - share)
        return Moments(total, self.mean + delta * share, combined)


class Normaliser(eqx.Module):
    """What is scaled; None: left as it is."""

    observations: Moments | None
    returns: Moments | None  # of the discounted returns, by whose deviation rewards are divided

    def seen(self, observations: Float[Array, "*batch"]) -> Float[jax.Array, "*batch"]:
        """Observations with mean 0 and deviation 1 over those so far, cut at LARGEST."""
        if self.observations is None:
            return jnp.asarray(observations)
        mean, variance = (jax.lax.stop_gradient(jnp.asarray(x)) for x in self.observations[1:])
        return jnp.clip((observations - mean) / jnp.sqrt(variance + 1e-8), -LARGEST, LARGEST)

    def earned(self, rewards: Float[jax.Array, "*batch"]) -> Float[jax.Array, "*batch"]:
        """Rewards divided by the deviation of the discounted returns."""
        return rewards if self.returns is None else rewards / jnp.sqrt(self.returns.variance + 1e-8)

    def with_observations(self, observations: Float[Array, "n ..."], mask: Bool[Array, " n"]) -> "Normaliser":
        """The normaliser with these observations added to those so far."""
        if self.observations is None:
            return self
        return Normaliser(self.observations.update(observations, mask), self.returns)

    def with_returns(self, returns: Float[Array, " n"], mask: Bool[Array, " n"]) -> "Normaliser":
        """The normaliser with these discounted returns added to those so far."""
        return self if self.returns is None else Normaliser(self.observations, self.returns.update(returns, mask))


def init_normaliser(shape: tuple[int, ...], *, observations: bool, returns: bool) -> Normaliser | None:
    """A normaliser that has seen nothing; None if nothing is scaled."""
    if not observations and not returns:
        return None
    return Normaliser(init_moments(shape) if observations else None, init_moments(()) if returns else None)


def init_moments(shape: tuple[int, ...]) -> Moments:
    """The moments of no values yet, with deviation 1."""
    return Moments(np.zeros((), np.float32), np.zeros(shape, np.float32), np.ones(shape, np.float32))
