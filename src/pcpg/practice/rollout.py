"""Episodes of a functional environment, many at once: roll in through the cover, then act by the policy.

An episode that has ended stays where it is, marked as not alive, so that the observation after the last step
is the true final one and the next value of step t is always the value of observation t + 1. With `autoreset` the next
episode begins in its place instead, and the observations that followed are kept beside those acted on.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pcpg.cover.rollin import RollIn, mixed_log_prob
from pcpg.envs.protocol import Environment
from pcpg.policies.distributions import Distribution
from pcpg.policies.networks import ActorCritic


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
    state: Any
    alive: jax.Array


def rollout(
    env: Environment,
    params: Any,
    policy: ActorCritic,
    distribution: Distribution,
    key: jax.Array,
    *,
    num_episodes: int,
    roll_in: RollIn | None = None,
    epsilon: jax.Array | float = 0.0,
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
    key_reset, key_steps = jax.random.split(key)
    start = partial(_start, env, params, numbered)
    if autoreset:
        keys_start = jax.random.split(key_reset, (1 + env.max_steps, num_episodes))
        keys_start, keys_anew = keys_start[0], keys_start[1:]
    else:
        keys_start, keys_anew = jax.random.split(key_reset, num_episodes), None
    observation, state = start(keys_start)

    def step(carry: _Carry, inputs: tuple[jax.Array, jax.Array, jax.Array | None]) -> tuple[_Carry, Rollout]:
        t, key, keys_anew = inputs
        key_choose, key_move = jax.random.split(key)
        action, log_prob, own = _choose(
            policy,
            distribution,
            carry.observation,
            t,
            key_choose,
            roll_in=roll_in,
            epsilon=epsilon,
            greedy=greedy,
        )
        keys = jax.random.split(key_move, num_episodes)
        moved = jax.vmap(env.transition, (0, 0, 0, None))(keys, carry.state, distribution.to_env(action), params)
        cells = jax.vmap(env.cell)(carry.state) if env.cells else jnp.full(num_episodes, -1, jnp.int32)
        alive = carry.alive
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
        following = jax.vmap(env.state_index)(moved.state) if numbered else moved.observation
        if keys_anew is not None:
            ended = moved.terminated | moved.truncated
            here, anew = (following, moved.state), start(keys_anew)
            observation, state = jax.tree.map(lambda new, old: _select(ended, new, old), anew, here)
            return _Carry(observation, state, alive), record._replace(next_observations=following)
        next_carry = _Carry(
            _select(alive, following, carry.observation),
            jax.tree.map(lambda new, old: _select(alive, new, old), moved.state, carry.state),
            alive & ~(moved.terminated | moved.truncated),
        )
        return next_carry, record

    first = _Carry(observation, state, jnp.ones(num_episodes, bool))
    times = jnp.arange(env.max_steps)
    last, record = jax.lax.scan(step, first, (times, jax.random.split(key_steps, env.max_steps), keys_anew))
    observations = jnp.concatenate([record.observations, last.observation[None]])
    return record._replace(observations=observations)


def _start(env: Environment, params: Any, numbered: bool, keys: jax.Array) -> tuple[jax.Array, Any]:
    """First observations and states, one for each key."""
    observation, state = jax.vmap(env.reset, (0, None))(keys, params)
    return jax.vmap(env.state_index)(state) if numbered else observation, state


def _choose(
    policy: ActorCritic,
    distribution: Distribution,
    observation: jax.Array,
    t: jax.Array,
    key: jax.Array,
    *,
    roll_in: RollIn | None,
    epsilon: jax.Array | float,
    greedy: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Actions, the log-density of what really chose them, and where the policy itself did, each [E, ...]."""
    num_episodes = observation.shape[0]
    outputs = policy.outputs(observation)
    if greedy or roll_in is None:
        action = distribution.mode(outputs) if greedy else distribution.sample(key, outputs)
        return action, distribution.log_prob(outputs, action), jnp.ones(num_episodes, bool)
    key_own, key_flip, key_random = jax.random.split(key, 3)
    own = t >= roll_in.length
    outputs = _select(own, outputs, _roll_in_outputs(roll_in, observation))
    action = distribution.sample(key_own, outputs)
    first = t == roll_in.length
    flip = first & (jax.random.uniform(key_flip, (num_episodes,), jnp.float32) < epsilon)
    action = _select(flip, distribution.random(key_random, (num_episodes,)), action)
    log_prob = distribution.log_prob(outputs, action)
    mixed = mixed_log_prob(log_prob, distribution.random_log_prob(action), epsilon)
    return action, jnp.where(first, mixed, log_prob), own


def _roll_in_outputs(roll_in: RollIn, observation: jax.Array) -> jax.Array:
    groups = jax.tree.leaves(roll_in.policies)[0].shape[0]
    grouped = observation.reshape(groups, -1, *observation.shape[1:])
    outputs = jax.vmap(lambda policy, part: policy.outputs(part))(roll_in.policies, grouped)
    return outputs.reshape(observation.shape[0], -1)


def _select(mask: jax.Array, yes: jax.Array, no: jax.Array) -> jax.Array:
    return jnp.where(mask.reshape(mask.shape + (1,) * (yes.ndim - mask.ndim)), yes, no)
