"""Episodes of a functional environment, many at once: roll in through the cover, then act by the policy.

An episode that has ended stays where it is, marked as not alive, so the observation after the last step
is the true final one and the next value of step t is always the value of observation t + 1. With `autoreset` the next
episode begins in its place instead, and the next observations are stored along with those acted on.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pcpg.cover.cover import RollIn, mixed_log_prob
from pcpg.envs.protocol import Environment
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic
from pcpg.shapes import Array, Bool, Float, Scalar


class Rollout(NamedTuple):
    """T steps of E episodes, or in E places where one episode follows another."""

    observations: jax.Array  # [T + 1, E, ...] acted on, and the one after the last step
    actions: jax.Array  # [T, E, ...] as sampled
    log_probs: jax.Array  # [T, E] of what really chose the action
    rewards: jax.Array  # [T, E]
    terminated: jax.Array  # [T, E]
    truncated: jax.Array  # [T, E]
    alive: jax.Array  # [T, E] the episode had not ended before this step
    own: jax.Array  # [T, E] alive, and the policy in training acted (no roll-in)
    cells: jax.Array  # [T, E] where the visit is counted, -1 for nowhere
    next_observations: jax.Array | None = None  # [T, E, ...] with autoreset alone, see `following`

    @property
    def following(self) -> jax.Array:
        """The observations that followed each step, the true last one of an episode included, [T, E, ...]."""
        return self.observations[1:] if self.next_observations is None else self.next_observations

    @property
    def ends(self) -> jax.Array | None:
        """Where an episode ended and the next one began in its place, [T, E]; None: a place has one episode."""
        return None if self.next_observations is None else self.terminated | self.truncated


class _Carry(NamedTuple):
    observation: jax.Array
    state: object
    alive: jax.Array


class _Inputs(NamedTuple):
    """The inputs of a step."""

    t: jax.Array
    key: jax.Array
    keys_anew: jax.Array | None  # for the starts of the next episodes; None: the place of an episode stays empty


def rollout(
    env: Environment,
    params: object,
    policy: ActorCritic,
    distribution: Distribution,
    key: jax.Array,
    *,
    num_episodes: int,
    roll_in: RollIn | None = None,
    epsilon: Scalar = 0.0,
    greedy: bool = False,
    numbered: bool = False,
    autoreset: bool = False,
) -> Rollout:
    """Whole episodes from the start state; with a roll-in, the first own step is epsilon-greedy.

    `numbered`: observations are their numbers in the environment's table, and so the policies take them.
    `autoreset`: where an episode ends the next begins, its time limit counted from its own start. Episodes that the
    last step leaves unfinished are marked neither terminated nor truncated: `gae` has a next value there as anywhere.
    """
    if autoreset and roll_in is not None:
        raise ValueError("with autoreset no episode can be rolled in")
    scene = _Scene(env, params, policy, distribution, roll_in, epsilon, greedy, numbered)
    key_reset, key_steps = jax.random.split(key)
    if autoreset:
        keys_start = jax.random.split(key_reset, (1 + env.max_steps, num_episodes))
        keys_start, keys_anew = keys_start[0], keys_start[1:]
    else:
        keys_start, keys_anew = jax.random.split(key_reset, num_episodes), None
    first = _Carry(*scene.start(keys_start), jnp.ones(num_episodes, bool))
    inputs = _Inputs(jnp.arange(env.max_steps), jax.random.split(key_steps, env.max_steps), keys_anew)
    last, record = jax.lax.scan(scene.step, first, inputs)
    observations = jnp.concatenate([record.observations, last.observation[None]])
    return record._replace(observations=observations)


class _Scene(NamedTuple):
    """Shared inputs of all steps of a rollout; the arguments of `rollout`."""

    env: Environment
    params: object
    policy: ActorCritic
    distribution: Distribution
    roll_in: RollIn | None
    epsilon: Scalar
    greedy: bool
    numbered: bool

    def start(self, keys: jax.Array) -> tuple[jax.Array, object]:
        """First observations and states, one for each key."""
        observation, state = jax.vmap(self.env.reset, (0, None))(keys, self.params)
        return jax.vmap(self.env.state_index)(state) if self.numbered else observation, state

    def step(self, carry: _Carry, inputs: _Inputs) -> tuple[_Carry, Rollout]:
        """One step of every episode."""
        env, distribution, alive = self.env, self.distribution, carry.alive
        key_choose, key_move = jax.random.split(inputs.key)
        action, log_prob, own = self.choose(carry.observation, inputs.t, key_choose)
        keys = jax.random.split(key_move, len(alive))
        moved = jax.vmap(env.transition, (0, 0, 0, None))(keys, carry.state, distribution.to_env(action), self.params)
        cells = jax.vmap(env.cell)(carry.state) if env.cells else jnp.full(len(alive), -1, jnp.int32)
        record = Rollout(
            carry.observation,
            action,
            log_prob,
            jnp.where(alive, moved.reward, 0.0),
            moved.terminated & alive,
            moved.truncated & alive,
            alive,
            own & alive,
            jnp.where(alive, cells, -1),
        )
        following = jax.vmap(env.state_index)(moved.state) if self.numbered else moved.observation
        ended = moved.terminated | moved.truncated
        if inputs.keys_anew is not None:
            here, anew = (following, moved.state), self.start(inputs.keys_anew)
            observation, state = jax.tree.map(lambda new, old: _select(ended, new, old), anew, here)
            return _Carry(observation, state, alive), record._replace(next_observations=following)
        observation = _select(alive, following, carry.observation)
        state = jax.tree.map(lambda new, old: _select(alive, new, old), moved.state, carry.state)
        return _Carry(observation, state, alive & ~ended), record

    def choose(self, observation: jax.Array, t: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Actions, the log-density of what really chose them, and where the policy itself did, each [E, ...]."""
        distribution, roll_in, num_episodes = self.distribution, self.roll_in, observation.shape[0]
        outputs = self.policy.outputs(observation)
        if self.greedy or roll_in is None:
            action = distribution.mode(outputs) if self.greedy else distribution.sample(key, outputs)
            return action, distribution.log_prob(outputs, action), jnp.ones(num_episodes, bool)
        key_own, key_flip, key_random = jax.random.split(key, 3)
        own = t >= roll_in.length
        outputs = _select(own, outputs, _roll_in_outputs(roll_in, observation))
        action = distribution.sample(key_own, outputs)
        first = t == roll_in.length
        flip = first & (jax.random.uniform(key_flip, (num_episodes,), jnp.float32) < self.epsilon)
        action = _select(flip, distribution.random(key_random, (num_episodes,)), action)
        log_prob = distribution.log_prob(outputs, action)
        mixed = mixed_log_prob(log_prob, distribution.random_log_prob(action), self.epsilon)
        return action, jnp.where(first, mixed, log_prob), own


def _roll_in_outputs(roll_in: RollIn, observation: jax.Array) -> jax.Array:
    groups = jax.tree.leaves(roll_in.policies)[0].shape[0]
    grouped = observation.reshape(groups, -1, *observation.shape[1:])
    outputs = jax.vmap(lambda policy, part: policy.outputs(part))(roll_in.policies, grouped)
    return outputs.reshape(observation.shape[0], -1)


def _select(mask: jax.Array, yes: jax.Array, no: jax.Array) -> jax.Array:
    return jnp.where(mask.reshape(mask.shape + (1,) * (yes.ndim - mask.ndim)), yes, no)


def discounted_sums(
    rewards: Float[Array, "T *batch"], gamma: Scalar, ends: Bool[Array, "T *batch"] | None = None
) -> Float[jax.Array, "T *batch"]:
    """Running discounted sums forward in time for each environment: what rewards are scaled by.

    The sum restarts after a step marked in `ends`.
    """

    def forward(total: jax.Array, inputs: Any) -> tuple[jax.Array, jax.Array]:
        reward, end = inputs
        total = gamma * total + reward
        return total if end is None else jnp.where(end, 0.0, total), total

    return jax.lax.scan(forward, jnp.zeros_like(rewards[0]), (rewards, ends))[1]
