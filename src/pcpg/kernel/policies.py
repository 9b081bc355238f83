"""Policies of an averager over landmarks: the greedy one, and the one that explores."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.spaces import Box, Discrete, MultiDiscrete, Space
from pcpg.kernel.landmarks import SHARP, Encoder, Landmarks, Shares, averages, seen_as, shares_of
from pcpg.kernel.pairs import pair_bonuses
from pcpg.policies.distributions import Distribution, categorical
from pcpg.shapes import Array, Float, Int, Scalar, Shaped

SURE = 60.0
"""Logit of the chosen action, the others being 0: sampling then is choosing."""
EXACT = -12.0
"""Logarithm of the standard deviation of a real action that is chosen."""
MOST_ACTIONS = 1024


def values_at(shares: Shares, w: Float[Array, "A M"], low: Scalar, high: Scalar) -> Float[jax.Array, "n A"]:
    """f of each observation, cut to what is possible."""
    return jnp.clip(averages(shares, w), low, high)


def optimistic(f: Float[Array, "n A"], bonus: Float[Array, "n A"]) -> Float[jax.Array, "n A"]:
    """The larger of the value and the bonus: a pair is worth what it shows, or what it leads to."""
    return jnp.maximum(f, bonus)


class GreedyPolicy(eqx.Module):
    """The action of the largest value. `outputs` speaks for the environment's own actions."""

    landmarks: Landmarks
    w: Float[Array, "A M"]
    choices: Float[Array, "A parameters"]  # of the distribution that chooses each candidate for sure

    def values(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "n A"]:
        """f of each observation."""
        return values_at(self.landmarks.shares(vectors(observations)), self.w, -jnp.inf, jnp.inf)

    def outputs(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "*batch parameters"]:
        """Parameters of the environment's action distribution, for observations [*batch, ...]."""
        return self.outputs_and_value(observations)[0]

    def portable(self) -> dict[str, np.ndarray]:
        """The arrays of its action, for programs without JAX."""
        if self.landmarks.encoder is not None:
            raise ValueError("learned features cannot be written for other programs yet")
        count = int(self.landmarks.count)
        found = {"scale": self.landmarks.inverse_scale, "places": np.asarray(self.landmarks.places)[:count]}
        found |= {"w": np.asarray(self.w)[:, :count], "choices": self.choices, "sharpness": 0.5 * SHARP**2}
        return {name: np.asarray(array, np.float32) for name, array in found.items()}

    def outputs_and_value(
        self, observations: Shaped[Array, "..."]
    ) -> tuple[Float[jax.Array, "n parameters"], Float[jax.Array, " n"]]:
        """The same, and the largest value."""
        values = self.values(observations)
        return jnp.asarray(self.choices)[jnp.argmax(values, axis=-1)], jnp.max(values, axis=-1)


class MemberPolicy(eqx.Module):
    """A policy of the cover, as it rolls in: sure of its candidate. `outputs` are logits over candidates."""

    inverse_scale: Float[Array, " size"]
    places: Float[Array, "M size"]
    count: Int[Array, ""]  # landmarks there were when it joined
    w: Float[Array, "A M"]
    encoder: Encoder | None = None

    def outputs(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "n A"]:
        u = seen_as(vectors(observations), self.inverse_scale, self.encoder)
        shares = shares_of(u, self.places, self.count)
        f = values_at(shares, self.w, 0.0, 1.0)
        # Ties are left to chance: where a member knows nothing it plays at random.
        return jnp.float32(SURE) * (f >= jnp.max(f, axis=-1, keepdims=True) - 1e-6)


class ExploringPolicy(eqx.Module):
    """Chooses by the larger of value and bonus. `outputs` are logits over candidates."""

    landmarks: Landmarks
    w: Float[Array, "A M"]
    known: Float[Array, "A M M"] | Float[Array, "S A"]  # inverse covariances, or the bonus of all there is
    sharpness: Float[Array, ""]  # candidates are chosen with odds of their worth to this power
    bonus_coef: Float[Array, ""]

    def worth(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "n A"]:
        """max(f, b) of each observation; of the whole list where the bonus is given."""
        x, known = vectors(observations), jnp.asarray(self.known)
        bonus = known if known.ndim == 2 else pair_bonuses(self.landmarks.phi(x), known)
        return optimistic(values_at(self.landmarks.shares(x), self.w, 0.0, 1.0), bonus * self.bonus_coef)

    def outputs(self, observations: Shaped[Array, "..."]) -> Float[jax.Array, "n A"]:
        return jnp.asarray(self.sharpness) * jnp.log(self.worth(observations) + 1e-6)


def vectors(observations: Shaped[Array, "..."]) -> Float[jax.Array, "n size"]:
    """Observations as rows of real numbers; pictures in [0, 1]."""
    x = jnp.asarray(observations)
    scale = 255.0 if x.dtype == jnp.uint8 else 1.0
    return x.reshape(x.shape[0], -1).astype(jnp.float32) / scale


def candidate_actions(space: Space, number: int) -> Shaped[np.ndarray, "A ..."]:
    """The actions among which the largest value is sought: all of them, or a grid of about `number` real ones."""
    if isinstance(space, Discrete):
        return np.arange(space.n, dtype=np.int32)
    sizes = sizes_listed(space, number)
    if not can_list(space, number):
        raise ValueError(
            f"keeping data needs at most {MOST_ACTIONS} distinct actions, got {np.prod(sizes)}: use another algorithm"
            if isinstance(space, MultiDiscrete)
            else f"keeping data needs at most {MOST_ACTIONS} actions on a grid, got {sizes[0]}^{len(sizes)}"
        )
    if isinstance(space, Box):
        return np.array(list(itertools.product(*[np.linspace(space.low, space.high, n) for n in sizes])), np.float32)
    return np.array(list(itertools.product(*map(range, sizes))), np.int32)


def sizes_listed(space: Space, number: int) -> tuple[int, ...]:
    """How many values of each part of an action `candidate_actions` combines."""
    if isinstance(space, Box):
        (size,) = space.shape
        return (max(3, round(number ** (1 / size))),) * size
    if isinstance(space, Discrete | MultiDiscrete):
        return (space.n,) if isinstance(space, Discrete) else space.sizes
    raise ValueError(f"actions must be Discrete, MultiDiscrete or Box, got {space}")


def can_list(space: Space, number: int) -> bool:
    """Whether actions are few enough, or their grid, for `candidate_actions` to list them."""
    return isinstance(space, Discrete) or math.prod(sizes_listed(space, number)) <= MOST_ACTIONS


def sure_choices(space: Space, candidates: Shaped[np.ndarray, "A ..."]) -> Float[np.ndarray, "A parameters"]:
    """For each candidate, parameters of the space's distribution under which it is chosen for sure."""
    if isinstance(space, Discrete):
        return SURE * np.eye(space.n, dtype=np.float32)
    if isinstance(space, MultiDiscrete):
        parts = [SURE * np.eye(n, dtype=np.float32)[candidates[:, i]] for i, n in enumerate(space.sizes)]
        return np.concatenate(parts, axis=1)
    return np.concatenate([candidates, np.full_like(candidates, EXACT)], axis=1).astype(np.float32)


def among(candidates: Shaped[np.ndarray, "A ..."]) -> Distribution:
    """A softmax over candidates, by number; the environment sees the candidate itself."""
    table = jnp.asarray(candidates)
    return categorical(len(candidates))._replace(to_env=lambda actions: table[actions])
