"""Two methods that bootstrap with the same linear features, as contrast: fitted Q iteration and LSVI-UCB.

Both regress onto r + gamma max_a' Q(s', a'), so an error of the features anywhere is carried to every state that can
reach it, however well the features fit there (the paper's delusional bias). They are here to be compared with, on
MDPs where the features are wrong in places; where they are right everywhere both work.
"""

from typing import NamedTuple

import numpy as np

from pcpg.theory import critic, exact
from pcpg.theory.mdp import Array, TabularMDP, check_features
from pcpg.theory.samplers import Simulator


class Bootstrapped(NamedTuple):
    """What a bootstrapping method believes, and what its greedy policy is worth."""

    Q: Array  # believed action values
    pi: Array  # greedy policy
    value: float  # its true value at s0
    steps: int  # environment steps used (0: the model was given)


def greedy(mdp: TabularMDP, Q: Array) -> Array:
    """Return the policy that is uniform over the best available actions: a tie is not broken by an action's number."""
    Q = np.where(mdp.available, Q, -np.inf)
    best = (Q.max(1, keepdims=True) - 1e-9 <= Q).astype(np.float64)
    return best / best.sum(1, keepdims=True)


def fitted_q_iteration(mdp: TabularMDP, phi: Array, weights: Array, iterations: int = 200) -> Bootstrapped:
    """Return fitted Q iteration with exact backups and population least squares under `weights` over pairs.

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
    mdp: TabularMDP, phi: Array, episodes: int, length: int, scale: float, seed: int = 0, ridge: float = 1.0
) -> Bootstrapped:
    """Return LSVI-UCB, stationary and discounted: greedy play on ridge regression plus scale sqrt(phi' Lambda^-1 phi).

    After each episode of `length` steps the data are refitted by value iteration on the samples. The policy
    returned is greedy without the bonus on all data, the most favourable reading.
    """
    phi = check_features(mdp, phi)
    if episodes < 1 or length < 1 or scale < 0.0 or ridge <= 0.0:
        raise ValueError("lsvi_ucb needs episodes >= 1, length >= 1, scale >= 0 and ridge > 0")
    sim, rng = Simulator(mdp, np.random.default_rng(seed)), np.random.default_rng(seed + 1)
    counts = np.zeros((*mdp.shape, mdp.num_states))
    Q = np.full(mdp.shape, mdp.r_max / (1.0 - mdp.gamma))
    for _ in range(episodes):
        s = np.array([mdp.s0])
        for _ in range(length):
            row = np.where(mdp.available[s[0]], Q[s[0]], -np.inf)
            a = np.array([rng.choice(np.flatnonzero(row >= row.max() - 1e-12))])
            sim.play(s)
            after = sim.move(s, a)
            counts[s[0], a[0], after[0]] += 1.0
            s = after
        Q = _least_squares_values(mdp, phi, counts, scale, ridge)
    final = _least_squares_values(mdp, phi, counts, 0.0, ridge)
    pi = greedy(mdp, final)
    return Bootstrapped(final, pi, exact.value(mdp, pi), sim.steps)


def _least_squares_values(mdp: TabularMDP, phi: Array, counts: Array, scale: float, ridge: float) -> Array:
    """Return the fixed point (or the 50th iterate) of ridge-regressed value iteration on the counted moves."""
    visits, flat = counts.sum(-1), phi.reshape(-1, phi.shape[-1])
    precision = exact.covariance(phi, visits) + ridge * np.eye(phi.shape[-1])
    bonus = scale * np.sqrt(exact.form(phi, precision))
    solve = np.linalg.solve(precision, flat.T)  # [d, SA]
    top, Q = mdp.r_max / (1.0 - mdp.gamma), np.zeros(mdp.shape)
    for _ in range(50):
        V = np.where(mdp.available, Q, -np.inf).max(1)
        targets = visits * mdp.r + mdp.gamma * (counts @ V)  # sums over the samples of each pair
        new = np.clip(phi @ (solve @ targets.reshape(-1)) + bonus, 0.0, top)
        if np.abs(new - Q).max() < 1e-9:
            return new
        Q = new
    return Q
