"""`improve`: all updates of one policy as one compiled program (line 7 of Algorithm 1, with PPO inside).

One program serves exploration, exploitation and the baselines: what differs between them, the coefficients of
reward and bonus, the schedules and the share of episodes that start at the start state, are arrays.
"""

import dataclasses
import math
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.config import PPOConfig
from pcpg.cover.rollin import RollIn, draw_roll_in
from pcpg.envs.protocol import Environment
from pcpg.learning.ppo import gae, normalise, ppo_loss
from pcpg.learning.update import Adam, minimise, random_order
from pcpg.policies.distributions import Distribution, for_space
from pcpg.policies.networks import ActorCritic
from pcpg.practice.rewards import (
    PLAIN,
    Bonus,
    CoverArrays,
    Novelty,
    earned,
    novelty_loss,
    trained_part,
    with_trained,
)
from pcpg.practice.rollout import Rollout, rollout
from pcpg.practice.tabulated import Table, at_observations, seen_through, table_of

Metrics = dict[str, jax.Array]


class Task(NamedTuple):
    """What a round is to learn, as arrays, so that another task is no other program."""

    reward_coef: Any
    bonus_coef: Any
    start_share: Any  # share of the episodes without roll-in
    epsilon: Any  # of the first own step
    learning_rate: Any  # [2] at the first and after the last update of the round
    entropy_coef: Any  # [2] likewise
    advantage_floor: Any


def make_task(
    *,
    reward_coef: float,
    bonus_coef: float,
    start_share: float,
    epsilon: float,
    learning_rate: tuple[float, float],
    entropy_coef: tuple[float, float],
    advantage_floor: float,
) -> Task:
    """A task from plain numbers."""
    values = (reward_coef, bonus_coef, start_share, epsilon, learning_rate, entropy_coef, advantage_floor)
    return Task(*(np.asarray(value, np.float32) for value in values))


class ImproveInputs(NamedTuple):
    """Everything one round of one seed depends on."""

    seed: Any  # uint32
    round: Any  # int32
    env_params: Any
    policy: ActorCritic
    adam: Adam
    task: Task
    cover: CoverArrays | None  # None: no roll-in and no elliptical bonus
    rnd: Novelty | None


class ImproveOutputs(NamedTuple):
    """The policy after the round and what was measured on the way."""

    policy: ActorCritic
    adam: Adam
    rnd: Novelty | None
    env_steps: jax.Array  # int32, roll-ins counted
    metrics: Metrics  # means over the updates of the round
    finite: jax.Array  # bool [num_updates, len(WATCHED)]


class Samples(NamedTuple):
    """What minibatches are cut from, [n, ...]."""

    observations: jax.Array
    actions: jax.Array
    log_probs: jax.Array
    advantages: jax.Array
    targets: jax.Array
    mask: jax.Array
    next_observations: jax.Array | None  # only for novelty


class Carry(NamedTuple):
    """What one update hands to the next."""

    policy: ActorCritic
    adam: Adam
    rnd: Novelty | None


class Prepared(NamedTuple):
    """The samples of an update, and what is known of it before the parameters are trained."""

    samples: Samples
    trained: tuple[ActorCritic, Any]  # policy and trained part of the novelty, as they are
    rnd: Novelty | None
    normaliser: Any
    metrics: Metrics
    env_steps: jax.Array  # int32
    finite: jax.Array  # bool, all of WATCHED but the loss


class Measured(NamedTuple):
    """What an update measured."""

    metrics: Metrics
    env_steps: jax.Array  # int32
    finite: jax.Array  # bool [len(WATCHED)]


