"""Environment steps per second of Stable-Baselines3's PPO, updates included, on one core: on the lock, or Gymnasium's.

Runs in the peers' own environment and prints one line of JSON:

    benchmarks/.venv-peers/bin/python benchmarks/peers/sb3_ppo.py --batch-size 128 --num-epochs 4
"""

import argparse
import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

import gymnasium
import torch
from clock import flags, pin_to_one_core, rate, say
from numpy_lock import NumpyLock
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv


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
    """Whole updates until `seconds` have passed, after the warm-up."""
    size = agent.n_steps * agent.n_envs
    agent.learn(size * warm_up_updates)
    return rate(lambda: agent.learn(size, reset_num_timesteps=False), lambda: agent.num_timesteps, seconds)


def main() -> None:
    """Measure one setting and print it as a line of JSON."""
    parser = flags(__doc__, num_envs=8, num_steps=256, batch_size=128, num_epochs=4)
    parser.add_argument("--env", default="lock", help="the lock, or the id of an environment of Gymnasium's")
    parser.add_argument("--horizon", type=int, default=10, help="levels of the lock")
    arguments = parser.parse_args()
    core = pin_to_one_core(arguments.core)
    torch.set_num_threads(1)
    found = measure(make_agent(arguments), arguments.seconds, arguments.warm_up_updates)
    packages = ("stable-baselines3", "torch", "gymnasium", "numpy")
    say({"system": "stable-baselines3 PPO"}, found, arguments, core, packages)


if __name__ == "__main__":
    main()
