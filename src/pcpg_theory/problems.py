"""The MDPs that theory runs on, by name, each with features, and the raw return where the environment has one.

Linear MDPs have known parameters (Jin et al. 2019): r = <theta, phi>, P(s'|.) = <mu(s'), phi>. There phi(s, a) lies in
the simplex of dimension d, so any d distributions mu_1..mu_d over states and any theta in [0, 1]^d give a proper MDP,
and norm(phi) <= 1.

| symbol | name    | meaning                                                        |
|--------|---------|----------------------------------------------------------------|
| omega  | `omega` | norm of theta                                                  |
| xi     | `xi`    | max over norm_inf(v) <= 1 of norm(sum_s v(s) mu(s))            |
| W      | `W`     | omega + xi / (1-gamma)^2, which bounds the norm of Q - b       |
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcpg_theory import exact
from pcpg_theory.mdp import Array, TabularMDP, aggregation_features, one_hot_pairs, uniform_policy
from pcpg_theory.parameters import aggregation_W
from pcpg_theory.settings import Settings, beta_from_mass

if TYPE_CHECKING:
    from pcpg.envs.protocol import TabularModel


class LinearMDP(NamedTuple):
    """A tabular MDP with the features and the parameters that make it linear."""

    mdp: TabularMDP
    phi: Array  # [S, A, d]
    mu: Array  # [d, S]
    theta: Array  # [d]

    @property
    def omega(self) -> float:
        return float(np.linalg.norm(self.theta))

    @property
    def xi(self) -> float:
        # Each row of mu is a distribution, so |<mu_j, v>| <= 1, with equality for v = 1: the norm is sqrt(d).
        return float(np.sqrt(self.mu.shape[0]))

    @property
    def W(self) -> float:
        return self.omega + self.xi / (1.0 - self.mdp.gamma) ** 2


def linear_mdp(phi: Array, mu: Array, theta: Array, gamma: float, s0: int = 0) -> LinearMDP:
    """The linear MDP with these parameters; phi and the rows of mu must lie in simplices."""
    for name, array in (("phi", phi), ("mu", mu)):
        if array.min() < 0.0 or np.abs(array.sum(-1) - 1.0).max() > 1e-9:
            raise ValueError(f"every {name} vector must lie in the simplex (entries >= 0, sum one), got others")
    P = phi @ mu
    P /= P.sum(-1, keepdims=True)  # a correction of rounding only
    mdp = TabularMDP(P, np.clip(phi @ theta, 0.0, 1.0), gamma, s0, factors=(phi, mu))
    return LinearMDP(mdp, phi, mu, theta)


def random_linear_mdp(
    seed: int, num_states: int = 200, num_actions: int = 5, dim: int = 10, gamma: float = 0.9
) -> LinearMDP:
    """A random linear MDP: sparse Dirichlet features and next-state distributions, uniform theta."""
    if min(num_states, num_actions, dim) < 1:
        given = f"{num_states}, {num_actions} and {dim}"
        raise ValueError(f"num_states, num_actions and dim must be 1 or more, got {given}")
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(dim, 0.2), size=(num_states, num_actions))
    mu = rng.dirichlet(np.full(num_states, 0.1), size=dim)
    return linear_mdp(phi, mu, rng.uniform(size=dim), gamma)


def linear_lock_mdp(
    seed: int, horizon: int = 6, width: int = 10, num_actions: int = 5, mix: float = 0.05, gamma: float | None = None
) -> LinearMDP:
    """A combination lock that is a linear MDP of dimension 2 H + 1, which uniform play does not open.

    Level h = 1..H has `width` states. In each, one action of its own has phi = (1-mix) e_right,h + mix e_wrong,h and
    the others the reverse, so the critic must learn at every level which direction leads on. mu of right,h is uniform
    over the states of level h+1; mu of wrong,h and of the end is the end, an absorbing state. right,H pays 1; a
    first-level wrong turn pays 0.05, the bait of a greedy learner. s0 is a state of level 1.
    """
    if min(horizon, width) < 1 or num_actions < 2 or not 0.0 <= mix < 0.5:
        given = f"{horizon}, {width}, {num_actions} and {mix}"
        raise ValueError(f"horizon and width must be 1 or more, num_actions 2 or more, mix in [0, 0.5), got {given}")
    gamma = horizon / (horizon + 1) if gamma is None else gamma
    rng = np.random.default_rng(seed)
    S, dim, end = horizon * width + 1, 2 * horizon + 1, horizon * width
    phi, mu, theta = np.zeros((S, num_actions, dim)), np.zeros((dim, S)), np.zeros(dim)
    for h in range(horizon):
        right, wrong = 2 * h, 2 * h + 1
        states = np.arange(h * width, (h + 1) * width)
        phi[states, :, wrong], phi[states, :, right] = 1.0 - mix, mix
        keys = rng.integers(num_actions, size=width)
        phi[states, keys, right], phi[states, keys, wrong] = 1.0 - mix, mix
        mu[wrong, end] = 1.0
        mu[right, states + width if h + 1 < horizon else [end] * width] = 1.0 if h + 1 == horizon else 1.0 / width
    phi[end, :, dim - 1] = mu[dim - 1, end] = 1.0
    theta[2 * (horizon - 1)], theta[1] = 1.0, 0.05 if horizon > 1 else 0.0
    return linear_mdp(phi, mu, theta, gamma)


class Problem(NamedTuple):
    """An MDP with features; `raw_return` evaluates a policy in the environment's own undiscounted reward."""

    name: str
    mdp: TabularMDP
    phi: Array
    raw_return: Callable[[Array], float] | None = None
    linear: LinearMDP | None = None

    def gap(self) -> tuple[float, float]:
        """The optimal value and the value of uniform play at s0."""
        best = float(exact.optimal_policy(self.mdp).V[self.mdp.s0])
        return best, exact.value(self.mdp, uniform_policy(self.mdp))


