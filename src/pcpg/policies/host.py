"""Acting on the host: a policy's choices in NumPy, for a few observations at a time.

Calling a compiled program costs as much as some ten small products of matrices, and with a handful of environments
a step is no more than that. Random numbers are drawn beforehand, for a batch of episodes. Convolutions are compiled.
"""

from typing import NamedTuple

import jax
import numpy as np

from pcpg.envs.spaces import Box, Discrete, MultiDiscrete, Space
from pcpg.policies.distributions import num_outputs
from pcpg.policies.networks import ActorCritic, Body, Conv, Patches
from pcpg.policies.normaliser import LARGEST
from pcpg.shapes import Float, Shaped


class Choices(NamedTuple):
    """The random part of an action, for `steps` decisions of `episodes` episodes."""

    noise: np.ndarray  # [steps, episodes, ...]
    flips: np.ndarray  # [episodes] uniform: below epsilon, the first own action is random ...
    random: np.ndarray  # [episodes, ...] ... and is this one


class Actor:
    """A policy whose weights lie on the host: observations in, parameters of the action distribution out."""

    def __init__(self, policy: object) -> None:
        self._policy, self._own = policy, None
        self.is_compiled = False  # whether acting takes a compiled program
        if getattr(policy, "acts_on_host", False):
            self._policy, self._own = None, jax.tree.map(np.asarray, policy)
            return
        if not isinstance(policy, ActorCritic) or not isinstance(policy.actor_body, Body):  # without layers: compiled
            self._policy, self.is_compiled = jax.device_put(policy), True
            return
        self.is_compiled = isinstance(policy.actor_body.layers[0], Conv)
        if not self.is_compiled:
            self._policy = None  # the arrays below are all that it takes, here or in another process
        first, *others = jax.tree.map(np.asarray, policy.actor_body.layers)
        self._code, plain = (first, others) if isinstance(first, Patches) else (None, [first, *others])
        self._layers = [(layer.weight, layer.bias) for layer in plain]
        self._head = np.asarray(policy.actor_head.weight), np.asarray(policy.actor_head.bias)
        seen = None if policy.normaliser is None else policy.normaliser.observations
        self._scale = None if seen is None else (np.asarray(seen.mean), 1 / np.sqrt(np.asarray(seen.variance) + 1e-8))
        self._log_std = None if policy.log_std is None else np.asarray(policy.log_std)

    def __call__(self, observations: Shaped[np.ndarray, "n ..."]) -> Float[np.ndarray, "n outputs"]:
        """The parameters of the action distribution for each observation."""
        if self._own is not None:
            return self._own.on_host(observations)
        if self.is_compiled:
            return self._compiled(observations)
        x = observations
        if self._scale is not None:
            x = np.clip((x - self._scale[0]) * self._scale[1], -LARGEST, LARGEST)
        if self._code is not None:
            x = self._code(x)
        for weight, bias in self._layers:
            x = np.maximum(x @ weight + bias, 0.0)
        x = x @ self._head[0] + self._head[1]
        if self._log_std is None:
            return x
        return np.concatenate([x, np.broadcast_to(self._log_std, x.shape)], axis=-1)

    def _compiled(self, observations: np.ndarray) -> np.ndarray:
        # Another number of rows is another program: few are compiled if it is always a power of two.
        rows = len(observations)
        width = 1 << (rows - 1).bit_length()
        padded = np.concatenate([observations, np.repeat(observations[-1:], width - rows, axis=0)])
        return np.asarray(_outputs(self._policy, padded))[:rows]


def num_parameters(space: Space) -> int:
    """Length of the vector that an actor gives for one observation."""
    return num_outputs(space) * (2 if isinstance(space, Box) else 1)


def draw(rng: np.random.Generator, space: Space, steps: int, episodes: int) -> Choices:
    """All random numbers of a batch of episodes."""
    if isinstance(space, Discrete):
        noise, random = rng.random((steps, episodes), np.float32), rng.integers(space.n, size=episodes, dtype=np.int32)
    elif isinstance(space, MultiDiscrete):
        noise = rng.random((steps, episodes, len(space.sizes)), np.float32)
        random = rng.integers(space.sizes, size=(episodes, len(space.sizes)), dtype=np.int32)
    elif isinstance(space, Box):
        noise = rng.standard_normal((steps, episodes, *space.shape), np.float32)
        random = rng.uniform(space.low, space.high, (episodes, *space.shape)).astype(np.float32)
    else:
        raise ValueError(f"actions must be Discrete, MultiDiscrete or Box, got {space}")
    return Choices(noise, rng.random(episodes, np.float32), random)


def choose(
    space: Space, outputs: Float[np.ndarray, "n outputs"], noise: Float[np.ndarray, "n ..."], *, greedy: bool = False
) -> Shaped[np.ndarray, "n ..."]:
    """The likeliest actions, or those that the noise chooses; real ones are not cut to their bounds."""
    if isinstance(space, Discrete):
        return _categorical(outputs, noise, greedy)
    if isinstance(space, MultiDiscrete):
        parts = np.split(outputs, np.cumsum(space.sizes)[:-1], axis=-1)
        chosen = [_categorical(part, noise[:, index], greedy) for index, part in enumerate(parts)]
        return np.stack(chosen, axis=-1)
    mean, log_std = np.split(outputs, 2, axis=-1)
    return mean if greedy else mean + np.exp(log_std) * noise


def within(space: Space, actions: Shaped[np.ndarray, "n ..."]) -> Shaped[np.ndarray, "n ..."]:
    """Real actions from before tanh to between their bounds; others as they are."""
    if not isinstance(space, Box):
        return actions
    return np.float32((space.high + space.low) / 2) + np.float32((space.high - space.low) / 2) * np.tanh(actions)


def _categorical(logits: np.ndarray, point: np.ndarray, greedy: bool) -> np.ndarray:
    if greedy:
        return np.argmax(logits, axis=-1).astype(np.int32)
    cumulative = np.cumsum(np.exp(logits - logits.max(axis=-1, keepdims=True)), axis=-1)
    chosen = np.sum(point[:, None] * cumulative[:, -1:] >= cumulative, axis=-1)
    return np.minimum(chosen, logits.shape[-1] - 1).astype(np.int32)


_outputs = jax.jit(lambda policy, observations: policy.outputs(observations))
