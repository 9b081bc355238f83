"""Certificates from data alone: the problems, and a run of one.

A run plays whole episodes, those of a round side by side: first at random, then by the policy that is best by the upper
bounds so far. The policy that is best in the empirical model is certified, as `pcpg certify` does it,
on all of these data and on fresh episodes. V* and V^pi by exact induction only check what came out.
"""

from typing import NamedTuple

import numpy as np

from pcpg_theory import problems
from pcpg_theory.certificate import Recorder
from pcpg_theory.mdp import Array, Index, TabularMDP, random_mdp
from pcpg_theory.optimism import Range, bernstein, optimism

FRESH = 2000
DATA_NUMBERS = ("bound", "upper", "lower", "gap", "optimal", "value", "trivial")


class DataCase(NamedTuple):
    """A problem, and how much of it is played."""

    name: str
    problem: str
    steps: int  # decisions of an episode
    rounds: int
    episodes: int  # of a round
    most: float | None = None  # the largest return, where one is declared
    runs: int = 200


DATA_CASES = (
    DataCase("data-lake-4", "lake 4x4", 100, 12, 3000),
    DataCase("data-lake-4-return", "lake 4x4", 100, 12, 3000, 1.0),
    DataCase("data-lake-8", "lake 8x8", 200, 12, 5000),
    DataCase("data-lake-8-return", "lake 8x8", 200, 12, 5000, 1.0),
    DataCase("data-lock-4", "lock 4", 5, 150, 400),
    DataCase("data-lock-6", "lock 6", 7, 200, 800),
    DataCase("data-random", "random 20", 10, 20, 1000),
)
DATA_SMOKE = (DataCase("data-random", "random 20", 3, 2, 150, None, 2),)


class Made(NamedTuple):
    """A problem as it is played: rewards [S, A, S] in [0, 1] of where a move leads."""

    mdp: TabularMDP
    paid: Array


def make(problem: str, seed: int) -> Made:
    """The problem of this name and seed."""
    kind, size = problem.split()
    if kind == "lake":
        return _lake(size)
    mdp = random_mdp(seed, int(size), 3, 0.9) if kind == "random" else problems.lock(int(size), seed).mdp
    return Made(mdp, np.broadcast_to(mdp.r[..., None], mdp.P.shape))


def _lake(size: str) -> Made:
    """Gymnasium's slippery lake by its own table: it only plays."""
    import gymnasium

    env = gymnasium.make("FrozenLake-v1", map_name=size, is_slippery=True)
    table, S = env.unwrapped.P, env.observation_space.n  # pyright: ignore[reportAttributeAccessIssue]
    P, paid, terminal = np.zeros((S, 4, S)), np.zeros((S, 4, S)), np.zeros(S, bool)
    for s in range(S):
        for a in range(4):
            for chance, after, reward, ends in table[s][a]:
                P[s, a, after] += chance
                paid[s, a, after], terminal[after] = reward, terminal[after] | ends
    P[terminal], paid[terminal] = np.eye(S)[terminal][:, None], 0.0
    return Made(TabularMDP(P, (P * paid).sum(-1), 0.9, terminal=terminal), paid)


def play(made: Made, sim: Recorder, pi: Array, episodes: int) -> Array:
    """The returns of episodes by policies [steps, S], -1 where an action is left to chance."""
    s, returns = np.full(episodes, made.mdp.s0), np.zeros(episodes)
    for here in pi:
        a = np.where(here[s] < 0, sim.rng.integers(made.mdp.num_actions, size=episodes), here[s])
        after = sim.move(s, a)
        returns += np.where(made.mdp.terminal[s], 0.0, made.paid[s, a, after])
        s = after
    return returns


def best_by(Q: Array, number: Index) -> Array:
    """The best action [steps, S] by values of the states met, -1 in the others."""
    return np.where(number < 0, -1, Q.argmax(-1)[:, number])


def planned(P: Array, r: Array, steps: int, pi: Array | None = None) -> tuple[Array, Array]:
    """Values [S] over so many steps, of the best policy or a given one, and the values of actions [steps, S, A]."""
    V, found = np.zeros(len(P)), []
    for left in range(1, steps + 1):
        Q = r + P @ V
        V = Q.max(-1) if pi is None else Q[np.arange(len(P)), pi[steps - left]]
        found.append(Q)
    return V, np.stack(found[::-1])


def certified(case: DataCase, seed: int, delta: float) -> dict[str, float]:
    """A run of a case: its bounds, and the truth beside them."""
    made, rng = make(case.problem, seed), np.random.default_rng([13, seed])
    mdp, steps, sim = made.mdp, case.steps, Recorder(made.mdp, rng, made.paid)
    declared = Range(most=np.inf if case.most is None else case.most)
    pi, bounds = np.full((steps, mdp.num_states), -1), None
    for number in range(1, case.rounds + 1):
        play(made, sim, pi, case.episodes)
        data = sim.data()._replace(began=np.array([float(number * case.episodes)]))
        bounds = optimism(data, declared, delta / 2, steps=steps)
        pi = best_by(bounds.Q, sim.number)
    assert bounds is not None
    count = sim.counts.sum(-1, keepdims=True)
    model = sim.counts / np.maximum(count, 1.0)
    _, Q = planned(model, (model * made.paid).sum(-1), steps)
    greedy = Q.argmax(-1)
    fresh = Recorder(mdp, np.random.default_rng([14, seed]), made.paid)
    returns = play(made, fresh, greedy, FRESH)
    lower = bernstein(returns, 0.0, declared.largest(steps), delta / 2)
    r = (mdp.P * made.paid).sum(-1)
    optimal, value = (float(planned(mdp.P, r, steps, one)[0][mdp.s0]) for one in (None, greedy))
    numbers = max(bounds.start - lower, 0.0), bounds.start, lower, optimal - value, optimal, value
    return dict(zip(DATA_NUMBERS, (*numbers, declared.largest(steps)), strict=True)) | {
        "transitions": float(count.sum())
    }
