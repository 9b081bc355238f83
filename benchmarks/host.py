"""Our side on an environment that is stepped on the host: PPO on Gymnasium's MountainCarContinuous, one core.

The same as the peer: 8 environments, 256 steps of each an update, two layers of 64 ReLU units each for policy and
value, 10 epochs. Updates are included, compilation is not.
"""

from typing import Any

from settings import HOST, HOST_ENV, HOST_ENVS, HOST_STEPS, Setting

SECONDS = 10.0


def measure() -> dict[str, Any]:
    """Steps per second by setting."""
    return {setting.name: _rate(setting) for setting in HOST}


def _rate(setting: Setting) -> dict[str, Any]:
    from rounds import rate_of, step

    from pcpg.algos.ppo import BaselineConfig
    from pcpg.learners.settings import PPOConfig
    from pcpg.run_config import RunConfig
    from pcpg.training.compile_cache import enable_compile_cache
    from pcpg.training.loop import build_agent

    enable_compile_cache()
    ppo = PPOConfig(
        num_updates=10,
        num_episodes=HOST_ENVS,
        num_epochs=setting.num_epochs,
        minibatch_size=setting.batch_size,
        shared_body=False,
    )
    agent_config = BaselineConfig(ppo, budget=2**40, visit_episodes=1)
    options = {"max_steps": HOST_STEPS, "num_envs": HOST_ENVS}
    agent = build_agent(RunConfig(f"gymnasium:{HOST_ENV}", "ppo", agent_config, options).resolved())
    states = step(agent, [agent.init(0)])  # compiles
    return rate_of(agent, states, SECONDS)
