"""The problems of the table: four that need exploration, three aggregated ones with a placed error, and trees.

In each aggregated problem action 0 at s0 leads to the optimal path, worth 1, and A = 3. States of equal label look the
same; kappa is the error of the aggregation. What a label stands for differs

    mix    off the path, by kappa in reward. Action 1 at s0 leads to u, where action 0 pays 1 - kappa/3 and leads to p,
           the others pay nothing and lead to q; p and q look the same, p pays 0 and q pays kappa. Who judges p and q by
           their average believes that action 0 at u is worth more than 1, unless three of four visits were to p.
    wait   off the path, by 4 kappa in transitions. Action 1 at s0 pays 1 - 3 kappa/2 and leads to x_1, .., x_k, which
           look the same and follow each other in time; x_k, at the last but one step, leads with probability 2 kappa to
           y, which pays 1/2. Who forgets the time believes that y can be met at every step and pays until the end, and
           overrates what comes by a factor of about two, however much of its own play it sees.
    local  on the path, by kappa in reward. Action 0 at s0 leads to c or d, which look the same; action 0 pays 1 at c
           and 1 - kappa at d, action 1 the reverse. No policy over labels gets more than 1 - kappa/2.

In `mix` and `wait` every pair of every state on the optimal path is exact. Who is deluded in `mix` loses kappa/3, in
`wait` kappa/2.

On the binary tree going left is worth 1/2 and its features are exact; inside the tree they are wrong: random, searched
to delude fitted Q iteration, or made to delude a method that bootstraps on its own on-policy data.
"""

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from pcpg_lab.table1.settings import CHAIN_DECISIONS, EPSILON, Family
from pcpg_theory.examples import BinaryTree, adversarial_tree, deluding_tree, random_tree
from pcpg_theory.learners import problem
from pcpg_theory.learners.problem import Episodic
from pcpg_theory.mdp import Array, Index, Mask, TabularMDP
from pcpg_theory.theorems import Size

Misspecified = Literal["mix", "wait", "local"]
TreeKind = Literal["random", "searched", "deluding"]
MISSPECIFIED: tuple[Misspecified, ...] = ("mix", "wait", "local")
TREE_KINDS: tuple[TreeKind, ...] = ("random", "searched", "deluding")
ACTIONS, WAIT = 3, 4
GAP_DEPTH = 2
ASTRAY = 14
"""Actions of a node that leave the tree: with two alone, uniform play meets a leaf as often as there are leaves; with
four more, epsilon-greedy Q-learning still finds the good leaf of depth 5 within 4M samples."""
LARGEST_ERROR = 0.5
TREE_GAMMA = 0.9


def make(family: Family, size: int, seeds: Sequence[int]) -> Episodic:
    """The problem of a family and a size, an instance for each seed."""
    if family == "lock":
        return problem.lock(size, seeds)
    if family == "chain":
        return problem.riverswim(len(seeds), size, CHAIN_DECISIONS)
    return problem.tree(size, seeds, astray=ASTRAY) if family == "tree" else problem.noisy_sea(size, seeds)


def make_gap(gap: float, seeds: Sequence[int]) -> Episodic:
    """The tree on which the good leaf differs from the others by this gap alone."""
    return problem.tree(GAP_DEPTH, seeds, gap)


def size_of(made: Episodic, share: float = EPSILON) -> Size:
    """The size of a problem as theorems see it, epsilon this share of the gap, the mean over instances."""
    gap = float((made.optimal() - made.uniform()).mean()) / (made.high - made.low)
    layout = made.layout
    numbers = (layout.num_shared, layout.num_states, layout.width, layout.num_actions, layout.horizon)
    return Size(*numbers, share * gap)


def accuracy(made: Episodic) -> Array:
    """The epsilon of each seed, in raw return."""
    return EPSILON * (made.optimal() - made.uniform())


def make_tree(features: TreeKind, depth: int, seed: int) -> BinaryTree:
    """A tree with features of a kind."""
    if features == "random":
        return random_tree(depth, seed=seed, gamma=TREE_GAMMA)
    if features == "searched":
        return adversarial_tree(depth, seed=seed, gamma=TREE_GAMMA)
    return deluding_tree(depth, gamma=TREE_GAMMA)


class Aggregated(NamedTuple):
    """An MDP with s0 = 0, the label of each state, and the decisions of an episode."""

    name: Misspecified
    mdp: TabularMDP
    labels: Index
    decisions: int

    def episodic(self, n: int) -> Episodic:
        """The problem with the time put into the state, n equal instances."""
        return problem.timed(self.name, self.mdp, self.decisions, n, labels=self.labels)


