"""All transitions of a seed, in order of arrival, and a sample for fits.

Each distinct observation is stored once and numbered; a transition consists of numbers. The sample is drawn when data
arrive: a pair (s, a) is chosen with probability min(1, c b(s, a)), b its bonus at that time, and has the inverse as its
weight (online leverage sampling). So new pairs are always in the sample, known ones grow as a logarithm, and weighted
sums over it estimate those over all data without bias.
"""

import copy
import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

ENOUGH = 3
"""Good transitions from which a task can be learned."""


class Stream(enum.IntEnum):
    """The random streams of a seed that keeps its data.

    PLAY and THINNED share a number. A number of its own would change the kept results of both cars, the only ones whose
    fits are thinned: it comes when their experiments are run again.
    """

    POOL = 1  # transitions of a fit
    SAMPLE = 2  # transitions that enter the sample
    ROLL_IN = 3  # members and lengths
    PLAY = 4  # actions and noise of episodes on the host
    WEIGHTS = 5  # of an encoder
    LEARN = 6  # transitions that an encoder is trained on
    THINNED = 4  # transitions of a fit that has too many observations


class Draws(NamedTuple):
    """The random numbers of one round of a seed."""

    seed: int
    round: int

    def of(self, stream: Stream) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.round, stream])


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

    @classmethod
    def of_part(cls, part: Mapping[str, np.ndarray]) -> Self:
        """The batch in the part that a round wrote."""
        return cls(*(part[f".batch.{name}"] for name in cls._fields))


class Sample(NamedTuple):
    """Transitions for fits, by their index among the kept ones, and the inverse of their probability."""

    places: np.ndarray  # int64 [k]
    weight: np.ndarray  # float32 [k]

    def joined(self, places: np.ndarray, weight: np.ndarray) -> "Sample":
        """The sample with more transitions."""
        return Sample(np.concatenate([self.places, places]), np.concatenate([self.weight, weight.astype(np.float32)]))


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
        self.ignored = ignored  # entries of an observation that are stored as zeros, so the others repeat
        self.listed = np.zeros(0, np.int64)  # of observations, by number: their rows where all are listed (`Listed`)
        self._ends: np.ndarray | None = None  # under the reward of then, where there is another now
        self._is_shared = False  # with one under another reward: copied before it grows
        self._observations = np.zeros((256, *shape), dtype)
        self._numbers: dict[bytes, int] = {}
        kinds = np.int32, np.int32, np.int32, np.float32, bool, bool, bool
        self._columns = {name: np.zeros(4096, kind) for name, kind in zip(Batch._fields[1:], kinds, strict=True)}

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
        """Where an episode ended when it was played, independent of the current reward."""
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
        """The return from each transition to the end of its episode."""
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
        code, action = self.column("code").astype(np.int64), self.column("action")
        pair = code * (int(action.max(initial=0)) + 1) + action
        key = pair * max(len(self._numbers), 1) + self.column("next_code")
        _, one, kind = np.unique(key, return_index=True, return_inverse=True)
        return one, kind

    def restore(self, batch: Batch) -> None:
        """Keep a round that was read from disk."""
        self.numbers_of(batch.observations)
        self.add(batch)

    def _own(self) -> None:
        """Copy the arrays, which a relabelled instance shares with its original."""
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


class Listed:
    """All observations of an instance, where they can be listed, as vectors; an observation is found by its bytes."""

    def __init__(self, observations: np.ndarray) -> None:
        self.observations = observations
        self.x = vectors_of(observations)
        self._row: dict[bytes, int] = {}
        for row, observation in enumerate(observations):
            self._row.setdefault(observation.tobytes(), row)

    def rows(self, kept: Kept) -> np.ndarray:
        """The row of each kept observation; those known from before are not looked up again."""
        new = kept.observations[len(kept.listed) :]
        if len(new):
            rows = [self._row[observation.tobytes()] for observation in new]
            kept.listed = np.concatenate([kept.listed, np.array(rows, np.int64)])
        return kept.listed


def rows_of(kept: Kept, codes: np.ndarray, listed: Listed | None) -> tuple[np.ndarray, np.ndarray]:
    """A table of observations, and the row of each code: all there are where they are listed, else those asked for."""
    if listed is not None:
        return listed.x, listed.rows(kept)[codes]
    distinct, rows = np.unique(codes, return_inverse=True)
    return table_of_rows(kept.observations[distinct]), rows


def vectors_of(observations: np.ndarray) -> np.ndarray:
    """Observations as vectors [U, size]; pictures in [0, 1]."""
    size = int(np.prod(observations.shape[1:], dtype=int))
    x = observations.reshape(len(observations), size).astype(np.float32)
    return x / np.float32(255.0) if observations.dtype == np.uint8 else x


def table_of_rows(observations: np.ndarray) -> np.ndarray:
    """Observations as vectors [U, size], padded with zero rows to a power of two, so that few programs are compiled."""
    x = vectors_of(observations)
    room = max(64, 1 << max(len(x) - 1, 0).bit_length())
    return np.concatenate([x, np.zeros((room - len(x), x.shape[1]), np.float32)])
