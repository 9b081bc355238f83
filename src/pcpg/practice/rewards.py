"""What an update is paid: the cover's bonus, RND's, and the task's reward as the critic counts it."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pcpg.cover.bonus import BonusForm, bonus_of_form, quadratic_form
from pcpg.learning.ppo import discounted_sums
from pcpg.learning.rnd import RND, RNDConfig, intrinsic_rewards, prediction_error
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic
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


class Bonus(NamedTuple):
    """Which bonus there is, and in which form: constants of the program."""

    form: BonusForm = "root"
    beta: float = 1.0  # of the indicator form
    rnd: RNDConfig | None = None

    def of(
        self,
        cover: CoverArrays | None,
        rnd: RND | None,
        data: Rollout,
        table: Table | None,
        *,
        distribution: Distribution,
        gamma: float,
    ) -> tuple[jax.Array, RND | None]:
        """The bonus of every step [T, E], and RND's networks with their moments moved on."""
        if cover is not None and cover.phi is not None:
            phi, whiten = cover.phi, cover.whiten
            form = of_pairs(lambda *pairs: quadratic_form(phi.batch(*pairs), whiten), distribution, table, data)
            return bonus_of_form(form, self.form, beta=self.beta, gamma=gamma), rnd
        if rnd is not None and self.rnd is not None:
            error = at_observations(partial(prediction_error, rnd.predictor, rnd.target), table, data.following)
            return intrinsic_rewards(rnd, error, data.own, gamma=gamma, config=self.rnd, ends=data.ends)
        return jnp.zeros_like(data.rewards), rnd


PLAIN = Bonus()


def earned(policy: ActorCritic, data: Rollout, gamma: float) -> tuple[jax.Array, Normaliser | None]:
    """The rewards as the policy's critic counts them, and its normaliser with their returns added."""
    normaliser = policy.normaliser
    if normaliser is None:
        return data.rewards, None
    returns = discounted_sums(data.rewards, gamma, data.ends)
    normaliser = normaliser.with_returns(returns.reshape(-1), data.alive.reshape(-1))
    return normaliser.earned(data.rewards), normaliser
