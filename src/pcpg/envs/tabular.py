"""Exact finite models of episodic environments and their exact values: the oracles of sampled and deep code.

Everything is float64 NumPy on the host and undiscounted over a fixed number of decisions.
"""

from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np

Params = TypeVar("Params", contravariant=True)
State = TypeVar("State")


class TabularModel(NamedTuple):
    """A finite model with S states and A actions."""

    transitions: np.ndarray  # float64[S, A, S], probability of the next state
    rewards: np.ndarray  # float64[S, A], expected reward of the decision
    terminal: np.ndarray  # bool[S], absorbing and without reward
    start: int
    observations: np.ndarray  # float64[S, observation size]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of states and actions."""
        return self.rewards.shape[0], self.rewards.shape[1]


@runtime_checkable
class Tabular(Protocol[Params, State]):
    """What an environment offers, beyond the protocol of environments, when its states can be enumerated."""

    def tabular(self, params: Params) -> TabularModel:
        """The exact model of the instance."""
        ...

    def state_index(self, state: State) -> jax.Array:
        """The number of a state in the model (int32)."""
        ...

    def all_states(self) -> Any:
        """The states of the model in their order, stacked along a leading axis."""
        ...


def optimal_value(model: TabularModel, max_steps: int) -> float:
    """The best expected return from the start in `max_steps` decisions, by backward induction."""
    values = np.zeros(model.shape[0])
    for _ in range(max_steps):
        values = np.where(model.terminal, 0.0, (model.rewards + model.transitions @ values).max(axis=1))
    return float(values[model.start])


def policy_value(model: TabularModel, policy: np.ndarray, max_steps: int) -> float:
    """The expected return from the start of a stationary policy[S, A] in `max_steps` decisions."""
    policy = _checked(model, policy)
    rewards = np.where(model.terminal, 0.0, np.einsum("sa,sa->s", policy, model.rewards))
    transitions = np.einsum("sa,sat->st", policy, model.transitions)
    values = np.zeros(model.shape[0])
    for _ in range(max_steps):
        values = rewards + transitions @ values
    return float(values[model.start])


def occupancy(model: TabularModel, policy: np.ndarray, max_steps: int) -> np.ndarray:
    """Expected number of decisions at each pair, float64[S, A], in one episode of a stationary policy[S, A].

    It sums to the expected length of an episode; decisions in terminal states are none.
    """
    policy = _checked(model, policy)
    transitions = np.einsum("sa,sat->st", policy, model.transitions)
    at = np.zeros(model.shape[0])
    at[model.start] = 1.0
    visits = np.zeros(model.shape[0])
    for _ in range(max_steps):
        visits += np.where(model.terminal, 0.0, at)
        at = at @ transitions
    return visits[:, None] * policy


def _checked(model: TabularModel, policy: np.ndarray) -> np.ndarray:
    policy = np.asarray(policy, np.float64)
    if policy.shape != model.shape:
        raise ValueError(f"policy must have shape {model.shape} (states, actions), got {policy.shape}")
    if np.any(policy < 0) or not np.allclose(policy.sum(axis=1), 1.0):
        raise ValueError("each row of the policy must be a probability distribution over the actions")
    return policy
