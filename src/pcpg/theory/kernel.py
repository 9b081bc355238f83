"""An MDP that is linear in an infinite-dimensional RKHS, and Algorithm 1 on it in the dual.

A swimmer at x in [0, 1] (a fine grid) against a current. Next states are mixtures of J bumps nu_j over the grid,
    P(.|x, a) = sum_j w_j(x, a) nu_j,    w_j normalised Gaussian weights around x + drift(a),
so P and r are functions of (x, a) in the RKHS of RBF(x) times 1{a = a'}. On the grid they are interpolated exactly,
and their norms are known: omega = norm(r)_H, and xi <= sqrt(J e), e the largest eigenvalue of the Gram matrix of
w_1..w_J in H.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from pcpg.algorithm1_old import cover_step, explore_step
from pcpg.features.kernels import RBF, Indicator, Kernel, Product
from pcpg.theory import exact
from pcpg.theory.mdp import Array, TabularMDP, one_hot_pairs, uniform_policy
from pcpg.theory.rkhs import DualCover, DualRegression
from pcpg.theory.samplers import Index
from pcpg.theory.settings import Settings
from pcpg.theory.tabular import Bonus, Cover, Learner, Mode

DRIFTS = (-0.10, -0.04, 0.06)  # left, rest (the current), right


class KernelMDP(NamedTuple):
    """The MDP on its grid, the points (x, a) of its pairs, and its norms in the RKHS."""

    mdp: TabularMDP
    points: Array  # [S A, 2]
    kernel: Kernel
    omega: float
    xi: float


def swimmer(num_states: int = 60, gamma: float = 0.95, lengthscale: float = 0.06, bumps: int = 13) -> KernelMDP:
    """Return the swimmer: a bait of 0.02 at the left bank, reward 1 at the right one, start near the left."""
    if num_states < 10 or bumps < 2:
        raise ValueError("swimmer needs at least 10 states and 2 bumps")
    x = np.linspace(0.0, 1.0, num_states)
    centres = np.linspace(0.0, 1.0, bumps)
    width = 1.0 / (bumps - 1)

    def bump(at: Array, of: Array) -> Array:
        raw = np.exp(-0.5 * ((at[..., None] - of) / width) ** 2)
        return raw / raw.sum(-1, keepdims=True)

    nu = bump(centres, x)  # [J, S]
    weights = bump(np.clip(x[:, None] + np.array(DRIFTS), 0.0, 1.0), centres)  # [S, A, J]
    P = weights @ nu
    r = np.exp(-0.5 * ((x - 1.0) / 0.05) ** 2) + 0.02 * np.exp(-0.5 * (x / 0.05) ** 2)
    mdp = TabularMDP(P / P.sum(-1, keepdims=True), np.repeat(np.minimum(r, 1.0)[:, None], 3, axis=1), gamma, 2)
    points = np.stack([np.repeat(x, 3), np.tile(np.arange(3.0), num_states)], axis=1)
    kernel = Product(RBF(lengthscale), Indicator(), split=1)
    gram = kernel(points, points) + 1e-10 * np.eye(len(points))
    factor = scipy.linalg.cho_factor(gram, lower=True)
    flat = weights.reshape(-1, bumps)
    top = float(np.linalg.eigvalsh(flat.T @ scipy.linalg.cho_solve(factor, flat))[-1])
    omega = float(np.sqrt(mdp.r.reshape(-1) @ scipy.linalg.cho_solve(factor, mdp.r.reshape(-1))))
    return KernelMDP(mdp, points, kernel, omega, float(np.sqrt(bumps * top)))


class KernelLearner(Learner):
    """The parts of Algorithm 1 in the dual: bonus and critic through the kernel, everything else as before."""

    def __init__(self, made: KernelMDP, settings: Settings, mode: Mode, rng: np.random.Generator) -> None:
        super().__init__(made.mdp, one_hot_pairs(made.mdp), settings, mode, rng)
        self.made, self.dual = made, DualCover(made.kernel, settings.lam)
        # A critic is a combination of kernel functions at the pairs: phi is the kernel matrix, theta its coefficients.
        self.phi = made.kernel(made.points, made.points).reshape(*made.mdp.shape, -1)

    def extend(self, cover: Cover, policy: Array, visits: Array) -> Cover:
        """Return the larger cover, after storing the visited pairs in the dual with their shares as weights."""
        flat = visits.reshape(-1)
        seen = np.flatnonzero(flat)
        self.dual.extend(self.made.points[seen], flat[seen])
        return super().extend(cover, policy, visits)

    def bonus(self, cover: Cover) -> Bonus:
        """Return the bonus from the dual form."""
        form = self.dual.form(self.made.points).reshape(self.mdp.shape)
        return Bonus((form >= self.settings.beta) / (1.0 - self.mdp.gamma), form, self.dual.information_gain())

    def population_critic(self, rho: Array) -> Callable[[Array], Array]:
        """Return the map from targets [S, A] to kernel coefficients of the best critic under rho."""
        flat = rho.reshape(-1)
        seen = np.flatnonzero(flat)
        regression = DualRegression(self.made.kernel, self.made.points[seen], flat[seen])

        def fit(target: Array) -> Array:
            coefficients = np.zeros(len(flat))
            coefficients[seen] = regression.fit(target.reshape(-1)[seen], self.settings.W).coefficients
            return coefficients

        return fit

    def fit_samples(self, s: Index, a: Index, y: Array) -> Array:
        """Return kernel coefficients of the critic fitted to samples: their counts are the weights."""
        index, size = s * self.mdp.num_actions + a, len(self.made.points)
        counts = np.bincount(index, minlength=size)
        means = np.bincount(index, weights=y, minlength=size) / np.maximum(counts, 1)
        return self.population_critic((counts / len(y)).reshape(self.mdp.shape))(means)


class KernelRun(NamedTuple):
    """A run in the dual or with one-hot pairs: values, escapes and information gains over episodes."""

    pi: Array
    value: float
    values: list[float]
    escapes: list[float]
    gains: list[float]
    known: list[int]
    visits: Array  # [N + 1, S, A]
    steps: int


def run_kernel(made: KernelMDP, settings: Settings, mode: Mode, seed: int = 0, dual: bool = True) -> KernelRun:
    """Return a run of Algorithm 1 with the kernel's features (dual) or one-hot pairs (primal)."""
    rng, mdp = np.random.default_rng(seed), made.mdp
    learner = (
        KernelLearner(made, settings, mode, rng) if dual else Learner(mdp, one_hot_pairs(mdp), settings, mode, rng)
    )
    parts, policy = learner.parts(), uniform_policy(mdp)
    empty = np.zeros((0, *mdp.shape))
    covered = cover_step(parts, policy, Cover(empty, empty))
    values, escapes, gains, known = [], [], [], []
    for _ in range(settings.N):
        before = covered.bonus
        policy, covered = explore_step(parts, policy, covered)
        values.append(exact.value(mdp, policy))
        escapes.append(float(exact.occupancy(mdp, policy)[before.b > 0.0].sum()))
        gains.append(covered.bonus.log_det)
        known.append(int((covered.bonus.b == 0.0).sum()))
    chosen = covered.cover.policies[learner.choose(covered.cover.policies)]
    return KernelRun(
        chosen,
        exact.value(mdp, chosen),
        values,
        escapes,
        gains,
        known,
        covered.cover.visits,
        learner.sim.steps,
    )
