"""The episodes of a round: who plays each of them, compiled or on the host."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.algorithms import World
from pcpg.algos.deep_cover import Members
from pcpg.algos.on_data import Episodes, is_finite
from pcpg.cover.cover import RollIn
from pcpg.data import Draws, Stream
from pcpg.engine.episodes import check_played, play
from pcpg.engine.play import Visits
from pcpg.engine.program import Programs
from pcpg.engine.rollout import rollout
from pcpg.engine.together import Shared
from pcpg.envs.host import HostEnvironment, locating
from pcpg.envs.protocol import Environment
from pcpg.envs.spaces import Box
from pcpg.learners.transitions import EXPLORER
from pcpg.policies.distributions import Distribution, for_space
from pcpg.policies.off_policy import DeepPolicy, squashed_gaussian
from pcpg.shapes import Array
from pcpg.state import SeedState


class PlayInputs(NamedTuple):
    """Everything the episodes of a round depend on."""

    seed: Array | np.integer
    round: Array | np.integer
    env_params: object
    after: Any  # the policy that takes over after a roll-in
    roll_in: RollIn  # a policy for each episode, and for how long it plays


class Playing:
    """Plays the episodes of a round, each with a policy of its own."""

    def __init__(self, world: World, num_episodes: int) -> None:
        self.env, self.num_episodes = world.env, num_episodes
        self.collect = Shared(self._on_host if isinstance(self.env, HostEnvironment) else self._program(world.lanes))

    async def played(
        self, state: SeedState[Any], policies: dict[int, DeepPolicy], players: np.ndarray, members: Members | None
    ) -> Episodes:
        """The episodes, [T, E, ...], real actions as the environment takes them; the explorer's roll in by a cover."""
        each = [policies[int(player)] for player in players]
        length = np.full(self.num_episodes, self.env.max_steps, np.int32)
        if members is not None and int(members.size):
            rng = Draws(state.seed, state.round).of(Stream.POOL)
            for episode in np.flatnonzero(players == EXPLORER):
                each[episode], length[episode] = members.draw(rng, self.env.max_steps)
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)
        ledger, params = state.ledger, self.env.instance(state.seed)
        after = policies[EXPLORER]
        return await self.collect(PlayInputs(ledger.seed, ledger.round, params, after, RollIn(stacked, length)))

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
