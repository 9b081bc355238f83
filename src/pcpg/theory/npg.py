"""Algorithm 2: natural policy gradient with a linear critic, restricted to random play where the bonus is positive.

| symbol   | name       | meaning                                                                          |
|----------|------------|----------------------------------------------------------------------------------|
| b^n      | b[s, a]    | bonus, 1/(1-gamma) on unknown pairs and 0 on known ones                          |
| K^n      | known[s]   | known states: those without a positive bonus on any action                       |
| rho_mix  | rho[s, a]  | what the cover visits, a distribution over pairs                                 |
| theta^t  | theta[d]   | critic: theta . phi fits Q^{pi^t}(.; r + b) - b                                  |
| eta      | eta        | learning rate                                                                    |

`algorithm2` is a coroutine: it asks for the critic of each iterate and, at the end, for the values of all of them.
Whoever drives it answers exactly or from samples (`npg_update`), or waits for episodes that somebody else plays
(Table 1).
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np

from pcpg.theory.mdp import Array, Index, Mask


class Improved(NamedTuple):
    """What Algorithm 2 gives back: the chosen policy, and the run of iterates for who wants to look.

    Several seeds side by side are a leading axis of every array.
    """

    policy: Array
    chosen: Index  # the number of the chosen iterate
    iterates: Array  # [..., T, S, A]: pi^0 .. pi^{T-1}
    thetas: Array  # [..., T, d]
    values: Array  # [..., T] of r + b at s0, exact or estimated


class Critic(NamedTuple):
    """Asks for theta^t, the critic of an iterate."""

    policy: Array
    t: int


class Values(NamedTuple):
    """Asks for the values of all iterates under r + b at s0, [..., T]."""

    iterates: Array


def known_states(b: Array, available: Mask) -> Mask:
    """K^n as a mask over states: no available action has a positive bonus; b is [..., S, A]."""
    return np.logical_not(((b > 0.0) & available).any(axis=-1))


def restricted_uniform(b: Array, available: Mask) -> Array:
    """pi^0: uniform over all actions in known states, over positive-bonus actions elsewhere."""
    unknown = (b > 0.0) & available
    support = np.where(unknown.any(-1, keepdims=True), unknown, available)
    return support / support.sum(-1, keepdims=True)


def exponential_update(pi: Array, scores: Array, eta: float, known: Mask) -> Array:
    """The policy proportional to pi exp(eta scores) in known states and equal to pi elsewhere."""
    with np.errstate(divide="ignore"):  # log 0 = -inf keeps a missing action missing
        logits = np.log(pi) + eta * scores
    logits -= logits.max(-1, keepdims=True)
    updated = np.exp(logits)
    updated /= updated.sum(-1, keepdims=True)
    return np.where(known[..., None], updated, pi)


def algorithm2(
    b: Array, available: Mask, score: Callable[[Array], Array], *, T: int, eta: float
) -> Generator[Critic | Values, Any, Improved]:
    """The best of pi^0 .. pi^{T-1} by value under r + b; `score` gives theta . phi of every pair."""
    known = known_states(b, available)
    start = pi = restricted_uniform(b, available)
    scores, iterates, thetas = np.zeros(b.shape), [], []
    for t in range(T):
        iterates.append(pi)
        thetas.append((yield Critic(pi, t)))
        # From the start with the sum of the scores, not from pi^t: a probability that underflows can then come back.
        scores += b + score(thetas[-1])
        pi = exponential_update(start, scores, eta, known)
    stack = np.stack(iterates, axis=-3)
    values = yield Values(stack)
    chosen = np.asarray(np.argmax(values, axis=-1))
    best = np.take_along_axis(stack, chosen[..., None, None, None], axis=-3).squeeze(-3)
    return Improved(best, chosen, stack, np.stack(thetas, axis=-2), values)


def npg_update(
    phi: Array,
    b: Array,
    available: Mask,
    fit: Callable[[Array, int], Array],
    select: Callable[[Array], Array],
    *,
    T: int,
    eta: float,
) -> Improved:
    """What Algorithm 2 returns where `fit` answers for a critic and `select` for the values of the iterates."""
    steps = algorithm2(b, available, lambda theta: phi @ theta, T=T, eta=eta)
    request = next(steps)
    while True:
        answer = fit(*request) if isinstance(request, Critic) else select(*request)
        try:
            request = steps.send(answer)
        except StopIteration as end:
            return end.value