def lock(horizon: int, seed: int = 0) -> Problem:
    """The lock of the theory: r' = (r + 1/H) / (5 + 1/H) on the H+1 decisions, gamma = H/(H+1)."""
    from pcpg.envs.lock import CombinationLock  # here: environments import JAX, arrays do not

    env = CombinationLock(horizon)
    low, high = -1.0 / horizon, 5.0
    return from_model(
        f"lock H={horizon}", env.tabular(env.instance(seed)), horizon / (horizon + 1), env.max_steps, low, high
    )


def from_model(name: str, model: "TabularModel", gamma: float, decisions: int, low: float, high: float) -> Problem:
    """An enumerable environment as a problem: r' = (r - low) / (high - low) before the end and 0 after it.

    Features are one-hot pairs, with ONE feature for each terminal state. Where rewards are shifted and episodes
    end, all episodes must have the same length, or the shift would change which policy is best.
    """
    if not low < high:
        raise ValueError(f"low must be below high, got {low} and {high}")
    terminal = np.asarray(model.terminal)
    if low != 0.0 and terminal.any():
        _check_equal_lengths(name, model)
    P, raw = np.array(model.transitions), np.array(model.rewards)
    r = np.where(terminal[:, None], 0.0, (raw - low) / (high - low))
    P /= P.sum(-1, keepdims=True)  # a correction of rounding only
    mdp = TabularMDP(P, r, gamma, int(model.start), terminal=terminal)
    labels = np.arange(r.size).reshape(r.shape)
    labels[terminal] = labels[terminal][:, :1]
    _, labels = np.unique(labels, return_inverse=True)
    phi = aggregation_features(labels.reshape(r.shape))

    def raw_return(pi: Array) -> float:
        return finite_horizon_return(P, np.where(terminal[:, None], 0.0, raw), pi, decisions, mdp.s0)

    return Problem(name, mdp, phi, raw_return)


