"""`improve` on environments that are stepped on the host: only the gathering of episodes differs.

Episodes are played in NumPy (engine/episodes.py); what is learned from them is the code of ppo.py, compiled. Random
numbers of an update, the seeds of its episodes among them, follow from run seed, round and update alone: a round can be
repeated.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.cover import RollIn
from pcpg.engine.episodes import Played, check_played, play, rollout_of
from pcpg.engine.program import Program
from pcpg.envs.host import HostEnvironment, locating
from pcpg.learners.ppo import Carry, Common, ImproveInputs, ImproveOutputs, Learner, Measured
from pcpg.policies.networks import ActorCritic
from pcpg.shapes import Array


class Drawn(NamedTuple):
    """The inputs of an update's roll-in."""

    common: Common
    number: Array  # int32, of the update in its round


class Update(NamedTuple):
    """The inputs of the compiled part of an update."""

    common: Common
    number: Array  # int32, of the update in its round
    carry: Carry
    played: Played


def improve_program(
    learner: Learner, lanes: int, axes: object = 0
) -> "Program[ImproveInputs, ImproveOutputs] | HostImprove":
    """The program that improves policies: compiled as a whole, or with episodes played on the host."""
    if isinstance(learner.env, HostEnvironment):
        return HostImprove(learner, learner.env)
    return Program(learner.improve, lanes, axes)


class HostImprove:
    """`improve` for an environment on the host: all updates of a round, for one seed after the other."""

    def __init__(self, learner: Learner, env: HostEnvironment) -> None:
        self.learner, self.env = learner, env
        self._draw: Program[Drawn, RollIn | None] = Program(self._draw_roll_in, lanes=1)
        self._learn: dict[int, Program[Update, tuple[Carry, Measured]]] = {}  # by the number of samples kept

    @property
    def programs(self) -> tuple[Program[Any, Any], ...]:
        return self._draw, *self._learn.values()

    def __call__(self, inputs: Sequence[ImproveInputs]) -> list[ImproveOutputs]:
        """The policy of each seed after the round."""
        return [self._improved(seed_inputs) for seed_inputs in inputs]

    def _improved(self, inputs: ImproveInputs) -> ImproveOutputs:
        carry, common, measured = inputs.carry, inputs.common, []
        # Learning needs no members of the cover: they would be copied at every update.
        alone = common if common.cover is None else common._replace(cover=common.cover._replace(members=None))
        for number in map(np.asarray, np.arange(self.learner.config.num_updates, dtype=np.int32)):
            played = self._play(common, carry.policy, number)
            [(carry, measurements)] = self._learner_of(self._keep(played))([Update(alone, number, carry, played)])
            measured.append(measurements)
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *measured)
        means = {name: _mean_of_known(values) for name, values in stacked.metrics.items()}
        steps = np.sum(stacked.env_steps, dtype=np.int32)
        return ImproveOutputs(*carry, np.asarray(steps), means, stacked.finite)

    def _keep(self, played: Played) -> int:
        """Samples to learn from: room for all own steps, in whole minibatches; an eighth, quarter or half of all.

        Many environments end most of their episodes early: without this, minibatches would be empty for the most.
        """
        t = np.arange(len(played.alive))[:, None]
        own = np.count_nonzero(played.alive if played.length is None else played.alive & (t >= played.length))
        minibatch = min(self.learner.config.minibatch_size, played.alive.size)
        rooms = [max(1, played.alive.size // share // minibatch) * minibatch for share in (8, 4, 2)]
        return next((room for room in rooms if room >= own), played.alive.size // minibatch * minibatch)

    def _learner_of(self, keep: int) -> Program[Update, tuple[Carry, Measured]]:
        if keep not in self._learn:
            self._learn[keep] = Program(functools.partial(self._learn_from, keep), lanes=1)
        return self._learn[keep]

    def _play(self, common: Common, policy: ActorCritic, number: Array) -> Played:
        roll_in = None if common.cover is None else self._draw([Drawn(common, number)])[0]
        place = {"seed": int(common.seed), "round": int(common.round), "update": int(number)}
        rng = np.random.default_rng(list(place.values()))
        episodes = self.learner.config.num_episodes
        with locating(**place):
            played = play(self.env, policy, rng, episodes, roll_in=roll_in, epsilon=float(common.task.epsilon))
            if place["round"] == place["update"] == 0:
                check_played(self.env, played)
            return played

    def _keys(self, drawn: Drawn | Update) -> tuple[jax.Array, jax.Array, jax.Array]:
        key = jax.random.fold_in(jax.random.key(drawn.common.seed), drawn.common.round)
        key_gather, key_keep, key_fit = jax.random.split(jax.random.fold_in(key, drawn.number), 3)
        return key_gather, key_keep, key_fit

    def _draw_roll_in(self, drawn: Drawn) -> RollIn | None:
        return self.learner.draw_roll_in(drawn.common, self._keys(drawn)[0])

    def _learn_from(self, keep: int, update: Update) -> tuple[Carry, Measured]:
        _, key_keep, key_fit = self._keys(update)
        progress = jnp.asarray(update.number, jnp.float32) / self.learner.config.num_updates
        epsilon = update.common.task.epsilon
        data = rollout_of(update.played, update.carry.policy, self.learner.distribution, epsilon)
        return self.learner.learn(update.common, update.carry, data, (key_keep, key_fit), progress, keep)


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """Mean over the updates that have the quantity, NaN if none has."""
    known = values[~np.isnan(values)]
    return np.asarray(known.mean() if known.size else np.nan, values.dtype)
