"""Shared parts of algorithms with kept data: episodes, compiled or on the host, and data from disk."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.algos.rounds import check_visits
from pcpg.cover.cover import RollIn
from pcpg.data import Batch, Draws, Kept, Listed, Stream, without
from pcpg.engine.episodes import check_played, play
from pcpg.engine.play import Visits
from pcpg.engine.program import Programs
from pcpg.engine.rollout import rollout
from pcpg.engine.tabulated import LookedUp
from pcpg.engine.together import Shared
from pcpg.envs.host import HostEnvironment, locating
from pcpg.envs.protocol import Environment
from pcpg.kernel.policies import among
from pcpg.policies.distributions import Distribution
from pcpg.shapes import Array
from pcpg.state import SeedState

NO_ROLL_IN = -1


class CollectInputs(NamedTuple):
    """Everything the episodes of a round depend on."""

    seed: Array | np.integer
    round: Array | np.integer
    env_params: object
    policy: Any  # its outputs are logits over candidates
    roll_in: RollIn  # members by group, and a length for each episode; NO_ROLL_IN: none
    table: Array | None  # [S, ...] the observations of all states, where they can be listed


class Episodes(NamedTuple):
    """The episodes of a round, [T, E, ...]."""

    observations: Array  # [T + 1, E, ...]; with a table, numbers of its rows
    actions: Array  # numbers of candidates
    rewards: Array
    terminated: Array
    truncated: Array
    alive: Array
    cells: Array  # -1 for nowhere


Collect = Shared[CollectInputs, Episodes]


@dataclasses.dataclass(frozen=True)
class Recorder:
    """Plays episodes with a fixed set of candidate actions, and reads kept data back."""

    env: Environment
    candidates: np.ndarray  # the actions among which policies choose
    ignored: tuple[int, ...]  # entries of observations that are kept as zeros
    lanes: int

    def collector(self, num_episodes: int) -> Collect:
        """The program that plays this many episodes of a seed."""
        env = self.env
        if isinstance(env, HostEnvironment):
            return Shared(lambda asked: [play_on_host(env, self.candidates, one) for one in asked])
        constants = {"env": env, "distribution": among(self.candidates), "num_episodes": num_episodes}
        return Shared(Programs(functools.partial(collect_episodes, **constants), self.lanes))

    async def played(
        self, collect: Collect, state: SeedState[object], policy: object, roll_in: RollIn
    ) -> tuple[Episodes, Visits]:
        """The episodes of a round and their measurements; raises NonFinite before keeping any of them."""
        listed, params = self.listed(state.seed), self.env.instance(state.seed)
        table = None if listed is None else listed.observations
        inputs = CollectInputs(state.ledger.seed, state.ledger.round, params, policy, roll_in, table)
        episodes = await collect(inputs)
        if table is not None and not isinstance(self.env, HostEnvironment):
            episodes = episodes._replace(observations=table[np.asarray(episodes.observations)])
        visits = self._visits(episodes, np.asarray(roll_in.length))
        check_visits(state, visits)
        return episodes, visits

    def _visits(self, played: Episodes, length: np.ndarray) -> Visits:
        """Measurements of episodes: returns of those from the start, or of all if every one had a roll-in."""
        alive, own = np.asarray(played.alive), length == NO_ROLL_IN
        returns = np.where(alive, played.rewards, 0.0).sum(axis=0)
        cells = np.bincount(played.cells[played.cells >= 0], minlength=self.env.num_cells).astype(np.int32)
        seen = without(np.asarray(played.observations)[:-1][alive], self.ignored)
        after = without(np.asarray(played.observations)[1:][alive], self.ignored)
        finite = all(is_finite(numbers) for numbers in (np.asarray(played.rewards)[alive], seen, after))
        shown = returns[own] if own.any() else returns
        lengths = alive.sum(axis=0, dtype=np.int32)
        return Visits(None, shown, lengths, cells, int(alive.sum()), finite, returns.max())

    @functools.cached_property
    def _tables(self) -> dict[int, Listed | None]:
        return {}

    def listed(self, seed: int) -> Listed | None:
        """All observations of a seed's instance, where they can be listed; looked up once."""
        if seed not in self._tables:
            table = self.env.state_observations(self.env.instance(seed))
            self._tables[seed] = None if table is None else Listed(without(np.asarray(table), self.ignored))
        return self._tables[seed]

    def kept_in(self, parts: Sequence[Mapping[str, np.ndarray]]) -> Kept:
        """All transitions in the parts that the rounds of a seed wrote."""
        space = self.env.observation_space
        kept = Kept(space.shape, np.dtype(space.dtype), self.ignored)
        for part in parts:
            kept.restore(Batch.of_part(part))
        return kept


def is_finite(numbers: np.ndarray) -> bool:
    """Whether all numbers are finite as float32, in which they are computed with."""
    return numbers.dtype.kind != "f" or bool(np.isfinite(numbers.astype(np.float32, copy=False)).all())


def unvisited(num_cells: int) -> Visits:
    """The empty measurements of a policy without episodes."""
    nothing = np.zeros(0, np.int32)
    return Visits(None, np.full(1, np.nan, np.float32), nothing, np.zeros(num_cells, np.int32), 0, True)


def collect_episodes(
    inputs: CollectInputs, env: Environment, distribution: Distribution, num_episodes: int
) -> Episodes:
    """Compiled episodes; after a roll-in the first action is random."""
    key = jax.random.fold_in(jax.random.key(inputs.seed), inputs.round)
    roll_in, table = inputs.roll_in, inputs.table
    policy: Any = inputs.policy
    if table is not None:  # every policy is asked once for each observation there is
        nothing = jnp.zeros(len(table), jnp.float32)
        members = jax.vmap(lambda member: LookedUp(member.outputs(table), nothing))(roll_in.policies)
        policy, roll_in = LookedUp(policy.outputs(table), nothing), roll_in._replace(policies=members)
    data = rollout(
        env,
        inputs.env_params,
        policy,
        distribution,
        key,
        num_episodes=num_episodes,
        roll_in=roll_in,
        epsilon=1.0,
        numbered=table is not None,
    )
    return Episodes(*(getattr(data, name) for name in Episodes._fields))


def play_on_host(env: HostEnvironment, candidates: np.ndarray, inputs: CollectInputs) -> Episodes:
    """Episodes on the host; after a roll-in the first action is random."""
    seed, number, roll_in = int(inputs.seed), int(inputs.round), inputs.roll_in
    rng, many = Draws(seed, number).of(Stream.PLAY), len(roll_in.length)
    with locating(seed=seed, round=number):
        played = play(env, inputs.policy, rng, many, roll_in=roll_in, epsilon=1.0, candidates=candidates)
        if number == 0:
            check_played(env, played)
    arrays = (getattr(played, name) for name in Episodes._fields[:-1])
    return Episodes(*arrays, cells=np.full(played.alive.shape, -1, np.int32))
