"""The paper's examples of features that are wrong in places, and two methods that bootstrap, as contrast.

**The binary tree**: a path of value 1/2 beside a tree in which the features are wrong. s0 -L-> s1 pays 1/2, and s1
stays forever without reward; s0 -R-> the root of a tree of depth H with rewards at its leaves. phi(s0, L) = e1,
phi(s0, R) = e2, phi(s1, .) = e3; inside the tree features are orthogonal to these and otherwise arbitrary: random, or
searched so as to delude a method that bootstraps.

| state | 0  | 1  | 2 .. 2^H             | 2^H + 1            |
|-------|----|----|----------------------|--------------------|
| is    | s0 | s1 | nodes, level by level| the end of the tree|

**The swamp**: an aggregated MDP whose misspecification is large off the comparator's path and zero on it (or the other
way round). A corridor c_0 .. c_{n-1}: `on` leads to the next cell, and out of the last one with reward 1. `aside` leads
into a swamp: its first cell pays a toll of kappa once, its last one nothing forever. All pairs of the swamp share ONE
abstract state, though they differ by kappa in reward; every other pair is its own abstract state. With `on_path` the
swamp is free of error, and at c_0, where the comparator passes, `aside` leads on with probability 1 - kappa and
shares one abstract state with `on`. What going aside is worth is kappa gamma, once. A method that bootstraps on the
abstract state believes that the swamp pays an average toll forever: share kappa / (1-gamma), with the share of paying
cells in its data.

**Fitted Q iteration and LSVI-UCB** regress onto r + gamma max_a' Q(s', a'), so an error of the features anywhere is
carried to every state that can reach it, however well the features fit there (the paper's delusional bias). Where the
features are right everywhere both work.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from pcpg_theory import critic, exact
from pcpg_theory.mdp import Array, Index, TabularMDP, aggregation_features, check_features
from pcpg_theory.samplers import Simulator

LEFT_VALUE = 0.5
ON, ASIDE = 0, 1


class Bootstrapped(NamedTuple):
    """The belief of a bootstrapping method, and the value of its greedy policy."""

    Q: Array  # believed action values
    pi: Array  # greedy policy
    value: float  # its true value at s0
    steps: int  # environment steps used (0: the model was given)


def greedy(mdp: TabularMDP, Q: Array) -> Array:
    """The policy that is uniform over the best available actions: a tie is not broken by an action's number."""
    Q = np.where(mdp.available, Q, -np.inf)
    best = (Q.max(1, keepdims=True) - 1e-9 <= Q).astype(np.float64)
    return best / best.sum(1, keepdims=True)


def fitted_q_iteration(mdp: TabularMDP, phi: Array, weights: Array, iterations: int = 200) -> Bootstrapped:
    """Fitted Q iteration with exact backups and population least squares under `weights` over pairs.

    Values are clipped to [0, r_max/(1-gamma)], which keeps it from diverging; nothing else stands in its way.
    """
    phi = check_features(mdp, phi)
    factor = critic.factorise(phi, weights, critic.partition_labels(phi))
    top = mdp.r_max / (1.0 - mdp.gamma)
    theta = np.zeros(phi.shape[-1])
    for _ in range(iterations):
        V = np.where(mdp.available, np.clip(phi @ theta, 0.0, top), -np.inf).max(1)
        theta = critic.least_squares(factor, mdp.r + mdp.gamma * (mdp.P @ V))
    Q = np.clip(phi @ theta, 0.0, top)
    pi = greedy(mdp, Q)
    return Bootstrapped(Q, pi, exact.value(mdp, pi), 0)


