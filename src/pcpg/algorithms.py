"""Every algorithm in one table. A variant is a file of its own and a line here.

Its entry says how it is called and drawn, with which settings it runs where nothing else is said, and what a round of
it does (`Rounds` of practice/agent.py). From Python a variant can be added without touching this file:

    ALGORITHMS["mine"] = ALGORITHMS["pcpg"]._replace(label="Mine", rounds=PCPG._replace(turn=my_turn))
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from pcpg import presets
from pcpg.config import AgentConfig
from pcpg.envs.adapters.names import is_on_host
from pcpg.envs.protocol import Environment
from pcpg.practice.agent import Agent, Rounds, network_template
from pcpg.practice.baselines import BASELINE
from pcpg.practice.pcpg import EXPLOIT_COVER, PCPG
from pcpg.practice.replay import ReplayAgent, kernel_template


class Algorithm(NamedTuple):
    """An algorithm as everybody sees it."""

    label: str
    about: str  # one line, for --help
    colour: str
    line: str  # of curves, as matplotlib names it
    preset: AgentConfig  # on environments that are compiled
    host_preset: AgentConfig  # on those that are stepped on the host
    rounds: Rounds | None  # None: the agent has rounds of its own
    exploit: Rounds | None = None  # on the finished covers of another run; None: it keeps no such cover
    agent: Callable[..., Any] = Agent
    template: Callable[[Any, Environment], Any] = network_template  # a policy of the kind that a run hands back


ALGORITHMS: dict[str, Algorithm] = {
    "pcpg": Algorithm(
        "PC-PG",
        "explores without reward, then exploits",
        *("#1b6ca8", "-"),
        *(presets.PCPG, presets.HOST_PCPG, PCPG, EXPLOIT_COVER),
    ),
    "pcpg-bonus": Algorithm(
        "PC-PG (reward bonus)",
        "explores with the bonus added to the reward",
        *("#1b6ca8", "-"),
        *(presets.PCPG_BONUS, presets.HOST_PCPG_BONUS, PCPG, EXPLOIT_COVER),
    ),
    "pcpg-replay": Algorithm(
        "PC-PG (kept data)",
        "explores on all data kept so far, then solves the task from them: the fewest samples",
        *("#2a9d5c", "-"),
        *(presets.REPLAY, presets.REPLAY, None, None, ReplayAgent, kernel_template),
    ),
    "ppo-rnd": Algorithm(
        "PPO+RND",
        "PPO with random network distillation",
        *("#d1495b", "--"),
        *(presets.PPO_RND, presets.HOST_RND, BASELINE),
    ),
    "ppo-e3b": Algorithm(
        "PPO+E3B",
        "PPO with a bonus for what is new within an episode",
        *("#8e6c3a", "-."),
        *(presets.PPO_E3B, presets.HOST_E3B, BASELINE),
    ),
    "ppo": Algorithm(
        "PPO",
        "a baseline",
        *("#5f6b6d", ":"),
        *(presets.PPO, presets.HOST_BASELINE, BASELINE),
    ),
}


def preset(env_id: str, algo: str) -> AgentConfig:
    """The settings of an algorithm on an environment, where nothing else is said."""
    own = presets.environment_preset(env_id).settings.get(algo)
    algorithm = ALGORITHMS[algo]
    return own or (algorithm.host_preset if is_on_host(env_id) else algorithm.preset)


def label(algo: str) -> str:
    """The name of an algorithm for people; that of one which is not in the table is its id."""
    return ALGORITHMS[algo].label if algo in ALGORITHMS else algo
