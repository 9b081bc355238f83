"""Algorithm 1 of the paper, once, for theory and practice.

The loop does not know what a policy, a cover or a bonus is: it hands them from part to part. The provable
algorithm plugs in an MDP's arrays and NPG with a linear critic, the practical one a simulator and PPO; the
practical parts work on lists with one entry per seed, and the loop is the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Parts(NamedTuple):
    """What is plugged into the loop."""

    covariance: Callable[[Any], Any]  # policy -> what it saw: the covariance of phi           (line 4)
    extend: Callable[[Any, Any, Any], Any]  # cover, policy, covariance -> the larger cover    (line 5)
    weights: Callable[[Any], Any]  # cover -> its mixture weights: uniform or D-optimal
    bonus: Callable[[Any], Any]  # cover -> form of phi' (sum of sigmas + lambda I)^-1 phi     (line 6)
    improve: Callable[[Any, Any, Any, Any], Any]  # policy, cover, weights, bonus -> policy    (line 7)


class Covered(NamedTuple):
    """A cover with what follows from it."""

    cover: Any
    weights: Any
    bonus: Any


def cover_step(parts: Parts, policy: Any, cover: Any) -> Covered:
    """Lines 4 to 6: add a policy to the cover; the larger cover, its weights and its bonus."""
    sigma = parts.covariance(policy)
    cover = parts.extend(cover, policy, sigma)
    weights = parts.weights(cover)
    bonus = parts.bonus(cover)
    return Covered(cover, weights, bonus)


def explore_step(parts: Parts, policy: Any, covered: Covered) -> tuple[Any, Covered]:
    """Line 7, then lines 4 to 6 of the next episode: the next policy, and the cover with it."""
    policy = parts.improve(policy, *covered)
    return policy, cover_step(parts, policy, covered.cover)


def explore(parts: Parts, policy: Any, cover: Any, num_policies: int) -> tuple[Any, Covered]:
    """All of Algorithm 1: the cover of the first policy and `num_policies` more, N in the paper."""
    if num_policies < 0:
        raise ValueError(f"num_policies must be 0 or more, got {num_policies}")
    covered = cover_step(parts, policy, cover)
    for _ in range(num_policies):
        policy, covered = explore_step(parts, policy, covered)
    return policy, covered
