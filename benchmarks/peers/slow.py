"""An environment whose steps take a while: it sleeps. As a program it steps alone, when a line comes in."""

import argparse
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Slow(gymnasium.Env):
    """A walk of a fixed length; the seed draws its start."""

    observation_space = spaces.Box(-10.0, 10.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, step: float = 0.005, length: int = 50) -> None:
        self.seconds, self.max_steps = step, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1, 1, 4).astype(np.float32), 0
        return self.place, {}

    def step(self, action):
        time.sleep(self.seconds)
        self.place = np.clip(np.cos(self.place * 1.3) + (2 * int(action) - 1) * 0.1, -10, 10).astype(np.float32)
        self.time += 1
        return self.place, float(self.place[0]), False, self.time >= self.max_steps, {}


def asked_for() -> argparse.Namespace:
    """What slow_env.py asks of a peer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--step", type=float, required=True)
    parser.add_argument("--length", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    env = Slow(float(sys.argv[1]), int(sys.argv[2]))
    env.reset(seed=0)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[3])):
        env.step(0)
    print("done", flush=True)