def lsvi_ucb(
    mdp: TabularMDP,
    phi: Array,
    episodes: int,
    length: int,
    scale: float,
    seed: int = 0,
    ridge: float = 1.0,
    batch: float = 0.0,
) -> Bootstrapped:
    """LSVI-UCB, stationary and discounted: greedy play on ridge regression plus scale sqrt(phi' Lambda^-1 phi).

    After each episode of `length` steps the data are refitted by value iteration on the samples, or after this share
    of all episodes so far, where a `batch` is given. The policy returned is greedy without the bonus on all data, the
    most favourable reading.
    """
    phi = check_features(mdp, phi)
    if episodes < 1 or length < 1 or scale < 0.0 or ridge <= 0.0:
        given = f"{episodes}, {length}, {scale} and {ridge}"
        raise ValueError(f"episodes and length must be 1 or more, scale 0 or more and ridge positive, got {given}")
    sim, rng = Simulator(mdp, np.random.default_rng(seed)), np.random.default_rng(seed + 1)
    counts = np.zeros((*mdp.shape, mdp.num_states))
    Q = np.full(mdp.shape, mdp.r_max / (1.0 - mdp.gamma))
    played = 0
    while played < episodes:
        together = min(max(1, int(batch * played)), episodes - played)
        played += together
        s = np.full(together, mdp.s0)
        for _ in range(length):
            rows = np.where(mdp.available[s], Q[s], -np.inf)
            best = rows >= rows.max(1, keepdims=True) - 1e-12
            a = (best * rng.random(best.shape)).argmax(1)  # ties at random
            sim.play(s)
            after = sim.move(s, a)
            np.add.at(counts, (s, a, after), 1.0)
            s = after
        Q = _least_squares_values(mdp, phi, counts, scale, ridge)
    final = _least_squares_values(mdp, phi, counts, 0.0, ridge)
    pi = greedy(mdp, final)
    return Bootstrapped(final, pi, exact.value(mdp, pi), sim.steps)


def _least_squares_values(mdp: TabularMDP, phi: Array, counts: Array, scale: float, ridge: float) -> Array:
    """The fixed point (or the 50th iterate) of ridge-regressed value iteration on the counted moves."""
    visits = counts.sum(-1)
    regression = critic.ridge_regression(phi, visits, ridge)
    bonus = scale * np.sqrt(regression.form)
    top, Q = mdp.r_max / (1.0 - mdp.gamma), np.zeros(mdp.shape)
    for _ in range(50):
        V = np.where(mdp.available, Q, -np.inf).max(1)
        targets = visits * mdp.r + mdp.gamma * (counts @ V)  # sums over the samples of each pair
        new = np.clip(regression.mean(targets) + bonus, 0.0, top)
        if np.abs(new - Q).max() < 1e-9:
            return new
        Q = new
    return Q


class BinaryTree(NamedTuple):
    """The tree as an MDP with features, and the comparator that goes left."""

    mdp: TabularMDP
    phi: Array
    comparator: Array
    depth: int


def tree_mdp(
    depth: int, gamma: float = 0.9, best_leaf: float = 0.4, seed: int = 0, leaves: Array | None = None
) -> TabularMDP:
    """The tree with leaf rewards uniform in [0, best_leaf], or given; left is optimal if gamma^H best < 1/2."""
    if not (1 <= depth <= 10):
        raise ValueError(f"depth must be 1 to 10 (a tree has 2^depth nodes), got {depth}")
    if not 0.0 <= best_leaf <= 1.0:
        raise ValueError(f"best_leaf must be a reward in [0, 1], got {best_leaf}")
    S, end = 2**depth + 2, 2**depth + 1
    P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
    P[0, 0, 1] = P[0, 1, 2] = 1.0
    P[1, :, 1] = P[end, :, end] = 1.0
    r[0, 0] = LEFT_VALUE
    _plant(P, 2, depth, end)
    pays = np.random.default_rng(seed).uniform(0.0, best_leaf, size=2**depth) if leaves is None else leaves
    r[end - 2 ** (depth - 1) : end] = pays.reshape(-1, 2)
    return TabularMDP(P, r, gamma, 0)


