"""The transitions that a seed keeps: all of them, in the order in which they came, and a sample that fits draw from.

An observation is kept once and has a number; a transition is numbers. The sample is drawn when data arrive: a pair
(s, a) is chosen with probability min(1, c b(s, a)), b its bonus at that time, and weighs the inverse (online leverage
sampling). So what is new is always in it, what is known grows in it as a logarithm, and weighted sums over it estimate
those over all data without bias.
"""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

ENOUGH = 3
"""Good transitions from which a task can be learned."""


class Batch(NamedTuple):
    """The transitions of one round, as they are written once to the run folder."""

    observations: np.ndarray  # [n, ...] that no earlier round had met
    code: np.ndarray  # [k] int32, number of the observation
    next_code: np.ndarray  # [k] int32
    action: np.ndarray  # [k] int32, number of the candidate
    reward: np.ndarray  # [k] float32
    terminated: np.ndarray  # [k] bool
    truncated: np.ndarray  # [k] bool: a time limit cut the episode there
    first: np.ndarray  # [k] bool: the first step of an episode


def without(observations: np.ndarray, ignored: tuple[int, ...]) -> np.ndarray:
    """Observations [n, ...] with zeros for the entries that are ignored, as they are kept."""
    if not ignored:
        return observations
    left = observations.copy()
    left.reshape(len(left), int(np.prod(left.shape[1:], dtype=int)))[:, list(ignored)] = 0
    return left


