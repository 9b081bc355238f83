"""All transitions of a seed in flat arrays, and the minibatches that are drawn from them.

Episodes lie one after the other. An episode of k steps has k + 1 observations, so the observations of transition i of
episode e are rows i + e and i + e + 1. Nothing is numbered or compared: a step costs the same whatever is kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from pcpg.envs.spaces import Box, Space
from pcpg.learners.off_policy import Minibatch

LARGE = 1e9
"""No target lies below minus this much."""
CHANCE, EXPLORER, TASK, SURE = range(4)
"""Who played an episode: nobody yet, the explorer, the task policy with and without noise."""


class Episodes(NamedTuple):
    """The episodes of one round, as they are written once to the run folder."""

    observations: np.ndarray  # [steps + episodes, ...]
    action: np.ndarray  # [steps, ...] as the environment takes them
    reward: np.ndarray  # [steps] float32
    terminated: np.ndarray  # [steps] bool
    lengths: np.ndarray  # [episodes] int32
    players: np.ndarray  # [episodes] int8

    @classmethod
    def of_part(cls, part: Mapping[str, np.ndarray]) -> Self:
        """The episodes in the part that a round wrote."""
        return cls(*(part[f".episodes.{name}"] for name in cls._fields))

    @classmethod
    def of(cls, played: Any, players: np.ndarray) -> Self:
        """Those of a rollout [T, E, ...]."""
        alive = np.asarray(played.alive)
        lengths = alive.sum(axis=0).astype(np.int32)
        ends = list(enumerate(lengths.tolist()))

        def of_steps(column: Any, kind: Any) -> np.ndarray:
            return np.concatenate([np.asarray(column)[:end, episode] for episode, end in ends]).astype(kind, copy=False)

        seen = np.asarray(played.observations)
        return cls(
            np.concatenate([seen[: end + 1, episode] for episode, end in ends]),
            of_steps(played.actions, np.asarray(played.actions).dtype),
            of_steps(played.rewards, np.float32),
            of_steps(played.terminated, bool),
            lengths,
            players.astype(np.int8),
        )


class Transitions:
    """All transitions of a seed. It only ever grows."""

    def __init__(self, seen: Space, space: Space) -> None:
        self.space = space
        self.size = self.rows = self.count = 0  # transitions, observations, episodes
        self._columns: dict[str, np.ndarray] = {
            "observations": np.zeros((0, *seen.shape), seen.dtype),
            "action": np.zeros((0, *space.shape), space.dtype),
            "reward": np.zeros(0, np.float32),
            "terminated": np.zeros(0, bool),
            "episode": np.zeros(0, np.int32),  # of each transition
            "end": np.zeros(0, np.int64),  # of each transition: where its episode ends
            "start": np.zeros(0, np.int64),  # of each episode: its first transition
            "lengths": np.zeros(0, np.int32),
            "players": np.zeros(0, np.int8),
        }

    def add(self, new: Episodes) -> None:
        """Keep the episodes of a round."""
        lengths = new.lengths.astype(np.int64)
        ends = self.size + np.cumsum(lengths)
        episodes = np.arange(self.count, self.count + len(lengths), dtype=np.int32)
        self._put("observations", self.rows, new.observations)
        for name in ("action", "reward", "terminated"):
            self._put(name, self.size, getattr(new, name))
        self._put("episode", self.size, np.repeat(episodes, lengths))
        self._put("end", self.size, np.repeat(ends, lengths))
        self._put("start", self.count, ends - lengths)
        self._put("lengths", self.count, new.lengths)
        self._put("players", self.count, new.players)
        self.size, self.rows = int(self.size + lengths.sum()), self.rows + len(new.observations)
        self.count += len(lengths)

    def _put(self, name: str, at: int, values: np.ndarray) -> None:
        column, end = self._columns[name], at + len(values)
        if end > len(column):
            more = np.zeros((max(end, 2 * len(column), 1024), *column.shape[1:]), column.dtype)
            more[:at] = column[:at]
            self._columns[name] = column = more
        column[at:end] = values

    def column(self, name: str) -> np.ndarray:
        """One entry of all transitions."""
        return self._columns[name][: self.size]

    def each(self, name: str) -> np.ndarray:
        """One entry of all episodes."""
        return self._columns[name][: self.count]

    @property
    def observations(self) -> np.ndarray:
        """All observations, the last ones of episodes included."""
        return self._columns["observations"][: self.rows]

    def landing_rows(self, places: np.ndarray) -> np.ndarray:
        """The rows of the observations that followed."""
        return places + self.column("episode")[places] + 1

    @property
    def first_observations(self) -> np.ndarray:
        """Where each episode began."""
        return self.observations[self.each("start") + np.arange(self.count)]

    def by_episode(self, values: np.ndarray, how: np.ufunc) -> np.ndarray:
        """The sum or maximum of some values over each episode."""
        return how.reduceat(values, self.each("start")) if self.count else np.zeros(0)

    def discounted(self, reward: np.ndarray, gamma: float) -> np.ndarray:
        """The discounted sum of some rewards over each episode."""
        powers = gamma ** np.arange(self.each("lengths").max(initial=0))  # one for every transition would be slow
        ahead = np.arange(self.size) - np.repeat(self.each("start"), self.each("lengths"))
        return self.by_episode(reward * powers[ahead], np.add)

    def relabelled(self, reward: np.ndarray, terminated: np.ndarray | None) -> "Transitions":
        """A copy with another reward, and other ends where there are some: nothing behind one counts before it."""
        made = Transitions.__new__(Transitions)
        made.__dict__ = self.__dict__ | {"_columns": {name: one.copy() for name, one in self._columns.items()}}
        made._columns["reward"] = np.asarray(reward, np.float32)
        made._columns["terminated"] = (self.column("terminated") if terminated is None else terminated).copy()
        if terminated is not None:
            stops = np.where(terminated, np.arange(1, self.size + 1), self.size)
            made._columns["end"] = np.minimum(self.column("end"), np.minimum.accumulate(stops[::-1])[::-1])
        return made

    def logged(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Observations [t + 1], actions, rewards, and how it ended, of each episode."""
        for episode, (start, length) in enumerate(zip(self.each("start"), self.each("lengths"), strict=True)):
            steps = slice(int(start), int(start + length))
            terminated = self.column("terminated")[steps]
            truncated = np.zeros(len(terminated), bool)
            truncated[-1:] = ~terminated[-1:]
            seen = self.observations[steps.start + episode : steps.stop + episode + 1]
            yield seen, self.column("action")[steps], self.column("reward")[steps], terminated, truncated

    def ahead(self, places: np.ndarray, n: int) -> np.ndarray:
        """How many of the next n steps there are before the end of the episode."""
        return np.minimum(n, self.column("end")[places] - places)

    def returns(self, places: np.ndarray, n: int, gamma: float, reward: np.ndarray) -> np.ndarray:
        """The discounted sum of n rewards from these places on; `reward` is that of all transitions."""
        ahead, total = self.ahead(places, n), np.zeros(places.shape, np.float32)
        for k in range(n):
            step = places + np.minimum(k, ahead - 1)
            total += np.where(k < ahead, np.float32(gamma**k) * reward[step], np.float32(0.0))
        return total

    def earned(self, reward: np.ndarray, gamma: float) -> np.ndarray:
        """The discounted sum of some rewards from each transition to the end of its episode."""
        found, starts, lengths = np.zeros(self.size, np.float32), self.each("start"), self.each("lengths")
        order = np.argsort(-lengths, kind="stable")
        counts = np.searchsorted(-lengths[order], -np.arange(1, lengths.max(initial=0) + 1), side="right")
        value, going = np.zeros(self.count, np.float32), np.float32(gamma) * ~self.column("terminated")
        for k in range(len(counts) - 1, -1, -1):  # all episodes of more than k steps at once
            which = order[: counts[k]]
            places = starts[which] + k
            found[places] = value[which] = reward[places] + going[places] * value[which]
        return found

    def minibatch(
        self,
        places: np.ndarray,
        n: int,
        gamma: float,
        returns: np.ndarray,
        noise: np.ndarray,
        floors: np.ndarray | None = None,
        cloned: int = 0,
    ) -> Minibatch:
        """The transitions at these places, n steps each, with their returns; the first `cloned` ones are imitated."""
        flat = places.reshape(-1)
        ahead, episode = self.ahead(flat, n), self.column("episode")[flat]
        last = flat + ahead - 1
        live = ~self.column("terminated")[last]
        discounts = (gamma**ahead * live).astype(np.float32)
        seen = self._columns["observations"]
        shaped = places.shape
        return Minibatch(
            seen[flat + episode].reshape(*shaped, *seen.shape[1:]),
            self._inside(self.column("action")[flat]).reshape(*shaped, *self.space.shape),
            returns,
            discounts.reshape(shaped),
            seen[last + episode + 1].reshape(*shaped, *seen.shape[1:]),
            np.full(shaped, -LARGE, np.float32) if floors is None else floors[places],
            np.broadcast_to(np.arange(shaped[-1]) < cloned, shaped).astype(np.float32),
            noise,
        )

    def _inside(self, actions: np.ndarray) -> np.ndarray:
        """Real actions in [-1, 1]."""
        if not isinstance(self.space, Box):
            return actions
        middle, half = (self.space.high + self.space.low) / 2, (self.space.high - self.space.low) / 2
        return np.clip((actions - np.float32(middle)) / np.float32(half), -1.0, 1.0)
