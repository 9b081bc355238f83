"""Our PPO on MountainCarContinuous at the sizes of rejax's row: steps per second with updates, compilation apart.

Both sides have two layers of 64 ReLU units each for policy and value, 10 epochs of 32 minibatches and one core. Both
start a new episode where one ends, ours by `autoreset`: every update has `num_envs` x `num_steps` steps. Ours begins
every update with new episodes, of at most `num_steps` moves; the one episode of its evaluation after each round is
counted too.
"""

import os
import tempfile
from typing import Any

from settings import MOUNTAIN_CAR, MountainCarSetting

UPDATES = 10
"""Of a round, the unit of time: the host takes over in between."""


def measure(seconds: float = 20.0) -> dict[str, Any]:
    """Rates by setting and the seconds of a first compilation."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache  # empty: every compilation is a first one
        return {setting.name: _rate(setting, seconds) for setting in MOUNTAIN_CAR}


def _rate(setting: MountainCarSetting, seconds: float) -> dict[str, Any]:
    from rounds import compile_seconds, rate_of, step

    from pcpg.run_config import RunConfig
    from pcpg.training.loop import build_agent

    ppo = {
        "num_updates": UPDATES,
        "num_episodes": setting.num_envs,
        "num_epochs": setting.num_epochs,
        "minibatch_size": setting.num_envs * setting.num_steps // setting.num_minibatches,
        "hidden": [64, 64],
        "shared_body": False,
        "max_grad_norm": 0.5,
        "learning_rate": 3e-4,
    }
    config = RunConfig.from_json(
        {
            "env": "MountainCarContinuous-v0",
            "algo": "ppo",
            "env_options": {"steps": setting.num_steps},
            "agent": {"ppo": ppo, "budget": 2**40, "visit_episodes": 1, "autoreset": True},
        }
    )
    agent = build_agent(config.resolved())
    states = step(agent, [agent.init(0)])
    found, compilation = rate_of(agent, states, seconds), compile_seconds(agent)
    updates = found["updates"] * UPDATES
    return found | {
        "updates": updates,
        "updates_per_second": round(updates / found["seconds"], 3),
        "updates_per_processor_second": round(updates * found["steps_per_processor_second"] / found["steps"], 3),
        "compile_seconds": round(compilation, 3),
    }
