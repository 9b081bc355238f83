"""Environment steps per second of Stable-Baselines3's PPO, updates included, on one core: on the lock, or Gymnasium's.

Runs in the peers' own environment and prints one line of JSON:

    benchmarks/.venv-peers/bin/python benchmarks/peers/sb3_ppo.py --batch-size 128 --num-epochs 4
"""

import argparse
import json
import os
import platform
import time

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

import gymnasium
import numpy as np
import stable_baselines3
import torch
from numpy_lock import NumpyLock
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv


def parse_arguments() -> argparse.Namespace:
    """The setting to measure, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="lock", help="the lock, or the id of an environment of Gymnasium's")
    parser.add_argument("--horizon", type=int, default=10, help="levels of the lock")
    parser.add_argument("--num-envs", type=int, default=8, help="environments stepped one after the other")
    parser.add_argument("--num-steps", type=int, default=256, help="steps of each environment per update")
    parser.add_argument("--batch-size", type=int, default=128, help="samples of a minibatch")
    parser.add_argument("--num-epochs", type=int, default=4, help="passes over the data per update")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure, after the warm-up")
    parser.add_argument("--warm-up-updates", type=int, default=3, help="updates before the clock starts")
    parser.add_argument("--core", type=int, default=None, help="core to run on; the last one allowed if not given")
    return parser.parse_args()


def pin_to_one_core(core: int | None) -> int | None:
    """Keep this process on one core and give its number, or None where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {chosen})
    return chosen


def make_env(arguments: argparse.Namespace) -> gymnasium.Env:
    """The environment to measure on."""
    return NumpyLock(arguments.horizon) if arguments.env == "lock" else gymnasium.make(arguments.env)


def make_agent(arguments: argparse.Namespace) -> PPO:
    """PPO with two layers of 64 ReLU units each for the policy and for the value."""
    envs = DummyVecEnv([lambda: make_env(arguments) for _ in range(arguments.num_envs)])
    return PPO(
        "MlpPolicy",
        envs,
        n_steps=arguments.num_steps,
        batch_size=arguments.batch_size,
        n_epochs=arguments.num_epochs,
        policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.ReLU},
        device="cpu",
        seed=0,
    )


def measure(agent: PPO, seconds: float, warm_up_updates: int) -> dict[str, float | int]:
    """Steps, wall time and processor time of whole updates until `seconds` have passed."""
    steps_per_update = agent.n_steps * agent.n_envs
    agent.learn(steps_per_update * warm_up_updates)
    steps, wall, processor = 0, time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - wall) < seconds:
        agent.learn(steps_per_update, reset_num_timesteps=False)
        steps += steps_per_update
    elapsed = time.perf_counter() - wall
    busy = time.process_time() - processor
    return {
        "steps_per_second": round(steps / elapsed, 1),
        "steps_per_processor_second": round(steps / busy, 1),
        "steps": steps,
        "seconds": round(elapsed, 3),
    }


def main() -> None:
    """Measure one setting and print it as a line of JSON."""
    arguments = parse_arguments()
    core = pin_to_one_core(arguments.core)
    torch.set_num_threads(1)
    result = measure(make_agent(arguments), arguments.seconds, arguments.warm_up_updates)
    versions = {
        "stable-baselines3": stable_baselines3.__version__,
        "torch": torch.__version__,
        "gymnasium": gymnasium.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    setting = {name: value for name, value in vars(arguments).items() if name not in ("core", "seconds")}
    record = {
        "system": "stable-baselines3 PPO",
        **result,
        **setting,
        "device": "cpu",
        "threads": 1,
        "core": core,
    }
    print(json.dumps(record | {"network": "64x64 ReLU", "versions": versions}), flush=True)


if __name__ == "__main__":
    main()