def _check_equal_lengths(name: str, model: "TabularModel") -> None:
    """Raise a ValueError unless every reachable trajectory meets its first terminal state after equally many moves."""
    layer = np.arange(len(model.terminal)) == model.start
    moves = np.asarray(model.transitions).max(1) > 0.0
    for _ in range(len(layer) + 1):
        done = np.asarray(model.terminal)[layer]
        if done.all():
            return
        if done.any():
            break
        layer = moves[layer].any(0)
    raise ValueError(f"{name}: all episodes must have the same length where rewards are shifted, got some that differ")


def finite_horizon_return(P: Array, raw: Array, pi: Array, decisions: int, s0: int = 0) -> float:
    """The expected undiscounted sum of raw rewards over this many decisions from s0, exactly."""
    V = np.zeros(len(P))
    for _ in range(decisions):
        V = (pi * (raw + P @ V)).sum(1)
    return float(V[s0])


def random_linear(seed: int, num_states: int = 200, num_actions: int = 5, dim: int = 10, gamma: float = 0.9) -> Problem:
    """A random linear MDP as a problem."""
    made = random_linear_mdp(seed, num_states, num_actions, dim, gamma)
    return Problem(f"random linear MDP d={dim} S={num_states}", made.mdp, made.phi, None, made)


def linear_lock(seed: int, horizon: int = 6) -> Problem:
    """The linear combination lock as a problem."""
    made = linear_lock_mdp(seed, horizon)
    return Problem(f"linear lock H={horizon}", made.mdp, made.phi, None, made)


def chain(length: int = 8) -> Problem:
    """The chain with its lure, gamma = L/(L+1)."""
    from pcpg.envs.chain import Chain

    env = Chain(length, 2 * length)
    model, gamma = env.tabular(env.instance(0)), length / (length + 1)
    return from_model(f"chain of {length}", model, gamma, env.max_steps, 0.0, 1.0)


def deep_sea(size: int = 8, seed: int = 0) -> Problem:
    """Deep Sea, with the cost of a move right shifted into [0, 1], gamma = size/(size+1)."""
    from pcpg.envs.deep_sea import MOVE_COST, DeepSea

    env = DeepSea(size)
    model, gamma = env.tabular(env.instance(seed)), size / (size + 1)
    return from_model(f"deep sea of {size}", model, gamma, env.max_steps, -MOVE_COST / size, 1.0)


