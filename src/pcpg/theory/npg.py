"""Algorithm 2: natural policy gradient with a linear critic, restricted to random play where the bonus is positive.

| symbol   | name       | meaning                                                                          |
|----------|------------|----------------------------------------------------------------------------------|
| b^n      | b[s, a]    | bonus, 1/(1-gamma) on unknown pairs and 0 on known ones                          |
| K^n      | known[s]   | known states: those without a positive bonus on any action                       |
| rho_mix  | rho[s, a]  | what the cover visits, a distribution over pairs                                 |
| theta^t  | theta[d]   | critic: theta . phi fits Q^{pi^t}(.; r + b) - b                                  |
| eta      | eta        | learning rate                                                                    |

One loop for both modes; what is plugged in is `fit` (theta^t for a policy) and `select` (values of the iterates).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pcpg.theory.mdp import Array, Mask

Fit = Callable[[Array, int], Array]  # (pi^t, t) -> theta^t
Select = Callable[[Array], Array]  # iterates [T, S, A] -> values under r + b, exact or estimated


class Improved(NamedTuple):
    """What Algorithm 2 gives back: the chosen policy, and the run of iterates for who wants to look."""

    pi: Array
    chosen: int
    iterates: Array  # [T, S, A]: pi^0 .. pi^{T-1}
    thetas: Array  # [T, d]
    values: Array  # [T] of r + b at s0, as `select` gave them


def known_states(b: Array, available: Mask) -> Mask:
    """Return K^n as a mask over states: no available action has a positive bonus; b is [..., S, A]."""
    return np.logical_not(((b > 0.0) & available).any(axis=-1))


def restricted_uniform(b: Array, available: Mask) -> Array:
    """Return pi^0: uniform over all actions in known states, over positive-bonus actions elsewhere."""
    unknown = (b > 0.0) & available
    support = np.where(unknown.any(-1, keepdims=True), unknown, available)
    return support / support.sum(-1, keepdims=True)


def exponential_update(pi: Array, scores: Array, eta: float, known: Mask) -> Array:
    """Return the policy proportional to pi exp(eta scores) in known states and equal to pi elsewhere."""
    with np.errstate(divide="ignore"):  # log 0 = -inf keeps a missing action missing
        logits = np.log(pi) + eta * scores
    logits -= logits.max(-1, keepdims=True)
    updated = np.exp(logits)
    updated /= updated.sum(-1, keepdims=True)
    return np.where(known[..., None], updated, pi)


def npg_update(phi: Array, b: Array, available: Mask, fit: Fit, select: Select, T: int, eta: float) -> Improved:
    """Return the best of pi^0 .. pi^{T-1} by value under r + b, with the iterates."""
    known = known_states(b, available)
    iterates, thetas = np.empty((T, *b.shape)), np.empty((T, phi.shape[-1]))
    start = pi = restricted_uniform(b, available)
    scores = np.zeros(b.shape)
    for t in range(T):
        iterates[t] = pi
        thetas[t] = fit(pi, t)
        # From the start with the sum of the scores, not from pi^t: a probability that underflows can then come back.
        scores += b + phi @ thetas[t]
        pi = exponential_update(start, scores, eta, known)
    values = select(iterates)
    chosen = int(np.argmax(values))
    return Improved(iterates[chosen], chosen, iterates, thetas, values)