def _plant(P: Array, root: int, levels: int, end: int) -> None:
    """Write the moves of a binary tree whose nodes are numbered as a heap from the root; its last level leads on."""
    nodes = 2**levels - 1
    for k in range(nodes):
        for a in range(2):
            P[root + k, a, root + 2 * k + 1 + a if 2 * k + 1 < nodes else end] = 1.0


def tree_features(mdp: TabularMDP, inner: Array) -> Array:
    """Features whose first three coordinates belong to s0 and s1, and whose others are `inner` in the tree."""
    S, k = mdp.num_states, inner.shape[-1]
    if inner.shape != (S - 2, 2, k):
        raise ValueError(f"inner features must have the shape {(S - 2, 2, 'k')}, got {inner.shape}")
    phi = np.zeros((S, 2, 3 + k))
    phi[0, 0, 0] = phi[0, 1, 1] = 1.0
    phi[1, :, 2] = 1.0
    phi[2:, :, 3:] = inner / np.maximum(1.0, np.linalg.norm(inner, axis=-1, keepdims=True))
    return phi


def random_tree(depth: int, inner_dim: int = 4, seed: int = 0, gamma: float = 0.9) -> BinaryTree:
    """A tree whose inner features are random directions."""
    mdp = tree_mdp(depth, gamma, seed=seed)
    inner = np.random.default_rng(seed + 1).normal(size=(mdp.num_states - 2, 2, inner_dim))
    return _with_comparator(mdp, tree_features(mdp, inner), depth)


def _with_comparator(mdp: TabularMDP, phi: Array, depth: int) -> BinaryTree:
    left = np.zeros(mdp.shape)
    left[:, 0] = 1.0
    return BinaryTree(mdp, phi, left, depth)


def believed_advantage_of_right(mdp: TabularMDP, phi: Array) -> float:
    """How much fitted Q iteration, with uniform weights over all pairs, overvalues R at s0 against L."""
    Q = fitted_q_iteration(mdp, phi, np.full(mdp.shape, 1.0 / (2 * mdp.num_states)), iterations=60).Q
    return float(Q[0, 1] - Q[0, 0])


def adversarial_tree(
    depth: int,
    inner_dim: int = 4,
    seed: int = 0,
    gamma: float = 0.9,
    tries: int = 200,
    objective: Callable[[TabularMDP, Array], float] = believed_advantage_of_right,
) -> BinaryTree:
    """A tree whose inner features were searched (random moves, kept when better) to maximise the objective."""
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


def deluding_tree(depth: int = 8, gamma: float = 0.9, right_value: float = 0.4) -> BinaryTree:
    """A tree on which one shared inner feature deludes bootstrapping even on its own unlimited on-policy data.

    Only the leftmost path of the tree has features, c_0 .. c_{H-1} along one direction, and its leaf pays r. Where
    every pair of the path is visited equally often, the regression with bootstrapped targets has the fixed point
    w = r c_{H-1} / (c' A c), A = I - (gamma/2)(neighbours), so R at s0 is believed to be worth gamma w c_0, against
    gamma^H r in truth. The ratio is largest for c the top eigenvector of A^-1 B, B the symmetric part of e_0 e_{H-1}'.
    """
    if not 0.0 < right_value < LEFT_VALUE:
        raise ValueError(f"right_value must be above 0 and below {LEFT_VALUE}, got {right_value}")
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


