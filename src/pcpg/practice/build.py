"""From a configuration to an agent."""

from pcpg.config import PCPGConfig
from pcpg.envs.given_reward import Reward
from pcpg.exploit_config import make_run_env
from pcpg.practice.baselines import Baseline
from pcpg.practice.exploit import Exploiter
from pcpg.practice.pcpg import PCPG
from pcpg.practice.program import default_lanes
from pcpg.run_config import RunConfig
from pcpg.training.covers import Covers

Agent = PCPG | Exploiter | Baseline
"""An agent has `init(seed)`, `step(states)`, and the programs `improve` and `visit`."""


def build_agent(config: RunConfig, covers: Covers | None = None, reward: Reward | None = None) -> Agent:
    """The agent of a run; compiles nothing yet. With covers it explores no more."""
    env = make_run_env(config, reward)
    lanes = config.lanes or default_lanes()
    if isinstance(config.agent, PCPGConfig) and covers is not None:
        return Exploiter(env, config.agent, covers, lanes)
    if isinstance(config.agent, PCPGConfig):
        return PCPG(env, config.make_features(env), config.agent, lanes)
    return Baseline(env, config.agent, lanes)
