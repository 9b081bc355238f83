"""Rounds of many seeds in parallel: each is a coroutine that awaits programs, and one call of a program serves all.

A round is written for ONE seed. When it awaits a `Shared` program, it waits until no other seed is at an earlier one,
so seeds in different phases meet again at their shared programs.
"""

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

from pcpg.state import NonFinite

Inputs = TypeVar("Inputs")
Outputs = TypeVar("Outputs")
Result = TypeVar("Result")


class Shared(Generic[Inputs, Outputs]):
    """A compiled program or work on the host: awaited by one seed, run for all waiting seeds."""

    def __init__(self, run: Callable[[Sequence[Inputs]], Sequence[Outputs]]) -> None:
        self.run = run

    def __call__(self, inputs: Inputs) -> "Call[Inputs, Outputs]":
        return Call(self, inputs)

    @property
    def programs(self) -> Sequence[Any]:
        """The compiled programs that it runs; work on the host has none."""
        return getattr(self.run, "programs", ())


class Call(Generic[Inputs, Outputs]):
    """A program with the inputs of one seed; awaiting it gives that seed's outputs."""

    def __init__(self, program: Shared[Inputs, Outputs], inputs: Inputs) -> None:
        self.program, self.inputs = program, inputs

    def __await__(self) -> Generator["Call[Inputs, Outputs]", Outputs, Outputs]:
        return (yield self)


def together(rounds: Sequence[Coroutine[Call, object, Result]], order: Sequence[Shared]) -> list[Result | NonFinite]:
    """What each round returns; an error in place of that of a seed whose numbers were not finite.

    Args:
        rounds: A coroutine for each seed.
        order: The programs that they await, in the order of a round: one runs when no seed waits for an earlier one.
    """
    results: dict[int, Result | NonFinite] = {}
    waiting: dict[int, Call] = {}

    def advance(number: int, value: object) -> None:
        waiting.pop(number, None)
        try:
            waiting[number] = rounds[number].send(value)
        except StopIteration as end:
            results[number] = end.value
        except NonFinite as error:
            results[number] = error

    for number in range(len(rounds)):
        advance(number, None)
    while waiting:
        program = next(one for one in order if any(call.program is one for call in waiting.values()))
        asked = [number for number in sorted(waiting) if waiting[number].program is program]
        for number, value in zip(asked, program.run([waiting[number].inputs for number in asked]), strict=True):
            advance(number, value)
    return [results[number] for number in range(len(rounds))]


def stepped(agent: Any, states: Sequence[object]) -> list[tuple[Any, Any]]:
    """The state and the report of each seed after a round; raises the error of the first that has one."""
    found: list[tuple[Any, Any]] = []
    for result in together([agent.step(state) for state in states], agent.programs):
        if isinstance(result, NonFinite):
            raise result
        found.append(result)
    return found
