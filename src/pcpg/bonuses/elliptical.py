"""The bonus of a cover: large where the covariance of what its policies saw is small; alone, or joined with E3B's."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from pcpg.bonuses.e3b import E3B
from pcpg.bonuses.protocol import At, Learned, Pointwise
from pcpg.cover.bonus import BonusForm, bonus_of_form, quadratic_form
from pcpg.engine.rollout import Rollout
from pcpg.engine.tabulated import of_pairs
from pcpg.shapes import Array


@dataclasses.dataclass(frozen=True)
class Elliptical(Pointwise[None]):
    """A function of the quadratic form of a pair's features in the cover's inverse covariance."""

    needs_cover: ClassVar[bool] = True

    name: str = dataclasses.field(default="elliptical", init=False)
    form: BonusForm = "root"
    """Function of the quadratic form: its square root, the form itself, or an indicator."""
    beta: float = 1.0
    """The indicator treats a pair as unknown if its form reaches this value."""
    limit: float = 0.0
    """Upper limit on the form; 0: no limit."""

    def of(self, state: None, here: jax.Array, actions: jax.Array, after: jax.Array, at: At) -> jax.Array:
        """The bonus of the pairs; what followed them does not matter."""
        return self._of_pairs(here, at.distribution.to_env(actions), at)

    def pay(self, state: None, data: Rollout, at: At) -> tuple[jax.Array, None]:
        """The bonus of every step, the roll-in's included."""
        paid = of_pairs(lambda here, actions: self._of_pairs(here, actions, at), at.distribution, at.table, data)
        return paid, state

    def _of_pairs(self, observations: Array, actions: Array, at: At) -> jax.Array:
        assert at.cover is not None and at.cover.phi is not None and at.cover.whiten is not None, "it needs a cover"
        form = quadratic_form(at.cover.phi.batch(observations, actions), at.cover.whiten)
        form = jnp.minimum(form, self.limit) if self.limit else form
        return bonus_of_form(form, self.form, beta=self.beta, gamma=at.gamma)

    def weight(self, spent: float) -> float:
        return 1.0


@dataclasses.dataclass(frozen=True)
class Joined(E3B):
    """The cover's bonus plus E3B's, or times it: for layouts that change with each episode."""

    needs_cover: ClassVar[bool] = True

    name: str = dataclasses.field(default="elliptical-e3b", init=False)
    cover: Elliptical = Elliptical()
    is_product: bool = False
    """Multiply the cover's bonus by E3B's instead of adding it."""

    def pay(self, state: Learned, data: Rollout, at: At) -> tuple[jax.Array, Learned]:
        """Both bonuses; E3B's scale moves on only where it is used."""
        paid, _ = self.cover.pay(None, data, at)
        within = self.within(state, data, at)
        if self.is_product:
            return paid * within * self.ridge, state  # the factor is at most 1
        scaled, state = self.scaled(state, within, data.alive, data, at)
        return paid + self.coef * scaled, state

    def weight(self, spent: float) -> float:
        return self.cover.weight(spent)
