"""Probe environments: the smallest tasks whose values are known, to test learning code with.

Each isolates one thing that learning code can get wrong: if it is not learned, the fault is there. `gamma` is
the discount of the learner.

    OneStep      the value is 1                                 (the critic learns at all)
    TwoStates    the value is the observation, 1 or -1          (the critic reads the observation)
    Delayed      the best value is gamma, and 1 a step later    (credit over time; gamma is applied)
    Truncation   the value is 1 / (1 - gamma)                   (bootstrapping at a time limit)
    Action       the best action is 1, with value 1             (the policy learns at all)
    Continuous   the best action is 0.5, with value 0           (continuous actions)
    NonFinite    a NaN after some decisions                     (guards against non-finite numbers)
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from pcpg.envs.options import require_int
from pcpg.envs.protocol import Environment, Step
from pcpg.envs.registry import register
from pcpg.envs.spaces import Box, Discrete

NoParams = tuple[()]


class ProbeState(NamedTuple):
    """Where the episode is."""

    time: jax.Array  # int32, decisions taken
    memory: jax.Array  # float32, what the probe shows or remembers


class Probe(Environment[NoParams, ProbeState]):
    """One decision, two actions, reward 1; the observation is the memory, zero after the end."""

    @property
    def observation_space(self) -> Box:
        return Box(-1.0, 1.0, (1,))

    @property
    def action_space(self) -> Discrete | Box:
        return Discrete(2)

    @property
    def max_steps(self) -> int:
        return 1

    def instance(self, seed: int) -> NoParams:
        """Nothing: every instance is the same."""
        del seed
        return ()

    def reset(self, key: jax.Array, params: NoParams) -> tuple[jax.Array, ProbeState]:
        """Time zero, with the probe's first memory."""
        del params
        state = ProbeState(jnp.zeros((), jnp.int32), self._first(key))
        return self._observe(state), state

    def transition(self, key: jax.Array, state: ProbeState, action: jax.Array, params: NoParams) -> Step[ProbeState]:
        """One decision; the last one terminates."""
        del key, params
        terminated = state.time + 1 >= self.max_steps
        memory = jnp.where(terminated, 0.0, self._next(state, action))
        new_state = ProbeState(state.time + 1, memory)
        reward = self._reward(state, action)
        return Step(self._observe(new_state), new_state, reward, terminated, jnp.array(False), {})

    def _first(self, key: jax.Array) -> jax.Array:
        del key
        return jnp.ones((), jnp.float32)

    def _next(self, state: ProbeState, action: jax.Array) -> jax.Array:
        del action
        return state.memory

    def _observe(self, state: ProbeState) -> jax.Array:
        return state.memory[None]

    def _reward(self, state: ProbeState, action: jax.Array) -> jax.Array:
        del state, action
        return jnp.ones((), jnp.float32)


@dataclasses.dataclass(frozen=True)
class OneStep(Probe):
    """One decision, reward 1."""


@dataclasses.dataclass(frozen=True)
class TwoStates(Probe):
    """One decision; the observation is 1 or -1 by a fair coin, and the reward is the observation."""

    def _first(self, key: jax.Array) -> jax.Array:
        return jax.random.rademacher(key, (), jnp.float32)

    def _reward(self, state: ProbeState, action: jax.Array) -> jax.Array:
        del action
        return state.memory


@dataclasses.dataclass(frozen=True)
class Delayed(Probe):
    """Two decisions; the second pays 1 if the first matched its observation (action 1 at 1, action 0 at -1).

    The observation is (cue, 0) and then (1 or -1: matched or not, 1).
    """

    @property
    def observation_space(self) -> Box:
        return Box(-1.0, 1.0, (2,))

    @property
    def max_steps(self) -> int:
        return 2

    def _first(self, key: jax.Array) -> jax.Array:
        return jax.random.rademacher(key, (), jnp.float32)

    def _next(self, state: ProbeState, action: jax.Array) -> jax.Array:
        matched = (action == 1) == (state.memory > 0)
        return jnp.where(matched, 1.0, -1.0).astype(jnp.float32)

    def _observe(self, state: ProbeState) -> jax.Array:
        return jnp.stack([state.memory, (state.time == 1).astype(jnp.float32)])

    def _reward(self, state: ProbeState, action: jax.Array) -> jax.Array:
        del action
        return ((state.time == 1) & (state.memory > 0)).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Truncation(Probe):
    """Reward 1 for ever, cut after `limit` decisions."""

    limit: int = 10
    """Decisions until the episode is truncated."""

    def __post_init__(self) -> None:
        require_int("limit", self.limit, minimum=1)

    @property
    def max_steps(self) -> int:
        return self.limit

    def transition(self, key: jax.Array, state: ProbeState, action: jax.Array, params: NoParams) -> Step[ProbeState]:
        """One decision; the clock truncates, nothing terminates."""
        del key, params
        new_state = state._replace(time=state.time + 1)
        truncated = new_state.time >= self.limit
        reward = self._reward(state, action)
        return Step(self._observe(new_state), new_state, reward, jnp.array(False), truncated, {})


@dataclasses.dataclass(frozen=True)
class Action(Probe):
    """One decision; action 1 pays 1, action 0 nothing."""

    def _reward(self, state: ProbeState, action: jax.Array) -> jax.Array:
        del state
        return (action == 1).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Continuous(Probe):
    """One decision with a real action; the reward is -(action - 0.5)^2, outside the space too."""

    @property
    def action_space(self) -> Box:
        return Box(-1.0, 1.0, (1,))

    def _reward(self, state: ProbeState, action: jax.Array) -> jax.Array:
        del state
        return -jnp.square(action[0] - 0.5)


@dataclasses.dataclass(frozen=True)
class NonFinite(Probe):
    """Reward 1 for `finite_steps` decisions; then one decision more, which gives a NaN and terminates."""

    finite_steps: int = 5
    """Decisions before the one that fails."""
    where: Literal["reward", "observation"] = "reward"
    """What the NaN is in."""

    def __post_init__(self) -> None:
        require_int("finite_steps", self.finite_steps, minimum=0)
        if self.where not in ("reward", "observation"):
            raise ValueError(f"where must be 'reward' or 'observation', got {self.where!r}")

    @property
    def max_steps(self) -> int:
        return self.finite_steps + 1

    def _observe(self, state: ProbeState) -> jax.Array:
        failed = (self.where == "observation") & (state.time > self.finite_steps)
        return jnp.where(failed, jnp.nan, state.memory)[None]

    def _reward(self, state: ProbeState, action: jax.Array) -> jax.Array:
        del action
        failed = (self.where == "reward") & (state.time >= self.finite_steps)
        return jnp.where(failed, jnp.nan, jnp.ones((), jnp.float32))


PROBES = {
    "ProbeOneStep-v0": (OneStep, "one decision, reward 1"),
    "ProbeTwoStates-v0": (TwoStates, "one decision, the reward is the observation"),
    "ProbeDelayed-v0": (Delayed, "two decisions, the second pays for the first"),
    "ProbeTruncation-v0": (Truncation, "reward 1 for ever, cut by a time limit"),
    "ProbeAction-v0": (Action, "one decision, action 1 pays 1"),
    "ProbeContinuous-v0": (Continuous, "one real action, best at 0.5"),
    "ProbeNonFinite-v0": (NonFinite, "a NaN after some decisions"),
}


def register_probes() -> None:
    """Give the probes their ids, for runs by name."""
    for env_id, (constructor, summary) in PROBES.items():
        register(env_id, constructor, summary, overwrite=True)
