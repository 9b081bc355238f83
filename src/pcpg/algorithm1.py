"""Algorithm 1 of the paper on one page, for one seed: the same for theory and practice.

    n = 0      visit, design            the first policy enters the cover
    n = 1 ..   improve, visit, design   a better policy on the cover's bonus enters it

The page does not know what a policy, a cover or a bonus is; it passes them from part to part. It awaits everything that
costs samples or time: practice answers with a simulator and PPO, theory with an MDP's arrays or samples, Table 1 with
counted episodes. `engine/together.py` runs the rounds of many seeds in parallel.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


class Explored(NamedTuple):
    """The state of a seed after a round and the results of its parts; `start` is the initial one."""

    policy: Any  # the newest one
    cover: Any
    design: Any = None  # weights of the cover; None before the first round
    bonus: Any = None  # of the cover
    improved: Any = None  # None in the first round
    seen: Any = None


class Parts(NamedTuple):
    """The parts of a round."""

    improve: Callable[[Explored], Awaitable[Any]]  # line 7: a better policy on the bonus, rolled in through the cover
    visit: Callable[[Any], Awaitable[Any]]  # line 4: what a policy sees, including its covariance of phi
    extend: Callable[[Any, Any, Any], Any]  # line 5: cover, policy, what it saw -> the larger cover
    design: Callable[[Any], Awaitable[Any]]  # mixture weights of the cover for the roll-in: uniform or D-optimal
    bonus: Callable[[Any], Any]  # line 6: cover -> a function of phi' (sum of sigmas + lambda I)^-1 phi


async def explore_round(now: Explored, parts: Parts) -> Explored:
    """One round of Algorithm 1: a new policy, and the cover with it."""
    policy, improved = now.policy, None
    if now.design is not None:
        improved = await parts.improve(now)
        policy = improved.policy
    seen = await parts.visit(policy)
    cover = parts.extend(now.cover, policy, seen)
    design = await parts.design(cover)
    return Explored(policy, cover, design, parts.bonus(cover), improved, seen)
