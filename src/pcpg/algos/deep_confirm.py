"""Fresh episodes of a policy that was chosen because it did well: how many are played, and whether they reach a target.

A policy is tried whenever it seems good enough, so in the end chance would pass any test that stays the same. The k-th
try is at level RISK / (k (k + 1)); over all tries that is RISK at most, if returns are about normal. A return that is
the same in all episodes of a try leaves no error to test with: only the growing number of episodes shows rare failures.
"""

import math

import numpy as np

RISK = 0.1
"""Chance that a run stops with a policy below its target, if returns are about normal."""
STEPS, FEWEST, MOST = 2_000, 5, 20
"""Steps of the fresh episodes of a first try, and how few and how many episodes there may be."""


def level(tries: int) -> float:
    """Of the test of the newest try, the number of which this is."""
    return RISK / (tries * (tries + 1))


def is_enough(lengths: np.ndarray, tries: int) -> bool:
    """Whether fresh episodes of these lengths are all of a try: later ones have more, to see as much at their level."""
    more = math.log(level(tries)) / math.log(level(1))
    number, steps = len(lengths), int(lengths.sum())
    return number >= more * FEWEST and (steps >= more * STEPS or number >= more * MOST)


def is_reached(returns: np.ndarray, target: float, tries: int) -> bool:
    """Whether the true mean is above the target, by Student's t; of one episode, whether its return is."""
    from scipy.special import stdtrit  # here, since nothing else needs it

    number = len(returns)
    error = float(stdtrit(number - 1, 1 - level(tries))) * float(returns.std(ddof=1)) if number > 1 else 0.0
    return float(returns.mean()) - error / math.sqrt(number) >= target
