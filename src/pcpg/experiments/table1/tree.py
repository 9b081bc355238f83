"""Experiment C: the binary tree, for algorithms with linear features that are right on the optimal path alone.

Going left is worth 1/2 and its features are exact; inside the tree they are wrong. Kinds of features: random, searched
to delude fitted Q iteration, and one made to delude a method that bootstraps on its own on-policy data. Fitted Q
iteration gets the model; LSVI-UCB and PC-PG get episodes from s0.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pcpg.experiments.common import Record
from pcpg.experiments.table1.settings import Settings
from pcpg.theory import exact, tabular
from pcpg.theory.examples import BinaryTree, adversarial_tree, deluding_tree, fitted_q_iteration, lsvi_ucb, random_tree
from pcpg.theory.settings import Settings as Algorithm1Settings
from pcpg.theory.settings import beta_from_mass

Kind = Literal["random", "searched", "deluding"]
KINDS: tuple[Kind, ...] = ("random", "searched", "deluding")
METHODS = ("fitted Q iteration", "LSVI-UCB", "PC-PG")
GAMMA = 0.9
LSVI_EPISODES = 300
RIDGE = 1e-3


def arguments(settings: Settings, kind: Kind, depth: int) -> dict[str, Any]:
    """Return what the values on trees of a kind and a depth depend on."""
    return {
        "features": kind,
        "depth": depth,
        "seeds": list(range(settings.tree_seeds)),
        "policies": settings.tree_policies,
        "pairs": settings.tree_pairs,
    }


def algorithm1_settings(policies: int, pairs: int) -> Algorithm1Settings:
    """Return the settings of PC-PG for a cover of so many policies, so many pairs for each critic."""
    beta = beta_from_mass(0.01, RIDGE)
    return Algorithm1Settings(
        N=policies, T=40, eta=10.0, ridge=RIDGE, beta=beta, M=pairs, K=2 * pairs, final_episodes=2 * pairs
    )


def measure(features: Kind, depth: int, seeds: Sequence[int], policies: int, pairs: int) -> Record:
    """Return by method the value that is reached on the tree of each seed and the samples used, and the optimum."""
    value: dict[str, list[float]] = {name: [] for name in METHODS}
    steps: dict[str, list[int]] = {name: [] for name in METHODS}
    optimal = []
    for seed in seeds:
        tree = make_tree(features, depth, seed)
        optimal.append(float(exact.optimal_policy(tree.mdp).V[0]))
        fqi = fitted_q_iteration(tree.mdp, tree.phi, np.full(tree.mdp.shape, 1.0 / tree.mdp.r.size))
        lsvi = lsvi_ucb(tree.mdp, tree.phi, LSVI_EPISODES, depth + 2, 1.0, seed)
        ours = tabular.run(tree.mdp, tree.phi, algorithm1_settings(policies, pairs), "sampled", seed)
        reached = (fqi.value, lsvi.value, exact.value(tree.mdp, ours.pi))
        for name, one, used in zip(METHODS, reached, (fqi.steps, lsvi.steps, ours.steps), strict=True):
            value[name].append(float(one))
            steps[name].append(int(used))
    return {"value": value, "steps": steps, "optimal": optimal}


def make_tree(features: Kind, depth: int, seed: int) -> BinaryTree:
    """Return a tree with features of a kind."""
    if features == "random":
        return random_tree(depth, seed=seed, gamma=GAMMA)
    if features == "searched":
        return adversarial_tree(depth, seed=seed, gamma=GAMMA)
    return deluding_tree(depth, gamma=GAMMA)
