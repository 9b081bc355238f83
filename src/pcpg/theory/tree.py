"""The binary tree with pathological features: a path of value 1/2 beside a tree in which the features are wrong.

s0 -L-> s1 pays 1/2, and s1 stays for ever without reward; s0 -R-> the root of a tree of depth H with rewards at its
leaves. phi(s0, L) = e1, phi(s0, R) = e2, phi(s1, .) = e3; inside the tree features are orthogonal to these and
otherwise arbitrary: random, or searched so as to delude a method that bootstraps.

| state | 0  | 1  | 2 .. 2^H             | 2^H + 1            |
|-------|----|----|----------------------|--------------------|
| is    | s0 | s1 | nodes, level by level| the end of the tree|
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from pcpg.theory.bootstrapping import fitted_q_iteration
from pcpg.theory.mdp import Array, TabularMDP

LEFT_VALUE = 0.5


class Tree(NamedTuple):
    """The tree as an MDP with features, and the comparator that goes left."""

    mdp: TabularMDP
    phi: Array
    comparator: Array
    depth: int


def tree_mdp(
    depth: int, gamma: float = 0.9, best_leaf: float = 0.4, seed: int = 0, leaves: Array | None = None
) -> TabularMDP:
    """Return the tree with leaf rewards uniform in [0, best_leaf], or given; left is optimal if gamma^H best < 1/2."""
    if not (1 <= depth <= 10):
        raise ValueError(f"depth is {depth}; expected 1 to 10 (a tree has 2^depth nodes)")
    if not 0.0 <= best_leaf <= 1.0:
        raise ValueError(f"best_leaf is {best_leaf}; expected a reward in [0, 1]")
    S = 2**depth + 2
    end = S - 1
    P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
    P[0, 0, 1] = P[0, 1, 2] = 1.0
    P[1, :, 1] = P[end, :, end] = 1.0
    r[0, 0] = LEFT_VALUE
    pays = np.random.default_rng(seed).uniform(0.0, best_leaf, size=2**depth) if leaves is None else leaves
    for level in range(depth):
        first, count = 1 + 2**level, 2**level  # nodes of a level are numbered in a row
        for i in range(count):
            for a in range(2):
                P[first + i, a, end if level == depth - 1 else first + count + 2 * i + a] = 1.0
                if level == depth - 1:
                    r[first + i, a] = pays[2 * i + a]
    return TabularMDP(P, r, gamma, 0)


def tree_features(mdp: TabularMDP, inner: Array) -> Array:
    """Return features whose first three coordinates belong to s0 and s1, and whose others are `inner` in the tree."""
    S, k = mdp.num_states, inner.shape[-1]
    if inner.shape != (S - 2, 2, k):
        raise ValueError(f"inner features have shape {inner.shape}; expected {(S - 2, 2, 'k')}")
    phi = np.zeros((S, 2, 3 + k))
    phi[0, 0, 0] = phi[0, 1, 1] = 1.0
    phi[1, :, 2] = 1.0
    phi[2:, :, 3:] = inner / np.maximum(1.0, np.linalg.norm(inner, axis=-1, keepdims=True))
    return phi


def random_tree(depth: int, inner_dim: int = 4, seed: int = 0, gamma: float = 0.9) -> Tree:
    """Return a tree whose inner features are random directions."""
    mdp = tree_mdp(depth, gamma, seed=seed)
    inner = np.random.default_rng(seed + 1).normal(size=(mdp.num_states - 2, 2, inner_dim))
    return _with_comparator(mdp, tree_features(mdp, inner), depth)


def _with_comparator(mdp: TabularMDP, phi: Array, depth: int) -> Tree:
    left = np.zeros(mdp.shape)
    left[:, 0] = 1.0
    return Tree(mdp, phi, left, depth)


def believed_advantage_of_right(mdp: TabularMDP, phi: Array) -> float:
    """Return how much fitted Q iteration, with uniform weights over all pairs, overvalues R at s0 against L."""
    Q = fitted_q_iteration(mdp, phi, np.full(mdp.shape, 1.0 / (2 * mdp.num_states)), iterations=60).Q
    return float(Q[0, 1] - Q[0, 0])


def adversarial_tree(
    depth: int,
    inner_dim: int = 4,
    seed: int = 0,
    gamma: float = 0.9,
    tries: int = 200,
    objective: Callable[[TabularMDP, Array], float] = believed_advantage_of_right,
) -> Tree:
    """Return a tree whose inner features were searched (random moves, kept when better) to maximise the objective."""
    rng, mdp = np.random.default_rng(seed + 2), tree_mdp(depth, gamma, seed=seed)
    inner = np.random.default_rng(seed + 1).normal(size=(mdp.num_states - 2, 2, inner_dim))
    best = objective(mdp, tree_features(mdp, inner))
    for i in range(tries):
        scale = 1.0 if i < tries // 2 else 0.3
        moved = inner + scale * rng.normal(size=inner.shape) * (rng.random((len(inner), 2, 1)) < 0.3)
        found = objective(mdp, tree_features(mdp, moved))
        if found > best:
            inner, best = moved, found
    return _with_comparator(mdp, tree_features(mdp, inner), depth)


def deluding_tree(depth: int = 8, gamma: float = 0.9, right_value: float = 0.4) -> Tree:
    """Return a tree on which one shared inner feature deludes bootstrapping even on its own unlimited on-policy data.

    Only the leftmost path of the tree has features, c_0 .. c_{H-1} along one direction, and its leaf pays r. Where
    every pair of the path is visited equally often, the regression with bootstrapped targets has the fixed point
    w = r c_{H-1} / (c' A c), A = I - (gamma/2)(neighbours), so R at s0 is believed to be worth gamma w c_0, against
    gamma^H r in truth. The ratio is largest for c the top eigenvector of A^-1 B, B the symmetric part of e_0 e_{H-1}'.
    """
    if not 0.0 < right_value < LEFT_VALUE:
        raise ValueError(f"right_value is {right_value}; expected more than 0 and less than {LEFT_VALUE}")
    leaves: Array = np.zeros(2**depth)
    leaves[0] = right_value / gamma**depth
    mdp = tree_mdp(depth, gamma, leaves=leaves)
    neighbours = np.eye(depth, k=1) + np.eye(depth, k=-1)
    ends = np.zeros((depth, depth))
    ends[0, -1] += 0.5
    ends[-1, 0] += 0.5
    # eigh with both matrices: B c = mu A c, A positive definite, eigenvalues ascending.
    c = np.abs(scipy.linalg.eigh(ends, np.eye(depth) - 0.5 * gamma * neighbours)[1][:, -1])
    inner = np.zeros((mdp.num_states - 2, 2, 1))
    inner[[2**level - 1 for level in range(depth)], 0, 0] = c / c.max()
    return _with_comparator(mdp, tree_features(mdp, inner), depth)


def exact_left_fit(mdp: TabularMDP, V: Array) -> tuple[float, float]:
    """Return theta_1 = 1/2 + gamma V(s1; r+b) and theta_3 = gamma V(s1; r+b): the fit of Q - b on the left path."""
    return LEFT_VALUE + mdp.gamma * float(V[1]), mdp.gamma * float(V[1])
