"""The episodes of a round: who plays each of them, compiled or on the host.

The explorer's policies as a cover: those whose visits together span most, in which episodes may roll in.

    sigma_i    mean of phi phi' over the transitions of policy i
    w          argmax of log det(sum_i w_i sigma_i + ridge I)     cover/design.py

A member is the explorer of a round with the places of its data; its covariance is computed from them whenever it is
needed, so it is always in the features of now. The member of least weight leaves a full cover.
"""

import contextvars
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.algorithms import World
from pcpg.algos.on_data import Episodes, is_finite
from pcpg.cover.cover import RollIn
from pcpg.cover.design import d_optimal
from pcpg.data import Draws, Stream
from pcpg.engine.episodes import check_played, play
from pcpg.engine.play import Visits
from pcpg.engine.program import Programs
from pcpg.engine.rollout import rollout
from pcpg.engine.together import Shared
from pcpg.envs.host import HostEnvironment, locating
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Box
from pcpg.learners.novelty import Novelty
from pcpg.learners.transitions import EXPLORER, Transitions
from pcpg.policies.distributions import Distribution, for_space
from pcpg.policies.off_policy import DeepPolicy, squashed_gaussian
from pcpg.shapes import Array
from pcpg.state import SeedState

FEATURES = 128
"""Of those of the bonus, for the weights."""
RIDGE = 1e-3
SHARE = 0.5
"""Of the explorer's episodes, those that roll in."""


class Members(NamedTuple):
    """The policies of the cover."""

    policies: DeepPolicy  # stacked [capacity, ...]
    spans: np.ndarray  # [capacity, 2] int64: their transitions
    weights: np.ndarray  # [capacity] float64, 0 beyond the last one
    size: np.ndarray  # int32

    def sigmas(self, kept: Transitions, novelty: Novelty) -> np.ndarray:
        """The covariance of each member."""
        short = novelty._replace(weights=novelty.weights[:, :FEATURES], offsets=novelty.offsets[:FEATURES])
        found = []
        for start, end in self.spans[: int(self.size)].tolist():
            phi = short.features(kept.observations[kept.landing_rows(np.arange(start, end))]).astype(np.float64)
            found.append(phi.T @ phi / len(phi))
        return np.stack(found)

    def weighed(self, kept: Transitions, novelty: Novelty) -> "Members":
        """The members with their D-optimal weights."""
        weights = np.zeros(len(self.weights))
        weights[: int(self.size)] = d_optimal(self.sigmas(kept, novelty), ridge=RIDGE, tol=1e-3).weights
        return self._replace(weights=weights)

    def with_member(self, policy: DeepPolicy, start: int, end: int, kept: Transitions, novelty: Novelty) -> "Members":
        """The cover with one more policy, in the place of the member of least weight if it is full."""
        size = int(self.size)
        at = size if size < len(self.weights) else int(np.argmin(self.weights))
        policies = jax.tree.map(lambda all_, one: _with(all_, at, one), self.policies, policy)
        spans, known = _with(self.spans, at, np.array([start, end])), max(size, at + 1)
        return Members(policies, spans, self.weights, np.asarray(known, np.int32)).weighed(kept, novelty)

    def draw(self, rng: np.random.Generator, horizon: int) -> tuple[DeepPolicy, int]:
        """A policy by the weights, and for how many steps it rolls in; 0: not at all."""
        at = int(rng.choice(len(self.weights), p=self.weights / self.weights.sum()))
        length = int(rng.integers(horizon)) if rng.random() < SHARE else 0
        return jax.tree.map(lambda leaf: np.asarray(leaf[at]), self.policies), length


def no_members(policy: DeepPolicy, capacity: int) -> Members:
    """A cover of nothing."""
    policies = jax.tree.map(lambda leaf: np.zeros((capacity, *np.shape(leaf)), np.float32), policy)
    return Members(policies, np.zeros((capacity, 2), np.int64), np.zeros(capacity), np.zeros((), np.int32))


def _with(array: np.ndarray, at: int, value: np.ndarray) -> np.ndarray:
    changed = np.array(array)
    changed[at] = value
    return changed


class PlayInputs(NamedTuple):
    """Everything the episodes of a round depend on."""

    seed: Array | np.integer
    round: Array | np.integer
    env_params: object
    after: Any  # the policy that takes over after a roll-in
    roll_in: RollIn  # a policy for each episode, and for how long it plays


