"""Regret of rlberry's UCBVI, PSRL and optimistic Q-learning on a given MDP: reads a task from a file, prints JSON.

    python benchmarks/peers/rlberry_regret.py task.json

The agents are rlberry's own classes. What is set so that they are the algorithms of the papers:

    bonus     UCBVI and optimistic Q-learning take a "custom exploration bonus", `_compute_bonus`: the papers' are given
    stages    tables for each step (PSRL: one model for all steps, as in its paper)
    ties      an agent takes the first of equal actions; actions are renamed at random in each state, for each seed

The regret of an episode is the optimal value less the exact value of the policy that played it.
"""

import importlib.metadata
import json
import logging
import math
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import rlberry
from rlberry.agents import AgentWithSimplePolicy
from rlberry.agents.optql import OptQLAgent
from rlberry.agents.psrl import PSRLAgent
from rlberry.agents.ucbvi import UCBVIAgent
from rlberry.envs.finite import FiniteMDP

rlberry.logger.setLevel(logging.ERROR)


class HoeffdingUCBVI(UCBVIAgent):
    """UCBVI-CH of Azar, Osband and Munos: b = scale 7 H ln(5 S A t / delta) / sqrt(N), t the samples so far."""

    delta, pairs = 0.1, 1

    def _compute_bonus(self, n: float, hh: int) -> float:
        del hh
        t = (self.episode + 1) * self.horizon
        ell = math.log(5.0 * self.pairs * t / self.delta)
        return self.bonus_scale_factor * 7.0 * self.horizon * ell / math.sqrt(n)


class HoeffdingOptQL(OptQLAgent):
    """UCB-Hoeffding of Jin et al.: b = scale sqrt(H^3 ln(S A t / delta) / N), t the samples so far."""

    delta, pairs = 0.1, 1

    def _compute_bonus(self, n: float, hh: int) -> float:
        del hh
        t = (self.episode + 1) * self.horizon
        return self.bonus_scale_factor * math.sqrt(self.horizon**3 * math.log(self.pairs * t / self.delta) / n)


def value(P: np.ndarray, r: np.ndarray, choice: np.ndarray) -> float:
    """The value at state 0 of a deterministic policy choice[h, s]."""
    states, V = np.arange(len(r)), np.zeros(len(r))
    for here in choice[::-1]:
        V = r[states, here] + P[states, here] @ V
    return float(V[0])


def optimal(P: np.ndarray, r: np.ndarray, horizon: int) -> float:
    """The best value at state 0."""
    V = np.zeros(len(r))
    for _ in range(horizon):
        V = (r + P @ V).max(1)
    return float(V[0])


def make(name: str, env: FiniteMDP, task: dict[str, Any], seed: int) -> AgentWithSimplePolicy:
    """The agent of this name with its settings."""
    common = {"horizon": task["horizon"], "gamma": 1.0, "seeder": seed}
    if name == "psrl":
        return PSRLAgent(env, stage_dependent=False, bernoullized_reward=True, **common)
    scale = task["learners"][name]["scale"]
    if name == "ucbvi":
        agent = HoeffdingUCBVI(env, bonus_scale_factor=scale, stage_dependent=True, **common)
    else:
        agent = HoeffdingOptQL(env, bonus_scale_factor=scale, **common)
    agent.delta, agent.pairs = task["delta"], task["pairs"]
    return agent


def regret(name: str, task: dict[str, Any], seed: int) -> float:
    """The regret of one seed over the episodes of the task."""
    P, r = np.array(task["P"]), np.array(task["r"])
    rng = np.random.default_rng([2, seed])
    order = np.argsort(rng.random(r.shape), axis=1)
    P, r = np.take_along_axis(P, order[..., None], axis=1), np.take_along_axis(r, order, axis=1)
    env = FiniteMDP(r, P, initial_state_distribution=0)
    env.reseed(seed)
    agent, best, total = make(name, env, task, seed), optimal(P, r, task["horizon"]), 0.0
    for _ in range(task["learners"][name]["episodes"]):
        before = agent.Q.argmax(-1)  # of equal actions the first, as the agents choose
        agent._run_episode()
        played = agent.Q.argmax(-1) if name == "psrl" else before  # PSRL draws its policy inside
        total += best - value(P, r, played)
    return total


def main() -> None:
    """Run every learner of the task with every seed."""
    task = json.loads(Path(sys.argv[1]).read_text())
    found = {name: [regret(name, task, seed) for seed in task["seeds"]] for name in task["learners"]}
    versions = {name: importlib.metadata.version(name) for name in ("rlberry", "gymnasium", "numpy")}
    print(json.dumps({"regret": found, "versions": {"python": platform.python_version(), **versions}}), flush=True)


if __name__ == "__main__":
    main()
