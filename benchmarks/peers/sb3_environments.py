"""Stable-Baselines3's PPO, with its own defaults, on a task of `pcpg reproduce environments` at equal steps.

Runs in the peers' own environment. Reads the record of PC-PG's cell for environment, seeds and steps, and writes one of
its own beside it; run `pcpg reproduce environments` again to have it in the table:

    benchmarks/.venv-peers/bin/python benchmarks/peers/sb3_environments.py cartpole cliff
"""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

import gymnasium
import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO

ROOT = Path(__file__).resolve().parents[2]
OWN = ("pcpg_lab.envs.own_tasks:", "pcpg.envs.adapters.own_tasks:")  # the second in records of before


class DeepSea(gymnasium.Env):
    """bsuite's DeepSea as Gymnasium's interface has it."""

    def __init__(self, size: int) -> None:
        from bsuite.experiments.deep_sea import deep_sea

        self._inner = deep_sea.load(size=size, mapping_seed=42)
        self.observation_space = spaces.Box(0.0, 1.0, (size, size), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """A new episode; all begin alike."""
        super().reset(seed=seed)
        return self._inner.reset().observation, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One step."""
        found = self._inner.step(int(action))
        return found.observation, float(found.reward), found.last(), False, {}


def make_env(env_id: str, options: dict) -> gymnasium.Env:
    """The environment of a record, as SB3 takes it."""
    if env_id == "bsuite:deep_sea":
        return DeepSea(options["size"])
    name, limit = env_id.removeprefix("gymnasium:"), options.get("max_steps", 0)
    if name.startswith(OWN):  # without the package around it, which needs JAX
        spec = importlib.util.spec_from_file_location("own_tasks", ROOT / "src/pcpg_lab/envs/own_tasks.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["own_tasks"] = module
        spec.loader.exec_module(module)
        name = name.rpartition(":")[2]
    if name.startswith("MiniGrid"):
        from minigrid.wrappers import ImgObsWrapper

        return ImgObsWrapper(gymnasium.make(name))
    env = gymnasium.make(name)
    is_longer = env.spec.max_episode_steps is None or env.spec.max_episode_steps > limit > 0
    return TimeLimit(env, limit) if limit and is_longer else env


def returns_of(model: PPO, env: gymnasium.Env, episodes: int, seed: int) -> np.ndarray:
    """Returns of fresh episodes; actions are drawn, as they are of the others' policies."""
    returns = np.zeros(episodes)
    for index in range(episodes):
        observation, _ = env.reset(seed=seed + index)
        done = False
        while not done:
            action, _ = model.predict(observation, deterministic=False)
            chosen = int(action) if isinstance(env.action_space, spaces.Discrete) else action
            observation, reward, terminated, truncated, _ = env.step(chosen)
            returns[index] += reward
            done = terminated or truncated
    return returns


def run(task: str, folder: Path, episodes: int, seeds: int) -> None:
    """Train and evaluate on the seeds of PC-PG's record, and write the peer's."""
    ours = json.loads((folder / f"{task}-auto.json").read_text())
    steps, began = max(ours["env_steps"]), time.perf_counter()
    means, solved, used = [], [], []
    for seed in ours["seeds"][:seeds]:
        env = make_env(ours["env"], ours["env_options"])
        kind = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
        model = PPO(kind, env, seed=seed, device="cpu").learn(steps)
        returns = returns_of(model, make_env(ours["env"], ours["env_options"]), episodes, 10**6 + 1000 * seed)
        means.append(float(returns.mean()))
        solved.append(float(np.mean(returns > 0)))
        used.append(int(model.num_timesteps))
        print(f"{task} seed {seed}: {means[-1]:.2f} after {used[-1]:,} steps", flush=True)
    reached = means if ours["measure"] == "return" else solved
    names = ("task", "env", "env_options", "measure", "success")
    record = {name: ours[name] for name in names} | {
        "seeds": ours["seeds"][:seeds],
        "algo": "sb3-ppo",
        "column": "sb3-ppo",
        "config": {"versions": {"stable-baselines3": stable_baselines3.__version__, "torch": torch.__version__}},
        "looked": {},
        "env_steps": used,
        "final_return": means,
        "solved_episodes": solved,
        "successes": sum(value >= ours["success"] for value in reached),
        "history": {},
        "seconds": time.perf_counter() - began,
        "device": platform.machine(),
        "commit": subprocess.run(
            ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": f"benchmarks/.venv-peers/bin/python benchmarks/peers/sb3_environments.py {task} --seeds {seeds}",
    }
    (folder / f"{task}-sb3-ppo.json").write_text(json.dumps(record))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--cells", type=Path, default=ROOT / "results/environments/cells")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.tasks:
        run(name, arguments.cells, arguments.episodes, arguments.seeds)
