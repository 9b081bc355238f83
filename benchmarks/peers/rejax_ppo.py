"""Environment steps per second of rejax's PPO on gymnax's MountainCarContinuous, with updates, on one core.

Runs in an environment of its own (requirements-rejax.txt) and prints one line of JSON:

    benchmarks/.venv-rejax/bin/python benchmarks/peers/rejax_ppo.py --num-envs 8 --num-steps 2048

Compilation is timed apart: of the program that makes the first state and of the one that does an update.
"""

import argparse
import json
import os
import platform
import time
from importlib.metadata import version
from typing import Any

os.environ.update(JAX_PLATFORMS="cpu", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a compilation found on disk would not be one

import jax
from rejax import PPO


def parse_arguments() -> argparse.Namespace:
    """The setting to measure, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=8, help="environments stepped at once")
    parser.add_argument("--num-steps", type=int, default=2048, help="steps of each environment per update")
    parser.add_argument("--num-minibatches", type=int, default=32, help="minibatches of a pass")
    parser.add_argument("--num-epochs", type=int, default=10, help="passes over the data per update")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure, after the warm-up")
    parser.add_argument("--warm-up-updates", type=int, default=3, help="updates before the clock starts")
    parser.add_argument("--core", type=int, default=None, help="core to run on; the last one allowed if not given")
    return parser.parse_args()


def pin_to_one_core(core: int | None) -> int | None:
    """Keep this process on one core and give its number, or None where the system cannot."""
    # Before the first use of JAX, whose thread pools take their size from the cores allowed.
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {chosen})
    return chosen


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
    update = jax.jit(lambda state: agent.train_iteration(state)).lower(state).compile()
    compile_seconds, compile_busy = time.perf_counter() - wall, time.process_time() - processor
    for _ in range(arguments.warm_up_updates):
        state = update(state)
    jax.block_until_ready(state)
    updates, wall, processor = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < arguments.seconds:
        state = jax.block_until_ready(update(state))
        updates += 1
    elapsed, busy = time.perf_counter() - wall, time.process_time() - processor
    steps = updates * arguments.num_envs * arguments.num_steps
    return {
        "steps_per_second": round(steps / elapsed, 1),
        "steps_per_processor_second": round(steps / busy, 1),
        "compile_seconds": round(compile_seconds, 3),
        "compile_processor_seconds": round(compile_busy, 3),
        "steps": steps,
        "seconds": round(elapsed, 3),
    }


def main() -> None:
    """Measure one setting and print it as a line of JSON."""
    arguments = parse_arguments()
    core = pin_to_one_core(arguments.core)
    result = measure(make_agent(arguments), arguments)
    setting = {name: value for name, value in vars(arguments).items() if name not in ("core", "seconds")}
    record = {"system": "rejax PPO", "env": "MountainCarContinuous-v0 (gymnax)"} | result | setting
    record |= {"device": "cpu", "threads": 1, "core": core, "network": "64x64 ReLU"}
    names = ("rejax", "gymnax", "jax", "flax", "numpy")
    versions = {name: version(name) for name in names} | {"python": platform.python_version()}
    print(json.dumps(record | {"versions": versions}), flush=True)


if __name__ == "__main__":
    main()