class Playing:
    """Plays the episodes of a round, [T, E, ...], each with a policy of its own; real actions as the environment's.

    An awaited `collect` gives the episodes. An awaited `begin` gives what an awaited `end` makes them of: in between,
    worker processes play them. Which of the two it is changes no episode.
    """

    def __init__(self, world: World, num_episodes: int) -> None:
        self.env, self.num_episodes = world.env, num_episodes
        self.collect = Shared(self._on_host if isinstance(self.env, HostEnvironment) else self._program(world.lanes))
        self.begin: Shared[PlayInputs, Future[Episodes]] = Shared(self._started)
        self.end: Shared[Future[Episodes], Episodes] = Shared(lambda asked: [one.result() for one in asked])
        self.thread = ThreadPoolExecutor(1)  # one round after the other: all seeds share the environment

    def inputs(
        self, state: SeedState[Any], policies: dict[int, DeepPolicy], players: np.ndarray, members: Members | None
    ) -> PlayInputs:
        """What the episodes depend on; the explorer's roll in by a cover."""
        each = [policies[int(player)] for player in players]
        length = np.full(self.num_episodes, self.env.max_steps, np.int32)
        if members is not None and int(members.size):
            rng = Draws(state.seed, state.round).of(Stream.POOL)
            for episode in np.flatnonzero(players == EXPLORER):
                each[episode], length[episode] = members.draw(rng, self.env.max_steps)
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)
        ledger, params = state.ledger, self.env.instance(state.seed)
        return PlayInputs(ledger.seed, ledger.round, params, policies[EXPLORER], RollIn(stacked, length))

    def _started(self, asked: Sequence[PlayInputs]) -> "list[Future[Episodes]]":
        """The episodes to come; without workers they are played before this returns."""
        if not getattr(self.env, "workers", 0):
            return [_known(one) for one in self.collect.run(asked)]
        assert isinstance(self.env, HostEnvironment)
        _ = self.env.players  # workers belong to this thread, which lives as long as they should
        return [self.thread.submit(contextvars.copy_context().run, self._alone, one) for one in asked]

    def _program(self, lanes: int) -> Programs[PlayInputs, Episodes]:
        env, space = self.env, self.env.action_space
        distribution = squashed_gaussian(space) if isinstance(space, Box) else for_space(space)
        return Programs(_Compiled(env, distribution, self.num_episodes).play, lanes)

    def _on_host(self, asked: Any) -> list[Episodes]:
        return [self._alone(one) for one in asked]

    def _alone(self, inputs: PlayInputs) -> Episodes:
        assert isinstance(self.env, HostEnvironment)
        seed, number = int(inputs.seed), int(inputs.round)
        rng = Draws(seed, number).of(Stream.PLAY)
        with locating(seed=seed, round=number):
            played = play(self.env, inputs.after, rng, self.num_episodes, roll_in=inputs.roll_in, squashed=True)
            if number == 0:
                check_played(self.env, played)
        arrays = (getattr(played, name) for name in Episodes._fields[:-1])
        return Episodes(*arrays, cells=np.full(played.alive.shape, -1, np.int32))


def _known(value: Episodes) -> "Future[Episodes]":
    found: Future[Episodes] = Future()
    found.set_result(value)
    return found


class _Compiled(NamedTuple):
    """The constants of the program."""

    env: Environment
    distribution: Distribution
    num_episodes: int

    def play(self, inputs: PlayInputs) -> Episodes:
        """Compiled episodes."""
        key = jax.random.fold_in(jax.random.key(inputs.seed), inputs.round)
        data = rollout(
            *(self.env, inputs.env_params, inputs.after, self.distribution, key),
            num_episodes=self.num_episodes,
            roll_in=inputs.roll_in,
        )
        found = Episodes(*(getattr(data, name) for name in Episodes._fields))
        return found._replace(actions=self.distribution.to_env(jnp.asarray(found.actions)))


def measured(env: Environment, played: Episodes, players: np.ndarray) -> Visits:
    """Returns and visits of the episodes."""
    alive, rewards = np.asarray(played.alive), np.asarray(played.rewards)
    returns = np.where(alive, rewards, 0.0).sum(axis=0, dtype=np.float64)
    cells = np.bincount(played.cells[played.cells >= 0], minlength=env.num_cells).astype(np.int32)
    seen = np.asarray(played.observations)
    numbers = rewards[alive], seen[:-1][alive], seen[1:][alive]
    finite = all(is_finite(one) for one in numbers)
    return Visits(None, returns, alive.sum(axis=0, dtype=np.int32), cells, int(alive.sum()), finite)
