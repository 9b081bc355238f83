"""An aggregated MDP whose misspecification is large off the comparator's path and zero on it (or the other way round).

A corridor c_0 .. c_{n-1}: `on` leads to the next cell, and out of the last one with reward 1. `aside` leads into a
swamp: its first cell pays a toll of kappa once, its last one nothing for ever. All pairs of the swamp share ONE
abstract state, though they differ by kappa in reward; every other pair is its own abstract state. With `on_path` the
swamp is free of error, and at c_0, where the comparator passes, `aside` leads on with probability 1 - kappa and
shares one abstract state with `on`.

What going aside is worth is kappa gamma, once. A method that bootstraps on the abstract state believes that the swamp
pays an average toll for ever: share kappa / (1-gamma), with the share of paying cells in its data.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcpg.theory.mdp import Array, TabularMDP, aggregation_features

ON, ASIDE = 0, 1


class Aggregated(NamedTuple):
    """The MDP, the abstract state of each pair, the features, and the comparator that stays on the corridor."""

    mdp: TabularMDP
    labels: NDArray[np.int64]
    phi: Array
    comparator: Array


def swamp(kappa: float, corridor: int = 5, gamma: float = 0.9, on_path: bool = False, paying: int = 2) -> Aggregated:
    """Return the corridor beside the swamp; kappa is the misspecification, off the path or on it."""
    if not 0.0 <= kappa <= 1.0:
        raise ValueError(f"kappa is {kappa}; expected a reward in [0, 1]")
    if corridor < 2 or paying < 1:
        raise ValueError("swamp needs a corridor of at least 2 cells and at least one paying cell")
    S, end = corridor + paying + 2, corridor + paying + 1
    first, last = (
        corridor,
        corridor + paying,
    )  # swamp: `paying` cells of which only the first can be entered, then the bottom
    P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
    labels = np.arange(2 * S).reshape(S, 2)
    for c in range(corridor):
        P[c, ON, c + 1 if c + 1 < corridor else end] = 1.0
        P[c, ASIDE, first] = 1.0
    r[corridor - 1, ON] = 1.0
    P[first : last + 1, :, last] = 1.0
    r[first:last] = 0.0 if on_path else kappa
    P[end, :, end] = 1.0
    labels[end] = labels[end, 0]
    if on_path:
        P[0, ASIDE, first], P[0, ASIDE, 1] = kappa, 1.0 - kappa
        labels[0, ASIDE] = labels[0, ON]
    else:
        labels[first : last + 1] = labels[first, 0]
    _, flat = np.unique(labels, return_inverse=True)
    labels = flat.reshape(S, 2).astype(np.int64)
    comparator = np.zeros((S, 2))
    comparator[:, ON] = 1.0
    return Aggregated(TabularMDP(P, r, gamma), labels, aggregation_features(labels), comparator)
