"""The state of a seed between rounds: a ledger shared by all, and private state of its algorithm."""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pcpg.config import Json

EXPLORE, EXPLOIT, DONE = 0, 1, 2
PHASES = ("explore", "exploit", "done")

Own = TypeVar("Own", covariant=True)


class Ledger(NamedTuple):
    """The entries that every algorithm keeps, for the loop, budgets, the display, summaries and reports."""

    seed: np.ndarray  # uint32
    round: np.ndarray  # int32, rounds done
    phase: np.ndarray  # int32, index into PHASES
    phase_round: np.ndarray  # int32, rounds done in this phase
    env_steps: np.ndarray  # int64: roll-ins, covariances and evaluations all counted
    last_return: np.ndarray  # float64: mean return of the newest policy over its counted episodes
    best_return: np.ndarray  # float64, -inf before the first evaluation
    seen: np.ndarray  # bool [cells]: visited by a policy of some round so far; for reports alone

    @classmethod
    def start(cls, seed: int, num_cells: int) -> "Ledger":
        """A seed before its first round."""
        values = (seed, 0, EXPLORE, 0, 0, -np.inf, -np.inf, np.zeros(num_cells, bool))
        return cls(*(np.asarray(value, kind) for value, kind in zip(values, KINDS.values(), strict=True)))

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Ledger":
        """The ledger among the arrays of a seed's checkpoint."""
        return cls(*(arrays[f".{name}"] for name in cls._fields))

    def noted(self, **entries: object) -> "Ledger":
        """The ledger with other entries, in their types."""
        return self._replace(**{name: np.asarray(value, KINDS[name]) for name, value in entries.items()})


_NUMBERS = (np.uint32, np.int32, np.int32, np.int32, np.int64, np.float64, np.float64, np.bool_)
KINDS = dict(zip(Ledger._fields, _NUMBERS, strict=True))


class SeedState(NamedTuple, Generic[Own]):
    """Everything that changes in the training of one seed."""

    ledger: Ledger
    policy: Any  # the newest one
    best_policy: Any  # by mean return over counted episodes
    own: Own  # private to the algorithm: optimiser, cover, data

    @property
    def seed(self) -> int:
        return int(self.ledger.seed)

    @property
    def round(self) -> int:
        return int(self.ledger.round)

    @property
    def phase(self) -> int:
        return int(self.ledger.phase)

    @property
    def is_done(self) -> bool:
        return self.phase == DONE

    def noted(self, **entries: object) -> "SeedState[Own]":
        """The state with other entries in its ledger."""
        return self._replace(ledger=self.ledger.noted(**entries))

    def owning(self, **entries: object) -> "SeedState[Own]":
        """The state with other entries of the algorithm's own."""
        own: Any = self.own
        return self._replace(own=own._replace(**entries))


class Report(NamedTuple):
    """The report of one round of one seed."""

    metrics: Json  # reproducible
    part: object = None  # arrays written once and never again: a member of the cover, a batch of transitions


class NonFinite(RuntimeError):
    """A non-finite number appeared in training."""


SHARED = "*/"
"""The prefix of arrays in a member file that all seeds have."""


def of_seed(seed: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a seed in a checkpoint or a member file, by their names without it."""
    found = {}
    for prefix in (SHARED, f"{seed}/"):
        found |= {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return found


def weights_rng(seed: int, stream: int) -> np.random.Generator:
    """Draws initial weights: a stream apart from that of `env.instance(seed)`, which is `default_rng(seed)`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))
