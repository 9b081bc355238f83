"""Algorithm 1 of the paper on one page, for one seed: the same for theory and practice.

A round is a coroutine. It asks for what costs samples or time, and whoever drives it answers: practice with a simulator
and PPO, theory with an MDP's arrays or with samples of it, Table 1 with counted episodes. The page does not know what
a policy, a cover or a bonus is; it hands them from part to part, and returns all that the round was answered.

    n = 0      Visit, Design            the first policy enters the cover
    n = 1 ..   Improve, Visit, Design   a better policy on the cover's bonus enters it

`lockstep` drives the rounds of many seeds together, such that equal requests are answered in one call.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar


class Explored(NamedTuple):
    """Where a seed stands after a round, and what the round was answered; `start` is where it begins."""

    policy: Any  # the newest one
    cover: Any
    design: Any = None  # answer to Design: the cover's weights; None before the first round
    bonus: Any = None  # of the cover
    improved: Any = None  # answer to Improve; None in the first round
    seen: Any = None  # answer to Visit


class Improve(NamedTuple):
    """Line 7: a policy that earns more, with restarts rolled in through the cover; the answer has a `policy`."""

    now: Explored


class Visit(NamedTuple):
    """Line 4: what a policy sees from the start state, its covariance of phi among it."""

    policy: Any


class Design(NamedTuple):
    """Mixture weights of the cover for the roll-in: uniform or D-optimal."""

    cover: Any


Request = Improve | Visit | Design
Round = Generator[Request, Any, Explored]
Result = TypeVar("Result")


class Parts(NamedTuple):
    """The pure functions of a round: they cost no samples and are not asked for."""

    extend: Callable[[Any, Any, Any], Any]  # cover, policy, what it saw -> the larger cover       (line 5)
    bonus: Callable[[Any], Any]  # cover -> a function of phi' (sum of sigmas + lambda I)^-1 phi    (line 6)


def explore_round(now: Explored, parts: Parts) -> Round:
    """One round of Algorithm 1: a new policy, and the cover with it."""
    policy, improved = now.policy, None
    if now.design is not None:
        improved = yield Improve(now)
        policy = improved.policy
    seen = yield Visit(policy)
    cover = parts.extend(now.cover, policy, seen)
    design = yield Design(cover)
    return Explored(policy, cover, design, parts.bonus(cover), improved, seen)


def task_round(now: Explored) -> Round:
    """One round of learning a task: exploitation on a finished cover, or a baseline, which has none."""
    improved = yield Improve(now)
    seen = yield Visit(improved.policy)
    return now._replace(policy=improved.policy, improved=improved, seen=seen)


def lockstep(
    rounds: Sequence[Generator[Request, Any, Result]],
    answer: Callable[[type[Request], list[tuple[int, Any]]], Sequence[Any]],
) -> list[Result]:
    """What each round returns; `answer` gets all equal requests that wait, each with the number of its round.

    A request waits until no earlier kind is left, so that seeds whose round begins with a Visit share the call of those
    that improve first. An answer that is an exception ends its round and is what that round returns: one seed's trouble
    is not that of the others.
    """
    results: dict[int, Any] = {}
    waiting: dict[int, Request] = {}

    def advance(number: int, value: Any) -> None:
        waiting.pop(number, None)
        try:
            waiting[number] = rounds[number].send(value)
        except StopIteration as end:
            results[number] = end.value

    for number in range(len(rounds)):
        advance(number, None)
    while waiting:
        kind = next(kind for kind in (Improve, Visit, Design) if any(type(r) is kind for r in waiting.values()))
        asked = [(number, request) for number, request in sorted(waiting.items()) if type(request) is kind]
        for (number, _), value in zip(asked, answer(kind, asked), strict=True):
            if isinstance(value, Exception):
                results[number] = value
                del waiting[number]
                rounds[number].close()
            else:
                advance(number, value)
    return [results[number] for number in range(len(rounds))]


Asked = TypeVar("Asked")
Wait = TypeVar("Wait")


def drive(
    one: Generator[Asked, Any, Result], answer: Callable[[Asked], Generator[Wait, Any, Any]]
) -> Generator[Wait, Any, Result]:
    """What one round returns, or any coroutine that asks, where answering has to wait: for others to play episodes."""
    request = next(one)
    while True:
        value = yield from answer(request)
        try:
            request = one.send(value)
        except StopIteration as end:
            return end.value