def two_sided_tree(depth: int, inner_dim: int = 4, seed: int = 0, gamma: float = 0.9) -> BinaryTree:
    """The tree whose left side is a tree too: on its leftmost path every node pays so that the path is worth 1/2.

    Node k of the path has features of its own for its two actions, so values along it can be realised exactly; all
    others have random features orthogonal to these. A distribution that is to cover the comparator has to know the
    path: what uniform play visits covers its last node with 2^-depth, so concentrability is of that order (the
    paper's failure of concentrability).
    """
    nodes = 2 ** (depth + 1) - 1  # of each side, numbered as a heap behind s0; all last nodes lead to the end
    S, end = 2 * nodes + 2, 2 * nodes + 1
    if not 1 <= depth <= 7:
        raise ValueError(f"depth must be 1 to 7, got {depth}")
    rng = np.random.default_rng(seed)
    P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
    P[0, 0, 1], P[0, 1, 1 + nodes] = 1.0, 1.0
    _plant(P, 1, depth + 1, end)
    _plant(P, 1 + nodes, depth + 1, end)
    r[end - 2**depth : end] = rng.uniform(0.0, 0.4, size=(2**depth, 2))
    P[end, :, end] = 1.0
    path = [0, *(1 + 2**level - 1 for level in range(depth + 1))]  # s0 and the leftmost nodes
    r[path[-1], 0] = LEFT_VALUE / gamma ** (depth + 1)
    if r.max() > 1.0:
        raise ValueError(f"gamma must be at least 2^(-1 / (depth + 1)) for a reward of at most one, got {gamma}")
    own = 2 * len(path) + 1
    phi = np.zeros((S, 2, own + inner_dim))
    for i, s in enumerate(path):
        phi[s, 0, 2 * i] = phi[s, 1, 2 * i + 1] = 1.0
    phi[end, :, own - 1] = 1.0
    others = np.setdiff1d(np.arange(S), [*path, end])
    inner = rng.normal(size=(len(others), 2, inner_dim))
    phi[others, :, own:] = inner / np.maximum(1.0, np.linalg.norm(inner, axis=-1, keepdims=True))
    return _with_comparator(TabularMDP(P, r, gamma), phi, depth)


def transition_rank(mdp: TabularMDP) -> int:
    """The rank of P as a matrix of pairs by states: no linear MDP of a smaller dimension has these transitions."""
    return int(np.linalg.matrix_rank(mdp.P.reshape(-1, mdp.num_states)))


def exact_left_fit(mdp: TabularMDP, V: Array) -> tuple[float, float]:
    """theta_1 = 1/2 + gamma V(s1; r+b) and theta_3 = gamma V(s1; r+b): the fit of Q - b on the left path."""
    return LEFT_VALUE + mdp.gamma * float(V[1]), mdp.gamma * float(V[1])


class Swamp(NamedTuple):
    """The MDP, the abstract state of each pair, the features, and the comparator that stays on the corridor."""

    mdp: TabularMDP
    labels: Index
    phi: Array
    comparator: Array


def swamp(kappa: float, corridor: int = 5, gamma: float = 0.9, on_path: bool = False, paying: int = 2) -> Swamp:
    """The corridor beside the swamp; kappa is the misspecification, off the path or on it."""
    if not 0.0 <= kappa <= 1.0:
        raise ValueError(f"kappa must be a reward in [0, 1], got {kappa}")
    if corridor < 2 or paying < 1:
        raise ValueError(f"corridor must be 2 or more and paying 1 or more, got {corridor} and {paying}")
    S, end = corridor + paying + 2, corridor + paying + 1
    # The swamp: `paying` cells of which only the first can be entered, then the bottom.
    first, last = corridor, corridor + paying
    P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
    labels = np.arange(2 * S).reshape(S, 2)
    for c in range(corridor):
        P[c, ON, c + 1 if c + 1 < corridor else end] = 1.0
        P[c, ASIDE, first] = 1.0
    r[corridor - 1, ON] = 1.0
    P[first : last + 1, :, last] = 1.0
    r[first:last] = 0.0 if on_path else kappa
    P[end, :, end] = 1.0
    labels[end] = labels[end, 0]
    if on_path:
        P[0, ASIDE, first], P[0, ASIDE, 1] = kappa, 1.0 - kappa
        labels[0, ASIDE] = labels[0, ON]
    else:
        labels[first : last + 1] = labels[first, 0]
    _, flat = np.unique(labels, return_inverse=True)
    labels = flat.reshape(S, 2).astype(np.int64)
    comparator = np.zeros((S, 2))
    comparator[:, ON] = 1.0
    return Swamp(TabularMDP(P, r, gamma), labels, aggregation_features(labels), comparator)
