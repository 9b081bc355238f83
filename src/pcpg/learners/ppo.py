"""`improve`: all updates of one policy as one compiled program (line 7 of Algorithm 1, with PPO inside).

One program serves exploration, exploitation and the baselines: what differs between them, the coefficients of
reward and bonus, the schedules and the share of episodes that start at the start state, are arrays.
"""

import dataclasses
import math
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.bonuses.protocol import NO_BONUS, At, Bonus, CoverArrays, Samples
from pcpg.cover.cover import RollIn, draw_roll_in
from pcpg.engine.rollout import Rollout, discounted_sums, rollout
from pcpg.engine.tabulated import at_observations, listed, seen_through, table_of
from pcpg.envs.protocol import Environment
from pcpg.learners.settings import PPOConfig
from pcpg.learners.update import (
    Adam,
    Metrics,
    gae,
    masked_mean,
    mean_return,
    minimise,
    normalise,
    ppo_loss,
    random_order,
)
from pcpg.policies.distributions import Distribution, for_space
from pcpg.policies.networks import ActorCritic
from pcpg.policies.normaliser import Normaliser
from pcpg.shapes import Array


class Task(NamedTuple):
    """The task of a round, as arrays, so a new task needs no new program."""

    reward_coef: Array
    bonus_coef: Array
    start_share: Array  # share of the episodes without roll-in
    epsilon: Array  # of the first own step
    learning_rate: Array  # [2] at the first and after the last update of the round
    entropy_coef: Array  # [2] likewise
    advantage_floor: Array


def make_task(
    *,
    learning_rate: tuple[float, float],
    entropy_coef: tuple[float, float],
    reward_coef: float = 1.0,
    bonus_coef: float = 0.0,
    start_share: float = 1.0,
    epsilon: float = 0.0,
    advantage_floor: float = 0.0,
) -> Task:
    """A task from plain numbers; by default the reward alone, from the start state."""
    values = (reward_coef, bonus_coef, start_share, epsilon, learning_rate, entropy_coef, advantage_floor)
    return Task(*(np.asarray(value, np.float32) for value in values))


class Carry(NamedTuple):
    """The state passed from one update to the next."""

    policy: ActorCritic
    adam: Adam
    rnd: Any  # the state of the bonus


class Common(NamedTuple):
    """Shared inputs of all updates of a round."""

    seed: Array  # uint32
    round: Array  # int32
    env_params: object
    task: Task
    cover: CoverArrays | None  # None: no roll-in and no elliptical bonus


class ImproveInputs(NamedTuple):
    """Everything one round of one seed depends on."""

    seed: Array  # uint32
    round: Array  # int32
    env_params: object
    policy: ActorCritic
    adam: Adam
    task: Task
    cover: CoverArrays | None
    rnd: Any  # the state of the bonus

    @property
    def common(self) -> Common:
        return Common(self.seed, self.round, self.env_params, self.task, self.cover)

    @property
    def carry(self) -> Carry:
        return Carry(self.policy, self.adam, self.rnd)


class ImproveOutputs(NamedTuple):
    """The policy after the round, and measurements along the way."""

    policy: ActorCritic
    adam: Adam
    rnd: Any
    env_steps: Array  # int32, roll-ins counted
    metrics: Mapping[str, Array]  # means over the updates of the round
    finite: Array  # bool [num_updates, len(WATCHED)]


class Measured(NamedTuple):
    """Measurements of an update."""

    metrics: Metrics
    env_steps: jax.Array  # int32
    finite: jax.Array  # bool [len(WATCHED)]


WATCHED = ("reward", "observation", "bonus", "loss")
"""Quantities that must stay finite, in the order in which a non-finite number would spread."""