class _Builder:
    """States by name; every action of a state that is not said to do something leads to the end without reward."""

    def __init__(self, *names: str) -> None:
        self.index = {name: i for i, name in enumerate(("s0", *names, "end"))}
        S = len(self.index)
        self.P, self.r = np.zeros((S, ACTIONS, S)), np.zeros((S, ACTIONS))
        self.P[:, :, -1] = 1.0

    def move(self, state: str, actions: Sequence[int], to: dict[str, float], reward: float = 0.0) -> None:
        """Let these actions of a state lead to states with these probabilities, and pay."""
        for a in actions:
            self.P[self.index[state], a] = 0.0
            self.r[self.index[state], a] = reward
            for name, chance in to.items():
                self.P[self.index[state], a, self.index[name]] = chance

    def done(self, name: Misspecified, decisions: int, *alike: Sequence[str]) -> Aggregated:
        """The problem in which each group of states in `alike` looks the same."""
        labels = np.arange(len(self.index))
        for group in alike:
            labels[[self.index[state] for state in group]] = self.index[group[0]]
        return Aggregated(name, TabularMDP(self.P, self.r, 0.9), labels, decisions)


EVERY = tuple(range(ACTIONS))


def misspecified(name: Misspecified, kappa: float) -> Aggregated:
    """The aggregated problem of this name and error; a ValueError if the error is too large."""
    if not 0.0 <= kappa <= LARGEST_ERROR:
        raise ValueError(f"kappa must be an error in [0, {LARGEST_ERROR}], got {kappa}")
    return {"mix": _mix, "wait": _wait, "local": _local}[name](kappa)


def unavoidable(name: Misspecified, kappa: float) -> float:
    """What the best policy over labels loses."""
    return kappa / 2.0 if name == "local" else 0.0


def _mix(kappa: float) -> Aggregated:
    b = _Builder("home", "u", "p", "q")
    b.move("s0", [0], {"home": 1.0})
    b.move("home", [0], {"end": 1.0}, 1.0)
    b.move("s0", [1], {"u": 1.0})
    b.move("u", [0], {"p": 1.0}, 1.0 - kappa / 3.0)
    b.move("u", [1, 2], {"q": 1.0})
    b.move("q", EVERY, {"end": 1.0}, kappa)
    return b.done("mix", 3, ("p", "q"))


def _wait(kappa: float) -> Aggregated:
    steps = [f"x{i}" for i in range(1, WAIT + 1)]
    b = _Builder("home", *steps, "late", "y")
    b.move("s0", [0], {"home": 1.0}, 1.0)
    b.move("s0", [1], {"x1": 1.0}, 1.0 - 1.5 * kappa)
    for here, after in itertools.pairwise(steps):
        b.move(here, EVERY, {after: 1.0})
    b.move(steps[-1], EVERY, {"late": 1.0 - 2.0 * kappa, "y": 2.0 * kappa})
    b.move("late", EVERY, {"late": 1.0})
    b.move("y", EVERY, {"y": 1.0}, 0.5)
    return b.done("wait", WAIT + 2, (*steps, "late"))


def _local(kappa: float) -> Aggregated:
    b = _Builder("c", "d")
    b.move("s0", [0], {"c": 0.5, "d": 0.5})
    for state, best in (("c", 0), ("d", 1)):
        b.move(state, [best], {"end": 1.0}, 1.0)
        b.move(state, [1 - best], {"end": 1.0}, 1.0 - kappa)
    return b.done("local", 2, ("c", "d"))


class Errors(NamedTuple):
    """The aggregation error of the pairs of states on the optimal path, any action, and of all that can be met."""

    on_path: float
    anywhere: float


def errors(made: Aggregated) -> Errors:
    """The errors of an aggregated problem.

    The error of a label and an action is the largest difference in reward, or in norm 1 of the chances of the next
    label, between states of that label that can be met in an episode, whenever they are met.
    """
    P, r, S = made.mdp.P, made.mdp.r, made.mdp.num_states
    to_label = np.zeros((S, ACTIONS, S))
    for s in range(S):
        to_label[:, :, made.labels[s]] += P[:, :, s]
    V, best = np.zeros(S), []
    for _ in range(made.decisions):
        Q = r + P @ V
        V = Q.max(1)
        best.append(V[:, None] - 1e-12 <= Q)
    met = _reach(made, [np.ones((S, ACTIONS), bool)] * made.decisions)
    path = _reach(made, best[::-1])
    found = np.zeros((S, ACTIONS))
    for s in np.flatnonzero(met):
        for other in np.flatnonzero(met & (made.labels == made.labels[s])):
            gap = np.maximum(np.abs(r[s] - r[other]), np.abs(to_label[s] - to_label[other]).sum(-1))
            found[s] = np.maximum(found[s], gap)
    return Errors(float(found[path].max()), float(found[met].max()))


def _reach(made: Aggregated, actions: Sequence[Mask]) -> Mask:
    """Which states a decision is taken in at some time, when these actions [S, A] are open at each time."""
    here = np.arange(made.mdp.num_states) == made.mdp.s0
    seen = here.copy()
    for allowed in actions[:-1]:
        moves: Mask = np.any((made.mdp.P > 0.0) & allowed[..., None], axis=1)
        here = np.any(moves[here], axis=0)
        seen |= here
    return seen
