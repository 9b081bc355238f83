"""The certificate from data alone for runs of the theory: the moves that the run itself paid for, and nothing else."""

from typing import NamedTuple

import numpy as np

from pcpg_theory.mdp import Array, Index, TabularMDP
from pcpg_theory.optimism import Data, Range, bernstein, optimism
from pcpg_theory.samplers import Policies, Simulator, discounted_sums, reset

TAIL = 1e-4


class Recorder(Simulator):
    """A simulator that keeps count of its moves; those in terminal states are no steps.

    `paid` [S, A, S] are rewards that depend on where a move leads; by default they are r.
    """

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator, paid: Array | None = None) -> None:
        super().__init__(mdp, rng)
        self._terminal = mdp.terminal
        self.paid = np.broadcast_to(mdp.r[..., None], mdp.P.shape) if paid is None else paid
        self.counts = np.zeros((*mdp.shape, mdp.num_states))
        self.order = [mdp.s0]  # states as they were met
        self._met = np.arange(mdp.num_states) == mdp.s0

    def move(self, s: Index, a: Index) -> Index:
        """The next state of each chain."""
        after, alive = super().move(s, a), ~self._terminal[s]
        place = (s * self.num_actions + a) * self.num_states + after
        self.counts += np.bincount(place[alive], minlength=self.counts.size).reshape(self.counts.shape)
        new = after[alive & ~self._met[after] & ~self._terminal[after]]
        self._met[new] = True
        self.order += dict.fromkeys(new.tolist())
        return after

    @property
    def number(self) -> Index:
        """Of each state, by when it was met; -1: never, or the end of an episode."""
        number = np.full(self.num_states, -1)
        number[self.order] = np.arange(len(self.order))
        return number

    def data(self) -> Data:
        """The moves by kind; terminal states are ends of episodes."""
        number, (s, a, y) = self.number, np.nonzero(self.counts)
        count, reward, start = self.counts[s, a, y], self.paid[s, a, y], np.zeros(1, np.int64)
        return Data(number[s], a, number[y], reward, count, start, np.ones(1), len(self.order), self.num_actions)


class FromMoves(NamedTuple):
    """V* - V^pi is at most `bound`, by V* at most `upper` and V^pi at least `lower`."""

    bound: float
    upper: float
    lower: float


def certify_moves(
    sim: Recorder, mdp: TabularMDP, pi: Array, delta: float, *, episodes: int = 2000, seed: int = 0
) -> FromMoves:
    """The certificate of a policy from the moves of its run and fresh episodes; the MDP itself is only played.

    Every chain begins in s0, which is the only start by definition, so nothing is estimated of it.
    """
    declared = Range(0.0, mdp.r_max).check()
    upper = float(optimism(sim.data(), declared, delta / 2.0, gamma=mdp.gamma).Q[0, 0].max())
    fresh, one, chains = Simulator(mdp, np.random.default_rng([11, seed])), Policies(pi), np.zeros(episodes, np.int64)
    sums = discounted_sums(fresh, one, chains, reset(fresh, one, chains), mdp.r, TAIL)  # what is cut is not negative
    lower = bernstein(sums, 0.0, declared.largest(1.0 / (1.0 - mdp.gamma)), delta / 2.0)
    return FromMoves(max(upper - lower, 0.0), upper, lower)
