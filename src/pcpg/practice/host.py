"""Improve and visit on environments that are stepped on the host: only the gathering of episodes differs.

Episodes are played in NumPy (episodes.py); what is learned and measured from the episodes is the code of improve.py and
visit.py, compiled. Random numbers of an update, the seeds of its episodes among them, follow from run seed, round and
update alone: a round can be repeated.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.cover.rollin import RollIn, mixed_log_prob
from pcpg.envs.host import HostEnvironment, locating
from pcpg.envs.protocol import Environment
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic
from pcpg.practice.episodes import Played, play
from pcpg.practice.ppo import Carry, ImproveInputs, ImproveOutputs, Learner, Measured, Prepared
from pcpg.practice.program import Program, Programs
from pcpg.practice.rollout import Rollout
from pcpg.practice.shards import ShardedLearn
from pcpg.practice.visit import VisitInputs, Visitor, Visits

VISIT = 2**31
"""Number of the visits among the updates of a round: none has it."""


class Update(NamedTuple):
    """What the compiled part of an update takes."""

    inputs: ImproveInputs
    carry: Carry
    played: Played | None  # None: who rolls in is asked for
    index: Any  # int32, of the update in its round


def improve_program(
    learner: Learner, lanes: int, axes: Any = 0
) -> "Program[ImproveInputs, ImproveOutputs] | HostImprove":
    """The program that improves policies: compiled as a whole, or with episodes played on the host."""
    if isinstance(learner.env, HostEnvironment) or learner.config.shards > 1:
        return HostImprove(learner, learner.env)
    return Program(learner.improve, lanes, axes)


def visit_program(visitor: Visitor, lanes: int) -> "Programs[VisitInputs, Visits] | HostVisit":
    """The program that plays episodes with policies, likewise; policies of one kind may differ in their shapes."""
    if isinstance(visitor.env, HostEnvironment):
        return HostVisit(visitor, visitor.env)
    return Programs(visitor.visit, lanes)


class HostImprove:
    """`improve` for an environment on the host, or in shards: all updates of a round, for one seed after the other."""

    def __init__(self, learner: Learner, env: Environment) -> None:
        self.learner, self.env = learner, env
        self._draw = Program(self._draw_roll_in, lanes=1)
        self._learn: dict[int, Program[Update, Any] | ShardedLearn] = {}  # by the number of samples kept

    @property
    def compilations(self) -> int:
        return sum(program.compilations for program in (self._draw, *self._learn.values()))

    @property
    def compile_seconds(self) -> float:
        return sum(program.compile_seconds for program in (self._draw, *self._learn.values()))

    def __call__(self, inputs: Sequence[ImproveInputs]) -> list[ImproveOutputs]:
        """The policy of each seed after the round."""
        return [self._round(seed_inputs) for seed_inputs in inputs]

    def _round(self, inputs: ImproveInputs) -> ImproveOutputs:
        carry = Carry(inputs.policy, inputs.adam, inputs.rnd)
        # Of the inputs the learning needs the task and the bonus alone; the rest would be copied at every update.
        env = self.env if isinstance(self.env, HostEnvironment) else None
        cover = inputs.cover._replace(members=None) if inputs.cover is not None and env is not None else inputs.cover  # pyright: ignore
        task = inputs._replace(policy=None, adam=None, rnd=None, cover=cover)  # pyright: ignore
        measured = []
        for index in range(self.learner.config.num_updates):
            played = None if env is None else self._play(inputs, carry.policy, index, env)
            learn = self._learner_of(self._keep(played))
            [(carry, measurements)] = learn([Update(task, carry, played, np.int32(index))])
            measured.append(measurements)
        stacked: Measured = jax.tree.map(lambda *leaves: np.stack(leaves), *measured)
        means = {name: _mean_of_known(np.asarray(values)) for name, values in stacked.metrics.items()}
        return ImproveOutputs(*carry, np.sum(stacked.env_steps, dtype=np.int32), means, stacked.finite)  # pyright: ignore

    def _keep(self, played: Played | None) -> int:
        """Samples to learn from: room for all own steps, in whole minibatches; an eighth, quarter or half of all.

        Many environments end most of their episodes early: without this, minibatches would be empty for the most.
        """
        if played is None:
            return self.learner.num_samples(self.learner.sample_share < 1.0)
        t = np.arange(len(played.alive))[:, None]
        own = np.count_nonzero(played.alive if played.length is None else played.alive & (t >= played.length))
        minibatch = min(self.learner.config.minibatch_size, played.alive.size)
        rooms = [max(1, played.alive.size // share // minibatch) * minibatch for share in (8, 4, 2)]
        return next((room for room in rooms if room >= own), played.alive.size // minibatch * minibatch)

    def _learner_of(self, keep: int) -> "Program[Update, Any] | ShardedLearn":
        if keep not in self._learn and self.learner.config.shards > 1:
            self._learn[keep] = ShardedLearn(self.learner, functools.partial(self._prepared_from, keep))
        elif keep not in self._learn:
            self._learn[keep] = Program(functools.partial(self._learn_from, keep), lanes=1)
        return self._learn[keep]

    def _play(self, inputs: ImproveInputs, policy: ActorCritic, index: int, env: HostEnvironment) -> Played:
        roll_in = None
        if inputs.cover is not None:
            roller = inputs._replace(policy=None, adam=None, rnd=None)  # pyright: ignore[reportArgumentType]
            [roll_in] = self._draw([Update(roller, None, None, np.int32(index))])  # pyright: ignore
        rng = np.random.default_rng([int(inputs.seed), int(inputs.round), index])
        episodes = self.learner.config.num_episodes
        with locating(seed=int(inputs.seed), round=int(inputs.round), update=index):
            return play(env, policy, rng, episodes, roll_in=roll_in, epsilon=float(inputs.task.epsilon))

    def _keys(self, inputs: ImproveInputs, index: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        key = jax.random.fold_in(jax.random.key(inputs.seed), inputs.round)
        key_gather, key_keep, key_fit = jax.random.split(jax.random.fold_in(key, index), 3)
        return key_gather, key_keep, key_fit

    def _draw_roll_in(self, update: Update) -> RollIn | None:
        return self.learner.draw_roll_in(update.inputs, self._keys(update.inputs, update.index)[0])

    def _learn_from(self, keep: int, update: Update) -> Any:
        _, key_keep, key_fit = self._keys(update.inputs, update.index)
        progress, data = self._progress(update), self._data(update)
        return self.learner.learn(update.inputs, update.carry, data, (key_keep, key_fit), progress, keep)

    def _prepared_from(self, keep: int, update: Update) -> tuple[Prepared, jax.Array, jax.Array]:
        _, key_keep, key_fit = self._keys(update.inputs, update.index)
        prepared = self.learner.prepared(update.inputs, update.carry, self._data(update), key_keep, keep)
        return prepared, key_fit, self._progress(update)

    def _progress(self, update: Update) -> jax.Array:
        return update.index.astype(jnp.float32) / self.learner.config.num_updates

    def _data(self, update: Update) -> Rollout:
        if update.played is None:
            key_gather, *_ = self._keys(update.inputs, update.index)
            return self.learner.gather(update.inputs, update.carry.policy, key_gather)
        return rollout_of(update.played, update.carry.policy, self.learner.distribution, update.inputs.task.epsilon)


class HostVisit:
    """`visit` for an environment on the host."""

    def __init__(self, visitor: Visitor, env: HostEnvironment) -> None:
        self.visitor, self.env = visitor, env
        self._measure = Program(self._measure_played, lanes=1)

    @property
    def compilations(self) -> int:
        return self._measure.compilations

    @property
    def compile_seconds(self) -> float:
        return self._measure.compile_seconds

    def __call__(self, inputs: Sequence[VisitInputs]) -> list[Visits]:
        """What the policy of each seed saw and earned."""
        return [self._visit(seed_inputs) for seed_inputs in inputs]

    def _visit(self, inputs: VisitInputs) -> Visits:
        rng = np.random.default_rng([int(inputs.seed), int(inputs.round), VISIT])
        with locating(seed=int(inputs.seed), round=int(inputs.round)):
            played = play(self.env, inputs.policy, rng, self.visitor.num_episodes, greedy=self.visitor.greedy)
        return self._measure([(inputs.phi, played)])[0]

    def _measure_played(self, inputs: tuple[Any, Played]) -> Visits:
        phi, played = inputs
        return self.visitor.measure(phi, _rollout(played, jnp.zeros_like(played.rewards), jnp.asarray(played.alive)))


def rollout_of(played: Any, policy: ActorCritic, distribution: Distribution, epsilon: Any) -> Rollout:
    """Episodes as the learner takes them: with the log-density of what acted, and where the policy itself did.

    Where the cover acted the density is the policy's own; nothing is learned from those steps.
    """
    log_probs = distribution.log_prob(policy.outputs(played.observations[:-1]), played.actions)
    own = jnp.asarray(played.alive)
    if played.length is not None:
        t = jnp.arange(played.rewards.shape[0])[:, None]
        mixed = mixed_log_prob(log_probs, distribution.random_log_prob(played.actions), epsilon)
        log_probs = jnp.where(t == played.length, mixed, log_probs)
        own = played.alive & (t >= played.length)
    return _rollout(played, log_probs, own)


def _rollout(played: Any, log_probs: jax.Array, own: jax.Array) -> Rollout:
    arrays = played._asdict()
    del arrays["length"]
    return Rollout(**arrays, log_probs=log_probs, own=own, cells=jnp.full(own.shape, -1, jnp.int32))


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """Mean over the updates that have the quantity, NaN where none has."""
    known = values[~np.isnan(values)]
    return known.mean() if known.size else np.asarray(np.nan, values.dtype)
