"""Exact values of finite models, undiscounted over a fixed number of decisions: oracles of sampled and deep code."""

import numpy as np

from pcpg.envs.protocol import TabularModel


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
