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
            raise ValueError(f"P has shape {P.shape}; expected (states, actions, states)")
        if r.shape != P.shape[:2]:
            raise ValueError(f"r has shape {r.shape}; expected {P.shape[:2]}, one reward for each pair")
        available = np.ones(r.shape, bool) if self.available is None else np.array(self.available, dtype=bool)
        if available.shape != r.shape or not available.any(1).all():
            raise ValueError("available must mark at least one action in every state, shape (states, actions)")
        check_gamma(self.gamma)
        if not (0 <= int(self.s0) < P.shape[0]) or int(self.s0) != self.s0:
            raise ValueError(f"s0 is {self.s0}; expected a state index in 0..{P.shape[0] - 1}")
        _check_rows(P, available)
        _check_rewards(r, available, self.r_max)
        if not available.all():
            P, r = P.copy(), np.where(available, r, 0.0)
            P[~available] = 0.0
        terminal = np.zeros(len(P), bool) if self.terminal is None else np.array(self.terminal, dtype=bool)
        _check_terminal(P, r, available, terminal)
        if self.factors is not None and np.abs(self.factors[0] @ self.factors[1] - P).max() > SUM_TOLERANCE:
            raise ValueError("factors do not multiply to P")
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
        raise ValueError(f"gamma is {gamma}; expected a discount in [0, 1)")


def _check_rows(P: Array, available: Mask) -> None:
    bad = available & ~np.isfinite(P).all(-1)
    if bad.any():
        s, a = np.argwhere(bad)[0]
        raise ValueError(f"P[{s}, {a}] has an entry that is not finite")
    bad = available & (P.min(-1) < 0.0)
    if bad.any():
        s, a = np.argwhere(bad)[0]
        raise ValueError(f"P[{s}, {a}] has a negative probability, {P[s, a].min():.3g}")
    sums = P.sum(-1)
    bad = available & (np.abs(sums - 1.0) > SUM_TOLERANCE)
    if bad.any():
        s, a = np.argwhere(bad)[0]
        raise ValueError(f"P[{s}, {a}] sums to {sums[s, a]:.9g}; every row of P must sum to one")


def _check_rewards(r: Array, available: Mask, r_max: float) -> None:
    if not (np.isfinite(r_max) and r_max > 0.0):
        raise ValueError(f"r_max is {r_max}; expected a positive number")
    inside = np.isfinite(r) & (r >= -SUM_TOLERANCE) & (r <= r_max * (1.0 + SUM_TOLERANCE))
    bad = available & ~inside
    if bad.any():
        s, a = np.argwhere(bad)[0]
        raise ValueError(f"r[{s}, {a}] is {r[s, a]:.6g}; rewards must lie in [0, {r_max:g}]")


def _check_terminal(P: Array, r: Array, available: Mask, terminal: Mask) -> None:
    if terminal.shape != (len(P),):
        raise ValueError(f"terminal has shape {terminal.shape}; expected ({len(P)},)")
    for s in np.flatnonzero(terminal):
        if (available[s] & ((P[s, :, s] < 1.0 - SUM_TOLERANCE) | (r[s] != 0.0))).any():
            raise ValueError(f"state {s} is marked terminal, but it can be left or pays a reward")


def check_policy(mdp: TabularMDP, pi: ArrayLike) -> Array:
    """Return the policy as an array, or raise a ValueError that names the first bad row."""
    pi = np.asarray(pi, dtype=np.float64)
    if pi.shape != mdp.shape:
        raise ValueError(f"policy has shape {pi.shape}; expected {mdp.shape}")
    if not np.isfinite(pi).all() or (pi < 0.0).any():
        s = int(np.argwhere(~(np.isfinite(pi) & (pi >= 0.0)))[0][0])
        raise ValueError(f"policy in state {s} has an entry that is negative or not finite: {pi[s]}")
    on_missing = (pi > 0.0) & ~mdp.available
    if on_missing.any():
        s, a = np.argwhere(on_missing)[0]
        raise ValueError(f"policy puts mass {pi[s, a]:.3g} on action {a}, which is missing in state {s}")
    sums = pi.sum(1)
    if (np.abs(sums - 1.0) > SUM_TOLERANCE).any():
        s = int(np.argmax(np.abs(sums - 1.0)))
        raise ValueError(f"policy in state {s} sums to {sums[s]:.9g}; expected one")
    return pi


def check_features(mdp: TabularMDP, phi: ArrayLike) -> Array:
    """Return the features [S, A, d] as an array, or raise a ValueError: wrong shape, or a norm above one."""
    phi = np.asarray(phi, dtype=np.float64)
    if phi.ndim != 3 or phi.shape[:2] != mdp.shape or phi.shape[2] == 0:
        raise ValueError(f"features have shape {phi.shape}; expected {(*mdp.shape, 'd')}")
    if not np.isfinite(phi).all():
        raise ValueError("features must be finite")
    norms = np.sqrt(np.einsum("sad,sad->sa", phi, phi))
    if norms.max() > 1.0 + SUM_TOLERANCE:
        s, a = np.unravel_index(int(np.argmax(norms)), norms.shape)
        raise ValueError(f"phi({s}, {a}) has norm {norms[s, a]:.6g}; the analysis needs norms of at most one")
    return phi


def check_distribution(mdp: TabularMDP, nu: ArrayLike) -> Array:
    """Return the distribution over pairs as an array, or raise a ValueError."""
    nu = np.asarray(nu, dtype=np.float64)
    if nu.shape != mdp.shape or (nu < 0.0).any() or abs(nu.sum() - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"expected a distribution over pairs of shape {mdp.shape}, got {nu.shape}, sum {nu.sum():.6g}")
    if (nu[~mdp.available] > 0.0).any():
        raise ValueError("the distribution over pairs puts mass on a missing action")
    return nu


def uniform_policy(mdp: TabularMDP) -> Array:
    """Return the policy that is uniform over the available actions of each state."""
    return mdp.available / mdp.available.sum(1, keepdims=True)


def one_hot_pairs(mdp: TabularMDP) -> Array:
    """Return phi(s, a) = e_(s, a): the tabular features, d = S A."""
    return np.eye(mdp.num_states * mdp.num_actions).reshape(*mdp.shape, -1)


def aggregation_features(labels: ArrayLike) -> Array:
    """Return phi(s, a) = e_z with z = labels[s, a] (state-action aggregation), d = number of labels."""
    labels = np.asarray(labels)
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise ValueError("labels must be an integer array (states, actions) with entries of at least zero")
    return np.eye(int(labels.max()) + 1)[labels]


def random_mdp(seed: int, num_states: int, num_actions: int, gamma: float, sparsity: float = 0.5) -> TabularMDP:
    """Return a random MDP: each row of P has about (1 - sparsity) S successors, rewards are uniform."""
    rng = np.random.default_rng(seed)
    support = rng.random((num_states, num_actions, num_states)) >= sparsity
    support[..., 0] |= ~support.any(-1)
    P = rng.exponential(size=support.shape) * support
    return TabularMDP(P / P.sum(-1, keepdims=True), rng.random((num_states, num_actions)), gamma)


def random_policy(mdp: TabularMDP, seed: int) -> Array:
    """Return a random policy over the available actions, near-deterministic in some states."""
    pi = np.random.default_rng(seed).exponential(size=mdp.shape) ** 3 * mdp.available + 1e-12 * mdp.available
    return pi / pi.sum(1, keepdims=True)
