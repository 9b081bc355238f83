"""Environment steps per second of rejax's PPO on gymnax's MountainCarContinuous, with updates, on one core.

Runs in an environment of its own (requirements-rejax.txt) and prints one line of JSON:

    benchmarks/.venv-rejax/bin/python benchmarks/peers/rejax_ppo.py --num-envs 8 --num-steps 2048

Compilation is timed apart: of the program that makes the first state and of the one that does an update.
"""

import argparse
import os
import time
from typing import Any

os.environ.update(JAX_PLATFORMS="cpu", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a compilation found on disk would not be one

import jax
from clock import flags, pin_to_one_core, rate, say
from rejax import PPO


def make_agent(arguments: argparse.Namespace) -> Any:
    """PPO with two layers of 64 ReLU units each for the policy and for the value."""
    return PPO.create(
        env="MountainCarContinuous-v0",
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "relu"},
        num_envs=arguments.num_envs,
        num_steps=arguments.num_steps,
        num_minibatches=arguments.num_minibatches,
        num_epochs=arguments.num_epochs,
        learning_rate=3e-4,
        max_grad_norm=0.5,
    )


def measure(agent: Any, arguments: argparse.Namespace) -> dict[str, float | int]:
    """Compile, warm up, then count whole updates until the seconds have passed."""
    key = jax.random.PRNGKey(0)
    wall, processor = time.perf_counter(), time.process_time()
    # The agent is a constant of both programs: its optimiser is made in the first and used in the second.
    state = jax.jit(lambda key: agent.init_state(key)).lower(key).compile()(key)
    program = jax.jit(lambda state: agent.train_iteration(state)).lower(state).compile()
    compiling = {
        "compile_seconds": round(time.perf_counter() - wall, 3),
        "compile_processor_seconds": round(time.process_time() - processor, 3),
    }
    updates = 0

    def update() -> None:
        nonlocal state, updates
        state, updates = jax.block_until_ready(program(state)), updates + 1

    for _ in range(arguments.warm_up_updates):
        update()
    return rate(update, lambda: updates * arguments.num_envs * arguments.num_steps, arguments.seconds) | compiling


def main() -> None:
    """Measure one setting and print it as a line of JSON."""
    arguments = flags(__doc__, num_envs=8, num_steps=2048, num_minibatches=32, num_epochs=10).parse_args()
    core = pin_to_one_core(arguments.core)
    found = measure(make_agent(arguments), arguments)
    system = {"system": "rejax PPO", "env": "MountainCarContinuous-v0 (gymnax)"}
    say(system, found, arguments, core, ("rejax", "gymnax", "jax", "flax", "numpy"))


if __name__ == "__main__":
    main()