class Kept:
    """All transitions of a seed. It only ever grows: exploration ends before its capacity is exceeded."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, ignored: tuple[int, ...] = ()) -> None:
        self.size = 0  # transitions so far
        self.ignored = ignored  # entries of an observation that are kept as zeros, so that the others come again
        self.listed = np.zeros(0, np.int64)  # of observations, by number: their rows where all are listed (`Listed`)
        self._ends: np.ndarray | None = None  # under the reward of then, where there is another now
        self._is_shared = False  # with one under another reward: copied before it grows
        self._observations = np.zeros((256, *shape), dtype)
        self._numbers: dict[bytes, int] = {}
        self._columns = {
            name: np.zeros(4096, kind)
            for name, kind in {
                "code": np.int32,
                "next_code": np.int32,
                "action": np.int32,
                "reward": np.float32,
                "terminated": bool,
                "truncated": bool,
                "first": bool,
            }.items()
        }

    @property
    def observations(self) -> np.ndarray:
        """All observations met, by number."""
        return self._observations[: len(self._numbers)]

    def column(self, name: str) -> np.ndarray:
        """One entry of all transitions there are."""
        return self._columns[name][: self.size]

    def numbers_of(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each observation [n], and those that are new, which are added."""
        self._own()
        size = int(np.prod(observations.shape[1:], dtype=int))
        flat = np.ascontiguousarray(observations).reshape(len(observations), size)
        rows = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).reshape(-1)
        distinct, where, inverse = np.unique(rows, return_index=True, return_inverse=True)
        numbers, new = np.empty(len(distinct), np.int64), []
        for index in np.argsort(where):  # in the order of their first appearance
            name = distinct[index].tobytes()
            if name not in self._numbers:
                self._numbers[name] = len(self._numbers)
                new.append(where[index])
            numbers[index] = self._numbers[name]
        added = observations[new]
        self._add_observations(added)
        return numbers[inverse.reshape(-1)].astype(np.int32), added

    @property
    def is_acted_in(self) -> np.ndarray:
        """By number of the observation, whether an action was ever taken there."""
        acted = np.zeros(len(self._numbers), bool)
        acted[self.column("code")] = True
        return acted

    @property
    def has_success(self) -> bool:
        """Whether something good was met often enough to learn: rewards above 0, or ends where every step costs."""
        rewards = self.column("reward")
        if rewards.max(initial=-np.inf) >= 0:
            return int(np.count_nonzero(rewards > 0)) >= ENOUGH
        ends = int(np.count_nonzero(self.column("terminated")))
        if ends >= ENOUGH and not self.column("truncated").any():  # the time limit may be called an end too
            lengths = [len(places) for places in self.episodes()]
            ends = sum(length < max(lengths) for length in lengths)
        return ends >= ENOUGH

    def first_codes(self, number: int) -> np.ndarray:
        """Observations at which the newest episodes began, `number` of them, repeated where they are fewer."""
        begun = np.unique(self.column("code")[self.column("first")][-number:])
        return np.resize(begun, number)

    def some_vectors(self, most: int = 5000) -> np.ndarray:
        """Distinct observations as rows of real numbers, at most so many: the scale of features follows from them."""
        some = self.observations
        if len(some) > most:
            some = some[np.sort(np.random.default_rng(len(some)).choice(len(some), most, replace=False))]
        x = some.reshape(len(some), int(np.prod(some.shape[1:], dtype=int))).astype(np.float64)
        return x / 255.0 if some.dtype == np.uint8 else x

    def batch_of(self, played: Any) -> Batch:
        """The transitions of some episodes [T, E, ...], their observations numbered; they are not kept yet."""
        alive = np.asarray(played.alive)
        here, after = np.asarray(played.observations[:-1])[alive], np.asarray(played.observations[1:])[alive]
        numbers, new = self.numbers_of(without(np.concatenate([here, after]), self.ignored))
        first = np.zeros(alive.shape, bool)
        first[0] = True
        columns = (played.actions, played.rewards, played.terminated, played.truncated, first)
        action, reward, terminated, truncated, first = (np.asarray(column)[alive] for column in columns)
        code, next_code = np.split(numbers, 2)
        return Batch(new, code, next_code, action.astype(np.int32), reward, terminated, truncated, first)

    def add(self, batch: Batch) -> None:
        """Keep the transitions of a round; its observations are known by number already."""
        self._own()
        end = self.size + len(batch.code)
        for name, column in self._columns.items():
            if end > len(column):
                column = np.concatenate([column, np.zeros(max(end - len(column), len(column)), column.dtype)])
                self._columns[name] = column
            column[self.size : end] = getattr(batch, name)
        if self._ends is not None:
            self._ends = np.concatenate([self._ends, batch.terminated | batch.truncated])
        self.size = end

    @property
    def ends(self) -> np.ndarray:
        """Where an episode was over when it was played, whatever the reward is now."""
        return self.column("terminated") | self.column("truncated") if self._ends is None else self._ends

    def blocks(self) -> Iterator[slice]:
        """The transitions that were made at the same time, one of each episode still alive, in the order of time."""
        ends, at = self.ends, 0
        later = np.append(np.flatnonzero(~self.column("first")), self.size)  # where no episode begins
        while at < self.size:
            width = int(later[np.searchsorted(later, at)]) - at  # as many episodes begin together
            while width:
                block = slice(at, at + width)
                yield block
                at, width = block.stop, width - int(np.count_nonzero(ends[block]))

    def episodes(self) -> list[np.ndarray]:
        """The places of the transitions of each episode, in the order in which episodes began."""
        number, begun, ends = np.zeros(self.size, np.int64), 0, self.ends
        alive = np.zeros(0, np.int64)
        for block in self.blocks():
            if self.column("first")[block.start]:
                alive = begun + np.arange(block.stop - block.start)
                begun += len(alive)
            number[block] = alive
            alive = alive[~ends[block]]
        order = np.argsort(number, kind="stable")
        return np.split(order, np.cumsum(np.bincount(number, minlength=begun))[:-1]) if begun else []

    def returns_to_go(self) -> np.ndarray:
        """What each transition and those after it in its episode earned together."""
        earned, ends, terminated = self.column("reward").astype(np.float64), self.ends, self.column("terminated")
        later = np.zeros(0)  # what the block after it earned
        for block in reversed(list(self.blocks())):
            goes_on = ~ends[block]
            earned[block][goes_on] += later[: np.count_nonzero(goes_on)] * ~terminated[block][goes_on]
            later = earned[block]
        return earned

    def relabelled(self, reward: np.ndarray, terminated: np.ndarray | None) -> "Kept":
        """The same transitions under another reward; everything else is shared."""
        other = copy.copy(self)
        other._ends, other._is_shared = self.ends, True
        ends = self.column("terminated") if terminated is None else terminated
        other._columns = self._columns | {"reward": reward.astype(np.float32), "terminated": ends}
        return other

    def of_every_pair(self, most: int) -> np.ndarray:
        """Places of at most so many transitions of each pair (observation, action), evenly spaced over time."""
        pair = self.column("code").astype(np.int64) * (1 << 20) + self.column("action")
        order = np.argsort(pair, kind="stable")
        _, start, count = np.unique(pair[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(start, count)
        total = np.repeat(count, count)
        chosen = (rank * most) // total != ((rank - 1) * most) // total
        return np.sort(order[chosen | (total <= most)])

    def kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """The place of one transition of each kind (observation, action, next observation), and the kind of each."""
        key = self.column("code").astype(np.int64) * (int(self.column("action").max(initial=0)) + 1) + self.column(
            "action"
        )
        key = key * max(len(self._numbers), 1) + self.column("next_code")
        _, one, kind = np.unique(key, return_index=True, return_inverse=True)
        return one, kind

    def restore(self, batch: Batch) -> None:
        """Keep a round that was read from disk."""
        self.numbers_of(batch.observations)
        self.add(batch)

    def _own(self) -> None:
        """Have arrays of its own: those of a relabelled one are those of the data it was made from."""
        if not self._is_shared:
            return
        self._is_shared, self._numbers, self._observations = False, dict(self._numbers), self.observations.copy()
        self._columns = {name: column[: self.size].copy() for name, column in self._columns.items()}
        self.listed = self.listed.copy()

    def _add_observations(self, new: np.ndarray) -> None:
        end = len(self._numbers)
        if end > len(self._observations):
            room = np.zeros((max(end, 2 * len(self._observations)), *self._observations.shape[1:]), new.dtype)
            room[: len(self._observations)] = self._observations
            self._observations = room
        if len(new):
            self._observations[end - len(new) : end] = new
