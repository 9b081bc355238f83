"""Tabular MDPs given by arrays, checked on entry.

| symbol    | name in code | meaning                                                        |
|-----------|--------------|----------------------------------------------------------------|
| S, A      | sizes        | number of states, number of actions                            |
| P(s'|s,a) | P[s, a, s']  | transition probabilities                                       |
| r(s, a)   | r[s, a]      | reward, in [0, r_max] (the paper: r_max = 1)                   |
| gamma     | gamma        | discount, in [0, 1)                                            |
| s_0       | s0           | the only state an agent can reset to                           |
| pi(a|s)   | pi[s, a]     | a policy; its rows are distributions over available actions    |
| nu        | nu[s, a]     | a start distribution over pairs                                |

Some actions may be missing in some states (the paper's augmented MDP has one that exists only outside the known
set): `available[s, a]` is False there, P and r are ignored, and a policy with mass on it is refused.
`terminal[s]` marks states that stand for the end of an episode: absorbing, without reward. A simulated chain that
sits there takes no environment steps, since there is no environment left to step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

SUM_TOLERANCE = 1e-8  # rows of P and of policies; float32 tables should be normalised before they come here


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """An MDP (S, A, P, r, gamma, s0) given by arrays; wrong arrays are refused with the place and the value."""

    P: Array
    r: Array
    gamma: float
    s0: int = 0
    r_max: float = 1.0
    available: Mask = field(default=None)  # type: ignore[assignment]  # None: every action everywhere
    terminal: Mask = field(default=None)  # type: ignore[assignment]  # None: no episode ends; moves here cost nothing
    factors: tuple[Array, Array] | None = None  # P = left [S, A, d] @ right [d, S]: exact values then cost d^3, not S^3

    def __post_init__(self) -> None:
        P, r = np.ascontiguousarray(self.P, dtype=np.float64), np.ascontiguousarray(self.r, dtype=np.float64)
        if P.ndim != 3 or P.shape[0] != P.shape[2] or 0 in P.shape:
            raise ValueError(f"P must have the shape (states, actions, states), got {P.shape}")
        if r.shape != P.shape[:2]:
            raise ValueError(f"r must have the shape {P.shape[:2]}, one reward for each pair, got {r.shape}")
        available = np.ones(r.shape, bool) if self.available is None else np.array(self.available, dtype=bool)
        if available.shape != r.shape or not available.any(1).all():
            raise ValueError(
                f"available must mark an action in every state, shape {r.shape}, got shape {available.shape}"
            )
        check_gamma(self.gamma)
        if not (0 <= int(self.s0) < P.shape[0]) or int(self.s0) != self.s0:
            raise ValueError(f"s0 must be a state, 0 to {P.shape[0] - 1}, got {self.s0}")
        _check_rows(P, available)
        _check_rewards(r, available, self.r_max)
        if not available.all():
            P, r = P.copy(), np.where(available, r, 0.0)
            P[~available] = 0.0
        terminal = np.zeros(len(P), bool) if self.terminal is None else np.array(self.terminal, dtype=bool)
        _check_terminal(P, r, available, terminal)
        if self.factors is not None and np.abs(self.factors[0] @ self.factors[1] - P).max() > SUM_TOLERANCE:
            raise ValueError("factors must multiply to P, got another product")
        arrays = {"P": P, "r": r, "available": available, "terminal": terminal}
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "s0", int(self.s0))

    @property
    def num_states(self) -> int:
        return self.P.shape[0]

    @property
    def num_actions(self) -> int:
        return self.P.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """(states, actions): the shape of rewards, policies, occupancies and action values."""
        return self.P.shape[0], self.P.shape[1]


def check_gamma(gamma: float) -> None:
    """Raise a ValueError unless gamma is in [0, 1)."""
    if not (np.isfinite(gamma) and 0.0 <= gamma < 1.0):
        raise ValueError(f"gamma must be a discount in [0, 1), got {gamma}")


def _refuse(bad: ArrayLike, message: Callable[..., str]) -> None:
    """Raise a ValueError with the message of the first place that is bad."""
    if np.any(bad):
        raise ValueError(message(*map(int, np.argwhere(bad)[0])))


def _check_rows(P: Array, available: Mask) -> None:
    finite, sums = np.isfinite(P).all(-1), P.sum(-1)
    _refuse(available & ~finite, lambda s, a: f"P[{s}, {a}] must be finite, got {P[s, a]}")
    lowest = P.min(-1)
    _refuse(
        available & (lowest < 0.0),
        lambda s, a: f"P[{s}, {a}] must not be negative, got a probability of {lowest[s, a]:.3g}",
    )
    off = available & (np.abs(sums - 1.0) > SUM_TOLERANCE)
    _refuse(off, lambda s, a: f"P[{s}, {a}] must sum to one, got {sums[s, a]:.9g}")


def _check_rewards(r: Array, available: Mask, r_max: float) -> None:
    if not (np.isfinite(r_max) and r_max > 0.0):
        raise ValueError(f"r_max must be positive, got {r_max}")
    inside = np.isfinite(r) & (r >= -SUM_TOLERANCE) & (r <= r_max * (1.0 + SUM_TOLERANCE))
    _refuse(available & ~inside, lambda s, a: f"r[{s}, {a}] must lie in [0, {r_max:g}], got {r[s, a]:.6g}")


def _check_terminal(P: Array, r: Array, available: Mask, terminal: Mask) -> None:
    if terminal.shape != (len(P),):
        raise ValueError(f"terminal must have the shape ({len(P)},), got {terminal.shape}")
    for s in np.flatnonzero(terminal):
        if (available[s] & ((P[s, :, s] < 1.0 - SUM_TOLERANCE) | (r[s] != 0.0))).any():
            raise ValueError(f"terminal states must stay where they are and pay nothing, got state {s}, which does not")


def check_policy(mdp: TabularMDP, pi: ArrayLike) -> Array:
    """The policy as an array; a ValueError names the first bad row."""
    pi = np.asarray(pi, dtype=np.float64)
    if pi.shape != mdp.shape:
        raise ValueError(f"policy must have the shape {mdp.shape}, got {pi.shape}")
    outside = ~(np.isfinite(pi) & (pi >= 0.0)).all(1)
    _refuse(outside, lambda s: f"policy in state {s} must be finite and not negative, got {pi[s]}")
    _refuse(
        (pi > 0.0) & ~mdp.available,
        lambda s, a: f"policy must put no mass on action {a}, which is missing in state {s}, got {pi[s, a]:.3g}",
    )
    sums = pi.sum(1)
    off = np.abs(sums - 1.0) > SUM_TOLERANCE
    _refuse(off, lambda s: f"policy in state {s} must sum to one, got {sums[s]:.9g}")
    return pi


def check_features(mdp: TabularMDP, phi: ArrayLike) -> Array:
    """The features [S, A, d] as an array; a ValueError says of a wrong shape, or of a norm above one."""
    phi = np.asarray(phi, dtype=np.float64)
    if phi.ndim != 3 or phi.shape[:2] != mdp.shape or phi.shape[2] == 0:
        raise ValueError(f"features must have the shape {(*mdp.shape, 'd')}, got {phi.shape}")
    if not np.isfinite(phi).all():
        raise ValueError("features must be finite, got some that are not")
    norms: Array = np.sqrt(np.einsum("sad,sad->sa", phi, phi))
    _refuse(
        norms > 1.0 + SUM_TOLERANCE,
        lambda s, a: f"phi({s}, {a}) must have a norm of at most one, got {norms[s, a]:.6g}",
    )
    return phi


def check_distribution(mdp: TabularMDP, nu: ArrayLike) -> Array:
    """The distribution over pairs as an array, or a ValueError."""
    nu = np.asarray(nu, dtype=np.float64)
    if nu.shape != mdp.shape or (nu < 0.0).any() or abs(nu.sum() - 1.0) > SUM_TOLERANCE:
        given = f"shape {nu.shape}, sum {nu.sum():.6g}"
        raise ValueError(f"nu must be a distribution over pairs of shape {mdp.shape}, got {given}")
    if (nu[~mdp.available] > 0.0).any():
        raise ValueError("nu must put no mass on missing actions, got some")
    return nu


def uniform_policy(mdp: TabularMDP) -> Array:
    """The policy that is uniform over the available actions of each state."""
    return mdp.available / mdp.available.sum(1, keepdims=True)


def one_hot_pairs(mdp: TabularMDP) -> Array:
    """phi(s, a) = e_(s, a): the tabular features, d = S A."""
    return np.eye(mdp.num_states * mdp.num_actions).reshape(*mdp.shape, -1)


def aggregation_features(labels: ArrayLike) -> Array:
    """phi(s, a) = e_z with z = labels[s, a] (state-action aggregation), d = number of labels."""
    labels = np.asarray(labels)
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        given = f"{labels.dtype} of shape {labels.shape}"
        raise ValueError(f"labels must be integers of at least zero, shape (states, actions), got {given}")
    return np.eye(int(labels.max()) + 1)[labels]


def with_start(mdp: TabularMDP, nu: ArrayLike) -> TabularMDP:
    """The MDP that starts in a state drawn from nu [S]: one state more, with one action, which leads there and pays 0.

    So a start distribution is a start state, as the paper says; values from it are those of nu times gamma.
    """
    nu = np.asarray(nu, dtype=np.float64)
    S, A = mdp.shape
    if nu.shape != (S,) or (nu < 0.0).any() or abs(nu.sum() - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"nu must be a distribution over {S} states, got shape {nu.shape} and sum {nu.sum():.6g}")
    P, r = np.zeros((S + 1, A, S + 1)), np.zeros((S + 1, A))
    P[:S, :, :S], r[:S] = mdp.P, mdp.r
    P[S, 0, :S] = nu
    available = np.concatenate([mdp.available, [np.arange(A) == 0]])
    return TabularMDP(P, r, mdp.gamma, S, mdp.r_max, available, np.append(mdp.terminal, False))


def random_mdp(seed: int, num_states: int, num_actions: int, gamma: float, sparsity: float = 0.5) -> TabularMDP:
    """A random MDP: each row of P has about (1 - sparsity) S successors, rewards are uniform."""
    rng = np.random.default_rng(seed)
    support = rng.random((num_states, num_actions, num_states)) >= sparsity
    support[..., 0] |= ~support.any(-1)
    P = rng.exponential(size=support.shape) * support
    return TabularMDP(P / P.sum(-1, keepdims=True), rng.random((num_states, num_actions)), gamma)


def random_policy(mdp: TabularMDP, seed: int) -> Array:
    """A random policy over the available actions, near-deterministic in some states."""
    pi = np.random.default_rng(seed).exponential(size=mdp.shape) ** 3 * mdp.available + 1e-12 * mdp.available
    return pi / pi.sum(1, keepdims=True)
