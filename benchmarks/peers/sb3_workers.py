"""Stable-Baselines3's SubprocVecEnv on the slow environment, stepped by a policy of PPO; a line of JSON."""

import functools
import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from slow import Slow, asked_for
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import SubprocVecEnv


def main() -> None:
    asked = asked_for()
    torch.set_num_threads(1)
    make = functools.partial(Slow, asked.step, asked.length)
    env = SubprocVecEnv([make] * asked.workers, start_method="forkserver")
    model = PPO("MlpPolicy", env, device="cpu", policy_kwargs={"net_arch": [64, 64]}, seed=0)
    seen = env.reset()
    for _ in range(10):
        seen, *_ = env.step(model.predict(seen)[0])
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < 2.0:
        seen, *_ = env.step(model.predict(seen)[0])
        steps += asked.workers
    seconds = time.perf_counter() - began
    env.close()
    assert np.isfinite(seen).all()
    print(json.dumps({"steps_per_second": round(steps / seconds, 1), "steps": steps}))


if __name__ == "__main__":
    main()
