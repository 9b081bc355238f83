"""`visit`: play whole episodes with one policy and report its visits (line 4 of Algorithm 1) and returns."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.engine.episodes import Played, check_played, play
from pcpg.engine.program import Program, Programs
from pcpg.engine.rollout import Rollout, rollout
from pcpg.engine.tabulated import Table, covariance_of, seen_through, table_of
from pcpg.envs.host import HostEnvironment, locating
from pcpg.envs.protocol import Environment
from pcpg.features.base import FeatureMap
from pcpg.policies.distributions import for_space
from pcpg.shapes import Array

VISIT = 2**31
"""Number of the visits among the updates of a round: none has it."""


class VisitInputs(NamedTuple):
    """Everything the visits of one seed depend on."""

    seed: Array | np.integer  # uint32
    round: Array | np.integer  # int32
    env_params: object
    policy: Any  # an ActorCritic, or whatever else has `outputs`
    phi: FeatureMap | None  # None: no covariance is wanted


class Visits(NamedTuple):
    """The visits and returns of a policy from the start state."""

    sigma: Array | None  # [d, d] covariance of phi, or None
    returns: Array  # [num_episodes] undiscounted
    lengths: Array  # [num_episodes] int32
    cells: Array  # [number of cells] int32 visits, or [0] where the environment has none
    env_steps: Array | int  # int32
    finite: Array | bool  # bool
    most: Array | None = None  # the best return, where episodes with a roll-in were played as well


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
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(inputs.seed), inputs.round), VISIT)
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

    def measure(self, phi: FeatureMap | None, data: Rollout, table: Table | None = None) -> Visits:
        """Measurements of the episodes, including a covariance if there is a feature map."""
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


class HostVisit:
    """`visit` for an environment on the host: episodes are played in NumPy and measured by a compiled program."""

    def __init__(self, visitor: Visitor, env: HostEnvironment) -> None:
        self.visitor, self.env = visitor, env
        self._measure = Program(self._measure_played, lanes=1)

    @property
    def programs(self) -> tuple[Program[Any, Visits], ...]:
        return (self._measure,)

    def __call__(self, inputs: Sequence[VisitInputs]) -> list[Visits]:
        """The visits and returns of each seed's policy."""
        return [self._visit(seed_inputs) for seed_inputs in inputs]

    def _visit(self, inputs: VisitInputs) -> Visits:
        rng = np.random.default_rng([int(inputs.seed), int(inputs.round), VISIT])
        with locating(seed=int(inputs.seed), round=int(inputs.round)):
            played = play(self.env, inputs.policy, rng, self.visitor.num_episodes, greedy=self.visitor.greedy)
            if int(inputs.round) == 0:
                check_played(self.env, played)
        return self._measure([(inputs.phi, played)])[0]

    def _measure_played(self, inputs: tuple[FeatureMap | None, Played]) -> Visits:
        phi, played = inputs
        return self.visitor.measure(phi, played.rollout(jnp.zeros_like(played.rewards), jnp.asarray(played.alive)))


def visit_program(visitor: Visitor, lanes: int) -> Programs[VisitInputs, Visits] | HostVisit:
    """The program that plays episodes with policies; policies of one kind may differ in their shapes."""
    if isinstance(visitor.env, HostEnvironment):
        return HostVisit(visitor, visitor.env)
    return Programs(visitor.visit, lanes)