WATCHED = ("reward", "observation", "bonus", "loss")
"""What must stay finite, in the order in which a non-finite number would spread."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """The constants of the program; its methods are pure functions of arrays."""

    env: Environment
    config: PPOConfig
    num_groups: int = 1
    bonus: Bonus = PLAIN
    sample_share: float = 1.0  # the start share for which the batch is sized
    autoreset: bool = False  # a new episode where one ends; only without a cover

    @property
    def distribution(self) -> Distribution:
        return for_space(self.env.action_space)

    def improve(self, inputs: ImproveInputs) -> ImproveOutputs:
        """Run all updates of a round for one seed."""
        num_updates = self.config.num_updates
        key = jax.random.fold_in(jax.random.key(inputs.seed), inputs.round)

        def update(carry: Carry, scanned: tuple[jax.Array, jax.Array]) -> tuple[Carry, Measured]:
            index, key = scanned
            return self._update(inputs, carry, key, index.astype(jnp.float32) / num_updates)

        carry = Carry(inputs.policy, inputs.adam, inputs.rnd)
        keys = jax.random.split(key, num_updates)
        carry, measured = jax.lax.scan(update, carry, (jnp.arange(num_updates), keys))
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

    def _update(
        self, inputs: ImproveInputs, carry: Carry, key: jax.Array, progress: jax.Array
    ) -> tuple[Carry, Measured]:
        key_gather, key_keep, key_fit = jax.random.split(key, 3)
        data = self.gather(inputs, carry.policy, key_gather)
        return self.learn(inputs, carry, data, (key_keep, key_fit), progress)

    def learn(
        self,
        inputs: ImproveInputs,  # of which the task and the cover's bonus are used
        carry: Carry,
        data: Rollout,
        keys: tuple[jax.Array, jax.Array],
        progress: jax.Array,  # share of the round that is over
        keep: int | None = None,  # samples kept; None: as many as expected
    ) -> tuple[Carry, Measured]:
        """One update from these episodes: what goes on to the next, and what it measured."""
        key_keep, key_fit = keys
        ready = self.prepared(inputs, carry, data, key_keep, keep)
        trained, adam, losses = minimise(
            lambda params, samples: self.loss(params, samples, ready.rnd, inputs, progress),
            ready.trained,
            carry.adam,
            ready.samples,
            key_fit,
            between(inputs.task.learning_rate, progress),
            num_epochs=self.config.num_epochs,
            minibatch_size=self.config.minibatch_size,
            max_grad_norm=self.config.max_grad_norm,
        )
        return self.updated(ready, trained, adam, losses)

    def prepared(
        self, inputs: ImproveInputs, carry: Carry, data: Rollout, key: jax.Array, keep: int | None = None
    ) -> "Prepared":
        """From episodes to what minibatches are cut from."""
        task = inputs.task
        table = table_of(self.env, inputs.env_params)
        bonus, rnd = self.paid(inputs.cover, carry.rnd, data, table)
        rewards, normaliser = earned(carry.policy, data, self.config.gamma)
        critic = seen_through(table, carry.policy)
        values = critic.value(data.observations)
        next_values = None if data.next_observations is None else critic.value(data.next_observations)
        keep = self.num_samples(self.sample_share < 1.0) if keep is None else keep
        total = task.reward_coef * rewards + task.bonus_coef * bonus
        with_next = rnd is not None
        samples = self._samples(data, total, values, task, key, keep, with_next=with_next, next_values=next_values)
        if normaliser is not None:  # for the next episodes: those of this update were played by the old one
            seen = data.observations[:-1].reshape(-1, *data.observations.shape[2:])
            seen = at_observations(lambda observations: observations, table, seen)
            normaliser = normaliser.with_observations(seen, data.alive.reshape(-1))
        measured = {"return": _mean_return(data), "bonus": _masked_mean(bonus, data.own)}
        watched = (data.rewards, (data.observations, data.next_observations), bonus)
        finite = jnp.stack([_all_finite(values) for values in watched])
        steps = jnp.sum(data.alive, dtype=jnp.int32)
        return Prepared(samples, (carry.policy, trained_part(rnd)), rnd, normaliser, measured, steps, finite)

    def updated(
        self, ready: "Prepared", trained: tuple[ActorCritic, Any], adam: Adam, losses: Metrics
    ) -> tuple[Carry, Measured]:
        """What goes on to the next update once the parameters are trained."""
        policy, part = trained
        if ready.normaliser is not None:
            policy = dataclasses.replace(policy, normaliser=ready.normaliser)
        loss = jnp.isfinite(losses["policy_loss"] + losses["value_loss"])
        finite = jnp.concatenate([ready.finite, loss[None]])
        carry = Carry(policy, adam, with_trained(ready.rnd, part))
        return carry, Measured(losses | ready.metrics, ready.env_steps, finite)

    def gather(self, inputs: ImproveInputs, policy: ActorCritic, key: jax.Array) -> Rollout:
        """The episodes of an update."""
        key_roll_in, key_rollout = jax.random.split(key)
        roll_in = self.draw_roll_in(inputs, key_roll_in)
        table = table_of(self.env, inputs.env_params)
        if table is not None and roll_in is not None:
            roll_in = roll_in._replace(policies=jax.vmap(lambda member: seen_through(table, member))(roll_in.policies))
        return rollout(
            self.env,
            inputs.env_params,
            seen_through(table, policy),
            self.distribution,
            key_rollout,
            num_episodes=self.config.num_episodes,
            roll_in=roll_in,
            epsilon=inputs.task.epsilon,
            numbered=table is not None,
            autoreset=self.autoreset,
        )

    def draw_roll_in(self, inputs: ImproveInputs, key: jax.Array) -> RollIn | None:
        """Who acts before the policy in the episodes of an update, and for how long; None without a cover."""
        if inputs.cover is None:
            return None
        return draw_roll_in(
            key,
            inputs.cover.members,
            inputs.cover.weights,
            first=inputs.cover.first,
            num_episodes=self.config.num_episodes,
            num_groups=self.num_groups,
            horizon=self.env.max_steps,
            start_share=inputs.task.start_share,
        )

    def paid(
        self, cover: CoverArrays | None, rnd: Novelty | None, data: Rollout, table: Table | None
    ) -> tuple[jax.Array, Novelty | None]:
        """The bonus of every step, and the networks of novelty with their moments moved on."""
        constants = {"distribution": self.distribution, "gamma": self.config.gamma}
        return self.bonus.of(cover, rnd, data, table, **constants)

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
        self,
        params: tuple[ActorCritic, Any],
        part: Samples,
        novelty: Novelty | None,
        inputs: ImproveInputs,
        progress: jax.Array,
    ) -> tuple[jax.Array, Metrics]:
        """The loss of a minibatch, a mean over its own steps, and its parts."""
        policy, trained = params
        table = table_of(self.env, inputs.env_params)
        outputs, value = at_observations(policy.outputs_and_value, table, part.observations)
        loss, metrics = ppo_loss(
            self.distribution.log_prob(outputs, part.actions),
            self.distribution.entropy(outputs),
            value,
            behaviour_log_prob=part.log_probs,
            advantage=part.advantages,
            target=part.targets,
            mask=part.mask,
            clip_eps=self.config.clip_eps,
            entropy_coef=between(inputs.task.entropy_coef, progress),
            value_coef=self.config.value_coef,
        )
        if novelty is None:
            return loss, metrics
        own_loss, name = novelty_loss(novelty, trained, part, table, self.distribution)
        return loss + own_loss, metrics | {name: own_loss}


def between(ends: jax.Array, progress: jax.Array) -> jax.Array:
    """A schedule's value, from its first to its last."""
    return ends[0] + (ends[1] - ends[0]) * progress


def _all_finite(tree: Any) -> jax.Array:
    return jax.tree.reduce(operator.and_, jax.tree.map(lambda values: jnp.all(jnp.isfinite(values)), tree))


def _mean_return(data: Rollout) -> jax.Array:
    """Mean over the episodes that the policy played from their start and, with autoreset, to their end."""
    if data.ends is None:
        whole = jnp.all(data.own | ~data.alive, axis=0)
        return _masked_mean(jnp.sum(data.rewards, axis=0), whole)
    finished = jax.lax.cummax(data.ends.astype(jnp.int32), axis=0, reverse=True) > 0  # an end is still to come
    return jnp.sum(jnp.where(finished, data.rewards, 0.0)) / jnp.sum(data.ends)


def _masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean over the mask; NaN where the mask is empty."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.sum(mask)
