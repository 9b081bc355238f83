"""An environment with the user's own reward in place of its reward."""

import dataclasses
import hashlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcpg.envs.host import HostEnvironment
from pcpg.envs.protocol import Described, Environment, Step

Reward = Callable[..., Any]
"""A function of the observation, the action and, with three arguments, the next observation; returns a number."""


class GivenRewardState(NamedTuple):
    """The state of the environment and its observation, on which the reward depends."""

    inner: Environment
    observation: jax.Array


@dataclasses.dataclass(frozen=True)
class GivenReward(Described[object, GivenRewardState]):
    """The environment `inner`, paying `reward(observation, action[, next_observation])` for each decision."""

    inner: Environment
    reward: Reward

    def __post_init__(self) -> None:
        if isinstance(self.inner, HostEnvironment):
            raise ValueError("only compiled environments accept a reward, not those stepped on the host")
        _reward_jaxpr(self)

    @property
    def about(self) -> Environment:
        return self.inner

    @property
    def evaluation_env(self) -> "GivenReward":
        return GivenReward(self.inner.evaluation_env, self.reward)

    def instance(self, seed: int) -> object:
        return self.inner.instance(seed)

    def reset(self, key: jax.Array, params: object) -> tuple[jax.Array, GivenRewardState]:
        observation, state = self.inner.reset(key, params)
        return observation, GivenRewardState(state, observation)

    def transition(
        self, key: jax.Array, state: GivenRewardState, action: jax.Array, params: object
    ) -> Step[GivenRewardState]:
        moved = self.inner.transition(key, state.inner, action, params)
        pairs = (state.observation, action, moved.observation)
        reward = jnp.asarray(self.reward(*pairs[: num_arguments(self.reward)]), jnp.float32)
        return moved._replace(reward=reward, state=GivenRewardState(moved.state, moved.observation))

    def rewards_of(
        self, params: object, observations: np.ndarray, actions: np.ndarray, next_observations: np.ndarray
    ) -> tuple[np.ndarray, None]:
        del params
        pairs = (observations, actions, next_observations)[: num_arguments(self.reward)]
        return np.asarray(jax.jit(jax.vmap(self.reward))(*pairs), np.float32), None

    def cell(self, state: GivenRewardState) -> jax.Array:
        return self.inner.cell(state.inner)

    def reachable_cells(self, params: object) -> np.ndarray:
        return self.inner.reachable_cells(params)

    def possible_cells(self, params: object) -> np.ndarray:
        return self.inner.possible_cells(params)


def num_arguments(reward: Reward) -> int:
    """The number of arguments that a reward takes: 2 or 3."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(reward).parameters.values()
    count = sum(p.kind in kinds and p.default is p.empty for p in parameters)
    if count not in (2, 3):
        raise ValueError(
            f"a reward takes (observation, action) or (observation, action, next_observation), got {count}"
        )
    return count


def reward_name(reward: Reward) -> str:
    """The name of a reward in messages and in the config of a run."""
    return getattr(reward, "__qualname__", type(reward).__qualname__)


def fingerprint(env: GivenReward) -> str:
    """A hash of the traced program of the reward, including its arrays."""
    traced = _reward_jaxpr(env)
    digest = hashlib.sha256(str(traced.jaxpr).encode())
    for constant in traced.consts:
        digest.update(np.asarray(constant).tobytes())
    return digest.hexdigest()


def _reward_jaxpr(env: GivenReward) -> Any:
    """The traced program of the reward; refuses rewards that cannot be compiled or do not return one number."""
    name = reward_name(env.reward)
    observation = jax.ShapeDtypeStruct(env.observation_space.shape, env.observation_space.dtype)
    action = jax.ShapeDtypeStruct(env.action_space.shape, env.action_space.dtype)
    arguments = (observation, action, observation)[: num_arguments(env.reward)]
    try:
        traced = jax.make_jaxpr(env.reward)(*arguments)
    except Exception as error:
        raise ValueError(f"the reward {name} cannot be compiled by JAX: {error}") from error
    shapes = [out.shape for out in traced.out_avals]
    if shapes != [()]:
        raise ValueError(f"the reward {name} must return one number, got arrays of shapes {shapes}")
    return traced
