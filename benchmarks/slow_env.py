"""Steps per second of an environment that takes 5 ms a step, with more and more workers; into results/slow-env.json.

    python benchmarks/slow_env.py                                               ours, processes and Ray actors
    python benchmarks/slow_env.py --sb3 benchmarks/.venv-peers/bin/python       beside SB3's SubprocVecEnv
    python benchmarks/slow_env.py --rllib benchmarks/.venv-rllib/bin/python     beside Ray RLlib's sampler

The environment sleeps, so workers cost no core. Every count plays the same episodes, bit for bit, also with two workers
killed on the way; efficiency is the rate beside that of as many ideal workers, each with 200 steps a second. `bare` are
processes that step the environment and do nothing else: on a busy machine not even they reach that.
"""

import argparse
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
STEP, LENGTH = 0.005, 50
COUNTS = (1, 2, 4, 8, 16)
EPISODES = 8
"""Of each worker in a measurement."""
TIMES = 3
"""Measurements of each count; the best is kept, since whatever else runs here only slows them."""


def make() -> Any:
    """The environment."""
    sys.path.insert(0, str(HERE / "peers"))
    return importlib.import_module("slow").Slow(STEP, LENGTH)


def measure(on: str, count: int, *, kill: bool = False) -> dict[str, Any]:
    """Play with so many workers, after a first time in which they start."""
    from pcpg.engine.episodes import play
    from pcpg.envs.adapters.from_gymnasium import GymnasiumEnv
    from pcpg.envs.adapters.names import workers_on
    from pcpg.policies.networks import init_actor_critic

    env = GymnasiumEnv("slow", make, workers=count)
    spaces = env.observation_space, env.action_space
    policy = init_actor_critic(np.random.default_rng(0), *spaces, hidden=(64, 64), shared_body=True)
    with workers_on(on), warnings.catch_warnings(action="ignore"):
        try:
            play(env, policy, np.random.default_rng(0), count)
            if kill:
                for worker in env.players._workers[:2]:  # pyright: ignore[reportAttributeAccessIssue]
                    if on == "local":
                        os.kill(worker.process.pid, signal.SIGKILL)
                    else:
                        worker.ray.kill(worker.actor)
            number, spent, played = EPISODES * max(COUNTS) // 4 if kill else EPISODES * count, [], []
            while len(spent) < (1 if kill else TIMES):
                began = time.perf_counter()
                found = play(env, policy, np.random.default_rng(1), number)
                spent.append(time.perf_counter() - began)
                played.append(found)
            seconds = min(spent)
            first = play(env, policy, np.random.default_rng(2), max(COUNTS)) if not kill else None
        finally:
            env.close()
    steps = int(played[0].alive.sum())
    digest = hashlib.sha256(b"".join(part.tobytes() for part in first if part is not None)) if first else None
    return {
        "steps_per_second": round(steps / seconds, 1),
        "efficiency": round(steps / seconds * STEP / count, 3),
        "steps": steps,
        "episodes_sha256": None if digest is None else digest.hexdigest()[:16],
        "bytes": hashlib.sha256(b"".join(part.tobytes() for part in played[0] if part is not None)).hexdigest()[:16],
    }


def bare(count: int) -> dict[str, Any]:
    """As many processes that step the environment and do nothing else: what this machine allows at this moment."""
    words = [sys.executable, str(HERE / "peers" / "slow.py"), str(STEP), str(LENGTH), str(EPISODES * LENGTH)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    each: list[Any] = [subprocess.Popen(words, **pipes) for _ in range(count)]
    for one in each:
        one.stdout.readline()
    began = time.perf_counter()
    for one in each:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in each:
        one.stdout.readline()
    seconds = time.perf_counter() - began
    for one in each:
        one.communicate()
    steps = count * EPISODES * LENGTH
    return {"steps_per_second": round(steps / seconds, 1), "efficiency": round(steps / seconds * STEP / count, 3)}


def peer(python: str, script: str, count: int) -> dict[str, Any]:
    """A peer's rate, in its own environment."""
    words = [
        python,
        str(HERE / "peers" / script),
        "--workers",
        str(count),
        "--step",
        str(STEP),
        "--length",
        str(LENGTH),
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(done.stdout.strip().splitlines()[-1])
    return row | {"efficiency": round(row["steps_per_second"] * STEP / count, 3)}


def main() -> None:
    """Measure all counts and write what came out."""
    sys.path.insert(0, str(HERE))
    from run import provenance

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3", default="", help="Python with Stable-Baselines3")
    parser.add_argument("--rllib", default="", help="Python with Ray RLlib")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "slow-env.json", help="file to write")
    asked = parser.parse_args()
    results: dict[str, Any] = {"provenance": provenance(), "seconds_of_a_step": STEP, "steps_of_an_episode": LENGTH}
    results["bare"] = {str(count): bare(count) for count in COUNTS}
    print("bare", json.dumps(results["bare"]), flush=True)
    for on in ("local", "ray"):
        results[on] = {str(count): measure(on, count) for count in COUNTS}
        whole, cut = measure(on, 4, kill=True), measure(on, 8, kill=True)
        results[on]["two workers killed"] = {"4": whole, "8": cut, "same_bytes": whole["bytes"] == cut["bytes"]}
        print(on, json.dumps(results[on]), flush=True)
    found = {results[on][str(count)]["episodes_sha256"] for on in ("local", "ray") for count in COUNTS}
    results["same_bytes_for_every_count_and_place"] = len(found) == 1
    for name, python in (("sb3", asked.sb3), ("rllib", asked.rllib)):
        if python:
            results[name] = {str(count): peer(python, f"{name}_workers.py", count) for count in COUNTS}
            print(name, json.dumps(results[name]), flush=True)
    asked.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
