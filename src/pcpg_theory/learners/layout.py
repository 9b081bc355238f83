"""The knowledge and data of a learner: the layout of an episodic problem, episodes, and the protocol of learners.

An episode has L decisions and starts at s0. An observed state has its time in it, so states lie in layers 0 .. L, and
layer L is what is seen after the last decision. A state is met at most once in an episode; what a learner does with
one step can therefore change its play in later episodes only, and learning after each episode, all steps at once, is
the same as learning after each step. That is why one interface serves learners of both kinds.

| symbol | name         | meaning                                                                          |
|--------|--------------|----------------------------------------------------------------------------------|
| n      | n            | seeds, the leading axis of every array: all step together, none sees another     |
| B      | batch        | episodes that a learner asks for between two updates                             |
| L      | horizon      | decisions of an episode                                                          |
| S, A   | num_states.. | decision states (layers 0 .. L-1) and actions                                    |
| W      | width        | the most states in a layer: successors are numbered within the next layer        |

Rewards are in [0, 1]. So no value exceeds the number of decisions that remain, `Layout.remaining`: optimistic
learners are cut there, where their papers cut at H, which is never less.
"""

from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from pcpg_theory.mdp import Array, Index


@dataclass(frozen=True, eq=False)
class Layout:
    """The layers of observed states: those of step h are numbered first[h] .. first[h + 1] - 1."""

    first: tuple[int, ...]  # L + 2 entries
    num_actions: int
    shared: Index  # [S] equal numbers for states that differ only in their time: learners of stationary models use it

    @property
    def horizon(self) -> int:
        """The number of decisions of an episode."""
        return len(self.first) - 2

    @property
    def num_states(self) -> int:
        """The number of states in which a decision is taken."""
        return self.first[-2]

    @property
    def num_shared(self) -> int:
        """The number of states, time left out."""
        return int(self.shared.max()) + 1

    @property
    def width(self) -> int:
        """The most states in a layer."""
        return int(np.diff(self.first).max())

    @property
    def layer(self) -> Index:
        """The step of each decision state, [S]."""
        return np.repeat(np.arange(self.horizon), np.diff(self.first)[:-1])

    @property
    def remaining(self) -> Array:
        """The number of decisions that remain in each state of layers 0 .. L, the largest value it can have."""
        return np.repeat(np.arange(self.horizon, -1.0, -1.0), np.diff(self.first))

    def backward(self) -> Iterator[tuple[slice, slice]]:
        """Yield the states of a step and those of the next one, from the last step to the first."""
        for h in range(self.horizon - 1, -1, -1):
            yield slice(self.first[h], self.first[h + 1]), slice(self.first[h + 1], self.first[h + 2])


class Episodes(NamedTuple):
    """The observations in a batch of episodes."""

    s: Index  # [n, B, L + 1] states
    a: Index  # [n, B, L] actions
    r: Array  # [n, B, L] rewards in [0, 1]


class Mixture(NamedTuple):
    """Policies of which each step of each episode follows its own; states hold their time, so they can take turns."""

    policies: Array  # [n, m, S, A]
    which: Index  # [n, B, L]


class EpisodicLearner(Protocol):
    """A learner of n seeds in parallel; it holds no environment, so every sample it sees was counted."""

    @property
    def batch(self) -> int:
        """The number of episodes of each seed that `learn` is given next."""
        ...

    def policy(self) -> Array:
        """The current policies [n, S, A], which are scored."""
        ...

    def behaviour(self) -> Array | Mixture:
        """What plays the next episodes: policies [n, S, A] for all of them, or a mixture for each step of each.

        They differ from the scored ones where a learner adds noise to explore, or rolls in with other policies.
        """
        ...

    def learn(self, episodes: Episodes) -> None:
        """Take in a batch of episodes of the behaviour."""
        ...


class Ask(NamedTuple):
    """A request for episodes; awaiting it gives them."""

    behaviour: Array | Mixture
    batch: int

    def __await__(self) -> Generator["Ask", Episodes, Episodes]:
        return (yield self)


class Waiting:
    """The interface of a learner that is one endless coroutine: it awaits episodes (`Ask`) from the runner."""

    def begin(self, algorithm: Coroutine[Ask, Episodes | None, None]) -> None:
        """Run the coroutine up to the first episodes that it needs."""
        self._algorithm, self._ask = algorithm, algorithm.send(None)

    @property
    def batch(self) -> int:
        """The number of episodes that the algorithm waits for."""
        return self._ask.batch

    def behaviour(self) -> Array | Mixture:
        """The policies of the episodes that the algorithm waits for."""
        return self._ask.behaviour

    def learn(self, episodes: Episodes) -> None:
        """Continue with these episodes up to the next ones that are needed."""
        self._ask = self._algorithm.send(episodes)


class Streams:
    """Random numbers for n seeds, each from its own generator: a seed's numbers do not depend on its neighbours."""

    def __init__(self, seeds: Sequence[int], salt: int) -> None:
        self._generators = [np.random.default_rng([salt, seed]) for seed in seeds]

    @property
    def n(self) -> int:
        """The number of seeds."""
        return len(self._generators)

    def take(self, which: Index) -> "Streams":
        """The streams of these seeds; they go on where these streams are, and these where they leave off."""
        some = Streams([], 0)
        some._generators = [self._generators[i] for i in which]
        return some

    def uniform(self, *shape: int) -> Array:
        """Uniform numbers [n, *shape]."""
        return np.stack([rng.random(shape) for rng in self._generators])

    def normal(self, *shape: int) -> Array:
        """Standard normal numbers [n, *shape]."""
        return np.stack([rng.standard_normal(shape) for rng in self._generators])

    def gamma(self, shapes: Array) -> Array:
        """Gamma(shape, 1) numbers for shape parameters [n, ...]."""
        return np.stack([rng.standard_gamma(each) for rng, each in zip(self._generators, shapes, strict=True)])


Maker = Callable[[Layout, Streams], EpisodicLearner]
