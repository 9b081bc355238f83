"""`visit`: play whole episodes with one policy and report what it saw (line 4 of Algorithm 1) and earned."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pcpg.envs.protocol import Environment
from pcpg.policies.distributions import for_space
from pcpg.practice.rollout import Rollout, rollout
from pcpg.practice.tabulated import Table, covariance_of, seen_through, table_of


class VisitInputs(NamedTuple):
    """Everything the visits of one seed depend on."""

    seed: Any  # uint32
    round: Any  # int32
    env_params: Any
    policy: Any  # an ActorCritic, or whatever else has `outputs`
    phi: Any | None  # None: no covariance is wanted


class Visits(NamedTuple):
    """What a policy saw and earned from the start state."""

    sigma: Any  # [d, d] covariance of phi, or None
    returns: Any  # [num_episodes] undiscounted
    lengths: Any  # [num_episodes] int32
    cells: Any  # [number of cells] int32 visits, or [0] where the environment has none
    env_steps: Any  # int32
    finite: Any  # bool


@dataclasses.dataclass(frozen=True)
class Visitor:
    """The constants of the program."""

    env: Environment
    num_episodes: int
    greedy: bool = False

    def visit(self, inputs: VisitInputs) -> Visits:
        """Play `num_episodes` episodes with the policy alone."""
        distribution = for_space(self.env.action_space)
        # A stream of its own: the updates of the same round use the keys that fold_in gives for 0 .. num_updates - 1.
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(inputs.seed), inputs.round), 2**31)
        table = table_of(self.env, inputs.env_params)
        data = rollout(
            self.env,
            inputs.env_params,
            seen_through(table, inputs.policy),
            distribution,
            key,
            num_episodes=self.num_episodes,
            greedy=self.greedy,
            numbered=table is not None,
        )
        return self.measure(inputs.phi, data, table)

    def measure(self, phi: Any | None, data: Rollout, table: Table | None = None) -> Visits:
        """What the episodes show; a covariance where there is a feature map."""
        sigma = None
        finite = jnp.all(jnp.isfinite(data.rewards)) & jnp.all(jnp.isfinite(data.observations))
        if phi is not None:
            sigma = covariance_of(phi, for_space(self.env.action_space), table, data)
            finite &= jnp.all(jnp.isfinite(sigma))
        lengths = jnp.sum(data.alive, axis=0, dtype=jnp.int32)
        size = self.env.num_cells
        # Cell -1 (nowhere) falls outside and is dropped.
        cells = jnp.zeros(size, jnp.int32).at[jnp.where(data.cells < 0, size, data.cells)].add(1, mode="drop")
        return Visits(sigma, jnp.sum(data.rewards, axis=0), lengths, cells, jnp.sum(lengths, dtype=jnp.int32), finite)
