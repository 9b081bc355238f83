"""The theorem of each algorithm of Table 1: samples to an epsilon-optimal policy as a function of the size.

| symbol | name    | meaning                                                                                   |
|--------|---------|-------------------------------------------------------------------------------------------|
| S      | states  | states, those that differ only in their time counted once (a stationary model has these)  |
| S_L    | timed   | states with their time in them: what a model that depends on time has                     |
| W      | width   | the most states that can be met at one time                                               |
| A, L   | actions, horizon | actions, decisions of an episode                                                 |
| eps    | epsilon | accuracy of the undiscounted return, in units where a step pays at most 1                 |
| delta  | delta   | probability of failure                                                                    |

A theorem on regret R(T) after T samples says that the policies played are epsilon-optimal on average once
R(T) L / T <= eps: a regret of c sqrt(T) becomes (c L / eps)^2 samples. Leading terms only, without absolute constants:
they are for comparing growth, T(size') / T(size), with what is measured, not for the number of samples itself.
Logarithms are kept as one factor ln(S_L A / (delta eps)).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from pcpg_theory import parameters


class Size(NamedTuple):
    """The size of an episodic problem, and the accuracy that is asked for."""

    states: int
    timed: int
    width: int
    actions: int
    horizon: int
    epsilon: float
    delta: float = 0.1

    @property
    def log(self) -> float:
        """The logarithm that all theorems have in some form."""
        return math.log(self.timed * self.actions / (self.delta * self.epsilon))


class Theorem(NamedTuple):
    """A bound on samples: as text, as a function of the size, and of which kind."""

    text: str
    samples: Callable[[Size], float] | None = None  # None: nothing is proved from s0
    lower: bool = False  # whether it is a lower bound: at least this many

    def growth(self, first: Size, last: Size) -> float | None:
        """By which factor the bound grows from one size to another."""
        return None if self.samples is None else self.samples(last) / self.samples(first)


def regret(text: str, square: Callable[[Size], float]) -> Theorem:
    """The theorem of a regret of sqrt(square T): square L^2 / eps^2 samples."""
    return Theorem(text, lambda s: square(s) * s.horizon**2 * s.log / s.epsilon**2)


def _pcpg(s: Size) -> float:
    """Steps of the main theorem, corrected, with one-hot features of all pairs and gamma = 1 - 1/L."""
    gamma, dim = 1.0 - 1.0 / s.horizon, s.timed * s.actions
    found = parameters.theorem(
        min(s.epsilon / 4.0, 0.99 * s.horizon),
        gamma,
        num_actions=s.actions,
        W=parameters.aggregation_W(dim, gamma),
        gain=parameters.gain_bound("finite", dim),
        intrinsic_dim=float(dim),
        delta=s.delta,
    ).corrected
    return found.steps_total + found.steps_choice


NONE = Theorem("none from s0 alone: restarts must cover the states")
WAITS = Theorem("A^L at least, where one path of L right actions pays", lambda s: float(s.actions) ** s.horizon, True)

THEOREMS: dict[str, Theorem] = {
    "e3": Theorem("S_L^5 A L^10 / eps^5", lambda s: s.timed**5 * s.actions * s.horizon**10 / s.epsilon**5 * s.log),
    "r-max": Theorem("S_L^4 A L^5 / eps^4", lambda s: s.timed**4 * s.actions * s.horizon**5 / s.epsilon**4 * s.log),
    "ucrl2": regret("L^4 S_L^2 A / eps^2", lambda s: s.horizon**2 * s.timed**2 * s.actions),
    "ucbvi": regret("L^5 S A / eps^2", lambda s: s.horizon**3 * s.states * s.actions),
    "ucbvi-bernstein": regret("L^4 S A / eps^2", lambda s: s.horizon**2 * s.states * s.actions),
    "psrl": regret("L^4 S^2 A / eps^2 (Bayesian)", lambda s: s.horizon**2 * s.states**2 * s.actions),
    "rlsvi": regret("L^7 W^3 A / eps^2", lambda s: s.horizon**5 * s.width**3 * s.actions),
    "optimistic-psrl": regret("L^4 S_L^2 A / eps^2", lambda s: s.horizon**2 * s.timed**2 * s.actions),
    "epsilon-greedy-q": WAITS,
    "delayed-q": Theorem("S_L A L^8 / eps^4", lambda s: s.timed * s.actions * s.horizon**8 / s.epsilon**4 * s.log),
    "ucb-q": regret("L^6 W A / eps^2", lambda s: s.horizon**4 * s.width * s.actions),
    "ucb-q-bernstein": regret("L^5 W A / eps^2", lambda s: s.horizon**3 * s.width * s.actions),
    "aggregated-q": regret("L^6 W A / eps^2", lambda s: s.horizon**4 * s.width * s.actions),
    "kwik": Theorem(
        "S_L W A L^6 / eps^3", lambda s: s.timed * s.width * s.actions * s.horizon**6 / s.epsilon**3 * s.log
    ),
    "reinforce": WAITS,
    "npg": WAITS,
    "md-mpi": WAITS,
    "oppo": regret("L^5 (W^2 A)^2 / eps^2", lambda s: s.horizon**3 * (s.width**2 * s.actions) ** 2),
    "pomd": regret("L^5 W^2 A / eps^2", lambda s: s.horizon**3 * s.width**2 * s.actions),
    "pcpg": Theorem("the corrected theorem's steps, d = S_L A", _pcpg),
    "lsvi-ucb": regret("L^5 (W A)^3 / eps^2", lambda s: s.horizon**3 * (s.width * s.actions) ** 3),
    "cpi": NONE,
    "psdp": NONE,
}
BESIDE: dict[str, Theorem] = {  # exploration without reward: episodes times L, for every reward at once
    "rf-express": Theorem(
        "L^4 W A (W + log) / eps^2", lambda s: s.horizon**4 * s.width * s.actions * (s.width + s.log) / s.epsilon**2
    ),
    "rf-lsvi": Theorem(
        "L^7 (W A)^3 / eps^2", lambda s: s.horizon**7 * (s.width * s.actions) ** 3 * s.log / s.epsilon**2
    ),
}
