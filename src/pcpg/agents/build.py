"""From a configuration to an agent."""

from pcpg.agents.baselines import Baseline
from pcpg.agents.config import PCPGConfig
from pcpg.agents.lanes import default_lanes
from pcpg.agents.pcpg import PCPG
from pcpg.agents.run_config import RunConfig

Agent = PCPG | Baseline
"""An agent has `init(seed)`, `step(states)`, and the programs `improve` and `visit`."""


def build_agent(config: RunConfig) -> Agent:
    """The agent of a run; compiles nothing yet."""
    env = config.make_env()
    lanes = config.lanes or default_lanes()
    if isinstance(config.agent, PCPGConfig):
        return PCPG(env, config.make_features(env), config.agent, lanes)
    return Baseline(env, config.agent, lanes)