def maze(size: int = 8, seed: int = 0) -> Problem:
    """A small maze whose goal is the open cell that takes longest to reach, gamma by that distance."""
    from pcpg.envs.maze import Maze

    plain = Maze(size)
    distance = plain.distances(plain.instance(seed))
    goal = int(distance.argmax())
    env = Maze(size, goal=(goal // size, goal % size))
    gamma = 1.0 - 1.0 / (1.0 + float(distance.max()))
    return from_model(f"maze of {size}", env.tabular(env.instance(seed)), gamma, env.max_steps, 0.0, 1.0)


def tabular(name: str, mdp: TabularMDP) -> Problem:
    """Any tabular MDP as a problem with one-hot pairs as features."""
    return Problem(name, mdp, one_hot_pairs(mdp))


def lock_settings(horizon: int, mode: str) -> Settings:
    """Practical settings for the lock, tuned on instances with seeds of 1000 and more.

    The known mass shrinks with depth: one of ten actions of one of two good states at level H gets
    (1-gamma) gamma^H / 20 of a policy that heads for it. eta T times the least gap of values is above ten.
    """
    if mode == "exact":
        return Settings(N=2 * horizon + 10, T=30, eta=20.0, beta=beta_from_mass(0.01 / (horizon + 1)))
    practical = Settings(N=30, T=20, eta=10.0, M=250, K=1000, beta=beta_from_mass(0.01), stop=0.0, patience=3)
    if horizon <= 4:
        return practical
    if horizon <= 8:
        return replace(practical, N=60, M=500, K=2000, beta=beta_from_mass(0.003))
    return replace(practical, N=8 * horizon, M=1000, K=4000, beta=beta_from_mass(0.024 / horizon))


def linear_settings(kind: str) -> Settings:
    """Practical settings for linear MDPs, "random" or "lock", tuned on seeds of 1000 and more.

    A ridge of 0.001: features of a mixture have norms below one, and with lambda = 1 light ones would count as known.
    Critics take discounted sums: a geometric stop needed 15,000 pairs where 300 do, 33 times the steps in all.
    """
    ridge = 1e-3
    practical = Settings(
        T=20, eta=10.0, ridge=ridge, beta=beta_from_mass(0.01, ridge), K=1000, M=300, estimate="discounted"
    )
    if kind == "lock":
        return replace(practical, N=20, stop=0.01, patience=3)
    return replace(practical, N=2, eta=6.0, select_episodes=50)


def maze_settings(mode: str) -> Settings:
    """Practical settings for the small maze, tuned on seeds 100 to 119.

    At the end of a corridor a pair has 1/1000 of rho_mix or less, too little for a critic of 1,000 pairs to see:
    D-optimal weights send the roll-in there. With uniform ones one seed in ten stopped half-way.
    """
    if mode == "exact":
        return SMALL
    return Settings(
        N=40,
        T=30,
        eta=20.0,
        M=1000,
        K=2000,
        beta=beta_from_mass(0.01),
        estimate="discounted",
        stop=0.002,
        patience=3,
        weights="d-optimal",
    )


SMALL = Settings(N=40, T=50, eta=20.0, beta=beta_from_mass(5e-4), M=1000, K=4000)
AGGREGATED = replace(linear_settings("random"), ridge=1.0, beta=beta_from_mass(0.05))


def aggregated(seed: int, noise: float = 0.05, gamma: float = 0.8) -> Problem:
    """A random MDP of eight states and three actions whose pairs of one label, of five, differ by a little noise."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.resize(np.arange(5), 24)).reshape(8, 3)
    P = (1.0 - noise) * rng.dirichlet(np.full(8, 0.3), size=5)[labels] + noise * rng.dirichlet(np.ones(8), size=(8, 3))
    r = np.clip((1.0 - noise) * rng.random(5)[labels] + noise * rng.random((8, 3)), 0.0, 1.0)
    mdp = TabularMDP(P / P.sum(-1, keepdims=True), r, gamma)
    return Problem(f"aggregated MDP, noise {noise:g}", mdp, aggregation_features(labels))


Preset = tuple[int, Callable[[int, int], Problem], Callable[[int, str], Settings]]
PRESETS: dict[str, Preset] = {  # default size; problem of a size and a seed; settings of a size and a mode
    "lock": (4, lock, lock_settings),
    "linear": (0, lambda _, seed: random_linear(seed), lambda *_: linear_settings("random")),
    "linear-lock": (6, lambda size, seed: linear_lock(seed, size), lambda *_: linear_settings("lock")),
    "chain": (8, lambda size, _: chain(size), lambda *_: SMALL),
    "deep-sea": (8, deep_sea, lambda *_: SMALL),
    "maze": (8, maze, lambda _, mode: maze_settings(mode)),
    "aggregated": (0, lambda _, seed: aggregated(seed), lambda *_: AGGREGATED),
}
NAMES = tuple(PRESETS)


def bound_W(problem: Problem) -> float:
    """W of a problem: that of its linear MDP, or of the aggregation that its one-hot features are."""
    if problem.linear is not None:
        return problem.linear.W
    return aggregation_W(problem.phi.shape[-1], problem.mdp.gamma)


def make(name: str, size: int | None, seed: int, mode: str) -> tuple[Problem, Settings]:
    """The problem of this name and seed with practical settings and its W; `size` is its depth, length or side."""
    if name not in PRESETS:
        raise ValueError(f"mdp must be one of {', '.join(NAMES)}, got {name!r}")
    usual, problem_of, settings_of = PRESETS[name]
    problem = problem_of(size or usual, seed)
    return problem, replace(settings_of(size or usual, mode), W=bound_W(problem))