BESIDE = 1
"""The stream of what the bonus puts beside the samples."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """The constants of the program; its methods are pure functions of arrays."""

    env: Environment
    config: PPOConfig
    num_groups: int = 1
    bonus: Bonus = NO_BONUS
    sample_share: float = 1.0  # the start share for which the batch is sized
    autoreset: bool = False  # a new episode where one ends; only without a cover

    @property
    def distribution(self) -> Distribution:
        return for_space(self.env.action_space)

    def improve(self, inputs: ImproveInputs) -> ImproveOutputs:
        """Run all updates of a round for one seed."""
        num_updates, common = self.config.num_updates, inputs.common
        key = jax.random.fold_in(jax.random.key(inputs.seed), inputs.round)

        def update(carry: Carry, scanned: tuple[jax.Array, jax.Array]) -> tuple[Carry, Measured]:
            index, key = scanned
            key_gather, key_keep, key_fit = jax.random.split(key, 3)
            data = self.gather(common, carry.policy, key_gather)
            return self.learn(common, carry, data, (key_keep, key_fit), index.astype(jnp.float32) / num_updates)

        keys = jax.random.split(key, num_updates)
        carry, measured = jax.lax.scan(update, inputs.carry, (jnp.arange(num_updates), keys))
        # Means over the updates that have the quantity: no episode may have started at the start state.
        metrics = {name: jnp.nanmean(value) for name, value in measured.metrics.items()}
        return ImproveOutputs(*carry, jnp.sum(measured.env_steps, dtype=jnp.int32), metrics, measured.finite)

    def num_samples(self, has_roll_in: bool) -> int:
        """Samples kept of an update: the expected number of own steps, in whole minibatches.

        Roll-in steps, about half of all, are not learned from. A fixed number keeps the shapes fixed: own steps
        beyond it are left out at random, and places beyond the own steps are masked.
        """
        length = self.env.max_steps
        rolled = (1 - self.sample_share) * (length + 1) / (2 * length)
        share = self.sample_share + rolled if has_roll_in else 1.0
        total = self.config.num_episodes * length
        minibatch = min(self.config.minibatch_size, total)
        return max(1, math.floor(total * share / minibatch)) * minibatch

    def learn(
        self,
        common: Common,
        carry: Carry,
        data: Rollout,
        keys: tuple[jax.Array, jax.Array],
        progress: jax.Array,  # share of the round that is done
        keep: int | None = None,  # samples kept; None: as many as expected
    ) -> tuple[Carry, Measured]:
        """One update from these episodes: the input of the next, and its measurements."""
        key_keep, key_fit = keys
        task, at = common.task, self.at(common)
        bonus, state = self.bonus.pay(carry.rnd, data, at)
        rewards, normaliser = earned(carry.policy, data, self.config.gamma)
        total = jnp.asarray(task.reward_coef * rewards + task.bonus_coef * bonus)
        critic = seen_through(at.table, carry.policy)
        values = critic.value(data.observations)
        next_values = None if data.next_observations is None else critic.value(data.next_observations)
        keep = self.num_samples(self.sample_share < 1.0) if keep is None else keep
        trained = self.bonus.trained(state)
        samples = self._samples(
            data, total, values, task, key_keep, keep, with_next=trained is not None, next_values=next_values
        )
        samples = samples._replace(beside=self.bonus.beside(state, jax.random.fold_in(key_keep, BESIDE), keep))
        (policy, trained), adam, losses = minimise(
            lambda params, part: self.loss(params, part, state, at, between(task.entropy_coef, progress)),
            (carry.policy, trained),
            carry.adam,
            samples,
            key_fit,
            between(task.learning_rate, progress),
            num_epochs=self.config.num_epochs,
            minibatch_size=self.config.minibatch_size,
            max_grad_norm=self.config.max_grad_norm,
        )
        if normaliser is not None:  # for the next episodes: those of this update were played by the old one
            seen = listed(at.table, data.observations[:-1].reshape(-1, *data.observations.shape[2:]))
            normaliser = normaliser.with_observations(seen, data.alive.reshape(-1))
            policy = dataclasses.replace(policy, normaliser=normaliser)
        watched = (data.rewards, (data.observations, data.next_observations), bonus)
        watched = (*watched, losses["policy_loss"] + losses["value_loss"])
        finite = jnp.stack([_all_finite(values) for values in watched])
        metrics = losses | {"return": mean_return(data), "bonus": masked_mean(bonus, data.own)}
        steps = jnp.sum(data.alive, dtype=jnp.int32)
        return Carry(policy, adam, self.bonus.with_trained(state, trained)), Measured(metrics, steps, finite)

    def at(self, common: Common) -> At:
        """What the bonus needs to know about the run."""
        table = table_of(self.env, common.env_params)
        return At(self.env.action_space, self.config.gamma, table, common.cover)

    def gather(self, common: Common, policy: ActorCritic, key: jax.Array) -> Rollout:
        """The episodes of an update."""
        key_roll_in, key_rollout = jax.random.split(key)
        roll_in = self.draw_roll_in(common, key_roll_in)
        table = table_of(self.env, common.env_params)
        if table is not None and roll_in is not None:
            roll_in = roll_in._replace(policies=jax.vmap(lambda member: seen_through(table, member))(roll_in.policies))
        return rollout(
            self.env,
            common.env_params,
            seen_through(table, policy),
            self.distribution,
            key_rollout,
            num_episodes=self.config.num_episodes,
            roll_in=roll_in,
            epsilon=common.task.epsilon,
            numbered=table is not None,
            autoreset=self.autoreset,
        )

    def draw_roll_in(self, common: Common, key: jax.Array) -> RollIn | None:
        """The roll-in policies of an update's episodes and their lengths; None without a cover."""
        if common.cover is None:
            return None
        return draw_roll_in(
            key,
            common.cover.members,
            common.cover.weights,
            first=common.cover.first,
            num_episodes=self.config.num_episodes,
            num_groups=self.num_groups,
            horizon=self.env.max_steps,
            start_share=common.task.start_share,
        )

    def _samples(
        self,
        data: Rollout,
        rewards: jax.Array,
        values: jax.Array,
        task: Task,
        key: jax.Array,
        keep: int,
        *,
        with_next: bool,
        next_values: jax.Array | None = None,  # None: the next value of step t is that of observation t + 1
    ) -> Samples:
        advantages, targets = gae(
            rewards,
            values[:-1],
            values[1:] if next_values is None else next_values,
            data.terminated,
            data.truncated,
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        samples = Samples(
            data.observations[:-1],
            data.actions,
            data.log_probs,
            normalise(advantages, data.own, task.advantage_floor),
            targets,
            data.own,
            data.following if with_next else None,
        )
        samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), samples)
        if keep == samples.mask.shape[0]:
            return samples
        order = random_order(key, samples.mask.shape[0], last=~samples.mask)
        return jax.tree.map(lambda x: x[order[:keep]], samples)

    def loss(
        self, params: tuple[ActorCritic, object], part: Samples, state: object, at: At, entropy_coef: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """The loss of a minibatch, a mean over its own steps, and its parts."""
        policy, trained = params
        outputs, value = at_observations(policy.outputs_and_value, at.table, part.observations)
        loss, metrics = ppo_loss(
            self.distribution.log_prob(outputs, part.actions),
            self.distribution.entropy(outputs),
            value,
            behaviour_log_prob=part.log_probs,
            advantage=part.advantages,
            target=part.targets,
            mask=part.mask,
            clip_eps=self.config.clip_eps,
            entropy_coef=entropy_coef,
            value_coef=self.config.value_coef,
        )
        added, parts = self.bonus.loss(policy, trained, state, part, at)
        return loss + added, metrics | parts


def earned(policy: ActorCritic, data: Rollout, gamma: float) -> tuple[jax.Array, Normaliser | None]:
    """The rewards as seen by the policy's critic, and its normaliser with their returns added."""
    normaliser = policy.normaliser
    if normaliser is None:
        return data.rewards, None
    returns = discounted_sums(data.rewards, gamma, data.ends)
    normaliser = normaliser.with_returns(returns.reshape(-1), data.alive.reshape(-1))
    return normaliser.earned(data.rewards), normaliser


def between(ends: Array, progress: jax.Array) -> jax.Array:
    """A schedule's value, from its first to its last."""
    return jnp.asarray(ends[0] + (ends[1] - ends[0]) * progress)


def _all_finite(tree: object) -> jax.Array:
    return jax.tree.reduce(operator.and_, jax.tree.map(lambda values: jnp.all(jnp.isfinite(values)), tree))
