"""What an update is paid: the cover's bonus, RND's or E3B's, and the task's reward as the critic counts it."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pcpg.cover.bonus import BonusForm, bonus_of_form, quadratic_form
from pcpg.features.inverse_dynamics import InverseDynamics, inverse_loss
from pcpg.learning.e3b import E3B, E3BConfig, episodic_bonus, scaled_bonus
from pcpg.learning.ppo import discounted_sums
from pcpg.learning.rnd import RND, RNDConfig, intrinsic_rewards, prediction_error
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic, Body
from pcpg.policies.normaliser import Normaliser
from pcpg.practice.rollout import Rollout
from pcpg.practice.tabulated import Table, at_observations, of_pairs


class CoverArrays(NamedTuple):
    """The cover as the compiled program sees it."""

    phi: Any | None  # feature map, an Equinox module; None: roll-in alone, no bonus
    whiten: Any  # [d, d], see cover/bonus.py; None without a feature map
    members: ActorCritic  # stacked [capacity, ...], or those of several covers one after the other
    weights: Any  # [capacity] on the simplex
    first: Any | None = None  # where this cover's members begin, int32; None: at the front


Novelty = RND | E3B
"""Networks that are trained beside the policy and pay for what is new to them."""


class Bonus(NamedTuple):
    """Which bonus there is, and in which form: constants of the program."""

    form: BonusForm = "root"
    beta: float = 1.0  # of the indicator form
    limit: float = 0.0  # the most that the form counts; 0: no limit
    rnd: RNDConfig | None = None
    e3b: E3BConfig | None = None
    is_product: bool = False  # with a cover, whether E3B's bonus multiplies the cover's, or is added

    def of(
        self,
        cover: CoverArrays | None,
        rnd: Novelty | None,
        data: Rollout,
        table: Table | None,
        *,
        distribution: Distribution,
        gamma: float,
    ) -> tuple[jax.Array, Novelty | None]:
        """The bonus of every step [T, E], and the networks of novelty with their moments moved on."""
        if cover is not None and cover.phi is not None:
            phi, whiten = cover.phi, cover.whiten
            form = of_pairs(lambda *pairs: quadratic_form(phi.batch(*pairs), whiten), distribution, table, data)
            form = jnp.minimum(form, self.limit) if self.limit else form
            paid = bonus_of_form(form, self.form, beta=self.beta, gamma=gamma)
            return (paid, rnd) if self.e3b is None else self._joined(paid, rnd, data, table, gamma)
        if isinstance(rnd, E3B) and self.e3b is not None:
            new = _new_within_episodes(rnd, self.e3b.ridge, data, table)
            return scaled_bonus(rnd, new, data.alive, gamma=gamma, ends=data.ends)
        if isinstance(rnd, RND) and self.rnd is not None:
            error = at_observations(partial(prediction_error, rnd.predictor, rnd.target), table, data.following)
            return intrinsic_rewards(rnd, error, data.own, gamma=gamma, config=self.rnd, ends=data.ends)
        return jnp.zeros_like(data.rewards), rnd

    def _joined(
        self, paid: jax.Array, e3b: Novelty | None, data: Rollout, table: Table | None, gamma: float
    ) -> tuple[jax.Array, Novelty]:
        """The cover's bonus with E3B's, and E3B's scale moved on where that is used."""
        assert isinstance(e3b, E3B) and self.e3b is not None
        new = _new_within_episodes(e3b, self.e3b.ridge, data, table)
        if self.is_product:
            return paid * new * self.e3b.ridge, e3b  # the factor is at most 1
        scaled, e3b = scaled_bonus(e3b, new, data.alive, gamma=gamma, ends=data.ends)
        return paid + self.e3b.coef * scaled, e3b


def _new_within_episodes(e3b: E3B, ridge: float, data: Rollout, table: Table | None) -> jax.Array:
    """E3B's bonus as it is, of what followed each step."""
    features = e3b.model.features
    here, after = (at_observations(features, table, seen) for seen in (data.observations[:-1], data.following))
    return episodic_bonus(here, after, ridge, data.ends)


PLAIN = Bonus()


def trained_part(novelty: Novelty | None) -> Body | InverseDynamics | None:
    """What is trained of the networks of novelty."""
    if novelty is None:
        return None
    return novelty.predictor if isinstance(novelty, RND) else novelty.model


def with_trained(novelty: Novelty | None, part: Any) -> Novelty | None:
    """The networks of novelty with the part that was trained."""
    if novelty is None:
        return None
    return novelty._replace(predictor=part) if isinstance(novelty, RND) else novelty._replace(model=part)


def novelty_loss(
    novelty: Novelty, part: Any, samples: Any, table: Table | None, distribution: Distribution
) -> tuple[jax.Array, str]:
    """The loss of the trained part over a minibatch, and the name of its metric."""
    if isinstance(novelty, RND):
        error_of = partial(prediction_error, part, novelty.target)
        error = at_observations(error_of, table, samples.next_observations)
        return jnp.sum(jnp.where(samples.mask, error, 0.0)) / jnp.maximum(jnp.sum(samples.mask), 1), "rnd_loss"
    here, after = (samples.observations, samples.next_observations)
    if table is not None:
        here, after = (jnp.asarray(table.observations)[numbers] for numbers in (here, after))
    return inverse_loss(part.outputs(here, after), samples.actions, samples.mask, distribution), "inverse_loss"


def earned(policy: ActorCritic, data: Rollout, gamma: float) -> tuple[jax.Array, Normaliser | None]:
    """The rewards as the policy's critic counts them, and its normaliser with their returns added."""
    normaliser = policy.normaliser
    if normaliser is None:
        return data.rewards, None
    returns = discounted_sums(data.rewards, gamma, data.ends)
    normaliser = normaliser.with_returns(returns.reshape(-1), data.alive.reshape(-1))
    return normaliser.earned(data.rewards), normaliser
