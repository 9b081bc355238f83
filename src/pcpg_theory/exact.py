"""Exact oracles: values, action values, occupancies and optimal policies by linear algebra in float64.

| symbol        | function       | meaning                                                                       |
|---------------|----------------|-------------------------------------------------------------------------------|
| V^pi(s; r)    | `values`       | expected discounted sum of rewards from s                                     |
| Q^pi(s, a; r) | `action_values`| the same after taking a in s                                                  |
| A^pi          | `advantages`   | Q^pi - V^pi                                                                   |
| d^pi_nu(s, a) | `occupancy`    | NORMALISED discounted occupancy: (1-gamma) sum_t gamma^t Pr(s_t = s, a_t = a) |
| Sigma^pi      | `covariance`   | E_{d^pi}[phi phi^T]                                                           |
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from pcpg_theory.mdp import Array, TabularMDP, check_distribution, check_policy


class ExactValues(NamedTuple):
    """Values of a policy: V[s] and Q[s, a]."""

    V: Array
    Q: Array


def transition_matrix(mdp: TabularMDP, pi: Array) -> Array:
    """P_pi[s, s'], the state-to-state chain under the policy."""
    return np.einsum("sa,sat->st", pi, mdp.P)


def evaluate(mdp: TabularMDP, pi: Array, r: Array | None = None) -> ExactValues:
    """V^pi(.; r) and Q^pi(., .; r), with the MDP's own reward if none is given."""
    pi = check_policy(mdp, pi)
    r = mdp.r if r is None else np.asarray(r, dtype=np.float64)
    r_pi = np.einsum("sa,sa->s", pi, r)
    if mdp.factors is not None:
        # V = r_pi + gamma L x with x = right V, so x solves the d x d system (I - gamma right L) x = right r_pi.
        left, right = mdp.factors
        L = np.einsum("sa,sad->sd", pi, left)
        x = np.linalg.solve(np.eye(len(right)) - mdp.gamma * (right @ L), right @ r_pi)
        return ExactValues(r_pi + mdp.gamma * (L @ x), r + mdp.gamma * (left @ x))
    V = np.linalg.solve(np.eye(mdp.num_states) - mdp.gamma * transition_matrix(mdp, pi), r_pi)
    Q = r + mdp.gamma * (mdp.P.reshape(-1, mdp.num_states) @ V).reshape(mdp.shape)
    return ExactValues(V, Q)


def values(mdp: TabularMDP, pi: Array, r: Array | None = None) -> Array:
    """V^pi(s; r) for every state."""
    return evaluate(mdp, pi, r).V


def action_values(mdp: TabularMDP, pi: Array, r: Array | None = None) -> Array:
    """Q^pi(s, a; r) for every pair."""
    return evaluate(mdp, pi, r).Q


def advantages(mdp: TabularMDP, pi: Array, r: Array | None = None) -> Array:
    """A^pi(s, a; r) = Q - V for every pair."""
    V, Q = evaluate(mdp, pi, r)
    return Q - V[:, None]


def value(mdp: TabularMDP, pi: Array, r: Array | None = None) -> float:
    """V^pi(s0; r)."""
    return float(values(mdp, pi, r)[mdp.s0])


def occupancy(mdp: TabularMDP, pi: Array, nu: Array | None = None) -> Array:
    """d^pi_nu(s, a), which sums to one; without nu the start is s0 with a_0 drawn from the policy."""
    pi = check_policy(mdp, pi)
    gamma, S = mdp.gamma, mdp.num_states
    system = np.eye(S) - gamma * transition_matrix(mdp, pi).T
    if nu is None:
        start = np.zeros(S)
        start[mdp.s0] = 1.0
        d_states = (1.0 - gamma) * np.linalg.solve(system, start)
        # Solving can leave -1e-19 where no path leads; an occupancy is never negative.
        return np.maximum(d_states, 0.0)[:, None] * pi
    nu = check_distribution(mdp, nu)
    after = gamma * (nu.reshape(-1) @ mdp.P.reshape(-1, S))
    d_states = (1.0 - gamma) * np.linalg.solve(system, after)
    return (1.0 - gamma) * nu + np.maximum(d_states, 0.0)[:, None] * pi


def covariance(phi: Array, d: Array) -> Array:
    """Sigma = E_{(s,a) ~ d}[phi phi^T]; d may be any non-negative weights over pairs."""
    flat = phi.reshape(-1, phi.shape[-1])
    root = np.sqrt(d.reshape(-1, 1)) * flat
    return root.T @ root


class Optimum(NamedTuple):
    """An optimal policy (deterministic) and its values."""

    pi: Array
    V: Array


def optimal_policy(mdp: TabularMDP, r: Array | None = None, max_iterations: int = 1000) -> Optimum:
    """A deterministic optimal policy and its values, by policy iteration."""
    r = mdp.r if r is None else np.asarray(r, dtype=np.float64)
    choice = np.where(mdp.available, r, -np.inf).argmax(1)
    states = np.arange(mdp.num_states)
    for _ in range(max_iterations):
        pi = np.zeros(mdp.shape)
        pi[states, choice] = 1.0
        V, Q = evaluate(mdp, pi, r)
        Q = np.where(mdp.available, Q, -np.inf)
        # Change an action only for a gain above rounding, or two equal actions alternate forever.
        gain = Q.max(1) - Q[states, choice]
        better = gain > 1e-12 * max(1.0, float(np.abs(V).max()))
        if not better.any():
            return Optimum(pi, V)
        choice = np.where(better, Q.argmax(1), choice)
    raise RuntimeError(f"policy iteration did not stop within {max_iterations} iterations")


def uniform_start_pairs(mdp: TabularMDP, d_states: Array) -> Array:
    """d(s) x Uniform(available actions): the paper's d* when d is the comparator's state occupancy."""
    return d_states[:, None] * (mdp.available / mdp.available.sum(1, keepdims=True))


def form(phi: Array, sigma_mix: Array) -> Array:
    """phi' Sigma_mix^-1 phi for every pair, as a sum of squares of whitened vectors (never negative)."""
    flat = phi.reshape(-1, phi.shape[-1])
    lower = scipy.linalg.cholesky(sigma_mix, lower=True)
    white = scipy.linalg.solve_triangular(lower, flat.T, lower=True)
    return np.einsum("di,di->i", white, white).reshape(phi.shape[:-1])
