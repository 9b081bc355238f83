"""Rounds of an agent without a run folder."""

from collections.abc import Sequence
from typing import Any

from pcpg.engine.together import together


def step(agent: Any, states: Sequence[Any]) -> list[Any]:
    """The seeds after one round each."""
    results: list[Any] = together([agent.step(state) for state in states], agent.programs)
    return [state for state, _ in results]


def compile_seconds(agent: Any) -> float:
    """What compiling the agent's programs has taken."""
    return sum(program.compile_seconds for program in agent.programs)


def env_steps(states: Sequence[Any]) -> int:
    """Environment steps of all seeds."""
    return sum(int(state.ledger.env_steps) for state in states)
