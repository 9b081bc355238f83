"""Rounds of an agent without a run folder."""

from collections.abc import Sequence
from typing import Any

from peers.clock import rate

from pcpg.engine.together import together


def step(agent: Any, states: Sequence[Any]) -> list[Any]:
    """The seeds after one round each."""
    results: list[Any] = together([agent.step(state) for state in states], agent.programs)
    return [state for state, _ in results]


def compile_seconds(agent: Any) -> float:
    """What compiling the agent's programs has taken."""
    return sum(program.compile_seconds for shared in agent.programs for program in shared.programs)


def env_steps(states: Sequence[Any]) -> int:
    """Environment steps of all seeds."""
    return sum(int(state.ledger.env_steps) for state in states)


def rate_of(agent: Any, states: Sequence[Any], seconds: float) -> dict[str, float | int]:
    """Steps per second of whole rounds from these states on."""
    now = list(states)

    def update() -> None:
        now[:] = step(agent, now)

    return rate(update, lambda: env_steps(now), seconds)
