"""Algorithm 2: natural policy gradient with a linear critic, restricted to random play where the bonus is positive.

| symbol   | name       | meaning                                                                          |
|----------|------------|----------------------------------------------------------------------------------|
| b^n      | b[s, a]    | bonus, 1/(1-gamma) on unknown pairs and 0 on known ones                          |
| K^n      | known[s]   | known states: those without a positive bonus on any action                       |
| rho_mix  | rho[s, a]  | what the cover visits, a distribution over pairs                                 |
| theta^t  | theta[d]   | critic: theta . phi fits Q^{pi^t}(.; r + b) - b                                  |
| eta      | eta        | learning rate                                                                    |

`algorithm2` awaits the critic of each iterate and, at the end, the values of all of them. Exact and sampled answers
come at once (`npg_update`); Table 1's wait for episodes that its runner plays.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

from pcpg_theory.mdp import Array, Index, Mask

P = ParamSpec("P")
Answer = TypeVar("Answer")


class Improved(NamedTuple):
    """The chosen policy and all iterates; several seeds in parallel are a leading axis of every array."""

    policy: Array
    chosen: Index  # the number of the chosen iterate
    iterates: Array  # [..., T, S, A]: pi^0 .. pi^{T-1}
    thetas: Array  # [..., T, d]
    values: Array  # [..., T] of r + b at s0, exact or estimated


def awaited(answer: Callable[P, Answer]) -> Callable[P, Coroutine[object, object, Answer]]:
    """The function as a part that can be awaited, where its answer needs no waiting."""

    async def asked(*given: P.args, **named: P.kwargs) -> Answer:
        return answer(*given, **named)

    return asked


def at_once(coroutine: Coroutine[object, object, Answer]) -> Answer:
    """The result of a coroutine whose parts never wait."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the coroutine awaits episodes, but this caller plays none")


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


async def algorithm2(
    b: Array,
    available: Mask,
    score: Callable[[Array], Array],
    fit: Callable[[Array, int], Awaitable[Array]],
    select: Callable[[Array], Awaitable[Array]],
    *,
    T: int,
    eta: float,
) -> Improved:
    """The best of pi^0 .. pi^{T-1} by value under r + b.

    Args:
        b: The bonus of every pair, [..., S, A].
        available: The actions that exist.
        score: From a critic to theta . phi of every pair.
        fit: From (pi^t, t) to its critic theta^t.
        select: From all iterates [..., T, S, A] to their values under r + b at s0, [..., T].
        T: Number of iterates.
        eta: Learning rate.

    Returns:
        The chosen iterate with all others.
    """
    known = known_states(b, available)
    start = pi = restricted_uniform(b, available)
    scores, iterates, thetas = np.zeros(b.shape), [], []
    for t in range(T):
        iterates.append(pi)
        thetas.append(await fit(pi, t))
        # From the start with the sum of the scores, not from pi^t: a probability that underflows can then come back.
        scores += b + score(thetas[-1])
        pi = exponential_update(start, scores, eta, known)
    stack = np.stack(iterates, axis=-3)
    values = await select(stack)
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
    """Algorithm 2 with a critic and values that are known at once."""
    return at_once(algorithm2(b, available, lambda theta: phi @ theta, awaited(fit), awaited(select), T=T, eta=eta))
