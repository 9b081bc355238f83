"""PC-PG that keeps its data on several worlds at once: steps, returns and seconds, as one JSON file.

python benchmarks/replay_gpu.py OUT.json lock:5 lock:15 sea:20 maze:20 car --seeds 20 --seed 1000
"""

import argparse
import json
import time

import numpy as np

WORLDS = {
    "lock": ("CombinationLock-v0", "horizon"),
    "sea": ("DeepSea-v0", "size"),
    "maze": ("Maze-v0", "size"),
    "car": ("MountainCarContinuous-v0", ""),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("worlds", nargs="+")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--config", default="{}")
    flags = parser.parse_args()
    results = []
    for world in flags.worlds:
        results.append(measure(world, flags.seed, flags.seeds, json.loads(flags.config)))
        with open(flags.out, "w") as file:
            json.dump(results, file)


def measure(world: str, first: int, seeds: int, config: dict) -> dict:
    from pcpg.config import ReplayConfig, from_plain
    from pcpg.envs.registry import make
    from pcpg.practice.host import visit_program
    from pcpg.practice.program import default_lanes
    from pcpg.practice.replay import ReplayAgent
    from pcpg.practice.visit import VisitInputs, Visitor
    from pcpg.state import DONE

    name, _, size = world.partition(":")
    env_id, option = WORLDS[name]
    env = make(env_id, **({option: int(size)} if option else {}))
    agent = ReplayAgent(env, from_plain(ReplayConfig, config, "config"), default_lanes())
    states = [agent.init(seed) for seed in range(first, first + seeds)]
    covered: dict[int, int] = {}
    began, number, report = time.time(), 0, None
    while any(state.phase != DONE for state in states):
        active = [i for i, state in enumerate(states) if state.phase != DONE]
        for i, (state, report) in zip(active, agent.step([states[i] for i in active]), strict=True):
            states[i] = state
            if report.metrics.get("coverage") == 1.0:
                covered.setdefault(i, report.metrics["env_steps"])
        number += 1
        if number % 50 == 0 and report is not None:
            m = report.metrics
            names = ("env_steps", "coverage", "bonus_ahead", "largest_bonus", "landmarks", "sample")
            brief = {name: m.get(name) for name in names}
            print(world, number, len(active), round(time.time() - began), brief, flush=True)
    env = env.evaluation_env
    visit = visit_program(Visitor(env, 100), default_lanes())
    inputs = [VisitInputs(s.seed, np.int32(2**30), env.instance(int(s.seed)), s.policy, None) for s in states]
    returns = [float(np.mean(visits.returns)) for visits in visit(inputs)]
    steps = [int(state.env_steps) for state in states]
    found = {
        "world": world,
        "seeds": [first, seeds],
        "steps": steps,
        "returns": returns,
        "covered": list(covered.values()),
        "rounds": number,
        "seconds": time.time() - began,
        "landmarks": [int(s.model.landmarks.count) for s in states],
        "compile_seconds": sum(p.compile_seconds for p in agent.programs),
    }
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main()
