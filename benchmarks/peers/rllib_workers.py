"""Ray RLlib's own sampler on the slow environment, stepped by a policy of its PPO; a line of JSON.

Runs in an environment of its own, since RLlib pins an older Gymnasium. As many env runners as workers, each with one
environment, one core's share and fragments of an episode's length; a measurement asks all of them for the same number
of steps, as its PPO does before each update.
"""

import json
import os
import time

os.environ.update(OMP_NUM_THREADS="1", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_DEDUP_LOGS="1")

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.tune.registry import register_env
from slow import Slow, asked_for

EPISODES, TIMES = 8, 3
"""Of each worker in a measurement, and measurements, of which the best is kept: as for ours."""


def main() -> None:
    asked = asked_for()
    ray.init(num_cpus=asked.workers + 1, include_dashboard=False, log_to_driver=False, logging_level="error")
    register_env("slow", lambda _: Slow(asked.step, asked.length))
    config = (
        PPOConfig()
        .environment("slow")
        .env_runners(
            num_env_runners=asked.workers,
            num_envs_per_env_runner=1,
            rollout_fragment_length=asked.length,
            sample_timeout_s=600,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
    )
    algorithm = config.build_algo()
    each, best, steps = asked.length * EPISODES, float("inf"), 0

    def sample(number: int) -> int:
        found = synchronous_parallel_sample(
            worker_set=algorithm.env_runner_group, max_env_steps=number, concat=True, _uses_new_env_runners=True
        )
        return sum(len(episode) for episode in found)

    sample(asked.length * asked.workers)
    for _ in range(TIMES):
        began = time.perf_counter()
        number = sample(each * asked.workers)
        seconds = time.perf_counter() - began
        if seconds / number < best:
            best, steps = seconds / number, number
    print(json.dumps({"steps_per_second": round(1 / best, 1), "steps": steps}))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
