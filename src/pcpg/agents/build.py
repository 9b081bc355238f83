"""From a configuration to an agent."""

from collections.abc import Sequence
from typing import Protocol

from pcpg.agents.baselines import Baseline
from pcpg.agents.config import PCPGConfig
from pcpg.agents.lanes import Program, default_lanes
from pcpg.agents.pcpg import PCPG
from pcpg.agents.run_config import RunConfig
from pcpg.agents.state import Report, SeedState


class Agent(Protocol):
    """An algorithm bound to an environment: functions on the states of some seeds."""

    @property
    def improve(self) -> Program: ...

    @property
    def visit(self) -> Program: ...

    @property
    def max_rounds(self) -> int:
        """The most rounds a seed can take."""
        ...

    def init(self, seed: int) -> SeedState: ...

    def step(self, states: Sequence[SeedState]) -> list[tuple[SeedState, Report]]: ...


def build_agent(config: RunConfig) -> Agent:
    """The agent of a run; compiles nothing yet."""
    env = config.make_env()
    lanes = config.lanes or default_lanes()
    if isinstance(config.agent, PCPGConfig):
        return PCPG(env, config.make_features(env), config.agent, lanes)
    return Baseline(env, config.agent, lanes)
